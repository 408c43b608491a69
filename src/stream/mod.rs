//! Adapters that join a limit to a stream.
//!
//! Import [`PaceStreamExt`] (or the [prelude](crate::prelude)) and call its methods on any stream. What they do when
//! something comes too soon differs, and so do their types: late rather than never ([`Pace`], [`PaceByCost`],
//! [`PaceBatches`], [`PaceByKey`], and [`Concurrent`] by what is under way), an error that gives the item back ([`Enforce`]), or dropped and counted ([`Shed`], [`Debounce`],
//! [`Sample`], [`ThrottleFirst`]).
//!
//! # What all of them promise
//!
//! * **Emission** is the instant at which the consumer is handed the item, not when a timer was due or the item arrived.
//! * **No demand, no emission**: while nobody polls, nothing is emitted and no time is owed, save what the limit saves up
//!   by itself (a bucket its burst, an interval one slot).
//! * **The end** comes when the input ends, and at once if nothing is held. The input is not polled after it. An adapter
//!   that has ended says so again when it is polled.
//! * **Errors** of a stream of `Result`s are items like any other, except to the adapters of [`PaceTryStreamExt`].
//! * **Nothing is held that is not counted** by `size_hint` and given back by `into_parts` (but for futures under way, which
//!   cannot be given back).
//! * They can be built outside a runtime; a tokio runtime with time enabled is needed once there is something to wait for.
//!   Inputs need not be `Unpin`. Dropping a `next()` that waits loses nothing and counts nothing.

mod board;
mod collector;
mod concurrent;
mod debounce;
mod enforce;
mod ext;
mod flights;
mod grouped_weighted_within;
mod grouped_within;
mod input;
mod lanes;
mod on_error;
mod pace;
mod pace_batches;
mod pace_by_cost;
mod pace_by_key;
mod sample;
mod shed;
mod throttle_first;
mod try_ext;
mod try_grouped_weighted_within;
mod try_grouped_within;

pub use concurrent::Concurrent;
pub use debounce::Debounce;
pub use enforce::Enforce;
pub use ext::PaceStreamExt;
pub use grouped_weighted_within::GroupedWeightedWithin;
pub use grouped_within::GroupedWithin;
pub use on_error::OnError;
pub use pace::Pace;
pub use pace_batches::PaceBatches;
pub use pace_by_cost::PaceByCost;
pub use pace_by_key::PaceByKey;
pub use sample::Sample;
pub use shed::Shed;
pub use throttle_first::ThrottleFirst;
pub use try_ext::PaceTryStreamExt;
pub use try_grouped_weighted_within::TryGroupedWeightedWithin;
pub use try_grouped_within::TryGroupedWithin;

#[doc(no_inline)]
pub use crate::batch::Window;
#[doc(no_inline)]
pub use crate::limiter::Exceeded;
