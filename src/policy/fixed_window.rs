use core::ops::RangeInclusive;
use core::time::Duration;

use crate::time::{Rate, Tick};

use super::{
    Decision, OutOfRange, Policy, Quota, SlidingLog, check_window, decide_in_window, room_in_window,
};

/// At most `limit` in each window; **twice the limit can pass around the end of a window**.
///
/// A window begins with the first request after the last window has ended. A counter with an expiry works like this. It is
/// cheap, and right for a provider that counts in such windows *and* begins them with your first request. If the
/// provider's windows begin elsewhere, use [`SlidingLog`](super::SlidingLog).
///
/// **Window bound**: any half-open window of the given length holds at most 2 · `limit`, wherever it begins. Even two
/// nanoseconds can hold 2 · `limit` − 1: all but the first request of a window at its end, and all of the next window.
///
/// ```
/// use paceline::policy::{Decision, FixedWindow, Policy};
/// use paceline::time::Tick;
/// use std::time::Duration;
///
/// const LIMIT: FixedWindow = FixedWindow::new(2, Duration::from_nanos(100));
/// let at = Tick::from_nanos;
/// let mut state = LIMIT.fresh(at(0));
///
/// assert_eq!(LIMIT.decide(&mut state, at(40), 2), Decision::Pass);
/// assert_eq!(
///     LIMIT.decide(&mut state, at(50), 1),
///     Decision::Wait { retry_in: Duration::from_nanos(90) }
/// );
/// assert_eq!(LIMIT.decide(&mut state, at(140), 2), Decision::Pass);
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FixedWindow {
    limit: u32,
    window: Duration,
}

impl FixedWindow {
    /// At most `limit` in each `window`.
    ///
    /// # Panics
    ///
    /// If `limit` or `window` is zero. [`try_new`](Self::try_new) returns an error instead.
    #[must_use]
    #[track_caller]
    pub const fn new(limit: u32, window: Duration) -> Self {
        OutOfRange::or_panic(Self::try_new(limit, window))
    }

    /// The same as [`new`](Self::new), for values from a configuration.
    ///
    /// ```
    /// use paceline::policy::FixedWindow;
    /// use std::time::Duration;
    ///
    /// let error = FixedWindow::try_new(0, Duration::from_secs(60)).unwrap_err();
    /// assert_eq!(error.to_string(), "a window needs a limit of at least 1, got 0");
    /// ```
    ///
    /// # Errors
    ///
    /// If `limit` or `window` is zero.
    pub const fn try_new(limit: u32, window: Duration) -> Result<Self, OutOfRange> {
        match check_window(limit, window) {
            Ok(()) => Ok(Self { limit, window }),
            Err(error) => Err(error),
        }
    }

    /// The permits of `rate` in each window of its period.
    ///
    /// ```
    /// use paceline::policy::FixedWindow;
    /// use paceline::time::Rate;
    /// use std::time::Duration;
    ///
    /// let limit = FixedWindow::from_rate(Rate::per_minute(100));
    /// assert_eq!(limit, FixedWindow::new(100, Duration::from_secs(60)));
    /// ```
    #[must_use]
    pub const fn from_rate(rate: Rate) -> Self {
        Self::new(rate.permits(), rate.period())
    }

    /// The policy for a provider whose windows begin with the first *arrival*, if each request takes a time in `delay` to
    /// arrive: a [`SlidingLog`].
    ///
    /// A longer fixed window would be wrong, since a request near its end may be the one that begins a window of the provider.
    /// The log sustains as much. See [the module](super#a-margin).
    ///
    /// ```
    /// use paceline::policy::{FixedWindow, SlidingLog};
    /// use std::time::Duration;
    ///
    /// let ms = Duration::from_millis;
    /// let limit = FixedWindow::new(10, ms(1_000)).with_margin(ms(5)..=ms(80));
    /// assert_eq!(limit, SlidingLog::new(10, ms(1_075)));
    /// ```
    ///
    /// # Panics
    ///
    /// If the longest delay is less than the shortest, or a year longer.
    #[must_use]
    #[track_caller]
    pub const fn with_margin(self, delay: RangeInclusive<Duration>) -> SlidingLog {
        SlidingLog::new(self.limit, self.window).with_margin(delay)
    }

    /// The most that passes in a window.
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// The length of a window.
    #[must_use]
    pub const fn window(&self) -> Duration {
        self.window
    }

