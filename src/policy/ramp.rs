use core::ops::RangeInclusive;
use core::time::Duration;

use crate::time::{Rate, Tick, saturating_duration};

use super::{Decision, Interval, OutOfRange, Policy, Quota, Status, spread};

/// Slow start: minimum spacing at a rate that changes evenly from one to another, and then stays.
///
/// The first request passes at once and begins the ramp. After a request of cost c the next one passes as soon as c permits
/// have come since, which is what the area under the rate says. So nothing is saved up, as with an [`Interval`].
/// [`with_restart_after`](Self::with_restart_after) lets it begin again after an idle time, since a cache or a pool of connections
/// that was not used is cold again.
///
/// **Window bound**: a half-open window holds at most the area under the rate in it, rounded up, and so at most
/// ⌈T · the faster rate⌉ in any window of T. With costs, it holds less than that plus the cost of its last request. It is exact to
/// 1 ns a permit, in whole numbers.
///
/// Every cost can pass; the decision is never [`Decision::Never`].
///
/// ```
/// use paceline::policy::{Policy, Ramp};
/// use paceline::time::{Rate, Tick};
/// use std::time::Duration;
///
/// // From 2/s to 10/s in 2 s: 12 permits come until then.
/// let ramp = Ramp::new(Rate::per_second(2), Rate::per_second(10), Duration::from_secs(2));
/// let mut state = ramp.fresh(Tick::ZERO);
/// let passed: Vec<u64> = (0..3_000)
///     .filter(|ms| ramp.decide(&mut state, Tick::from_nanos(ms * 1_000_000), 1).is_pass())
///     .collect();
///
/// assert_eq!(passed[..5], [0, 367, 619, 824, 1_001]);
/// assert_eq!(passed.iter().filter(|ms| **ms < 2_000).count(), 12);
/// assert_eq!(passed.iter().filter(|ms| **ms >= 2_000).count(), 10);
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[doc(alias("warmup", "warm_up", "slow_start", "SmoothWarmingUp"))]
pub struct Ramp {
    from: Rate,
    to: Rate,
    within: Duration,
    restart_after: Option<Duration>,
}

/// A ramp and a period are at most this long, about 39 hours, so that an area fits into 128 bits.
const LONGEST: Duration = Duration::from_nanos(1 << 47);

impl Ramp {
    /// A rate that is `from` at first and `to` after `within`.
    ///
    /// # Panics
    ///
    /// As [`try_new`](Self::try_new) fails.
    #[must_use]
    #[track_caller]
    pub const fn new(from: Rate, to: Rate, within: Duration) -> Self {
        OutOfRange::or_panic(Self::try_new(from, to, within))
    }

    /// The same as [`new`](Self::new), for values from a configuration.
    ///
    /// # Errors
    ///
    /// If `within` is zero, if it or a period is longer than 2⁴⁷ ns (39 hours), or if the two rates cannot be written with one
    /// period: the longer period must be a multiple of the shorter, and the permits in it at most [`u32::MAX`].
    pub const fn try_new(from: Rate, to: Rate, within: Duration) -> Result<Self, OutOfRange> {
        let longer = if from.period().as_nanos() > to.period().as_nanos() {
            from.period()
        } else {
            to.period()
        };
        if within.is_zero() || within.as_nanos() > LONGEST.as_nanos() {
            let message = "a ramp takes from 1 ns to 39 hours";
            return Err(OutOfRange::new("within", message).got_time(within));
        }
        if longer.as_nanos() > LONGEST.as_nanos() {
            let message = "the rates of a ramp have periods of at most 39 hours";
            return Err(OutOfRange::new("from", message).got_time(longer));
        }
        let (Some(from), Some(to)) = (from.in_period(longer), to.in_period(longer)) else {
            let message =
                "both rates of a ramp need whole numbers in the longer period, as 60/min and 10/s";
            return Err(OutOfRange::new("to", message).got_time(longer));
        };
        Ok(Self {
            from,
            to,
            within,
            restart_after: None,
        })
    }

    /// The ramp begins again with the first request that comes `idle` after it could have passed, or later. Without this, the limit of
    /// a key that was used once is never forgotten. A ramp runs by the clock, used or not: one request within each `idle` keeps it up.
    ///
    /// # Panics
    ///
    /// If `idle` is zero: the ramp would begin again with each request.
    #[must_use]
    #[track_caller]
    pub const fn with_restart_after(self, idle: Duration) -> Self {
        OutOfRange::or_panic(self.try_with_restart_after(idle))
    }

