use core::fmt;
use core::time::Duration;

use crate::time::{Rate, Tick};

use super::sums::saturating_duration;
use super::{Decision, Policy};

/// Minimum spacing: the next request passes one interval after the last one *did*, whatever was late.
///
/// A request of cost c buys c intervals: the next one passes c intervals later. The first one passes at once, or one
/// interval after the start with [`delayed`](Self::delayed). An interval that nobody used is not saved up, so nothing
/// ever has to be caught up.
///
/// **Window bound**: two requests of cost 1 are never closer than the interval d, so a half-open window of m · d holds at
/// most m of them, wherever it begins. With costs, the window holds less than m plus the cost of its last request.
///
/// Every cost can pass: it is never told [`Decision::Never`].
///
/// An interval of zero is no limit. One of more than 584 years is for ever.
///
/// ```
/// use paceline::policy::{Decision, Interval, Policy};
/// use paceline::time::Tick;
/// use std::time::Duration;
///
/// const EVERY: Interval = Interval::every(Duration::from_nanos(100));
/// let at = Tick::from_nanos;
/// let mut state = EVERY.fresh(at(0));
///
/// assert_eq!(EVERY.decide(&mut state, at(0), 1), Decision::Pass);
/// // Late by 80, and the next one counts from there.
/// assert_eq!(EVERY.decide(&mut state, at(180), 1), Decision::Pass);
/// assert_eq!(
///     EVERY.decide(&mut state, at(200), 1),
///     Decision::Wait { retry_in: Duration::from_nanos(80) }
/// );
/// ```
#[derive(Clone, Copy, Eq, PartialEq)]
#[doc(alias = "spacing")]
pub struct Interval {
    every: Duration,
    /// The same, as ticks are counted.
    nanos: u64,
    pub(super) delayed: bool,
}

impl Interval {
    /// One request each `interval`, counted from the last one that passed.
    #[must_use]
    pub const fn every(interval: Duration) -> Self {
        Self {
            every: interval,
            nanos: Tick::ZERO.after(interval).as_nanos(),
            delayed: false,
        }
    }

    /// As far apart as `rate` allows if its permits are spread evenly: period / permits, rounded up to whole nanoseconds.
    ///
    /// Any window of the rate's period then holds at most the rate's permits. (`Duration / n` rounds *down*, and lets one
    /// more into some windows.)
    ///
    /// ```
    /// use paceline::policy::Interval;
    /// use paceline::time::Rate;
    /// use std::time::Duration;
    ///
    /// let interval = Interval::from_rate(Rate::per_second(3));
    /// assert_eq!(interval.interval(), Duration::from_nanos(333_333_334));
    /// ```
    #[must_use]
    pub const fn from_rate(rate: Rate) -> Self {
        let nanos = rate.period().as_nanos().div_ceil(rate.permits() as u128);
        Self::every(saturating_duration(nanos))
    }

    /// Makes the first request wait too: one interval from the start of the limit's clock.
    #[must_use]
    pub const fn delayed(self) -> Self {
        Self {
            delayed: true,
            ..self
        }
    }

    /// The interval.
    #[must_use]
    pub const fn interval(&self) -> Duration {
        self.every
    }

    #[inline]
    fn open_at(&self, state: IntervalState) -> Tick {
        Tick::from_nanos(
            state
                .last
                .as_nanos()
                .saturating_add(self.nanos.saturating_mul(state.cost.into())),
        )
    }
}

impl Policy for Interval {
    type State = IntervalState;

    fn fresh(&self, now: Tick) -> IntervalState {
        IntervalState {
            last: now,
            cost: u32::from(self.delayed),
            refundable: 0,
        }
    }

    #[inline]
    fn decide(&self, state: &mut IntervalState, now: Tick, cost: u32) -> Decision {
        if cost == 0 {
            return Decision::Pass;
        }
        let decision = Decision::from(self.open_at(*state), now);
        if decision.is_pass() {
            *state = IntervalState {
                last: now,
                cost,
                refundable: cost,
            };
        }
        decision
    }

    /// Gives back intervals of the latest request only: the one before it is history.
    fn refund(&self, state: &mut IntervalState, _now: Tick, cost: u32) {
        let cost = cost.min(state.refundable);
        state.cost -= cost;
        state.refundable -= cost;
    }

    /// The next slot is the last one plus its cost in new intervals.
    fn retune(&self, _old: &Self, _state: &mut IntervalState, _now: Tick) {}

    fn settled_at(&self, state: &IntervalState) -> Tick {
        if self.delayed {
            return Tick::MAX;
        }
        self.open_at(*state)
    }
}

/// Without what was computed from that.
impl fmt::Debug for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interval")
            .field("every", &self.every)
            .field("delayed", &self.delayed)
            .finish_non_exhaustive()
    }
}

