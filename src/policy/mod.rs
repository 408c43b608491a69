//! Pure decisions: fixed parameters, a small state and the time give a [`Decision`].
//!
//! A policy has no clock, no lock and no task; the caller passes the time in. This is why a million random traces can be
//! tested in a second. (An [`AlignedWindow`] also reads a [`WallClock`](crate::time::WallClock), where its windows end.) To use a policy, give it a place to keep its state with
//! [`PolicyExt`](crate::limiter::PolicyExt): `policy.owned()` or `policy.shared()`.
//!
//! # Which one
//!
//! T is the length of a window that may begin anywhere. Windows are half-open: two requests exactly T apart are not in
//! one window.
//!
//! | policy | most in any window of T | sustained | after idling | memory |
//! |---|---|---|---|---|
//! | [`Interval`] d | ⌈T / d⌉, so m in a window of m · d | 1 / d | one at once | 16 bytes |
//! | [`Ramp`] from a to b | ⌈T · the faster⌉, and the area under the rate, rounded up | b | one at once | 48 bytes |
//! | [`TokenBucket`] rate, burst | burst + rate · T | rate | up to `burst` at once | 16 bytes |
//! | [`SlidingLog`] n, W | n in a window of W, exactly | n / W | n at once | 16 bytes an instant, up to n of them |
//! | [`SlidingCounter::strict`] n, W, k | n in a window of W | n / W · k / (k + 1) at least | n at once | 16 bytes a bucket, up to k + 1 |
//! | [`SlidingCounter::smooth`] n, W | 2 n − 1 in a window of W | (n − 1) / W at least | n at once | 32 bytes |
//! | [`FixedWindow`] n, W | 2 n in a window of W | n / W | n at once | 16 bytes |
//! | [`AlignedWindow`] n, of the calendar | n in each of its windows, 2 n in a window of W (28 days for months) | n / W | n at once | 32 bytes |
//! | [`All`] of several | that of each | the slowest | what all allow | the sum |
//! | [`PerRequest`] of one | its own, in requests | its own | its own | its own |
//! | [`Unlimited`] | no bound | no bound | everything | none |
//! | [`AnyPolicy`], of a kind that is chosen at run time | that of the policy in it | | | and 24 bytes |
//!
//! Memory is that of a state. The log and the counters allocate a little more, but nothing before their first use. When all
//! their entries have expired, they keep at most 256 bytes for reuse. All policies are exact: rounding never makes a
//! request pass early.
//!
//! The picture is a run of each policy with a limit of 10 in a second: one request at 0 s, 30 at 0.9 s, and then one every 20 ms.
//! A tick is a request that passes, and the others are refused; the first row has all of them. The last column is the most in a
//! sliding window of a second, in red where it is more than 10.
//!
#![doc = include_str!("bursts.svg")]
//!
//! If a provider says "n per window" and counts a *sliding* window, two policies satisfy it. [`Interval::from_rate`]
//! spreads the requests evenly, by window / n rounded up. [`SlidingLog`] lets bursts pass. A token bucket with the rate
//! n / window and a burst of n does not satisfy it: up to 2n − 1 requests pass in the first window.
//!
//! # A margin
//!
//! A policy decides when a request leaves; a provider counts when it arrives. `with_margin(shortest..=longest)` makes the policy keep
//! its bound for arrivals, whatever time in that range each request takes, also if one overtakes another. The margin is the
//! difference J, less than a year, and no smaller one would do. (A counter could do with 1 ns less.)
//!
//! | the provider counts | write | which is |
//! |---|---|---|
//! | n in any W | [`SlidingLog::with_margin`], [`SlidingCounter::with_margin`] | W + J |
//! | the same, and you send evenly | [`Interval::from_rate`] and [`with_margin`](Interval::with_margin) | (W + J) / n apart |
//! | the time between two arrivals | [`Interval::every`] and the same | J longer |
//! | a bucket of rate r and burst b | [`TokenBucket::with_margin`] | burst b − r · J; or 1, and (1 / r + J) / b apart |
//! | n in a window from the first arrival | [`FixedWindow::with_margin`] | a [`SlidingLog`] n, W + J |
//! | n in a window of the calendar | [`AlignedWindow::with_margin`] | closed for J around the end of a window |
//! | n in any W, and you start slowly | [`Ramp::with_margin`] | both rates in W + J |
//! | several of these, or requests | [`All::with_margin`], [`PerRequest::with_margin`], [`AnyPolicy::try_with_margin`] | each its own |
//!
//! Without a known longest delay use [permits with a cool-down](crate::concurrency::Permits::with_cooldown), or see
//! [the guide](crate::_docs::what_the_provider_counts).
//!
//! # Values from a configuration
//!
//! Every constructor that panics on an argument out of range has a sibling that returns an [`OutOfRange`] error:
//! `TokenBucket::try_new`, `SlidingCounter::try_strict` and so on. A [`Rate`](crate::time::Rate) is never zero, so that
//! the constructors `from_rate` of the windows cannot fail:
//!
//! ```
//! use paceline::policy::SlidingLog;
//! use paceline::time::Rate;
//!
//! let configured: Rate = "100/min".parse()?;
//! let limit = SlidingLog::from_rate(configured);
//! assert_eq!((limit.limit(), limit.window().as_secs()), (100, 60));
//! # Ok::<(), paceline::config::ConfigError>(())
//! ```
//!
//! Where the kind of the policy comes from the configuration too, it is an [`AnyPolicy`], such as `100/min burst 20`. See
//! [`config`](crate::config).
//!
//! # Costs
//!
//! Every request has a cost, usually 1. Cost 0 always passes and uses nothing.