    /// For the text of a policy.
    pub(super) const fn try_with_restart_after(
        mut self,
        idle: Duration,
    ) -> Result<Self, OutOfRange> {
        if idle.is_zero() {
            let message = "a ramp restarts after an idle time of at least 1 ns, got 0";
            return Err(OutOfRange::new("idle", message));
        }
        self.restart_after = Some(idle);
        Ok(self)
    }

    /// At most the permits of the faster rate *arrive* in any window of its [`period`](Rate::period), if each request takes a time
    /// in `delay` to arrive. See [the module](super#a-margin).
    ///
    /// Both rates get the longer period. If they were given with two periods, the window is the longer one.
    ///
    /// ```
    /// use paceline::policy::Ramp;
    /// use paceline::time::Rate;
    /// use std::time::Duration;
    ///
    /// let ms = Duration::from_millis;
    /// let ramp = Ramp::new(Rate::per_second(1), Rate::per_second(20), ms(60_000));
    /// assert_eq!(ramp.with_margin(ms(5)..=ms(80)).to(), Rate::new(20, ms(1_075)));
    /// ```
    ///
    /// # Panics
    ///
    /// If the longest delay is less than the shortest, or if the period and the margin are longer than 39 hours.
    #[must_use]
    #[track_caller]
    pub const fn with_margin(self, delay: RangeInclusive<Duration>) -> Self {
        OutOfRange::or_panic(self.try_with_margin(&delay))
    }

    /// For the text of a policy.
    pub(super) const fn try_with_margin(
        mut self,
        delay: &RangeInclusive<Duration>,
    ) -> Result<Self, OutOfRange> {
        let period = match spread(delay) {
            Ok(spread) => self.to.period().saturating_add(spread),
            Err(error) => return Err(error),
        };
        self.from = Rate::new(self.from.permits(), period);
        self.to = Rate::new(self.to.permits(), period);
        match Self::try_new(self.from, self.to, self.within) {
            Ok(_) => Ok(self),
            Err(error) => Err(error),
        }
    }

    /// The rate at the beginning.
    #[must_use]
    pub const fn from(&self) -> Rate {
        self.from
    }

    /// The rate at the end.
    #[must_use]
    pub const fn to(&self) -> Rate {
        self.to
    }

    /// How long the rate changes.
    #[must_use]
    pub const fn within(&self) -> Duration {
        self.within
    }

    /// The idle time after which it begins again.
    #[must_use]
    pub const fn restart_after(&self) -> Option<Duration> {
        self.restart_after
    }

    /// When it begins again.
    const fn restarts_at(&self, state: &RampState) -> Tick {
        match (state.begun, self.restart_after) {
            (None, _) => Tick::ZERO,
            (_, None) => Tick::MAX,
            (_, Some(idle)) => state.open_at.after(idle),
        }
    }

    /// The area under the rate from the beginning to an instant of the ramp. A permit is 2 · within · period.
    fn area(&self, until: u128) -> u128 {
        let [from, to] = [self.from, self.to].map(|rate| u128::from(rate.permits()));
        until * (from * (2 * self.within.as_nanos() - until) + to * until)
    }

    /// The first instant at which this cost has come since the last request.
    fn opens_at(&self, begun: Tick, last: Tick, cost: u32) -> Tick {
        let within = self.within.as_nanos();
        let at = last.since(begun).as_nanos();
        let cost = u128::from(cost) * 2 * within * self.to.period().as_nanos();
        let paid = self.area(at.min(within)) + cost;
        // The area grows with each nanosecond of the ramp.
        let (mut start, mut end) = (at, at.max(within));
        while start < end {
            let middle = start.midpoint(end);
            if self.area(middle) < paid {
                start = middle + 1;
            } else {
                end = middle;
            }
        }
        let rest = paid.saturating_sub(self.area(within));
        let later = rest.div_ceil(2 * within * u128::from(self.to.permits()));
        begun.after(saturating_duration(end + later))
    }

    /// Gives the last request another cost.
    fn set_cost(&self, state: &mut RampState, cost: u32) {
        state.cost = cost;
        state.open_at = match state.begun {
            Some(begun) if cost > 0 => self.opens_at(begun, state.last, cost),
            _ => state.before,
        };
    }
}

