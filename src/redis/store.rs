use std::sync::Arc;

use crate::remote::{Ask, Failure, Replies, Reply, ServerHealth, ServerRun, Store, Task};

use super::lease_script::LEASES;
use super::policy::ScriptParams;
use super::scripts::{ASK, DECIDE, DecideReply, GIVE_BACK, PEEK, StateStamp, decide_args};
use super::transport::{Connector, Transport};

/// The keys of a limit and the parameters of its scripts: one of each for every limit of an `All`.
#[derive(Clone, Debug)]
pub(super) struct RedisLimit {
    pub(super) keys: Arc<[String]>,
    pub(super) params: Arc<[ScriptParams]>,
}

impl Store for Connector {
    type Connection = Transport;
    type Limit = RedisLimit;
    type Memory = Box<[StateStamp]>;

    async fn connect(&self) -> Result<Transport, Failure> {
        let opened = Self::connect(self).await?;
        // Otherwise the first call would take a second round trip, and miss a tight deadline.
        opened.load([&DECIDE, &LEASES]);
        Ok(opened)
    }

    async fn server_time(connection: &Transport) -> Result<u64, Failure> {
        connection.server_time().await
    }

    async fn server_run(connection: &Transport) -> Option<ServerRun> {
        connection.server_run().await
    }

    fn settles_at(memory: &Self::Memory) -> u64 {
        let ends = memory.iter().map(|stamp| stamp.settles_at);
        ends.max().unwrap_or(0)
    }

    fn keys_per_call(&self) -> usize {
        1
    }

    async fn decide(
        connection: &Transport,
        id: &str,
        health: &ServerHealth,
        asks: &[Ask<Self>],
    ) -> Result<Replies<Reply<Self>>, Failure> {
        let mut replies = Vec::new();
        let mut time = 0;
        for ask in asks {
            let mut health = health.clone();
            if !ask.is_insured {
                health.last_outage = 0..0;
            }
            let stamps = match &*ask.memory {
                [] => vec![StateStamp::default(); ask.limit.params.len()],
                stamps => stamps.to_vec(),
            };
            let call = |task, asked: &[(u32, u32)], extra| {
                let limits = ask.limit.params.iter().zip(&stamps);
                decide_args(task, id.to_owned(), asked, extra, limits, &health)
            };
            for back in &ask.returns {
                let args = call(GIVE_BACK, &[], back.cost);
                connection
                    .run_script(&DECIDE, &ask.limit.keys, &args)
                    .await?;
            }
            let task = match ask.task {
                Task::Ask => ASK,
                Task::Peek => PEEK,
                Task::GiveBack => GIVE_BACK,
            };
            let args = call(task, &ask.asked, ask.extra);
            let numbers = connection
                .run_script(&DECIDE, &ask.limit.keys, &args)
                .await?;
            let reply = DecideReply::read(&numbers, ask.limit.params.len())
                .ok_or_else(|| Failure::Fault(format!("an answer of {numbers:?}").into()))?;
            time = u64::try_from(numbers[0]).unwrap_or(0);
            replies.push(Ok(Reply {
                counted_at: time,
                passed: reply.passed,
                extra: reply.extra,
                binding: usize::try_from(reply.binding)
                    .ok()
                    .and_then(|n| n.checked_sub(1)),
                retry_in: reply.retry_in,
                memory: reply.stamps.into(),
                lost: reply.lost,
            }));
        }
        Ok((time, replies))
    }
}
