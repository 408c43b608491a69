use core::ops::RangeInclusive;
use core::time::Duration;

use crate::time::{Rate, Tick, saturating_duration};

use super::{Decision, Policy, Quota, Status, widened};

/// Minimum spacing: a request passes at least one interval after the last request *passed*, however late that was.
///
/// After a request of cost c the next one passes c intervals later. The first request passes at once, or one interval
/// after the start with [`with_delayed_start`](Self::with_delayed_start). Unused intervals are not saved up, so no burst follows a pause.
///
/// **Window bound**: two requests of cost 1 are never closer than the interval d, so a half-open window of m · d holds at
/// most m of them, wherever it begins. With costs, the window holds less than m plus the cost of its last request.
///
/// Every cost can pass; the decision is never [`Decision::Never`].
///
/// An interval of zero is no limit. After an interval of more than 584 years no request passes again. Every interval is
/// valid, so that no constructor can fail.
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
/// // This request is 80 late. The next interval starts here.
/// assert_eq!(EVERY.decide(&mut state, at(180), 1), Decision::Pass);
/// assert_eq!(
///     EVERY.decide(&mut state, at(200), 1),
///     Decision::Wait { retry_in: Duration::from_nanos(80) }
/// );
/// ```
#[derive(Clone, Copy, Debug, Eq)]
#[doc(alias("spacing", "minTime"))]
pub struct Interval {
    every: Duration,
    pub(crate) delayed: bool,
    /// What the interval was made from: that number of permits in that time.
    permits: u32,
    window: Duration,
}

impl Interval {
    /// One request per `interval`, counted from the last request that passed.
    #[must_use]
    pub const fn every(interval: Duration) -> Self {
        Self::spreading(1, interval)
    }

    /// The interval that spreads the permits of `rate` evenly: period / permits, rounded up to whole nanoseconds.
    ///
    /// Any window of the rate's period then holds at most the rate's permits. (`Duration / n` rounds *down*, so that some
    /// windows hold one request more.)
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
        Self::spreading(rate.permits(), rate.period())
    }

    const fn spreading(permits: u32, window: Duration) -> Self {
        let nanos = window.as_nanos().div_ceil(permits as u128);
        Self {
            every: saturating_duration(nanos),
            delayed: false,
            permits,
            window,
        }
    }

    /// The same for what *arrives*, if each request takes a time in `delay` to arrive. See [the module](super#a-margin).
    ///
    /// After [`from_rate`](Self::from_rate) any window of the rate's period holds at most the rate's permits, which share the
    /// margin. After [`every`](Self::every) two arrivals are never closer than the interval, which takes all of it.
    ///
    /// ```
    /// use paceline::policy::Interval;
    /// use paceline::time::Rate;
    /// use std::time::Duration;
    ///
    /// let ms = Duration::from_millis;
    /// let twenty = Interval::from_rate(Rate::per_second(20)).with_margin(ms(5)..=ms(85));
    /// assert_eq!(twenty.interval(), ms(54));
    /// let apart = Interval::every(ms(50)).with_margin(ms(5)..=ms(85));
    /// assert_eq!(apart.interval(), ms(130));
    /// ```
    ///
    /// # Panics
    ///
    /// If the longest delay is less than the shortest, or a year longer.
    #[must_use]
    #[track_caller]
    pub const fn with_margin(self, delay: RangeInclusive<Duration>) -> Self {
        if self.every.is_zero() {
            return self;
        }
        Self {
            delayed: self.delayed,
            ..Self::spreading(self.permits, widened(self.window, &delay))
        }
    }

    /// Makes the first request wait too: one interval from the creation of the limit.
    #[must_use]
    pub const fn with_delayed_start(self) -> Self {
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

    /// Whether it was made [`with_delayed_start`](Self::with_delayed_start).
    #[must_use]
    pub const fn is_delayed(&self) -> bool {
        self.delayed
    }

    #[inline]
    fn open_at(&self, state: IntervalState) -> Tick {
        state.last.after_times(self.every, state.cost)
    }
}