impl Policy for Ramp {
    type State = RampState;

    fn fresh(&self, now: Tick) -> RampState {
        RampState {
            last: now,
            ..RampState::default()
        }
    }

    fn decide(&self, state: &mut RampState, now: Tick, cost: u32) -> Decision {
        if cost == 0 {
            return Decision::Pass;
        }
        let decision = Decision::from(state.open_at, now);
        if decision.is_pass() {
            let begun = state.begun.filter(|_| now < self.restarts_at(state));
            state.last = now.max(state.last);
            state.begun = begun.or(Some(state.last));
            state.before = state.open_at;
            self.set_cost(state, cost);
        }
        decision
    }

    fn room(&self, state: &RampState, now: Tick) -> u32 {
        u32::from(state.open_at <= now)
    }

    /// That of the rate at the end.
    fn quota(&self) -> Option<Quota> {
        Interval::from_rate(self.to).quota()
    }

    /// It resets when the next request passes.
    fn status(&self, state: &RampState, now: Tick) -> Status {
        let reset_in = state.open_at.since(now);
        Status::new(self.quota(), self.room(state, now), reset_in)
    }

    /// Only the cost of the latest request can be refunded, and later charges.
    fn refund(&self, state: &mut RampState, _now: Tick, cost: u32) {
        let rest = state.cost.saturating_sub(cost);
        if rest == 0 && state.begun == Some(state.last) {
            // Then the ramp has not begun.
            state.begun = None;
            state.before = Tick::ZERO;
        }
        self.set_cost(state, rest);
    }

    /// Permits from before the latest request that passed do not count any more.
    fn refund_from(&self, state: &mut RampState, now: Tick, spent_at: Tick, cost: u32) {
        if state.last <= spent_at || now < state.last {
            self.refund(state, now, cost);
        }
    }

    /// The next request passes when this has come, too.
    fn charge(&self, state: &mut RampState, now: Tick, cost: u32) {
        if cost == 0 || self.decide(state, now, cost).is_pass() {
            return;
        }
        let sum = state.cost.checked_add(cost);
        if sum.is_none() {
            // Then the earlier cost does not follow a new ramp.
            (state.last, state.before) = (state.open_at, state.open_at);
        }
        self.set_cost(state, sum.unwrap_or(cost));
    }

    /// The next request passes when the cost of the last one has come under the new ramp, as if that had begun when the old one did.
    fn retune(&self, _old: &Self, state: &mut RampState, now: Tick) {
        self.refund(state, now, 0);
    }

    fn settled_at(&self, state: &RampState) -> Tick {
        self.restarts_at(state)
    }
}

/// When a [`Ramp`] began, and the last request that passed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RampState {
    /// `None` before the first request.
    begun: Option<Tick>,
    last: Tick,
    cost: u32,
    open_at: Tick,
    /// What `open_at` was for the last request. It is again after a refund.
    before: Tick,
}

#[cfg(test)]
mod tests {
    use super::*;

    const UP: Ramp = Ramp::new(
        Rate::new(1, Duration::from_nanos(10)),
        Rate::new(5, Duration::from_nanos(10)),
        Duration::from_nanos(20),
    );

    fn at(nanos: u64) -> Tick {
        Tick::from_nanos(nanos)
    }

    /// When `count` requests pass that come as soon as they can.
    fn passes(ramp: &Ramp, state: &mut RampState, from: u64, count: usize) -> Vec<u64> {
        let mut now = from;
        let mut passed = Vec::new();
        while passed.len() < count {
            if ramp.decide(state, at(now), 1).is_pass() {
                passed.push(now);
            }
            now += 1;
        }
        passed
    }

    #[test]
    fn the_next_request_passes_when_the_area_under_the_rate_is_its_cost() {
        // The area to x is (x + x² / 10) / 10 until 20, 6 permits, and then a half each nanosecond.
        let mut state = UP.fresh(at(100));
        let passed = passes(&UP, &mut state, 100, 9);
        assert_eq!(passed, [100, 107, 111, 114, 117, 120, 122, 124, 126]);
        let mut state = UP.fresh(at(0));
        assert!(UP.decide(&mut state, at(0), 8).is_pass());
        assert_eq!(state.open_at, at(24));
    }

