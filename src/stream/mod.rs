//! Adapters that join a limit to a stream.
//!
//! Import [`PaceStreamExt`] (or the [prelude](crate::prelude)) and call its methods on any stream. They differ in what they do
//! with an item that comes too soon, and each has a type of its own:
//!
//! | what comes too soon | method | type |
//! |---|---|---|
//! | is emitted late | [`pace`](PaceStreamExt::pace), [`min_interval`](PaceStreamExt::min_interval) | [`Pace`] |
//! | the same, and each item pays its cost | [`pace_by_cost`](PaceStreamExt::pace_by_cost) | [`PaceByCost`] |
//! | the same, each key for itself | [`pace_by_key`](PaceStreamExt::pace_by_key), [`pace_by_key_and_cost`](PaceStreamExt::pace_by_key_and_cost) | [`PaceByKey`], [`PaceByKeyAndCost`] |
//! | the same, the most urgent first, or comes back | [`pace_by_deadline`](PaceStreamExt::pace_by_deadline) | [`PaceByDeadline`] |
//! | the same, of a limiter that may fail | [`try_pace`](PaceStreamExt::try_pace), [`try_pace_by_key`](PaceStreamExt::try_pace_by_key) | [`TryPace`], [`TryPaceByKey`] |
//! | is emitted with all that has come meanwhile | [`pace_batches`](PaceStreamExt::pace_batches) | [`PaceBatches`] |
//! | waits until fewer futures run | [`concurrent`](PaceStreamExt::concurrent) | [`Concurrent`] |
//! | the same, and is called again if that failed | [`retry`](Concurrent::retry) | [`Retried`] |
//! | becomes an error with the item in it | [`enforce`](PaceStreamExt::enforce) | [`Enforce`] |
//! | is dropped and counted | [`shed`](PaceStreamExt::shed), [`shed_by`](PaceStreamExt::shed_by) | [`Shed`], [`ShedBy`] |
//! | is replaced by what comes later | [`debounce`](PaceStreamExt::debounce), [`sample`](PaceStreamExt::sample) | [`Debounce`], [`Sample`] |
//! | is dropped after the first | [`throttle_first`](PaceStreamExt::throttle_first) | [`ThrottleFirst`] |
//! | joins a group, without a limit (to limit the groups, pace them) | [`grouped_within`](PaceStreamExt::grouped_within), [`try_grouped_within`](PaceTryStreamExt::try_grouped_within) | [`GroupedWithin`], [`TryGroupedWithin`] |
//!
//! # What all of them promise
//!
//! * **Emission** is the instant at which the consumer is handed the item, not when a timer was due or the item arrived.
//! * **Backpressure**: while the stream is not polled it reads and emits nothing, so a fast source waits for a slow consumer. It
//!   does not catch up later, apart from what the limit itself saves up (a bucket its burst, an interval one slot).
//! * **The end** comes when the input ends, and at once if nothing is held. The input is not polled after its end. An adapter
//!   that has ended returns `None` again when it is polled.
//! * **Errors** of a stream of `Result`s are items like any other, except to the adapters of [`PaceTryStreamExt`].
//! * **Items held** are counted by `size_hint` and returned by `into_parts`. (Futures that run cannot be returned.)
//! * **A function of an item that panics** (its cost, key, weight or class) loses nothing: the item stays held, and the next poll
//!   calls the function again. A function that is given the item, such as that of `concurrent`, drops it.
//! * Adapters can be built outside a runtime. They need a tokio runtime with time enabled once there is something to wait for.
//!   Inputs need not be `Unpin`. Dropping a `next()` that waits loses nothing and counts nothing.
//!
//! # Functions over any limiter
//!
//! A stream of items has no place for the error of a limiter, so the methods ask for a limiter that cannot fail:
//! `Limiter<Error = Infallible>`. ([`TryPace`] is a stream of results, and takes any.) A function over any limiter says the same, and so does a boxed limiter that is chosen while
//! the program runs:
//!
//! ```
//! use futures::{Stream, StreamExt, stream};
//! use paceline::limiter::Limiter;
//! use paceline::policy::{Interval, Unlimited};
//! use paceline::prelude::*;
//! use std::convert::Infallible;
//! use std::time::Duration;
//!
//! fn calls<L: Limiter<Error = Infallible>>(limiter: L) -> impl Stream<Item = u32> {
//!     stream::iter(1..=3).pace(limiter)
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let start = tokio::time::Instant::now();
//! let limit = Interval::every(Duration::from_millis(100));
//! assert_eq!(calls(limit.shared()).count().await, 3);
//! assert_eq!(start.elapsed(), Duration::from_millis(200));
//!
//! let is_limited = false; // from a configuration
//! let limiter: Box<dyn Limiter<Error = Infallible> + Send> =
//!     if is_limited { Box::new(limit.owned()) } else { Box::new(Unlimited.owned()) };
//! assert_eq!(calls(limiter).count().await, 3);
//! assert_eq!(start.elapsed(), Duration::from_millis(200));
//! # }
//! ```
//!
//! Without `Error = Infallible` the compiler says at the call of `pace` that the limiter may fail:
//!
//! ```compile_fail,E0277
//! # use futures::{Stream, stream};
//! # use paceline::limiter::Limiter;
//! # use paceline::prelude::*;
//! fn calls<L: Limiter>(limiter: L) -> impl Stream<Item = u32> {
//!     stream::iter(1..=3).pace(limiter)
//! }
//! ```

mod collector;
mod concurrent;
mod debounce;
mod enforce;
mod ext;
mod future_set;
mod grouped_within;
mod input;
mod key_queues;
mod pace;
mod pace_batches;
mod pace_by_cost;
mod pace_by_deadline;
mod pace_by_key;
mod pace_by_key_and_cost;
mod ready_set;
mod retry;
mod sample;
mod shed;
mod shed_by;
mod throttle_first;
mod try_grouped_within;
mod try_pace;

pub use concurrent::Concurrent;
pub use debounce::Debounce;
pub use enforce::Enforce;
pub use ext::{PaceStreamExt, PaceTryStreamExt};
pub use grouped_within::{GroupedWeightedWithin, GroupedWithin};
pub use pace::Pace;
pub use pace_batches::PaceBatches;
pub use pace_by_cost::PaceByCost;
pub use pace_by_deadline::{Late, PaceByDeadline};
pub use pace_by_key::{NoLimit, PaceByKey, TryPaceByKey};
pub use pace_by_key_and_cost::{PaceByKeyAndCost, PaceByKeyError};
pub use retry::{Retried, Tried};
pub use sample::Sample;
pub use shed::Shed;
pub use shed_by::ShedBy;
pub use throttle_first::ThrottleFirst;
pub use try_grouped_within::{OnError, TryGroupedWeightedWithin, TryGroupedWithin};
pub use try_pace::TryPace;

#[doc(no_inline)]
pub use crate::batch::Window;
#[doc(no_inline)]
pub use crate::limiter::Exceeded;
