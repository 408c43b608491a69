//! Limits whose state is in Redis or Valkey: one for a whole fleet (feature `redis`; `redis-cluster` for a cluster too).
//!
//! ```
//! use futures::StreamExt;
//! use paceline::policy::SlidingLog;
//! use paceline::prelude::*;
//! use paceline::redis::{Redis, OutagePolicy};
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
//! A [`RedisLimiter`] is a [`Limiter`](crate::limiter::Limiter) like those in memory, and every adapter takes it. The policies are the
//! same too: each has a twin in Lua, which decides alike, in one atomic script for each trip, on the *server's* clock: how the
//! clocks of the replicas differ does not matter. [`Keyed`] has a limit for each key.
//!
//! | policy | in Redis | a decision takes |
//! |---|---|---|
//! | [`TokenBucket`](crate::policy::TokenBucket), [`Interval`](crate::policy::Interval) | one string | the same for all |
//! | [`FixedWindow`](crate::policy::FixedWindow) | one string | the same for all |
//! | [`SlidingCounter`](crate::policy::SlidingCounter) | one hash with a field for each bucket in use | the longer, the more buckets |
//! | [`SlidingLog`](crate::policy::SlidingLog) | one sorted set with a member of about 135 bytes for each permit of a window | logarithmic, for each permit |
//! | [`All`](crate::policy::All) of several | one of those each, in one slot of a cluster | their sum; one trip |
//!
//! Each key is named `prefix:{name}:policy` (of a [`Keyed`], `prefix:name:{key}:policy`) and expires when its state has settled: an
//! idle limit leaves nothing behind. Another policy under the same name is another key. Other *parameters* under the same name are the
//! same limit: as with [`retune`](crate::limiter::Shared::retune), what was spent stays spent, so a fleet can be moved to a new rate
//! replica by replica.
//!
//! # What a window at the provider holds
//!
//! Redis counts a permit, then the answer travels, for a deadline at most, then the task that waits for it is woken. A permit that has
//! not been fetched 100 ms after the answer is void. So what passes is at most 125 ms later than Redis counted it (100 ms and the
//! deadline), and at the provider two windows' worth can come that much closer: where that matters, make the window longer by as
//! much, and by the [margin of the way](crate#time) as for any other limiter. Spacing, too, counts from the decision here, not from the
//! emission. [Leases](RedisLimiter::prefetch) add what they take ahead.
//!
//! # So many at once
//!
//! [`RedisPermits`] limit how much is under way in a fleet, and [`FleetUsage`] sheds load by it, with a reserve for critical work.
//! Both give a [`Lease`], which is renewed while its guard lives and lapses after a process that ended without a word. A lease can be
//! *lost*: whoever holds one has to [listen](Lease#it-can-be-lost), or there may be more at once than the limit says.
//!
//! # When Redis is slow or gone
//!
//! One deadline ([25 ms](Redis::with_deadline)) is around everything: connecting, sending, waiting for the answer. After three
//! failures in a row, when half of the last sixteen calls failed, or when it cannot be connected to, Redis is taken to be down: calls
//! are not made any more, and a task connects anew, at once, 20 ms later, then 40, at most each 250 ms, until a server greets within
//! the deadline. If the first call on the new connection fails, it is down again, and the pauses go on to grow. Nothing is queued
//! meanwhile and no charge is repeated, since it may have been counted. What passes is for [`OutagePolicy`] to say:
//!
//! | | during an outage | choose it where |
//! |---|---|---|
//! | [`open`](OutagePolicy::open) | everything passes | the limit protects a service of your own, or is a courtesy: a surplus is cheaper than a refusal |
//! | [`closed`](OutagePolicy::closed) | nothing passes | a surplus is fined, banned or charged, and standing still is borne |
//! | [`insured`](OutagePolicy::insured) | the limit ÷ replicas, in each replica's memory | a surplus is fined, *and* standing still is not borne |
//!
//! An insurance starts with empty hands, since all may have been spent the moment before. A bucket fills from nothing at its part
//! of the rate. Of a window nothing passes before a whole one is over: with a window of an hour an insurance is of no use in an
//! outage of a minute, and a bucket or a shorter window is the better policy. It never lets more pass than the limit if *all*
//! replicas lost Redis and there are no more of them than said. If only k of n lost it, they pass k / n of the limit beside what
//! the others pass there. When a server is back that did not lose its memory, it does not know what insurances passed: after an
//! outage longer than a window, or than a bucket takes to fill, all counts as spent, as after a start (next section). After a
//! shorter one a bucket has not filled meanwhile; only where its key had gone before, and the process that asks first has not used it
//! yet, what insurances passed, at most rate × outage, can be on top once.
//!
//! A server that is well and refuses (a wrong password, no permission, the key holds something else, keys in different slots) is no
//! outage: nothing passes, [`Stats::faults`] counts, the methods of [`RedisLimiter`] give a [`ServerError`], and it is asked again a second
//! later.
//!
//! # What a failover can cost
//!
//! Redis replicates without waiting. A server that is started anew without its data, a replica that takes over, a `FLUSHALL`: all
//! forget what was spent, and would let the whole burst pass again. Here every process remembers, of each limit it uses, when it was
//! last written and until when it cannot have settled, and tells it with each question. A state that is gone before its time, or older
//! than known, was lost: then all counts as spent *now*. The price is one wait: a full window, or as long as a bucket takes to
//! fill, for that key ([`Stats::lost_states`]). After an outage in which the server was started anew, this holds for all keys, used
//! here before or not. After one in which it only could not be reached, a bucket with an insurance is taken not to have filled
//! meanwhile: others may have used theirs.
//!
//! What this cannot see: a state that is lost without any outage, of a key that no running process has used since it was last
//! written. Its burst can pass once more. To delete a key by hand is to lose its state, with the same wait.
//!
//! # Sizing
//!
//! * **Trips**: whoever asks for the same limit at the same time goes on one trip, up to 256 of them, and nobody asks before the time
//!   that Redis gave. So a limit that is always used up costs about two trips a permit for each process that waits, and one under
//!   load far less than one. Where that is too much, [`prefetch`](RedisLimiter::prefetch) n permits divides it by n; a window can then hold
//!   replicas × n more. (A test provokes that: three replicas that lease ten of a limit of 40 pass 70.)
//! * **Deadline**: longer than the slowest answer you want to wait for; shorter than your callers' patience. Across data centres 25 ms
//!   is too short.
//! * **Memory**: a few hundred bytes a key; a log is the only policy that grows with its limit.
//! * **Large costs** of a log are as many members, written in one go, and Redis does nothing else meanwhile: tens of milliseconds for
//!   ten thousand. A bucket takes the same for any cost.
//! * **Replicas**: round up. An insurance for too many is slow in an outage; one for too few oversteps.
//! * **Leases**: a call for each third of a lease in each process that holds any, however many. A lease of ten seconds rides out an
//!   outage of six, and one that was left behind is free after ten.
//! * **Cluster**: the limits of one name lie in one slot. While a node is down, Redis counts as down for all limits of a
//!   [`Redis`]: open one for each group of limits that should not share that fate.
//!
//! # Runtimes
//!
//! The tasks that connect and make trips run in the tokio runtime in which they were first needed. When that ends, they start anew in
//! the next one that asks; a call that was under way fails. While one is there and stands still, so do they, and others see an outage.
//! On a paused clock of tokio time does not wait for sockets: answers are in time or not as it happens. Test with a real
//! clock there, or with the policy in memory.
//!
//! Redis 6.0 or Valkey is enough; tested with 7.0. The user needs `EVAL`, `EVALSHA`, `TIME` and what the scripts call; `INFO` if it may
//! (else every new connection after an outage counts as one to a server that was started anew).

mod breaker;
mod client;
mod denial;
mod desk;
mod driver;
mod error;
mod keeper;
mod key;
mod keyed;
mod leases;
mod leftover;
mod limit;
mod link;
mod plan;
mod remote;
mod reply;
mod script;
mod service;
mod sight;
mod spare;
mod state;
mod stats;
mod sums;
mod twin;
mod waiting;
mod when_down;

pub use client::Redis;
pub use error::{AcquireError, CallError, ConfigError, ServerError};
pub use keyed::Keyed;
pub use leases::{FleetUsage, Importance, InUse, Lease, RedisPermits};
pub use remote::RedisLimiter;
pub use stats::Stats;
pub use twin::RedisPolicy;
pub use when_down::OutagePolicy;
