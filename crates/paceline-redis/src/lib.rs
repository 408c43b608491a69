//! Limits of [`paceline`] with their state in Redis or Valkey: one limit for a whole fleet. With feature `cluster` also in a cluster, and with
//! `tls` by TLS.
//!
//! ```
//! use futures::StreamExt;
//! use paceline::policy::SlidingLog;
//! use paceline::prelude::*;
//! use paceline_redis::{OutagePolicy, Redis};
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # // Where the tests run there is a server.
//! # if std::env::var_os("REDIS_URL").is_none() { return Ok(()); }
//! // Three replicas of this program share what the provider allows: 100 in any ten seconds.
//! let redis = Redis::open(&std::env::var("REDIS_URL")?, OutagePolicy::insured(3))?;
//! # // A busy machine may be late.
//! # let redis = redis.with_deadline(std::time::Duration::from_secs(2))?;
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
//! A [`RedisLimiter`] is a [`Limiter`](paceline::limiter::Limiter) like those in memory, and every adapter takes it. The policies are
//! the same too. Each has a twin in Lua that makes the same decisions: one atomic script for each round trip, on the *server's*
//! clock, so the clocks of the replicas need not agree. [`RedisKeyed`] has a limit for each key, with the same parameters
//! ([`Redis::keyed`]) or by tier ([`Redis::keyed_by`]).
//!
//! Each answer brings along what the limit has left. [`RedisLimiter::status`] reads it without a call, for headers such as
//! `RateLimit`.
//!
//! | policy | in Redis | a decision takes |
//! |---|---|---|
//! | [`TokenBucket`](paceline::policy::TokenBucket), [`Interval`](paceline::policy::Interval) | one string | constant time |
//! | [`FixedWindow`](paceline::policy::FixedWindow) | one string | constant time |
//! | [`SlidingCounter`](paceline::policy::SlidingCounter) | one string, of 24 bytes for each bucket in use | time linear in the buckets |
//! | [`SlidingLog`](paceline::policy::SlidingLog) | one string, of 16 bytes (64 at most) for each instant of a window at which permits passed | logarithmic time, whatever the cost |
//! | [`All`](paceline::policy::All) of several | one of those each, in one slot of a cluster | their sum; one round trip |
//! | [`PerRequest`](paceline::policy::PerRequest) of one of these | as that one, in a key of its own | as that one |
//! | [`AnyPolicy`](paceline::policy::AnyPolicy), as from a [configuration](paceline::config) | as the limits it consists of | their sum; one round trip |
//!
//! **Costs that are known afterwards**: [`RedisLimiter::reserve`] spends an estimate and [`RedisReservation::settle`] corrects it, in one call.
//! **A limit for each key and one over all keys**: [`RedisKeyed::with_total`], in one decision.
//! **The first of several limits that has room**: [`RedisLimiter::acquire_any`].
//! **A part of a rate that no other request can take**: [`Redis::reserved`].
//!
//! Each key is named `prefix:{name}:policy:2` (for a [`RedisKeyed`], `prefix:name:{key}:policy:2`; 2 is the version of its format). It
//! expires a second after its state has settled: an idle limit leaves nothing behind. (Each prefix leaves [one key](#what-a-failover-can-cost).) Another policy under the same name has another key. Other *parameters* under the same name are
//! the same limit: as with [`retune`](paceline::limiter::Shared::retune), what was spent stays spent, so a fleet can move to a new rate
//! replica by replica.
//!
//! A round trip carries the requests for many keys. The script has a short path for the common case: one limit that counts
//! costs, requests of one cost, a state that is as expected. It takes about the time of the server that two keys take that are
//! read and written. Everything else takes two to four times that.
//!
//! # Moving from an older format
//!
//! Processes that use keys without the `:2` do not see the states of this version, and this version does not see theirs. While both
//! run, each kind passes the whole limit. Choose one of these:
//!
//! * Stop all old processes, and start the new ones a window later (for a bucket: the time in which it fills).
//! * Give the old and the new processes half of the limit each while both run.
//! * Accept up to twice the limit for the time of the rollout and a window after it.
//!
//! The old keys expire by themselves.
//!
//! # What a window at the provider holds
//!
//! After Redis counts a permit, the answer travels, for a deadline at most, and then its task is woken. A permit that is not fetched
//! within 100 ms of the answer is void. So a permit is used at most 125 ms after Redis counted it (100 ms and the deadline), and at
//! the provider the permits of two windows can come that much closer together. If that matters, make the window longer by as much,
//! and by the [margin for the network](paceline#time) as with any limiter. Spacing, too, counts from the decision here, not from the
//! emission. [`with_prefetch`](RedisLimiter::with_prefetch) adds what it takes ahead.
//!
//! # What operators hear
//!
//! With feature `tracing`, an event of target `paceline` says when there is a connection (`INFO`), and when Redis is down, refuses
//! calls (once a second at most), has lost states, has lost leases, or evicts keys (`WARN`). With feature `metrics` the same is counted: the docs
//! of `limiter::Metrics` list all metrics. [`Redis::stats`] counts the same without a feature.
//!
//! What becomes of requests is reported to an observer that a limit carries: [`RedisLimiter::with_observer`],
//! [`RedisKeyed::with_observer`], [`RedisPermits::with_observer`].
//!
//! # A fleet hears a 429
//!
//! A provider refuses one process with "too many requests", and all have to stop. What one process does with
//! [`pause_for`](RedisLimiter::pause_for), [`apply_feedback`](RedisLimiter::apply_feedback), [`resume`](RedisLimiter::resume) or
//! [`retune`](RedisLimiter::retune) holds for its limit in all processes; for a key, by [`RedisKeyed::at`]. What it does with
//! [`Redis::set_mode`] holds for every [`Redis::switch`] of that name.
//!
//! ```
//! use paceline::feedback::Feedback;
//! use paceline::policy::TokenBucket;
//! use paceline_redis::{OutagePolicy, Redis};
//! use paceline::time::Rate;
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # // Where the tests run there is a server.
//! # if std::env::var_os("REDIS_URL").is_none() { return Ok(()); }
//! let redis = Redis::open(&std::env::var("REDIS_URL")?, OutagePolicy::closed())?;
//! let redis = redis.with_deadline(Duration::from_secs(1))?;
//! let limit = redis.limit("sms-429", TokenBucket::new(Rate::per_second(30), 5))?;
//!
//! // Of a response with the status 429.
//! let refused = Feedback::parse([("Retry-After", "2")], Duration::ZERO);
//! assert_eq!(limit.apply_feedback(&refused).await?, Some(Duration::from_secs(2)));
//!
//! // Another replica of this program.
//! let other = Redis::open(&std::env::var("REDIS_URL")?, OutagePolicy::closed())?;
//! let other = other.with_deadline(Duration::from_secs(1))?;
//! let other = other.limit("sms-429", TokenBucket::new(Rate::per_second(30), 5))?;
//! assert!(!other.try_acquire(1).await?.is_pass());
//!
//! limit.resume().await?;
//! other.acquire(1).await?;
//! # Ok(())
//! # }
//! ```
//!
//! * **When**: in the process that makes the change, at once. In others with the first call after a second, before its permits pass,
//!   or after a second if they only wait: at most a second and a round trip later. An idle process reads nothing, and its first request
//!   does.
//!   A process that starts, or connects anew, reads everything, a thousand pauses and modes with each call. So where there are more, it
//!   hears of the last of them some calls later. A read has half of the [deadline](Redis::with_deadline). One that is late changes
//!   nothing and is repeated after a second; no count shows it.
//! * **How long**: a pause ends by itself. A mode and parameters stay until they are changed again, also for processes that start
//!   later. **A retune does not hold for a process that made the limit with other parameters** than those it replaced: a new deploy
//!   is not overruled.
//! * **In an outage**, what a process knows stays in force. A change that cannot be written is an error, and holds in this process
//!   until another change of that limit succeeds. A server that has lost its data has lost modes and parameters. Processes that know
//!   of a pause keep it until its end.
//! * **In Redis** there are three keys for each [prefix](Redis::with_prefix), as `paceline:{overrides}:by_name`. They expire when all
//!   pauses are over, nothing has a mode or parameters, and nothing was changed for an hour. They have room for 10,000 limits and keys that are paused, have a mode or parameters, or were changed within an
//!   hour; more is an error. A user without permission for these keys hears of nothing; that is reported as a fault every ten seconds,
//!   and stops no decision.
//!
//! # Limits from a configuration
//!
//! An [`AnyPolicy`](paceline::policy::AnyPolicy) works as any other, so a [table of limits](paceline::config) may be one for a fleet.
//! [`NamedLimits`](paceline::config::NamedLimits) are in memory. So what a fleet shares stands in a table of its own, and each limit of
//! it is in Redis under its name:
//!
//! ```
//! use paceline::config::{LimitConfig, LimitsConfig};
//! use paceline::policy::AnyPolicy;
//! use paceline::prelude::*;
//! use paceline_redis::{OutagePolicy, Redis};
//! use std::collections::HashMap;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # // Where the tests run there is a server.
//! # if std::env::var_os("REDIS_URL").is_none() { return Ok(()); }
//! let redis = Redis::open(&std::env::var("REDIS_URL")?, OutagePolicy::closed())?;
//! # let redis = redis.with_deadline(Duration::from_secs(10))?;
//! # let redis = redis.with_prefix(&format!("config:{}", std::process::id()))?;
//! // Read from a file with feature `serde` of `paceline`.
//! let policy: AnyPolicy = "100/min burst 20".parse()?;
//! let config = LimitsConfig::new().with("api", LimitConfig::new(policy));
//!
//! let mut limits = HashMap::new();
//! for (name, limit) in config.iter() {
//!     let switch = redis.switch(name)?.with_mode(limit.mode());
//!     limits.insert(name, redis.limit(name, limit.policy().clone())?.switched(&switch));
//! }
//! assert!(limits["api"].try_acquire(20).await.is_pass());
//! assert!(!limits["api"].try_acquire(1).await.is_pass());
//! # Ok(())
//! # }
//! ```
//!
//! When the file has changed, [`retune`](RedisLimiter::retune) takes over other numbers. Other kinds have other keys: make the limit anew.
//!
//! # Limits on concurrency
//!
//! [`RedisPermits`] limit how much is under way in a fleet, and [`RedisKeyedPermits`] that of each key. [`FleetUsage`] sheds load by that, with a reserve for critical work. Both
//! give a [`Lease`], which is renewed while its guard lives and expires if the process dies. A lease can be *lost*: its holder has
//! to [stop then](Lease#it-can-be-lost), or more is under way than the limit allows.
//!
//! # When Redis is slow or gone
//!
//! One deadline ([25 ms, or 100 ms with `open`](Redis::with_deadline)) covers connecting, sending, and waiting for the answer. It starts
//! when the call is sent, and anew with each answer that comes meanwhile: only silence is a failure. Time in which this process did not
//! run, because others had the processor, is no silence, and comes on top. A circuit breaker takes Redis for down after three
//! consecutive failures, when half of the last sixteen calls failed, or when connecting fails. While
//! it is open no calls are made, and a task reconnects: at once, then after 20 ms, 40 ms and so on, up to each 250 ms, until a server
//! answers within the deadline. An attempt that is not answered at all ends after four deadlines, but not before 250 ms and not after
//! a second, and the next one follows at once. If the first call on the new connection fails, Redis is down again, and the pauses
//! continue to grow. Requests are not stored meanwhile. No charge is repeated, because Redis may have counted it: permits of a call
//! that is never answered stay counted, with a limit of one an hour for an hour. The [`OutagePolicy`] decides what passes:
//!
//! | | during an outage | choose it if |
//! |---|---|---|
//! | [`open`](OutagePolicy::open) | everything passes; with a wrong password nothing does, because a refusal is no outage (below) | the limit protects a service of your own, or is a courtesy: a surplus is cheaper than a refusal |
//! | [`always_open`](OutagePolicy::always_open) | everything passes, and where Redis refuses calls too (below) | the same, and a mistake in the configuration of Redis must not stop the service |
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
//! If a server works and refuses a call (wrong password, no permission, the key holds another type, an error in a script, keys in
//! different slots), that is no outage, whether it does so from the start or after one. [`RedisStats::faults`] counts such calls.
//! Nothing passes: the methods of [`RedisLimiter`] return a [`ServerError`], and Redis is asked again a second later. A stream that is
//! [paced](paceline::stream::Pace) stands still meanwhile. With [`try_pace`](paceline::stream::PaceStreamExt::try_pace) and
//! [`RedisLimiter::fail_fast`] it ends with the error instead.
//!
//! With [`always_open`](OutagePolicy::always_open) every request passes during a fault, and Redis is asked as always. Then only the
//! operators can see that the limit limits nothing: by the event, once a second, [`RedisStats::passed_alone`], and
//! `paceline_remote_faults_total`. The repository has rules of Prometheus that alert on it, in `examples/services/deploy`.
//!
//! # What a failover can cost
//!
//! Redis replicates asynchronously. After a restart without data, a failover to a replica, or a `FLUSHALL`, the server has forgotten
//! what was spent, and would let the whole burst pass again. To prevent that, every process remembers for each limit it uses when its
//! state was last written and when it settles, and sends both with each request. A state that is missing before its time, or older
//! than known, was lost: then everything counts as spent *now*. The price is one wait for that key, a full window or the time to fill
//! a bucket ([`RedisStats::lost_states`]). After an outage in which the server was restarted, this holds for all keys, including those not
//! used here before. After an outage in which the server only could not be reached, a bucket with an insurance counts as not filled
//! meanwhile, because other processes may have used theirs.
//!
//! A server that has lost everything without an outage is noticed too. Each [prefix](Redis::with_prefix) has one small key that never
//! expires, `paceline:epoch`: since when the server has its states. If it is not the one that a process knows, every state that is
//! missing counts as spent, for as long as it could have counted. That holds in all processes, also for keys that nobody has used.
//!
//! In three cases a burst can pass once more:
//!
//! * **One state is lost alone**: its key was evicted or deleted by hand, and the process that asks first does not remember it: it has
//!   not used the key, what it used has settled, or its own memory of it was [evicted](RedisKeyed#memory). So keep limits on a server
//!   with `maxmemory-policy noeviction`. Where `INFO` says that the server evicts keys, that is an event on connecting.
//! * **A process that has just started asks first** after everything was lost. It takes the server for a new one, until another process
//!   asks and finds its state missing.
//! * **In a cluster**, and for a user without permission for `paceline:epoch`, only what a process remembers is noticed. (The keys of
//!   one call to a cluster are in one slot.)
//!
//! # When the server's clock steps
//!
//! A limit's time never goes back. If the clock is set back by less than a state counts at most (a window, the time to fill a bucket or
//! to pay its debt), the limit stands still until the clock has caught up. If it is set back by more, or a server that is behind takes
//! over, the state counts as lost: everything counts as spent now, which costs one wait. After a step forward a limit counts as
//! idle for that time, so its burst can pass once more.
//!
//! # Many keys
//!
//! Limits are often one for each user. A process with a limit of 1/s for each of many keys, and a waiter for each, passes what is
//! allowed, whether `closed` or `open`: the points of both are those of what is allowed. (Measured for 3.5 s on one machine with the
//! server; more in `docs/performance`.)
//!
#![doc = include_str!("herd.svg")]
//!
//! # Sizing
//!
//! * **Round trips**: what keys of a [`Redis`] ask at the same time goes in one call of up to 64 keys, and up to 256 requests a key. A
//!   call is sent at once if none is under way; otherwise keys gather until the call is full, or for a millisecond. Redis is not asked
//!   before the retry time it returned. So a limit that is always used up costs about two round trips a permit for each process that
//!   waits, and one under load far less than one. While the last answer left room for all that wait, up to four calls of a key are under
//!   way at the same time, so a permit takes one round trip. (If other processes use that room up meanwhile, a request may pass before an
//!   earlier one of its process.) If that is too much, [`with_prefetch`](RedisLimiter::with_prefetch) of n permits divides it by
//!   n; a window can then hold replicas × n more. (A test provokes that: three replicas that take ten of a limit of 40 ahead pass 70.)
//! * **Many keys**: how many keys are under way is bounded by what Redis was measured to answer in time. The others wait in this
//!   process, in order, and that wait is no outage. A [`try_acquire`](RedisLimiter::try_acquire) that is not sent in time is told to
//!   wait, whatever the outage policy is.
//! * **Deadline**: longer than the slowest answer worth waiting for, and shorter than your callers' timeout. Measure a round trip with
//!   `redis-cli --latency`, and state four of them; 25 ms is right for a server in the same data centre, if the server is not short of
//!   processor time. With a deadline below two round trips, a busy process gets fewer permits than it may have.
//! * **Far processes**: between processes, a permit goes to the one whose request comes first when it is available. If a limit is used
//!   up all the time, a process 20 ms away gets 1 to 10 % of what one beside the server gets, and no setting changes that. Give the
//!   far process a limit of its own, or put the processes equally near. ([`RedisPermits`] take turns, so there they get equal shares.)
//! * **Memory** of the server: a few hundred bytes a key; a log is the only policy that grows with its limit. Each process
//!   remembers up to 100,000 keys of a [`RedisKeyed`], at [200 bytes](RedisKeyed#memory) or less for a key that is not in use.
//! * **Large costs** take no longer than small ones. A log with many entries has two limits: a [`refund`](RedisLimiter::refund)
//!   gives back the permits of the latest thousand instants at most, and a key with 100,000 entries that expires blocks the server for
//!   tens of milliseconds, unless it is set to `lazyfree-lazy-expire yes`.
//! * **Replicas**: round up. An insurance for too many replicas is slow in an outage; one for too few exceeds the limit.
//! * **Leases**: one call for each third of a lease in each process that holds any, for all of its leases together. A lease of ten
//!   seconds outlasts an outage of six, and is free ten seconds after its process died.
//! * **Cluster**: the limits of one name are in one slot. While a node is down, Redis counts as down for all limits of a [`Redis`]:
//!   open one for each group of limits that should fail independently.
//!
//! # TLS and Sentinel
//!
//! With feature `tls`, URLs that begin with `rediss://` connect by TLS 1.2 or 1.3, with `rustls` and `ring`. The server's
//! certificate is checked with the root certificates of the system, or with those of `Redis::with_tls`, which also takes a client
//! certificate. A certificate that is not trusted, has expired or has another name is an outage, because there is no proof that the
//! server can be reached: the [`OutagePolicy`] decides what passes, and [`Redis::last_failure`] names the cause. If the program has
//! no `rustls` crypto provider when the first connection is made, `ring` becomes its default.
//!
//! [`Redis::open_sentinel`] finds the master by Sentinel, and asks anew each time it connects. When a master dies, its limits come
//! back as soon as Sentinel has named another. After `SENTINEL FAILOVER` on a master that works, Sentinel leaves the old one a master
//! for about ten seconds. So long, processes that are connected to it use one limit, and processes that connect to the new one
//! another. With `min-replicas-to-write 1` on the servers, a master without replicas refuses writes, and all processes move at
//! once.
//!
//! # Runtimes
//!
//! The tasks that connect and make round trips run in the tokio runtime in which they were first needed. When that runtime ends, they
//! start again in the next one that asks; a call that was under way fails. While that runtime is blocked, so are the tasks, and other
//! runtimes see an outage. On a paused tokio clock, time does not wait for sockets, so whether an answer is in time is arbitrary. Test
//! with a real clock, or with the policy in memory.
//!
//! Redis 6.0 or Valkey is enough; tested with Redis 6.2 and 7.0, and with Valkey 8.1 and 9.1. The user needs `EVAL`, `EVALSHA`, `TIME`
//! and the commands of the scripts, for keys that begin with the [prefix](Redis::with_prefix). Give it `SCRIPT` as well if possible, which
//! saves the first call a round trip, and `INFO`: without it, every new connection after an outage counts as one to a restarted server.

// docs.rs says with each item which feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod redis;
mod remote;

#[cfg(feature = "tls")]
pub use self::redis::Tls;
pub use self::redis::{
    CallError, FailFast, FleetUsage, Lease, OutagePolicy, Redis, RedisKeyed, RedisKeyedPermits,
    RedisLimiter, RedisPermits, RedisPolicy, RedisReservation, RedisReserved, RedisStats,
    ServerError,
};

/// A guide: a page of the repository.
pub mod _docs {
    #[doc = include_str!("../../../docs/fleet.md")]
    pub mod fleet {}
}