    /// The area under the rate is summed nanosecond by nanosecond, where a permit is 2 · within · period.
    #[test]
    fn a_request_passes_in_the_first_nanosecond_in_which_the_area_since_the_last_one_is_a_permit() {
        for seed in 0..500 {
            let mut random = fastrand::Rng::with_seed(seed);
            let [from, to] = [0; 2].map(|_| random.u32(1..9));
            let [period, within] = [0; 2].map(|_| random.u64(1..60));
            let rate = |permits| Rate::new(permits, Duration::from_nanos(period));
            let ramp = Ramp::new(rate(from), rate(to), Duration::from_nanos(within));
            let (from, to) = (u64::from(from), u64::from(to));
            let area_of = |nano: u64| {
                let middle = (2 * nano + 1).min(2 * within);
                from * (2 * within - middle) + to * middle
            };
            let permit = 2 * within * period;
            let passed = passes(&ramp, &mut ramp.fresh(at(0)), 0, 30);
            for pair in passed.windows(2) {
                let area: u64 = (pair[0]..pair[1]).map(area_of).sum();
                let before = area - area_of(pair[1] - 1);
                assert!(
                    before < permit && permit <= area,
                    "{seed}: {ramp:?} {pair:?}"
                );
            }
        }
    }

    #[test]
    fn a_ramp_may_fall() {
        let ramp = Ramp::new(UP.to(), UP.from(), UP.within());
        let passed = passes(&ramp, &mut ramp.fresh(at(0)), 0, 9);
        assert_eq!(passed, [0, 3, 6, 9, 13, 19, 29, 39, 49]);
    }

    #[test]
    fn it_begins_again_after_an_idle_time() {
        let ramp = UP.with_restart_after(Duration::from_nanos(50));
        for (from, second) in [(99, 101), (100, 107)] {
            let mut state = ramp.fresh(at(0));
            assert!(ramp.decide(&mut state, at(48), 1).is_pass());
            assert_eq!(state.open_at, at(55));
            assert_eq!(
                passes(&ramp, &mut state, 55 + from - 50, 2)[1],
                second + 5,
                "{from}"
            );
        }
    }

    #[test]
    #[should_panic(expected = "an idle time of at least 1 ns, got 0")]
    fn it_does_not_begin_again_after_no_time() {
        let _ = UP.with_restart_after(Duration::ZERO);
    }

    #[test]
    fn the_largest_areas_do_not_overflow() {
        let most = Rate::new(u32::MAX, LONGEST);
        let ramp = Ramp::new(most, most, LONGEST);
        for cost in [1, u32::MAX] {
            for begun in [0, 1, (1 << 47) - 1, 1 << 50] {
                let open_at = ramp.opens_at(at(0), at(begun), cost);
                let needs = u128::from(cost) * LONGEST.as_nanos();
                let needs = needs.div_ceil(u32::MAX.into());
                let expected = at(begun).after(saturating_duration(needs));
                assert_eq!(open_at, expected, "{cost} {begun}");
            }
        }
    }

    #[test]
    fn rates_with_two_periods_are_written_with_the_longer() {
        let ramp = Ramp::new(
            Rate::per_minute(6),
            Rate::per_second(10),
            Duration::from_secs(9),
        );
        assert_eq!(ramp.to().to_string(), "600/min");
    }

    #[test]
    fn a_ramp_out_of_range_is_an_error_that_names_the_value() {
        let second = Duration::from_secs(1);
        let one = Rate::per_second(1);
        let error = |from, to, within| Ramp::try_new(from, to, within).unwrap_err().to_string();
        assert_eq!(
            error(one, one, Duration::ZERO),
            "a ramp takes from 1 ns to 39 hours, got 0ns"
        );
        assert_eq!(
            error(one, one, second * 140_738),
            "a ramp takes from 1 ns to 39 hours, got 140738s"
        );
        let slow = Rate::new(1, second * 200_000);
        assert_eq!(
            error(slow, one, second),
            "the rates of a ramp have periods of at most 39 hours, got 200000s"
        );
        let other = Rate::new(3, Duration::from_millis(700));
        assert_eq!(
            error(one, other, second),
            "both rates of a ramp need whole numbers in the longer period, as 60/min and 10/s, got 1s"
        );
    }
}