    /// The bits of a count up to the limit.
    const fn bits_of_count(&self) -> u32 {
        u32::BITS - self.limit.leading_zeros()
    }

    /// When the next window can begin.
    fn ends_at(&self, state: FixedWindowState) -> Tick {
        if state.spent == 0 {
            return Tick::ZERO;
        }
        state.began.after(self.window)
    }
}

impl Policy for FixedWindow {
    type State = FixedWindowState;

    fn fresh(&self, now: Tick) -> FixedWindowState {
        FixedWindowState {
            began: now,
            spent: 0,
        }
    }

    #[inline]
    fn decide(&self, state: &mut FixedWindowState, now: Tick, cost: u32) -> Decision {
        let ends_at = self.ends_at(*state);
        let decision = decide_in_window(self.limit, now, cost, |room| {
            if state.spent > u64::from(room) {
                ends_at
            } else {
                Tick::ZERO
            }
        });
        if decision.is_pass() && cost > 0 {
            self.charge(state, now, cost);
        }
        decision
    }

    fn room(&self, state: &FixedWindowState, now: Tick) -> u32 {
        if self.ends_at(*state) <= now {
            return self.limit;
        }
        room_in_window(self.limit, state.spent)
    }

    fn quota(&self) -> Option<Quota> {
        Some(Quota {
            permits: self.limit,
            window: self.window,
        })
    }

    fn refund(&self, state: &mut FixedWindowState, _now: Tick, cost: u32) {
        state.spent = state.spent.saturating_sub(cost.into());
    }

    /// Nothing, if another window has begun since.
    fn refund_from(&self, state: &mut FixedWindowState, now: Tick, spent_at: Tick, cost: u32) {
        if state.began <= spent_at {
            self.refund(state, now, cost);
        }
    }

    /// A debt is forgotten at the end of its window, as every other count.
    #[inline]
    fn charge(&self, state: &mut FixedWindowState, now: Tick, cost: u32) {
        if cost == 0 {
            return;
        }
        if self.ends_at(*state) <= now {
            // If the time goes back, the window must not begin earlier.
            *state = self.fresh(now.max(state.began));
        }
        state.spent = state.spent.saturating_add(cost.into());
    }

    /// Keeps the count and the beginning of the window.
    fn retune(&self, _old: &Self, _state: &mut FixedWindowState, _now: Tick) {}

    fn settled_at(&self, state: &FixedWindowState) -> Tick {
        self.ends_at(*state)
    }

    /// The beginning and the count. With a limit of 1,000 the beginning has 54 bits, which last for 208 days.
    fn to_word(&self, state: &FixedWindowState) -> Option<u64> {
        let (began, bits) = (state.began.as_nanos(), self.bits_of_count());
        let fits = began.leading_zeros() >= bits && state.spent >> bits == 0;
        fits.then_some(began << bits | state.spent)
    }

    fn of_word(&self, word: u64) -> FixedWindowState {
        let began = word >> self.bits_of_count();
        FixedWindowState {
            began: Tick::from_nanos(began),
            spent: word - (began << self.bits_of_count()),
        }
    }
}