/// Equal intervals decide equally, whatever they were made from.
impl PartialEq for Interval {
    fn eq(&self, other: &Self) -> bool {
        (self.every, self.delayed) == (other.every, other.delayed)
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

    fn room(&self, state: &IntervalState, now: Tick) -> u32 {
        match self.every {
            _ if now < self.open_at(*state) => 0,
            Duration::ZERO => u32::MAX,
            _ => 1,
        }
    }

    fn quota(&self) -> Option<Quota> {
        (!self.every.is_zero()).then_some(Quota {
            permits: 1,
            window: self.every,
        })
    }

    /// It resets when the next request passes, also if it is delayed.
    fn status(&self, state: &IntervalState, now: Tick) -> Status {
        let reset_in = self.open_at(*state).since(now);
        Status::new(self.quota(), self.room(state, now), reset_in)
    }

    /// Only the cost of the latest request can be refunded, and later charges.
    fn refund(&self, state: &mut IntervalState, _now: Tick, cost: u32) {
        let cost = cost.min(state.refundable);
        state.cost -= cost;
        state.refundable -= cost;
    }

    /// Permits from before the latest request that passed have no interval left.
    fn refund_from(&self, state: &mut IntervalState, now: Tick, spent_at: Tick, cost: u32) {
        if state.last <= spent_at || now < state.last {
            self.refund(state, now, cost);
        }
    }

    /// The next request passes `cost` intervals later.
    fn charge(&self, state: &mut IntervalState, now: Tick, cost: u32) {
        if cost == 0 || self.decide(state, now, cost).is_pass() {
            return;
        }
        if state.cost.checked_add(cost).is_none() {
            // Then the earlier cost does not follow a new interval.
            (state.last, state.cost, state.refundable) = (self.open_at(*state), 0, 0);
        }
        state.cost += cost;
        state.refundable += cost;
    }

    /// The next request passes at the last one plus its cost in new intervals.
    fn retune(&self, _old: &Self, _state: &mut IntervalState, _now: Tick) {}

    fn settled_at(&self, state: &IntervalState) -> Tick {
        if self.delayed {
            return Tick::MAX;
        }
        self.open_at(*state)
    }

    /// The instant has 56 bits, which last for two years, the cost seven, and the first wait one.
    fn to_word(&self, state: &IntervalState) -> Option<u64> {
        let (last, first_wait) = (state.last.as_nanos(), state.cost - state.refundable);
        let fits = last >> 56 == 0 && state.cost < 1 << 7 && first_wait <= 1;
        fits.then_some(last << 8 | u64::from(state.cost << 1 | first_wait))
    }

    fn of_word(&self, word: u64) -> IntervalState {
        let [cost, ..] = word.to_le_bytes().map(u32::from);
        IntervalState {
            last: Tick::from_nanos(word >> 8),
            cost: cost >> 1,
            refundable: (cost >> 1) - (cost & 1),
        }
    }
}

/// The instant and the cost of the last request that passed an [`Interval`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct IntervalState {
    last: Tick,
    cost: u32,
    /// The part of `cost` that a request used, or a charge. The first wait of a delayed interval is not part of it.
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
    fn an_interval_starts_at_the_last_request_not_on_a_grid() {
        let mut state = EVERY.fresh(at(0));

        assert_eq!(EVERY.decide(&mut state, at(0), 1), AT_ONCE);
        assert_eq!(EVERY.decide(&mut state, at(99), 1), wait(1));
        assert_eq!(EVERY.decide(&mut state, at(180), 1), AT_ONCE);
        assert_eq!(EVERY.decide(&mut state, at(200), 1), wait(80));
        assert_eq!(EVERY.decide(&mut state, at(280), 1), AT_ONCE);
    }

    #[test]
    fn after_a_cost_of_3_the_next_request_waits_3_intervals() {
        let mut state = EVERY.fresh(at(0));

        assert_eq!(EVERY.decide(&mut state, at(0), 3), AT_ONCE);
        assert_eq!(EVERY.decide(&mut state, at(0), 0), AT_ONCE);
        assert_eq!(EVERY.decide(&mut state, at(0), u32::MAX), wait(300));
        assert_eq!(EVERY.decide(&mut state, at(300), u32::MAX), AT_ONCE);
        assert_eq!(EVERY.decide(&mut state, at(300), 1), wait(429_496_729_500));
    }

    #[test]
    fn the_first_request_of_a_delayed_interval_waits() {
        let limit = EVERY.with_delayed_start();
        let mut state = limit.fresh(at(50));

        assert_eq!(limit.decide(&mut state, at(50), 1), wait(100));
        assert_eq!(limit.decide(&mut state, at(150), 1), AT_ONCE);
        assert_eq!(limit.settled_at(&state), Tick::MAX);
    }