mod aligned_window;
mod alignment;
mod all;
mod any;
mod any_limit;
mod any_text;
mod decision;
mod fixed_window;
mod interval;
mod ledger;
mod per_request;
mod ramp;
mod sliding_counter;
mod sliding_log;
mod token_bucket;
mod unlimited;

use core::fmt::Debug;
use core::ops::RangeInclusive;
use core::time::Duration;

use crate::time::Tick;

pub use crate::time::OutOfRange;
pub use aligned_window::AlignedWindow;
pub use alignment::Alignment;
pub use all::All;
pub use any::AnyPolicy;
pub use any_limit::{AnyKind, AnyLimit};
pub use decision::{Decision, Quota, Status};
pub use fixed_window::FixedWindow;
pub use interval::Interval;
pub(crate) use ledger::Ledger;
pub use per_request::PerRequest;
pub use ramp::Ramp;
pub use sliding_counter::SlidingCounter;
pub use sliding_log::SlidingLog;
pub use token_bucket::TokenBucket;
pub use unlimited::Unlimited;

/// The states of the policies. Few programs name them.
#[doc(hidden)]
pub mod states {
    pub use crate::policy::aligned_window::AlignedWindowState;
    pub use crate::policy::any::AnyPolicyState;
    pub use crate::policy::fixed_window::FixedWindowState;
    pub use crate::policy::interval::IntervalState;
    pub use crate::policy::ramp::RampState;
    pub use crate::policy::sliding_counter::SlidingCounterState;
    pub use crate::policy::sliding_log::SlidingLogState;
    pub use crate::policy::token_bucket::TokenBucketState;
}

