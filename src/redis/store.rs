use std::sync::Arc;

use crate::remote::{Ask, Failure, Replies, Reply, ServerHealth, ServerRun, Store};

use super::connector::Connector;
use super::lease_pool::LEASES;
use super::policy::ScriptParams;
use super::scripts::{DECIDE, StateStamp, decode, encode};
use super::transport::Transport;

/// The keys of a limit and the parameters of its scripts: one of each for every limit of an `All`.
#[derive(Clone, Debug)]
pub(super) struct RedisLimit {
    pub(super) keys: Arc<[String]>,
    pub(super) params: Arc<[ScriptParams]>,
}

/// A call of the script that keeps leases.
#[derive(Debug)]
pub(super) struct LeaseCall {
    pub(super) keys: Arc<[String]>,
    pub(super) args: Vec<String>,
}

/// More save little: the work for each key is then most of a call.
const MOST_KEYS: usize = 64;

impl Store for Connector {
    type Connection = Transport;
    type Limit = RedisLimit;
    type Memory = Box<[StateStamp]>;
    type Leases = LeaseCall;
    type LeasesReply = Vec<i64>;

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
        match self {
            Self::Server(_) | Self::Sentinels { .. } => MOST_KEYS,
            // The keys of one call have to be in one slot.
            #[cfg(feature = "redis-cluster")]
            Self::Cluster { .. } => 1,
        }
    }

    async fn decide(
        connection: &Transport,
        health: &ServerHealth,
        asks: &[Ask<Self>],
    ) -> Result<Replies<Reply<Self>>, Failure> {
        // Only limits with an insurance have to know of the last outage.
        let mut without_outage = health.clone();
        without_outage.last_outage = 0..0;
        let (insured, others): (Vec<_>, Vec<_>) = asks.iter().partition(|ask| ask.is_insured);
        if insured.is_empty() {
            return run(connection, &without_outage, &others).await;
        }
        let (time, insured) = run(connection, health, &insured).await?;
        if others.is_empty() {
            return Ok((time, insured));
        }
        let (time, others) = run(connection, &without_outage, &others).await?;
        let (mut insured, mut others) = (insured.into_iter(), others.into_iter());
        let replies = asks.iter().filter_map(|ask| {
            let of_its_call = if ask.is_insured {
                &mut insured
            } else {
                &mut others
            };
            of_its_call.next()
        });
        Ok((time, replies.collect()))
    }

    async fn lease(connection: &Transport, leases: &LeaseCall) -> Result<(u64, Vec<i64>), Failure> {
        let call = connection.run_script(&LEASES, &leases.keys, &leases.args);
        let numbers: Vec<i64> = call.await?;
        let time = numbers.first().copied().unwrap_or(0);
        Ok((u64::try_from(time).unwrap_or(0), numbers))
    }
}

/// Decides in one call of the script.
async fn run(
    connection: &Transport,
    health: &ServerHealth,
    asks: &[&Ask<Connector>],
) -> Result<Replies<Reply<Connector>>, Failure> {
    let keys = asks.iter().flat_map(|ask| ask.limit.keys.iter());
    let keys: Vec<_> = keys.collect();
    let arg = encode(asks, health);
    let reply: Vec<u8> = connection.run_script(&DECIDE, &keys, &arg[..]).await?;
    decode(&reply, asks).ok_or_else(|| Failure::Fault(format!("an answer of {reply:?}").into()))
}