    #[test]
    fn a_refund_is_at_most_the_cost_of_the_latest_request() {
        let mut state = EVERY.fresh(at(0));
        assert_eq!(EVERY.decide(&mut state, at(0), 3), AT_ONCE);

        EVERY.refund(&mut state, at(10), 2);
        assert_eq!(EVERY.decide(&mut state, at(10), 1), wait(90));

        EVERY.refund(&mut state, at(10), 2);
        assert_eq!(EVERY.decide(&mut state, at(10), 1), AT_ONCE);

        let mut delayed = EVERY.with_delayed_start().fresh(at(0));
        EVERY.with_delayed_start().refund(&mut delayed, at(0), 1);
        assert_eq!(
            EVERY.with_delayed_start().decide(&mut delayed, at(0), 1),
            wait(100)
        );
    }

    #[test]
    fn a_charge_moves_the_next_request_by_its_intervals() {
        let mut state = EVERY.fresh(at(0));
        assert_eq!(EVERY.decide(&mut state, at(0), 1), AT_ONCE);
        EVERY.charge(&mut state, at(30), 2);
        assert_eq!(EVERY.decide(&mut state, at(30), 1), wait(270));
        EVERY.refund_from(&mut state, at(40), at(30), 1);
        assert_eq!(EVERY.decide(&mut state, at(40), 1), wait(160));

        EVERY.charge(&mut state, at(500), 2);
        assert_eq!(EVERY.decide(&mut state, at(500), 1), wait(200));
        EVERY.refund_from(&mut state, at(500), at(30), 1);
        assert_eq!(EVERY.decide(&mut state, at(500), 1), wait(200));
    }

    #[test]
    fn a_debt_of_more_than_the_largest_cost_is_kept() {
        let mut state = EVERY.fresh(at(0));
        for _ in 0..3 {
            EVERY.charge(&mut state, at(0), u32::MAX);
        }
        let owed = 3 * 429_496_729_500;
        assert_eq!(EVERY.decide(&mut state, at(0), 1), wait(owed));
        EVERY.refund_from(&mut state, at(0), at(0), u32::MAX);
        assert_eq!(EVERY.decide(&mut state, at(0), 1), wait(owed / 3 * 2));
    }

    #[test]
    fn a_new_interval_starts_at_the_last_request() {
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
    fn the_longest_interval_never_passes_again_and_zero_always_passes() {
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

    #[test]
    fn there_is_room_for_one_from_when_the_next_request_passes() {
        let mut state = EVERY.fresh(at(0));
        assert_eq!(EVERY.room(&state, at(0)), 1);
        assert_eq!(EVERY.decide(&mut state, at(0), 3), AT_ONCE);
        assert_eq!([299, 300].map(|now| EVERY.room(&state, at(now))), [0, 1]);
        let status = EVERY.status(&state, at(50));
        assert_eq!((status.remaining, status.reset_in.as_nanos()), (0, 250));

        let delayed = EVERY.with_delayed_start();
        let status = delayed.status(&delayed.fresh(at(7)), at(57));
        assert_eq!((status.remaining, status.reset_in.as_nanos()), (0, 50));
        let no_limit = Interval::every(Duration::ZERO);
        assert_eq!(no_limit.room(&no_limit.fresh(at(0)), at(0)), u32::MAX);
    }

    #[test]
    fn a_state_is_a_word_for_two_years_and_a_cost_below_128() {
        let year = 365 * 86_400 * 1_000_000_000;
        let fits = |cost, nanos| {
            let mut state = EVERY.fresh(at(0));
            assert_eq!(EVERY.decide(&mut state, at(nanos), cost), AT_ONCE);
            let word = EVERY.to_word(&state);
            word.is_some_and(|word| EVERY.of_word(word) == state)
        };
        assert!(fits(1, 2 * year) && fits(127, 2 * year));
        assert!(!fits(128, 0) && !fits(1, 3 * year));

        let delayed = EVERY.with_delayed_start();
        let fresh = delayed.fresh(at(7));
        let word = delayed.to_word(&fresh).unwrap();
        assert_eq!(
            delayed.of_word(word),
            fresh,
            "its first wait is not refundable"
        );
    }
}