/// The decision rule of a limit, as a function of its state and the time.
///
/// # Laws
///
/// Limiters rely on these laws, and the tests of this crate check them for every policy:
///
/// 1. A state changes only on [`Decision::Pass`].
/// 2. A wait is exact: after a wait of d, the same request is refused at d − 1 ns and passes at d, if nothing else passed.
/// 3. Cost 0 passes and changes nothing. Cost 1 is never [`Decision::Never`]. A request that is not `Never` passes
///    eventually.
/// 4. The bound in the policy's docs holds for every window, wherever it begins.
/// 5. From [`settled_at`](Policy::settled_at) on, a state answers as a fresh one does.
/// 6. Nothing panics or overflows, whatever the time and the cost. If the time goes back, a request may pass later than
///    necessary, never earlier.
/// 7. [`room`](Policy::room) requests of cost 1 pass one after another, and the next one does not.
/// 8. A [`charge`](Policy::charge) lets no request pass earlier. A [`refund_from`](Policy::refund_from) of a charge undoes it, if
///    nothing came in between.
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
    /// What the policy remembers between two requests.
    type State: Clone + Debug;

    /// How many limits it consists of: 1, or more in an [`All`]. A policy around another consists of as many.
    const LIMITS: usize = 1;

    /// The state of an unused limit that is created `now`.
    fn fresh(&self, now: Tick) -> Self::State;

    /// Requests `cost` permits, and counts them if the decision is [`Decision::Pass`].
    fn decide(&self, state: &mut Self::State, now: Tick, cost: u32) -> Decision;

    /// The decision that [`decide`](Policy::decide) would make. Nothing is counted.
    ///
    /// Provided: decides on a clone of the state. Override it where a clone is expensive.
    fn peek(&self, state: &Self::State, now: Tick, cost: u32) -> Decision {
        self.decide(&mut state.clone(), now, cost)
    }

    /// Prepares the copy of a state for decisions at `then`, which is still to come. A limiter calls it to estimate how long its
    /// queue takes.
    ///
    /// Provided: does nothing. Override it where a decision also depends on another clock, which does not show `then` yet.
    fn foresee(&self, state: &mut Self::State, then: Tick) {
        let _ = (state, then);
    }

    /// How many permits a limiter may hand out from `now` on without reading the clock again.
    ///
    /// The limiter counts them later, all together, by one [`decide`](Policy::decide) of their sum at its next clock
    /// reading. That `decide` must pass, and counting the permits late must never make the limit looser. Before it hands
    /// out any, the limiter checks with [`peek`](Policy::peek) that all of them pass `now`.
    ///
    /// Provided: none. This is right for a policy in which a late count would move the start of a window.
    fn credit(&self, state: &Self::State, now: Tick) -> u32 {
        let _ = (state, now);
        0
    }

    /// How many requests of cost 1 pass `now`, one after another. [`u32::MAX`] means that many or more.
    ///
    /// ```
    /// use paceline::policy::{FixedWindow, Policy};
    /// use paceline::time::Tick;
    /// use std::time::Duration;
    ///
    /// let limit = FixedWindow::new(10, Duration::from_secs(60));
    /// let mut state = limit.fresh(Tick::ZERO);
    ///
    /// assert!(limit.decide(&mut state, Tick::ZERO, 3).is_pass());
    /// assert_eq!(limit.room(&state, Tick::ZERO), 7);
    /// ```
    ///
    /// Provided: counts them by [`decide`](Policy::decide) on a clone of the state, one after another. Override it where a formula
    /// exists, and where a large number may pass.
    fn room(&self, state: &Self::State, now: Tick) -> u32 {
        let mut state = state.clone();
        let mut room = 0;
        while room < u32::MAX && self.decide(&mut state, now, 1).is_pass() {
            room += 1;
        }
        room
    }

    /// The limit as a number of permits in a window, to describe it to callers. It never changes.
    ///
    /// | policy | quota |
    /// |---|---|
    /// | [`Interval`] d | 1 in d; `None` if d is zero |
    /// | [`Ramp`] from a to b | 1 in the interval of b |
    /// | [`TokenBucket`] rate, burst | the rate, over the longer of its period and the time in which the bucket fills |
    /// | [`SlidingLog`], [`SlidingCounter`], [`FixedWindow`] n, W | n in W |
    /// | [`AlignedWindow`] n | n in its window; a month counts as 31 days |
    /// | [`All`] of several | the one of fewest permits; [`status`](Policy::status) has the one that binds now |
    /// | [`PerRequest`] of one | its own |
    /// | [`Unlimited`] | `None` |
    ///
    /// ```
    /// use paceline::policy::{Policy, Quota, TokenBucket};
    /// use paceline::time::Rate;
    /// use std::time::Duration;
    ///
    /// let quota = |permits, secs| Some(Quota { permits, window: Duration::from_secs(secs) });
    ///
    /// assert_eq!(TokenBucket::new(Rate::per_second(30), 5).quota(), quota(30, 1));
    /// assert_eq!(TokenBucket::new(Rate::per_second(30), 90).quota(), quota(90, 3));
    /// ```
    ///
    /// Provided: `None`.
    fn quota(&self) -> Option<Quota> {
        None
    }

    /// Whether each request counts as 1, whatever it costs. Then a number of requests that a provider has left is counted so,
    /// too, and a charge is no request.
    ///
    /// Provided: `false`.
    fn is_per_request(&self) -> bool {
        false
    }

    /// What the limit has left `now`. Nothing is counted.
    ///
    /// Of several limits it describes the one with the least room; if several have, the one with the latest reset, and of those
    /// the first.
    ///
    /// Provided: from [`quota`](Policy::quota), [`room`](Policy::room) and [`settled_at`](Policy::settled_at). Override it for a
    /// policy that never settles: its [`reset_in`](Status::reset_in) is the time until it answers as an unused limit that did
    /// not start delayed or empty.
    fn status(&self, state: &Self::State, now: Tick) -> Status {
        let reset_in = self.settled_at(state).since(now);
        Status::new(self.quota(), self.room(state, now), reset_in)
    }

    /// Returns `cost` permits that passed and were not used. The state never becomes better than full.
    ///
    /// A refund cannot undo time: if other permits passed in between, the refunded ones come on top of the bound of a window
    /// that holds those others.
    fn refund(&self, state: &mut Self::State, now: Tick, cost: u32);

    /// Returns `cost` permits that passed at `spent_at` and were not used, as far as they still count `now`.
    ///
    /// A [`refund`](Policy::refund) that comes when the window of the permits is over must not make room in the window after it.
    ///
    /// Provided: [`refund`](Policy::refund). This is right where permits count for the same time whenever they were spent.
    fn refund_from(&self, state: &mut Self::State, now: Tick, spent_at: Tick, cost: u32) {
        let _ = spent_at;
        self.refund(state, now, cost);
    }

    /// Counts `cost` permits that were used without having been asked for, whether or not they would pass. What is more than the
    /// limit has left is a debt: later requests wait until it is paid.
    ///
    /// Where `cost` would pass, it is the same as [`decide`](Policy::decide).
    ///
    /// Provided: counts as many as pass `now`, for a policy that cannot owe.
    fn charge(&self, state: &mut Self::State, now: Tick, cost: u32) {
        let _ = self.decide(state, now, cost.min(self.room(state, now)));
    }

    /// Converts a `state` of the `old` parameters to these parameters. What was spent stays spent.
    fn retune(&self, old: &Self, state: &mut Self::State, now: Tick);

    /// The instant from which the state answers as a fresh one does, if no request comes before; [`Tick::MAX`] if never.
    fn settled_at(&self, state: &Self::State) -> Tick;

    /// Whether the state answers as a fresh one does from `now` on.
    ///
    /// Provided: compares with [`settled_at`](Policy::settled_at). Override it where a cheaper test exists.
    fn is_settled(&self, state: &Self::State, now: Tick) -> bool {
        self.settled_at(state) <= now
    }

    /// Until when permits that no request takes are saved up for later ones. What is more than that is lost.
    ///
    /// Provided: [`Tick::ZERO`], for a policy that saves up none.
    #[doc(hidden)]
    fn saves_until(&self, _state: &Self::State) -> Tick {
        Tick::ZERO
    }

    /// The state as a number, if it fits into one. A key of a limit by key then takes less memory.
    ///
    /// Provided: `None`.
    #[doc(hidden)]
    fn to_word(&self, _state: &Self::State) -> Option<u64> {
        None
    }

    /// The state with this [`to_word`](Self::to_word), exactly. The policy is the one that made the word.
    ///
    /// Provided: a fresh state, where no state is a word.
    #[doc(hidden)]
    fn of_word(&self, _word: u64) -> Self::State {
        self.fresh(Tick::ZERO)
    }
}