/// When the last request passed an [`Interval`], and what it cost.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct IntervalState {
    last: Tick,
    cost: u32,
    /// How much of `cost` somebody paid: the wait of a delayed start was not.
    refundable: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Interval = Interval::every(Duration::from_nanos(100));
    const AT_ONCE: Decision = Decision::Pass;

    fn at(nanos: u64) -> Tick {
        Tick::from_nanos(nanos)
    }

    fn wait(nanos: u64) -> Decision {
        Decision::Wait {
            retry_in: Duration::from_nanos(nanos),
        }
    }

    #[test]
    fn counts_from_the_last_request_not_from_a_grid() {
        let mut state = EVERY.fresh(at(0));

        assert_eq!(EVERY.decide(&mut state, at(0), 1), AT_ONCE);
        assert_eq!(EVERY.decide(&mut state, at(99), 1), wait(1));
        assert_eq!(EVERY.decide(&mut state, at(180), 1), AT_ONCE);
        assert_eq!(EVERY.decide(&mut state, at(200), 1), wait(80));
        assert_eq!(EVERY.decide(&mut state, at(280), 1), AT_ONCE);
    }

    #[test]
    fn a_cost_buys_as_many_intervals() {
        let mut state = EVERY.fresh(at(0));

        assert_eq!(EVERY.decide(&mut state, at(0), 3), AT_ONCE);
        assert_eq!(EVERY.decide(&mut state, at(0), 0), AT_ONCE);
        assert_eq!(EVERY.decide(&mut state, at(0), u32::MAX), wait(300));
        assert_eq!(EVERY.decide(&mut state, at(300), u32::MAX), AT_ONCE);
        assert_eq!(EVERY.decide(&mut state, at(300), 1), wait(429_496_729_500));
    }

    #[test]
    fn a_delayed_one_makes_the_first_wait_too() {
        let limit = EVERY.delayed();
        let mut state = limit.fresh(at(50));

        assert_eq!(limit.decide(&mut state, at(50), 1), wait(100));
        assert_eq!(limit.decide(&mut state, at(150), 1), AT_ONCE);
        assert_eq!(limit.settled_at(&state), Tick::MAX);
    }

    #[test]
    fn gives_back_what_was_paid_and_no_more() {
        let mut state = EVERY.fresh(at(0));
        assert_eq!(EVERY.decide(&mut state, at(0), 3), AT_ONCE);

        EVERY.refund(&mut state, at(10), 2);
        assert_eq!(EVERY.decide(&mut state, at(10), 1), wait(90));

        EVERY.refund(&mut state, at(10), 2);
        assert_eq!(EVERY.decide(&mut state, at(10), 1), AT_ONCE);

        let mut delayed = EVERY.delayed().fresh(at(0));
        EVERY.delayed().refund(&mut delayed, at(0), 1);
        assert_eq!(EVERY.delayed().decide(&mut delayed, at(0), 1), wait(100));
    }

    #[test]
    fn a_new_interval_counts_from_the_last_request() {
        let mut state = EVERY.fresh(at(0));
        assert_eq!(EVERY.decide(&mut state, at(0), 2), AT_ONCE);

        let slower = Interval::every(Duration::from_nanos(500));
        slower.retune(&EVERY, &mut state, at(10));
        assert_eq!(slower.decide(&mut state, at(10), 1), wait(990));

        let faster = Interval::every(Duration::from_nanos(5));
        faster.retune(&slower, &mut state, at(10));
        assert_eq!(faster.decide(&mut state, at(10), 1), AT_ONCE);
    }

    #[test]
    fn a_rate_is_spread_evenly_and_rounded_up() {
        let thirds = Interval::from_rate(Rate::per_second(3));
        assert_eq!(thirds.interval(), Duration::from_nanos(333_333_334));
        let exact = Interval::from_rate(Rate::per_second(20));
        assert_eq!(exact.interval(), Duration::from_millis(50));
        let fastest = Interval::from_rate(Rate::new(u32::MAX, Duration::from_nanos(1)));
        assert_eq!(fastest.interval(), Duration::from_nanos(1));
        let slowest = Interval::from_rate(Rate::new(1, Duration::MAX));
        assert_eq!(slowest.interval(), Duration::MAX);
    }

    #[test]
    fn for_ever_and_no_limit_are_its_ends() {
        let never_again = Interval::every(Duration::MAX);
        let mut state = never_again.fresh(at(7));
        assert_eq!(never_again.decide(&mut state, at(7), u32::MAX), AT_ONCE);
        assert_eq!(never_again.decide(&mut state, at(7), 1), wait(u64::MAX - 7));

        let no_limit = Interval::every(Duration::ZERO);
        let mut state = no_limit.fresh(at(7));
        for _ in 0..3 {
            assert_eq!(no_limit.decide(&mut state, at(7), u32::MAX), AT_ONCE);
        }
    }
}
