//! Limits with their state in Redis or Valkey: one limit for a whole fleet (feature `redis`; `redis-cluster` for clusters too).
//!
//! ```
//! use futures::StreamExt;
//! use paceline::policy::SlidingLog;
//! use paceline::prelude::*;
//! use paceline::redis::{OutagePolicy, Redis};
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # // Where the tests run there is a server.
//! # if std::env::var_os("REDIS_URL").is_none() { return Ok(()); }
//! // Three replicas of this program share what the provider allows: 100 in any ten seconds.
//! let redis = Redis::open(&std::env::var("REDIS_URL")?, OutagePolicy::insured(3))?;
//! let limit = redis.limit("api", SlidingLog::new(100, Duration::from_secs(10)))?;
//!
//! // A stream, and a call in between.
//! let mut calls = futures::stream::iter(1..=50).pace(limit.clone());
//! limit.acquire(1).await?;
//! while let Some(call) = calls.next().await {
//!     println!("call {call}");
//! }
//! # assert!(redis.is_up());
//! # Ok(())
//! # }
//! ```
//!
//! A [`RedisLimiter`] is a [`Limiter`](crate::limiter::Limiter) like those in memory, and every adapter takes it. The policies are
//! the same too. Each has a twin in Lua that makes the same decisions: one atomic script for each round trip, on the *server's*
//! clock, so the clocks of the replicas need not agree. [`Keyed`] has a limit for each key, with the same parameters
//! ([`Redis::keyed`]) or by tier ([`Redis::keyed_by`]).
//!
//! | policy | in Redis | a decision takes |
//! |---|---|---|
//! | [`TokenBucket`](crate::policy::TokenBucket), [`Interval`](crate::policy::Interval) | one string | constant time |
//! | [`FixedWindow`](crate::policy::FixedWindow) | one string | constant time |
//! | [`SlidingCounter`](crate::policy::SlidingCounter) | one hash with a field for each bucket in use | time linear in the buckets |
//! | [`SlidingLog`](crate::policy::SlidingLog) | one sorted set with a member of about 135 bytes for each permit of a window | logarithmic time for each permit |
//! | [`All`](crate::policy::All) of several | one of those each, in one slot of a cluster | their sum; one round trip |
//!
//! Each key is named `prefix:{name}:policy` (for a [`Keyed`], `prefix:name:{key}:policy`) and expires when its state has settled: an
//! idle limit leaves nothing behind. Another policy under the same name has another key. Other *parameters* under the same name are
//! the same limit: as with [`retune`](crate::limiter::Shared::retune), what was spent stays spent, so a fleet can move to a new rate
//! replica by replica.
//!
//! # What a window at the provider holds
//!
//! After Redis counts a permit, the answer travels, for a deadline at most, and then its task is woken. A permit that is not fetched
//! within 100 ms of the answer is void. So a permit is used at most 125 ms after Redis counted it (100 ms and the deadline), and at
//! the provider the permits of two windows can come that much closer together. If that matters, make the window longer by as much,
//! and by the [margin for the network](crate#time) as with any limiter. Spacing, too, counts from the decision here, not from the
//! emission. [`prefetch`](RedisLimiter::prefetch) adds what it takes ahead.
//!
//! # Limits on concurrency
//!
//! [`RedisPermits`] limit how much is under way in a fleet. [`FleetUsage`] sheds load by that, with a reserve for critical work. Both
//! give a [`Lease`], which is renewed while its guard lives and expires if the process dies. A lease can be *lost*: its holder has
//! to [stop then](Lease#it-can-be-lost), or more is under way than the limit allows.
//!
//! # When Redis is slow or gone
//!
//! One deadline ([25 ms](Redis::with_deadline)) covers everything: connecting, sending, waiting for the answer. A circuit breaker
//! takes Redis for down after three consecutive failures, when half of the last sixteen calls failed, or when connecting fails. While
//! it is open no calls are made, and a task reconnects: at once, then after 20 ms, 40 ms and so on, up to each 250 ms, until a server
//! answers within the deadline. If the first call on the new connection fails, Redis is down again, and the pauses continue to grow.
//! Requests are not stored meanwhile, and no charge is repeated, because Redis may have counted it. The [`OutagePolicy`] decides what
//! passes:
//!
//! | | during an outage | choose it if |
//! |---|---|---|
//! | [`open`](OutagePolicy::open) | everything passes | the limit protects a service of your own, or is a courtesy: a surplus is cheaper than a refusal |
//! | [`closed`](OutagePolicy::closed) | nothing passes | a surplus is fined, banned or charged, and a standstill is acceptable |
//! | [`insured`](OutagePolicy::insured) | the limit ÷ replicas, in each replica's memory | a surplus is fined, *and* a standstill is not acceptable |
//!
//! An insurance starts with everything spent, because that may be so in Redis the moment before. A bucket fills from nothing at its
//! share of the rate. A window lets nothing pass before a whole one is over: with a window of an hour an insurance is useless in an
//! outage of a minute, and a bucket or a shorter window is the better policy. Insurances never pass more than the limit if *all*
//! replicas lost Redis and there are no more of them than stated. If only k of n lost it, they pass k / n of the limit on top of what
//! the others pass in Redis. A server that is back without having lost its memory does not know what insurances passed. So after an
//! outage longer than a window, or than a bucket takes to fill, everything counts as spent, as at the start (next section). After a
//! shorter outage a bucket has not filled meanwhile. One case remains: if the bucket's key had expired before, and the first process
//! to ask has not used it yet, what insurances passed, at most rate × outage, can come on top once.
//!
//! If a server works and refuses a call (wrong password, no permission, the key holds another type, keys in different slots), that is
//! no outage: nothing passes, [`Stats::faults`] counts, the methods of [`RedisLimiter`] return a [`ServerError`], and Redis is asked
//! again a second later.
//!
//! # What a failover can cost
//!
//! Redis replicates asynchronously. After a restart without data, a failover to a replica, or a `FLUSHALL`, the server has forgotten
//! what was spent, and would let the whole burst pass again. To prevent that, every process remembers for each limit it uses when its
//! state was last written and when it settles, and sends both with each request. A state that is missing before its time, or older
//! than known, was lost: then everything counts as spent *now*. The price is one wait for that key, a full window or the time to fill
//! a bucket ([`Stats::lost_states`]). After an outage in which the server was restarted, this holds for all keys, including those not
//! used here before. After an outage in which the server only could not be reached, a bucket with an insurance counts as not filled
//! meanwhile, because other processes may have used theirs.
//!
//! One case cannot be detected: a state is lost without any outage, and no running process remembers its key since it was last
//! written: none has used it, or the key was [evicted](Keyed#memory). Its burst can pass once more. Deleting a key by hand loses its state, with the same wait.
//!
//! # Sizing
//!
//! * **Round trips**: requests for the same limit at the same time share a round trip, up to 256 of them, and Redis is not asked
//!   before the retry time it returned. So a limit that is always used up costs about two round trips a permit for each process that
//!   waits, and one under load far less than one. If that is too much, [`prefetch`](RedisLimiter::prefetch) of n permits divides it by
//!   n; a window can then hold replicas × n more. (A test provokes that: three replicas that take ten of a limit of 40 ahead pass 70.)
//! * **Deadline**: longer than the slowest answer worth waiting for, and shorter than your callers' timeout. Across data centres 25 ms
//!   is too short.
//! * **Memory** of the server: a few hundred bytes a key; a log is the only policy that grows with its limit. Each process
//!   remembers up to 100,000 keys of a [`Keyed`], at [200 bytes](Keyed#memory) or less for a key that is not in use.
//! * **Large costs** of a log write as many members in one call, which blocks the server: tens of milliseconds for ten thousand. A
//!   bucket takes the same time for any cost.
//! * **Replicas**: round up. An insurance for too many replicas is slow in an outage; one for too few exceeds the limit.
//! * **Leases**: one call for each third of a lease in each process that holds any, for all of its leases together. A lease of ten
//!   seconds outlasts an outage of six, and is free ten seconds after its process died.
//! * **Cluster**: the limits of one name are in one slot. While a node is down, Redis counts as down for all limits of a [`Redis`]:
//!   open one for each group of limits that should fail independently.
//!
//! # Runtimes
//!
//! The tasks that connect and make round trips run in the tokio runtime in which they were first needed. When that runtime ends, they
//! start again in the next one that asks; a call that was under way fails. While that runtime is blocked, so are the tasks, and other
//! runtimes see an outage. On a paused tokio clock, time does not wait for sockets, so whether an answer is in time is arbitrary. Test
//! with a real clock, or with the policy in memory.
//!
//! Redis 6.0 or Valkey is enough; tested with 7.0. The user needs `EVAL`, `EVALSHA`, `TIME` and the commands of the scripts. Give it
//! `INFO` as well if possible: without it, every new connection after an outage counts as one to a restarted server.

mod client;
mod config;
mod error;
mod keyed;
mod lease_pool;
mod lease_queue;
mod lease_script;
mod lease_table;
mod limiter;
mod permits;
mod policy;
mod scripts;
mod store;
mod transport;
mod usage;

pub use crate::remote::{CallError, OutagePolicy, ServerError, Stats};
pub use client::Redis;
pub use error::{AcquireError, ConfigError};
pub use keyed::Keyed;
pub use lease_pool::Lease;
pub use limiter::RedisLimiter;
pub use permits::RedisPermits;
pub use policy::RedisPolicy;
pub use usage::{FleetUsage, Importance, InUse};