/// The [`credit`](Policy::credit) of a policy that lets at most `limit` pass at once and in which a request that passes now
/// would pass later too.
///
/// It is 1/32 of the limit, so that at most this share is missing after a long pause, and at most 256, since more saves
/// nothing. Below 15 it is none: of a small burst every permit counts.
#[inline]
fn credit_of<P: Policy>(policy: &P, state: &P::State, now: Tick, limit: u32) -> u32 {
    let credit = (limit / 32).min(256);
    if credit < 15 || !policy.peek(state, now, credit).is_pass() {
        return 0;
    }
    credit
}

/// The decision `now` on a request of `cost` to a window of at most `limit`.
///
/// `open_at(room)` is the instant from which at most `room` of the earlier permits still count.
#[inline]
fn decide_in_window(
    limit: u32,
    now: Tick,
    cost: u32,
    open_at: impl FnOnce(u32) -> Tick,
) -> Decision {
    let Some(room) = limit.checked_sub(cost) else {
        return Decision::Never { capacity: limit };
    };
    if cost == 0 {
        return Decision::Pass;
    }
    Decision::from(open_at(room), now)
}

/// The [`room`](Policy::room) of a window of at most `limit` with `spent` permits in it.
fn room_in_window(limit: u32, spent: u64) -> u32 {
    limit.saturating_sub(u32::try_from(spent).unwrap_or(u32::MAX))
}

