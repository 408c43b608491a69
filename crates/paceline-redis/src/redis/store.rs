use core::time::Duration;

use paceline::policy::Status;

use crate::remote::{
    Ask, Change, Changes, Failure, LeaseCall, Replies, Reply, ServerHealth, ServerRun, Store,
};

use super::connector::Connector;
use super::overrides::{self, OVERRIDES};
use super::script_params::{Params, RedisLimit};
use super::scripts::{DECIDE, LEASES, StateStamp, decode, encode, encode_leases};
use super::transport::Transport;

/// More save little: the work for each key is then most of a call.
const MOST_KEYS: usize = 64;

impl Store for Connector {
    type Connection = Transport;
    type Limit = RedisLimit;
    type Params = Params;
    type Memory = Box<[StateStamp]>;

    async fn connect(&self) -> Result<Transport, Failure> {
        let opened = self.open().await?;
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
            #[cfg(feature = "cluster")]
            Self::Cluster { .. } => 1,
        }
    }

    fn params(limit: &RedisLimit) -> &Params {
        &limit.params
    }

    fn status(
        limit: &RedisLimit,
        scarcest: usize,
        remaining: u32,
        stamps: &Self::Memory,
        server_time: u64,
    ) -> Status {
        let params = &limit.params;
        let settles_at = stamps.get(scarcest).map_or(0, |stamp| stamp.settles_at);
        let reset_in = Duration::from_micros(settles_at.saturating_sub(server_time));
        let quota = params.get(scarcest).and_then(|params| params.quota);
        let status = Status::new(quota, remaining, reset_in);
        match params.len() {
            0 | 1 => status,
            _ => status.with_binding(scarcest),
        }
    }

    fn override_name(limit: &RedisLimit) -> String {
        overrides::name(limit.keys.first().map_or("", String::as_str))
    }

    async fn overrides(
        connection: &Transport,
        prefix: &str,
        since: (u64, bool),
        change: Option<(&str, &Change<Params>)>,
    ) -> Result<Changes<Params>, Failure> {
        let (keys, args) = (overrides::keys(prefix), overrides::encode(since, change));
        let call = connection.run_script(&OVERRIDES, &keys, &args);
        let at_keys = |failure: Failure| failure.at(&format!("the overrides in {}", keys[0]));
        let reply: Vec<Vec<u8>> = call.await.map_err(at_keys)?;
        let malformed = || Failure::Fault(format!("an answer of {reply:?}").into());
        overrides::decode(since.0, &reply)
            .ok_or_else(malformed)
            .map_err(at_keys)
    }

    async fn decide(
        connection: &Transport,
        prefix: &str,
        epoch: &mut u64,
        health: &ServerHealth,
        asks: &[Ask<Self>],
    ) -> Result<Replies<Reply<Self>>, Failure> {
        // Only limits with an insurance have to know of the last outage.
        let mut without_outage = health.clone();
        without_outage.last_outage = 0..0;
        let (mut time, mut replies) = (0, [Vec::new().into_iter(), Vec::new().into_iter()]);
        for (is_insured, health) in [(true, health), (false, &without_outage)] {
            let asks = asks.iter().filter(|ask| ask.is_insured == is_insured);
            let asks: Vec<_> = asks.collect();
            if asks.is_empty() {
                continue;
            }
            let keys = asks.iter().flat_map(|ask| ask.limit.keys.iter());
            let keys: Vec<_> = keys.collect();
            let arg = encode(&asks, health, *epoch);
            // The keys of one call to a cluster are in one slot, and the epoch is not.
            let prefix = connection.is_one_server().then_some(prefix);
            let args = (&arg[..], prefix);
            let reply: Vec<u8> = connection.run_script(&DECIDE, &keys, args).await?;
            let malformed = || Failure::Fault(format!("an answer of {reply:?}").into());
            let (read, (decided_at, decided)) = decode(&reply, &asks).ok_or_else(malformed)?;
            if read > 0 {
                *epoch = read;
            }
            time = decided_at;
            replies[usize::from(is_insured)] = decided.into_iter();
        }
        let reply_to = |ask: &Ask<Self>| replies[usize::from(ask.is_insured)].next();
        Ok((time, asks.iter().filter_map(reply_to).collect()))
    }

    async fn lease(connection: &Transport, call: &LeaseCall) -> Result<(u64, Vec<u64>), Failure> {
        let args = encode_leases(call);
        let numbers: Vec<u64> = connection.run_script(&LEASES, &call.keys, &args).await?;
        Ok((numbers.first().copied().unwrap_or(0), numbers))
    }
}
