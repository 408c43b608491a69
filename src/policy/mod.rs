//! Pure sums: fixed parameters, a small state and the time give a [`Decision`].
//!
//! A policy has no clock, no lock and no task; it is *given* the time. That is why it can be tried on a million random
//! traces in a second. To use one, give it somewhere to live with [`PolicyExt`](crate::limiter::PolicyExt):
//! `policy.owned()` or `policy.shared()`.
//!
//! # Which one
//!
//! T is the length of a window that may lie anywhere, and is half-open: two requests exactly T apart are not in one.
//!
//! | policy | most in any window of T | sustained | after idling | memory |
//! |---|---|---|---|---|
//! | [`Interval`] d | ⌈T / d⌉, so m in a window of m · d | 1 / d | one at once | 16 bytes |
//! | [`TokenBucket`] rate, burst | burst + rate · T | rate | up to `burst` at once | 16 bytes |
//! | [`SlidingLog`] n, W | n in a window of W, exactly | n / W | n at once | 16 bytes an instant, up to n of them |
//! | [`SlidingCounter::strict`] n, W, k | n in a window of W | n / W · k / (k + 1) at least | n at once | 16 bytes a bucket, up to k + 1 |
//! | [`SlidingCounter::smooth`] n, W | 2 n − 1 in a window of W | (n − 1) / W at least | n at once | 32 bytes |
//! | [`FixedWindow`] n, W | 2 n in a window of W | n / W | n at once | 16 bytes |
//! | [`All`] of several | that of each | the least | what all allow | theirs |
//! | [`Unlimited`] | no bound | no bound | everything | none |
//!
//! Memory is that of a state; the logs and counters take a little more to manage theirs, none before they are used, and keep
//! 256 bytes at most, to use them again, when all that they know is over. All are exact in time: nothing is rounded in favour
//! of the one who asks.
//!
//! A provider that says "n per window" and counts a *sliding* window is satisfied by [`Interval::from_rate`], which is
//! window / n, rounded up, and spreads the requests evenly, or by [`SlidingLog`], which lets bursts pass. A bucket of rate
//! n / window and burst n is not enough: it lets up to 2n − 1 through in the first window.
//!
//! # Costs
//!
//! Every request has a cost, mostly 1. Cost 0 always passes and uses nothing.

mod all;
mod bucket_state;
mod credit;
mod decision;
mod fixed_window;
mod interval;
mod ledger;
#[cfg(feature = "redis")]
mod of_redis;
mod sliding_counter;
mod sliding_log;
mod sums;
mod token_bucket;
mod unlimited;

use core::fmt::Debug;
use core::time::Duration;

use crate::time::Tick;

pub use crate::time::OutOfRange;
pub use all::All;
pub use bucket_state::TokenBucketState;
pub use decision::Decision;
pub use fixed_window::{FixedWindow, FixedWindowState};
pub use interval::{Interval, IntervalState};
pub use sliding_counter::{SlidingCounter, SlidingCounterState};
pub use sliding_log::{SlidingLog, SlidingLogState};
pub use token_bucket::TokenBucket;
pub use unlimited::Unlimited;

/// The arithmetic of a limit, given the time.
///
/// # Laws
///
/// Callers rely on them, and the tests of this crate try them on every policy:
///
/// 1. A state changes on [`Decision::Pass`] only.
/// 2. A wait is exact: told to wait d, the same request is refused at d − 1 ns and passes at d, if nothing else passed.
/// 3. Cost 0 passes and changes nothing. Cost 1 is never [`Decision::Never`]. What is not `Never` passes in the end.
/// 4. The bound that the policy's docs state holds for every window, wherever it begins.
/// 5. From [`settled_at`](Policy::settled_at) on, a state and a fresh one answer alike.
/// 6. Nothing panics and nothing overflows, whatever the time and the cost. Should the time go back, the answer may be
///    later than need be, never earlier.
///
/// ```
/// use paceline::policy::{Decision, Interval, Policy};
/// use paceline::time::Tick;
/// use std::time::Duration;
///
/// let every = Interval::every(Duration::from_nanos(100));
/// let mut state = every.fresh(Tick::ZERO);
///
/// assert_eq!(every.decide(&mut state, Tick::ZERO, 1), Decision::Pass);
/// assert_eq!(
///     every.decide(&mut state, Tick::from_nanos(30), 1),
///     Decision::Wait { retry_in: Duration::from_nanos(70) }
/// );
/// ```
pub trait Policy {
    /// What has to be remembered between two requests.
    type State: Clone + Debug;

    /// The state of a limit that nobody has used yet, and whose clock starts `now`.
    fn fresh(&self, now: Tick) -> Self::State;

    /// Asks for `cost` permits, and counts them if the answer is [`Decision::Pass`].
    fn decide(&self, state: &mut Self::State, now: Tick, cost: u32) -> Decision;

    /// What [`decide`](Policy::decide) would say. Nothing is counted.
    ///
    /// Provided: decides on a clone. A policy whose state is dear to clone does better.
    fn peek(&self, state: &Self::State, now: Tick, cost: u32) -> Decision {
        self.decide(&mut state.clone(), now, cost)
    }

    /// How many permits may pass from `now` on, whenever that is, without a look at the clock: in requests of any cost up to
    /// that, which are counted together, by one [`decide`](Policy::decide) of their sum at the next look. To count them late must
    /// only ever make the limit stricter, and they must pass then.
    ///
    /// A limiter asks with [`peek`](Policy::peek) whether so many pass `now`, and hands out none if not.
    ///
    /// Provided: none. That is right where what is counted moves the borders of a window, so that to count it late is no
    /// stricter.
    fn credit(&self, state: &Self::State, now: Tick) -> u32 {
        let _ = (state, now);
        0
    }

    /// Gives back `cost` permits that passed and were not used. The state never becomes better than full.
    ///
    /// A limit cannot take back time: permits that are given back after others passed are on top of the bound of a window that
    /// holds those others.
    fn refund(&self, state: &mut Self::State, now: Tick, cost: u32);

    /// Re-expresses a `state` of the `old` parameters in these, keeping what was spent.
    fn retune(&self, old: &Self, state: &mut Self::State, now: Tick);

    /// From when on the state answers like a fresh one, if nothing is asked of it before; [`Tick::MAX`] if never.
    fn settled_at(&self, state: &Self::State) -> Tick;

    /// Whether the state answers like a fresh one from `now` on.
    ///
    /// Provided: compares with [`settled_at`](Policy::settled_at). A policy that can tell without that sum does better.
    fn is_settled(&self, state: &Self::State, now: Tick) -> bool {
        self.settled_at(state) <= now
    }
}

#[track_caller]
const fn assert_window(limit: u32, window: Duration) {
    assert!(limit > 0, "a window needs a limit of at least 1, got 0");
    assert!(
        !window.is_zero(),
        "a window needs to be at least 1 ns long, got 0"
    );
}