/// How much closer two requests can arrive than they left, if each takes a time in `delay`: at most a year.
const fn spread(delay: &RangeInclusive<Duration>) -> Result<Duration, OutOfRange> {
    let (shortest, longest) = (*delay.start(), *delay.end());
    let message = match longest.checked_sub(shortest) {
        Some(spread) if spread.as_secs() < 365 * 86_400 => return Ok(spread),
        Some(_) => "a margin needs a longest delay less than a year above the shortest",
        None => "a margin needs a longest delay of at least the shortest",
    };
    Err(OutOfRange::new("delay", message).got_times(longest, shortest))
}

/// A window that holds all requests that can arrive in one of this length.
#[track_caller]
const fn widened(window: Duration, delay: &RangeInclusive<Duration>) -> Duration {
    window.saturating_add(OutOfRange::or_panic(spread(delay)))
}

/// What every window needs.
const fn check_window(limit: u32, window: Duration) -> Result<(), OutOfRange> {
    if limit == 0 {
        return Err(OutOfRange::new(
            "limit",
            "a window needs a limit of at least 1, got 0",
        ));
    }
    if window.is_zero() {
        return Err(OutOfRange::new(
            "window",
            "a window needs to be at least 1 ns long, got 0",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::states::FixedWindowState;
    use super::*;

    type Made = Result<(), OutOfRange>;

    /// What each constructor for values from a configuration returns.
    fn made(limit: u32, window: Duration, buckets: u32) -> [Made; 4] {
        [
            FixedWindow::try_new(limit, window).map(drop),
            SlidingLog::try_new(limit, window).map(drop),
            SlidingCounter::try_strict(limit, window, buckets).map(drop),
            SlidingCounter::try_smooth(limit, window).map(drop),
        ]
    }

    #[test]
    fn every_window_refuses_a_zero_with_its_name_and_its_range() {
        let second = Duration::from_secs(1);
        assert_eq!(made(1, second, 1), [Ok(()); 4]);

        let limit = OutOfRange::new("limit", "a window needs a limit of at least 1, got 0");
        assert_eq!(made(0, second, 1), [Err(limit); 4]);
        let window = OutOfRange::new("window", "a window needs to be at least 1 ns long, got 0");
        assert_eq!(made(1, Duration::ZERO, 1), [Err(window); 4]);
        let buckets = OutOfRange::new("buckets", "a counter needs at least 1 bucket, got 0");
        let expected = [Ok(()), Ok(()), Err(buckets), Ok(())];
        assert_eq!(made(1, second, 0), expected);
        assert_eq!(buckets.parameter(), "buckets");
    }

    #[test]
    #[should_panic(expected = "a counter needs at least 1 bucket, got 0")]
    fn a_counter_from_a_rate_panics_on_0_buckets() {
        let _ = SlidingCounter::strict_from_rate(crate::time::Rate::per_second(1), 0);
    }

    #[test]
    #[should_panic(expected = "of at least the shortest, got 5000000 ns and 80000000 ns")]
    fn a_margin_for_delays_in_the_wrong_order_panics() {
        let ms = Duration::from_millis;
        let _ = SlidingLog::new(1, Duration::MAX).with_margin(ms(80)..=ms(5));
    }

    #[test]
    fn a_margin_of_a_year_is_refused() {
        let margin = |longest| {
            let limits = [
                "10/s",
                "every 1s",
                "10/s burst 5",
                "10/s smooth",
                "10/s fixed",
            ];
            limits.map(|limit| {
                let limit: AnyPolicy = limit.parse().unwrap();
                limit.try_with_margin(Duration::ZERO..=longest).err()
            })
        };
        let message = "a margin needs a longest delay less than a year above the shortest";
        for longest in [YEAR, Duration::MAX] {
            let error = OutOfRange::new("delay", message).got_times(longest, Duration::ZERO);
            assert_eq!(margin(longest), [Some(error); 5]);
        }
        assert_eq!(margin(LONGEST), [None; 5]);
    }

    const YEAR: Duration = Duration::from_secs(365 * 86_400);
    const LONGEST: Duration = YEAR.saturating_sub(Duration::from_nanos(1));

    #[test]
    fn the_longest_margin_does_not_overflow() {
        use crate::time::Rate;

        const DELAY: RangeInclusive<Duration> = Duration::ZERO..=LONGEST;
        const SLOWEST: Rate = Rate::new(1, Duration::MAX);
        const FASTEST: Rate = Rate::new(u32::MAX, Duration::from_nanos(1));
        const LOG: SlidingLog = SlidingLog::from_rate(SLOWEST).with_margin(DELAY);
        assert_eq!(LOG, SlidingLog::from_rate(SLOWEST));
        let every = Interval::from_rate(FASTEST).with_margin(DELAY);
        assert_eq!(
            every.interval(),
            LONGEST / u32::MAX + Duration::from_nanos(1)
        );
        for (rate, burst) in [(SLOWEST, 1), (SLOWEST, u32::MAX), (FASTEST, u32::MAX)] {
            let bucket = TokenBucket::new(rate, burst).with_margin(DELAY);
            assert!(bucket.rate() <= rate && bucket.burst() <= burst);
        }
    }

    #[test]
    fn a_quota_is_what_the_table_in_the_docs_says() {
        use crate::time::Rate;

        let second = Duration::from_secs(1);
        let quota = |permits, window| Some(Quota { permits, window });
        assert_eq!(Interval::every(second).quota(), quota(1, second));
        assert_eq!(Interval::every(Duration::ZERO).quota(), None);
        assert_eq!(Unlimited.quota(), None);
        assert_eq!(SlidingLog::new(7, second).quota(), quota(7, second));
        assert_eq!(FixedWindow::new(7, second).quota(), quota(7, second));
        let strict = SlidingCounter::strict(7, second, 3);
        assert_eq!(strict.quota(), quota(7, second));
        let smooth = SlidingCounter::smooth(7, second);
        assert_eq!(smooth.quota(), quota(7, second));

        let bucket = |burst| TokenBucket::new(Rate::per_second(3), burst).quota();
        assert_eq!(bucket(1), quota(3, second));
        assert_eq!(bucket(3), quota(3, second));
        let rounded_up = Duration::from_nanos(1_333_333_334);
        assert_eq!(bucket(4), quota(4, rounded_up));
        let slowest = TokenBucket::new(Rate::new(1, Duration::MAX), u32::MAX);
        assert_eq!(slowest.quota(), quota(u32::MAX, Duration::MAX));

        let (log, window) = (SlidingLog::new(7, second), FixedWindow::new(7, 2 * second));
        let all = All::new((Unlimited, log, window, Interval::every(Duration::ZERO)));
        assert_eq!(all.quota(), quota(7, 2 * second));
        assert_eq!(All::new((Unlimited, Unlimited)).quota(), None);
    }

    /// It has no formula of its own.
    struct Plain(FixedWindow);

    impl Policy for Plain {
        type State = FixedWindowState;

        fn fresh(&self, now: Tick) -> FixedWindowState {
            self.0.fresh(now)
        }

        fn decide(&self, state: &mut FixedWindowState, now: Tick, cost: u32) -> Decision {
            self.0.decide(state, now, cost)
        }

        fn refund(&self, state: &mut FixedWindowState, now: Tick, cost: u32) {
            self.0.refund(state, now, cost);
        }

        fn retune(&self, _old: &Self, _state: &mut FixedWindowState, _now: Tick) {}

        fn settled_at(&self, state: &FixedWindowState) -> Tick {
            self.0.settled_at(state)
        }
    }

    #[test]
    fn a_policy_without_formulas_counts_its_room_by_deciding() {
        let window = Duration::from_nanos(100);
        let limit = Plain(FixedWindow::new(5, window));
        let mut state = limit.fresh(Tick::ZERO);
        assert!(limit.decide(&mut state, Tick::ZERO, 2).is_pass());

        let now = Tick::from_nanos(30);
        assert_eq!(limit.room(&state, now), 3);
        let left = Status::new(None, 3, Duration::from_nanos(70));
        assert_eq!(limit.status(&state, now), left);
        assert_eq!(limit.status(&state, Tick::from_nanos(100)).remaining, 5);
    }
}
