use std::sync::Arc;

use crate::remote::{Ask, Failure, Replies, Reply, ServerHealth, ServerRun, Store};

use super::lease_pool::LEASES;
use super::policy::ScriptParams;
use super::scripts::{DECIDE, StateStamp, decode, encode};
use super::transport::{Connector, Transport};

/// The keys of a limit and the parameters of its scripts: one of each for every limit of an `All`.
#[derive(Clone, Debug)]
pub(super) struct RedisLimit {
    pub(super) keys: Arc<[String]>,
    pub(super) params: Arc<[ScriptParams]>,
}

/// More save little: the work for each key is then most of a call.
const MOST_KEYS: usize = 64;

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

    fn keys_per_call(&self) -> usize {
        match self {
            Self::Server(_) => MOST_KEYS,
            // The keys of one call have to be in one slot.
            #[cfg(feature = "redis-cluster")]
            Self::Cluster(_) => 1,
        }
    }

    async fn decide(
        connection: &Transport,
        _id: &str,
        health: &ServerHealth,
        asks: &[Ask<Self>],
    ) -> Result<Replies<Reply<Self>>, Failure> {
        let mut health = health.clone();
        // All limits of a connection have the same outage policy.
        if !asks.iter().any(|ask| ask.is_insured) {
            health.last_outage = 0..0;
        }
        let keys = asks.iter().flat_map(|ask| ask.limit.keys.iter());
        let keys: Vec<_> = keys.collect();
        let arg = encode(asks, &health);
        let reply: Vec<u8> = connection.run_script(&DECIDE, &keys, &arg[..]).await?;
        decode(&reply, asks).ok_or_else(|| Failure::Fault(format!("an answer of {reply:?}").into()))
    }
}
