//! Throttling for async streams and sinks that never oversteps: for calls to an API with a strict quota, for message
//! dispatchers with a limit per connection, for pipelines between a fast source and a slow sink.
//!
//! ```
//! use futures::StreamExt;
//! use paceline::prelude::*;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! # let start = tokio::time::Instant::now();
//! let requests = futures::stream::iter(1..=100);
//!
//! // At most one each 50 ms, so at most 20 in any second, wherever the other side's second begins.
//! let mut paced = requests.min_interval(Duration::from_millis(50));
//! while let Some(request) = paced.next().await {
//!     println!("call the API with {request}");
//! }
//! # assert_eq!(start.elapsed(), Duration::from_millis(99 * 50));
//! # }
//! ```
//!
//! # What is where
//!
//! * A **[policy]** is arithmetic: parameters, a small state and the time give a decision.
//!   [`Interval`](policy::Interval) keeps two requests apart, whatever is late; a
//!   [`TokenBucket`](policy::TokenBucket) lets bursts pass; a [`SlidingLog`](policy::SlidingLog) never exceeds a number of
//!   permits in any window. The [module's table](policy#which-one) compares them.
//! * A **[limiter]** is a policy with its state: [`owned`](limiter::PolicyExt::owned) by one adapter,
//!   [`shared`](limiter::PolicyExt::shared) by many tasks, first come, first served, or
//!   [`keyed`](limiter::PolicyExt::keyed), one for each user or host.
//! * An **adapter** joins a limiter to a [stream] or a [sink]. Late, refused and dropped are different types:
//!   [`pace`](stream::PaceStreamExt::pace) is late rather than never, [`enforce`](stream::PaceStreamExt::enforce) gives the
//!   item back at once, [`shed`](stream::PaceStreamExt::shed) drops and counts.
//! * For a sink the methods are [`pace_sends`](sink::PaceSinkExt::pace_sends), and so on: an item is emitted when the inner sink
//!   is given it.
//! * Without a stream or a sink, [`Shared::acquire_one`](limiter::Shared::acquire_one) waits by hand, and
//!   [`acquire_blocking`](limiter::LimiterExt::acquire_blocking) in a thread.
//! * Limiters go around limiters: [`Combined`](limiter::Combined) asks several and all pass a request or none counts it, a
//!   [`Line`](limiter::Line) bounds what waits and can be closed, and [`Settle`](limiter::Settle) corrects what a request has cost.
//! * **[Retries][retry]** have a budget, and each attempt asks its limit.
//! * **[Permits](concurrency)** limit how much is under way instead of how often it begins, and controllers move their
//!   number.
//! * **[Shedders][shed]** refuse work at once when there is more than capacity, the least important first: by how much is under way,
//!   or by how busy a worker is.
//! * **[Fair share][fair]** divides one capacity among clients: one that needs more borrows what others leave, until they need it
//!   back. [`Fair`](limiter::Fair) is such a limit, for every adapter and layer.
//! * **[Readers and writers][io]** are limited in bytes, with the same limiters.
//! * **[Configuration][config]**: policies from texts and tables, and named limits that are replaced while they are in use.
//! * **[Feedback][feedback]** is what a provider says in the headers of a response;
//!   [`Shared::apply_feedback`](limiter::Shared::apply_feedback) obeys it. [`LimitHeaders`](feedback::LimitHeaders) says it to
//!   your own callers.
//! * **`paceline-tower`**, a crate of its own, has layers of tower that limit a service or a client, with the same limiters and permits.
//! * **`paceline-redis`**, another one, has the same limits with their state in Redis, for a fleet, and says what happens while Redis
//!   is gone.
//!
//! # Where to read on
//!
//! [Choosing](_docs::choosing) has a table of what to write for which purpose, and the questions: which policy, whether to wait or to
//! refuse, groups, several limits, services and fleets; and a glossary. If something stands still, hangs or is refused:
//! [troubleshooting](_docs::troubleshooting). The [guides](_docs) are pages of the repository.
//!
//! # What is promised
//!
//! Minimum spacing counts from the *actual* last emission, so that no late timer, source or consumer makes two emissions
//! come too close. Every policy and adapter states the largest count that any window can hold. Nothing is lost or doubled:
//! what refuses an item gives it back, what holds one counts it, and dropping a future that waits costs nothing. The first
//! item is not delayed, the end neither. Shared limits serve in order of arrival by default, and with
//! [priorities](limiter::Priority) no request starves. All sums are whole numbers: there
//! is no drift and no overflow.
//!
//! # Time
//!
//! Time is tokio's, so that [your tests](#your-own-tests) can use its paused clock and see exact instants; every example here
//! does. An emission is never early. On Linux, in a runtime with I/O enabled, it comes to the microsecond. Elsewhere it may come up to about one
//! millisecond late, because tokio's timers have a grid of one millisecond.
//!
//! What a provider counts is *arrivals*, not emissions. If the way there takes between lo and hi, two arrivals can be
//! hi − lo closer than their emissions; [a margin](policy#a-margin) covers it. Where an answer proves the arrival,
//! [permits with a cool-down](concurrency::Permits::with_cooldown) need no margin, whatever the network does. The way begins
//! inside your own program: the system may suspend a task after an item has passed and before it is used, and then the next
//! one seems to follow too closely to a consumer that reads a clock of its own.
//! [`with_count_from_next_poll`](stream::Pace::with_count_from_next_poll) counts from when the consumer certainly had the item.
//!
//! ## Your own tests
//!
//! With tokio's feature `test-util` and `start_paused = true`, the clock moves on only when every task waits, and at once. So a
//! test takes no time, and its instants are exact:
//!
//! ```
//! use paceline::limiter::Shared;
//! use paceline::prelude::*;
//!
//! async fn send_all(limit: &Shared<TokenBucket>, messages: &[&str]) -> usize {
//!     for message in messages {
//!         limit.acquire_one().await;
//!         println!("send {message}");
//!     }
//!     messages.len()
//! }
//!
//! // In your crate: #[tokio::test(start_paused = true)]
//! #[tokio::main(flavor = "current_thread", start_paused = true)]
//! async fn main() {
//!     let start = tokio::time::Instant::now();
//!     let limit = TokenBucket::new(Rate::per_second(10), 2).shared();
//!     let sent = tokio::join!(send_all(&limit, &["a", "b"]), send_all(&limit, &["c", "d"]));
//!     assert_eq!(sent, (2, 2));
//!     assert_eq!(start.elapsed(), Duration::from_millis(200)); // two at once, then one each 100 ms
//!     assert_eq!(limit.stats().passed, 4);
//! }
//! ```
//!
//! Measure with `tokio::time::Instant`, since `std`'s does not stand still. Limits in Redis need a real clock, and
//! [`acquire_blocking`](limiter::LimiterExt::acquire_blocking) in a thread of its own reads it.
//!
//! # Features
//!
//! The whole library is the default. A feature adds, and changes nothing for other users:
//!
//! * `metrics`: `limiter::Metrics`, an observer that counts in the `metrics` facade; its docs list all metrics.
//! * `tracing`: `limiter::TracingObserver`, an observer that writes `tracing` events.
//! * `serde`: rates, policies and named limits from any format of `serde`, as texts or tables: see [`config`].
//! * `precise` (on by default): waits to the microsecond, on Linux and in a runtime with `enable_io`. See [`time::Resolution`]
//!   for what it costs, and how to do without.