/// The beginning of the current window of a [`FixedWindow`], and the cost spent in it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FixedWindowState {
    began: Tick,
    /// More than the limit in debt.
    spent: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: FixedWindow = FixedWindow::new(3, Duration::from_nanos(100));

    fn at(nanos: u64) -> Tick {
        Tick::from_nanos(nanos)
    }

    fn wait(nanos: u64) -> Decision {
        Decision::Wait {
            retry_in: Duration::from_nanos(nanos),
        }
    }

    #[test]
    fn a_window_begins_with_its_first_request() {
        let mut state = LIMIT.fresh(at(0));

        assert_eq!(LIMIT.decide(&mut state, at(70), 2), Decision::Pass);
        assert_eq!(LIMIT.decide(&mut state, at(169), 2), wait(1));
        assert_eq!(LIMIT.decide(&mut state, at(169), 1), Decision::Pass);
        assert_eq!(LIMIT.decide(&mut state, at(170), 3), Decision::Pass);
        assert_eq!(LIMIT.settled_at(&state), at(270));
    }

    #[test]
    fn nearly_twice_the_limit_passes_around_the_end_of_a_window() {
        let mut state = LIMIT.fresh(at(0));
        assert_eq!(LIMIT.decide(&mut state, at(0), 1), Decision::Pass);

        assert_eq!(LIMIT.decide(&mut state, at(99), 2), Decision::Pass);
        assert_eq!(LIMIT.decide(&mut state, at(100), 3), Decision::Pass);
    }

    #[test]
    fn a_refund_can_be_spent_in_the_same_window() {
        let mut state = LIMIT.fresh(at(0));
        assert_eq!(LIMIT.decide(&mut state, at(0), 3), Decision::Pass);

        LIMIT.refund(&mut state, at(10), 1);
        assert_eq!(LIMIT.decide(&mut state, at(10), 2), wait(90));
        assert_eq!(LIMIT.decide(&mut state, at(10), 1), Decision::Pass);
        LIMIT.refund(&mut state, at(10), 99);
        assert_eq!(LIMIT.decide(&mut state, at(10), 3), Decision::Pass);
    }

    #[test]
    fn a_charge_above_the_limit_counts_until_the_window_ends() {
        let mut state = LIMIT.fresh(at(0));
        LIMIT.charge(&mut state, at(20), 5);
        assert_eq!(LIMIT.room(&state, at(20)), 0);
        LIMIT.refund_from(&mut state, at(30), at(20), 1);
        assert_eq!(LIMIT.decide(&mut state, at(30), 1), wait(90));
        LIMIT.refund_from(&mut state, at(40), at(20), 2);
        assert_eq!(LIMIT.decide(&mut state, at(40), 1), Decision::Pass);
        for _ in 0..3 {
            LIMIT.charge(&mut state, at(50), u32::MAX);
        }
        assert_eq!(LIMIT.decide(&mut state, at(119), 1), wait(1));
        assert_eq!(LIMIT.decide(&mut state, at(120), 3), Decision::Pass);
    }

    #[test]
    fn what_an_earlier_window_returns_makes_no_room() {
        let mut state = LIMIT.fresh(at(0));
        assert_eq!(LIMIT.decide(&mut state, at(0), 3), Decision::Pass);
        assert_eq!(LIMIT.decide(&mut state, at(100), 3), Decision::Pass);
        LIMIT.refund_from(&mut state, at(110), at(99), 3);
        assert_eq!(LIMIT.decide(&mut state, at(110), 1), wait(90));
        LIMIT.refund_from(&mut state, at(110), at(100), 3);
        assert_eq!(LIMIT.decide(&mut state, at(110), 3), Decision::Pass);
    }

    #[test]
    fn new_parameters_keep_the_count() {
        let mut state = LIMIT.fresh(at(0));
        assert_eq!(LIMIT.decide(&mut state, at(0), 3), Decision::Pass);

        let larger = FixedWindow::new(5, Duration::from_nanos(200));
        larger.retune(&LIMIT, &mut state, at(10));
        assert_eq!(larger.decide(&mut state, at(10), 3), wait(190));
        assert_eq!(larger.decide(&mut state, at(10), 2), Decision::Pass);
        LIMIT.retune(&larger, &mut state, at(20));
        assert_eq!(LIMIT.decide(&mut state, at(20), 1), wait(80));
    }

    #[test]
    fn there_is_room_for_the_rest_of_the_window_then_for_a_whole_one() {
        let mut state = LIMIT.fresh(at(0));
        assert_eq!(LIMIT.decide(&mut state, at(50), 2), Decision::Pass);

        assert_eq!([149, 150].map(|now| LIMIT.room(&state, at(now))), [1, 3]);
        let status = LIMIT.status(&state, at(60));
        assert_eq!((status.remaining, status.reset_in.as_nanos()), (1, 90));
        let stricter = FixedWindow::new(1, Duration::from_nanos(100));
        assert_eq!(stricter.room(&state, at(60)), 0, "more is spent");
    }

    #[test]
    fn a_state_is_a_word_for_months_and_without_a_large_debt() {
        let day = 86_400 * 1_000_000_000;
        let fits = |limit: u32, cost, nanos| {
            let policy = FixedWindow::new(limit, Duration::from_secs(60));
            let mut state = policy.fresh(at(nanos));
            policy.charge(&mut state, at(nanos), cost);
            let word = policy.to_word(&state);
            word.is_some_and(|word| policy.of_word(word) == state)
        };
        assert!(fits(100, 100, 1_000 * day) && fits(1_000, 1_000, 200 * day));
        assert!(!fits(1_000, 1_000, 210 * day) && !fits(1_000, 2_000, 0));
        assert!(fits(u32::MAX, u32::MAX, u64::from(u32::MAX)));
    }
}