// docs.rs says with each item which feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod wait;

pub mod batch;
pub mod concurrency;
pub mod config;
pub mod fair;
pub mod feedback;
pub mod io;
pub mod limiter;
pub mod policy;
pub mod prelude;
pub mod retry;
pub mod shed;
pub mod sink;
pub mod stream;
pub mod time;

/// The guides: pages of the repository.
// The first definition of a link counts, so it leads to the page here.
pub mod _docs {
    #[doc = include_str!("../docs/what-the-provider-counts.md")]
    pub mod what_the_provider_counts {}

    /// [arrivals]: what_the_provider_counts
    /// [models]: language_models
    /// [fairness]: fairness
    /// [fleet]: https://docs.rs/paceline-redis/latest/paceline_redis/_docs/fleet/
    /// [services]: https://docs.rs/paceline-tower/latest/paceline_tower/_docs/services/
    ///
    #[doc = include_str!("../docs/choosing.md")]
    pub mod choosing {}

    /// [arrivals]: what_the_provider_counts
    /// [policy]: choosing#which-policy
    /// [several]: choosing#several-limits
    /// [fleet]: https://docs.rs/paceline-redis/latest/paceline_redis/_docs/fleet/
    /// [runtimes]: precision#runtimes-and-platforms
    ///
    #[doc = include_str!("../docs/troubleshooting.md")]
    pub mod troubleshooting {}

    #[doc = include_str!("../docs/fairness.md")]
    pub mod fairness {}

    /// [words]: choosing#words
    ///
    #[doc = include_str!("../docs/semantics.md")]
    pub mod semantics {}

    /// [arrivals]: what_the_provider_counts
    /// [fleet]: https://docs.rs/paceline-redis/latest/paceline_redis/_docs/fleet/
    ///
    #[doc = include_str!("../docs/language-models.md")]
    pub mod language_models {}

    #[doc = include_str!("../docs/precision.md")]
    pub mod precision {}
}
