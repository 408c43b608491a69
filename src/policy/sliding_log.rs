use core::ops::RangeInclusive;
use core::time::Duration;

use crate::time::{Rate, Tick};

use super::ledger::Ledger;
use super::{
    Decision, OutOfRange, Policy, Quota, check_window, credit_of, decide_in_window, room_in_window,
    widened,
};

/// An exact sliding window: at most `limit` in any window, wherever it begins.
///
/// It remembers the instant and cost of each request. An entry expires when it is exactly one window old. This is what a
/// provider means by "100 a minute, any minute". It allows the full rate and the full burst.
///
/// **Window bound**: a half-open window of the given length holds at most `limit`, wherever it begins.
///
/// **Memory**: 16 bytes for each instant within the last window at which a request passed, so at most 16 · `limit` bytes. A
/// [`charge`](Policy::charge) above the limit adds one for its instant. They are allocated when needed. When all entries have
/// expired, at most 256 bytes are kept. A decision takes time logarithmic in the number of entries.
///
/// ```
/// use paceline::policy::{Decision, Policy, SlidingLog};
/// use paceline::time::Tick;
/// use std::time::Duration;
///
/// const LIMIT: SlidingLog = SlidingLog::new(2, Duration::from_nanos(100));
/// let at = Tick::from_nanos;
/// let mut state = LIMIT.fresh(at(0));
///
/// assert_eq!(LIMIT.decide(&mut state, at(0), 1), Decision::Pass);
/// assert_eq!(LIMIT.decide(&mut state, at(60), 1), Decision::Pass);
/// assert_eq!(
///     LIMIT.decide(&mut state, at(99), 1),
///     Decision::Wait { retry_in: Duration::from_nanos(1) }
/// );
/// assert_eq!(
///     LIMIT.decide(&mut state, at(99), 2),
///     Decision::Wait { retry_in: Duration::from_nanos(61) }
/// );
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[doc(alias("sliding window log", "rolling window"))]
pub struct SlidingLog {
    limit: u32,
    window: Duration,
}

impl SlidingLog {
    /// At most `limit` in any `window`.
    ///
    /// # Panics
    ///
    /// If `limit` or `window` is zero. [`try_new`](Self::try_new) returns an error instead.
    #[must_use]
    #[track_caller]
    pub const fn new(limit: u32, window: Duration) -> Self {
        OutOfRange::or_panic(Self::try_new(limit, window))
    }

    /// At most the permits of `rate` in any window of its period.
    ///
    /// ```
    /// use paceline::policy::SlidingLog;
    /// use paceline::time::Rate;
    /// use std::time::Duration;
    ///
    /// let limit = SlidingLog::from_rate(Rate::per_minute(100));
    /// assert_eq!(limit, SlidingLog::new(100, Duration::from_secs(60)));
    /// ```
    #[must_use]
    pub const fn from_rate(rate: Rate) -> Self {
        Self::new(rate.permits(), rate.period())
    }

    /// The same as [`new`](Self::new), for values from a configuration.
    ///
    /// ```
    /// use paceline::policy::SlidingLog;
    /// use std::time::Duration;
    ///
    /// let error = SlidingLog::try_new(0, Duration::from_secs(60)).unwrap_err();
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

    /// At most `limit` *arrive* in any window, if each request takes a time in `delay` to arrive: the window is longer by the
    /// difference. See [the module](super#a-margin).
    ///
    /// ```
    /// use paceline::policy::SlidingLog;
    /// use std::time::Duration;
    ///
    /// let ms = Duration::from_millis;
    /// let limit = SlidingLog::new(10, ms(1_000)).with_margin(ms(5)..=ms(80));
    /// assert_eq!(limit, SlidingLog::new(10, ms(1_075)));
    /// ```
    ///
    /// # Panics
    ///
    /// If the longest delay is less than the shortest, or a year longer.
    #[must_use]
    #[track_caller]
    pub const fn with_margin(self, delay: RangeInclusive<Duration>) -> Self {
        Self {
            window: widened(self.window, &delay),
            ..self
        }
    }

    /// The most that passes in any window.
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// The length of a window.
    #[must_use]
    pub const fn window(&self) -> Duration {
        self.window
    }

    /// When an entry expires; [`Tick::ZERO`] if there is none.
    fn expires_at(&self, entry: Option<u64>) -> Tick {
        entry.map_or(Tick::ZERO, |when| Tick::from_nanos(when).after(self.window))
    }

    /// The latest instant whose entry has expired.
    fn expired(&self, now: Tick) -> Option<u64> {
        let window = u64::try_from(self.window.as_nanos()).unwrap_or(u64::MAX);
        now.as_nanos().checked_sub(window)
    }

    /// Drops the entries that have expired.
    fn expire(&self, state: &mut SlidingLogState, now: Tick) {
        if let Some(gone) = self.expired(now) {
            state.ledger.forget(gone);
        }
    }
}

impl Policy for SlidingLog {
    type State = SlidingLogState;

    fn fresh(&self, now: Tick) -> SlidingLogState {
        SlidingLogState {
            began: now,
            ledger: Ledger::default(),
        }
    }

    fn decide(&self, state: &mut SlidingLogState, now: Tick, cost: u32) -> Decision {
        let decision = self.peek(state, now, cost);
        if decision.is_pass() && cost > 0 {
            self.charge(state, now, cost);
        }
        decision
    }

    fn peek(&self, state: &SlidingLogState, now: Tick, cost: u32) -> Decision {
        decide_in_window(self.limit, now, cost, |room| {
            self.expires_at(state.ledger.must_go(u64::from(room)))
        })
    }

    /// Permits that are counted late stay in the window longer, which is stricter.
    fn credit(&self, state: &SlidingLogState, now: Tick) -> u32 {
        credit_of(self, state, now, self.limit)
    }

    fn room(&self, state: &SlidingLogState, now: Tick) -> u32 {
        let counts_from = self.expired(now).map_or(0, |gone| gone + 1);
        room_in_window(self.limit, state.ledger.spent_from(counts_from))
    }

    fn quota(&self) -> Option<Quota> {
        Some(Quota {
            permits: self.limit,
            window: self.window,
        })
    }

    fn refund(&self, state: &mut SlidingLogState, _now: Tick, cost: u32) {
        state.ledger.take_back(cost);
    }

    /// Takes the permits that were spent at this instant, or the latest ones before it. Those that have expired do not count anyway.
    fn refund_from(&self, state: &mut SlidingLogState, _now: Tick, spent_at: Tick, cost: u32) {
        state.ledger.take_back_from(spent_at.as_nanos(), cost);
    }

    /// The entry may be above the limit. It expires as every other.
    fn charge(&self, state: &mut SlidingLogState, now: Tick, cost: u32) {
        if cost > 0 {
            self.expire(state, now);
            state.ledger.spend(now.max(state.began).as_nanos(), cost);
        }
    }

    /// Keeps the entries.
    fn retune(&self, old: &Self, state: &mut SlidingLogState, now: Tick) {
        old.expire(state, now);
    }

    fn settled_at(&self, state: &SlidingLogState) -> Tick {
        self.expires_at(state.ledger.last())
    }
}

/// The requests that a [`SlidingLog`] passed, with their instants.
#[derive(Clone, Debug)]
pub struct SlidingLogState {
    /// The creation of the state. No entry is earlier, even if the time goes back.
    began: Tick,
    ledger: Ledger,
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: SlidingLog = SlidingLog::new(3, Duration::from_nanos(100));

    fn at(nanos: u64) -> Tick {
        Tick::from_nanos(nanos)
    }

    fn wait(nanos: u64) -> Decision {
        Decision::Wait {
            retry_in: Duration::from_nanos(nanos),
        }
    }

    #[test]
    fn an_entry_exactly_one_window_old_is_gone() {
        let mut state = LIMIT.fresh(at(0));

        assert_eq!(LIMIT.decide(&mut state, at(0), 2), Decision::Pass);
        assert_eq!(LIMIT.decide(&mut state, at(90), 1), Decision::Pass);
        assert_eq!(LIMIT.decide(&mut state, at(99), 1), wait(1));
        assert_eq!(LIMIT.decide(&mut state, at(100), 2), Decision::Pass);
        assert_eq!(LIMIT.decide(&mut state, at(100), 1), wait(90));
    }

    #[test]
    fn a_wait_is_exact_for_any_cost() {
        let mut state = LIMIT.fresh(at(0));
        for when in [0, 10, 20] {
            assert_eq!(LIMIT.decide(&mut state, at(when), 1), Decision::Pass);
        }
        let waits = [1, 2, 3, 4].map(|cost| LIMIT.peek(&state, at(50), cost));
        assert_eq!(
            waits,
            [
                wait(50),
                wait(60),
                wait(70),
                Decision::Never { capacity: 3 }
            ]
        );
    }

    #[test]
    fn a_debt_expires_entry_by_entry() {
        let mut state = LIMIT.fresh(at(0));
        assert_eq!(LIMIT.decide(&mut state, at(0), 2), Decision::Pass);
        LIMIT.charge(&mut state, at(10), 4);
        LIMIT.charge(&mut state, at(20), 2);
        assert_eq!(LIMIT.room(&state, at(20)), 0);
        assert_eq!(LIMIT.decide(&mut state, at(20), 1), wait(90));
        LIMIT.refund_from(&mut state, at(30), at(15), 2);
        let waits = [1, 2].map(|cost| LIMIT.peek(&state, at(30), cost));
        assert_eq!(waits, [wait(80), wait(90)]);
    }

    #[test]
    fn what_has_left_the_window_is_not_returned() {
        let mut state = LIMIT.fresh(at(0));
        assert_eq!(LIMIT.decide(&mut state, at(0), 3), Decision::Pass);
        assert_eq!(LIMIT.decide(&mut state, at(100), 3), Decision::Pass);
        for spent_at in [0, 99] {
            LIMIT.refund_from(&mut state, at(110), at(spent_at), 3);
            assert_eq!(LIMIT.peek(&state, at(110), 1), wait(90));
        }
        LIMIT.refund_from(&mut state, at(110), at(105), 1);
        assert_eq!(LIMIT.peek(&state, at(110), 1), Decision::Pass);
    }

    #[test]
    fn memory_is_released_when_all_entries_have_expired() {
        let limit = SlidingLog::new(1_000, Duration::from_nanos(100));
        let mut state = limit.fresh(at(0));
        for when in 0..1_000 {
            let _ = limit.decide(&mut state, at(when), 1);
        }
        assert_eq!(limit.settled_at(&state), at(1_099));
        limit.retune(&limit, &mut state, at(1_099));
        assert!(state.ledger.is_empty());
        assert_eq!(limit.settled_at(&state), at(0));
    }

    #[test]
    fn new_parameters_keep_the_entries() {
        let mut state = LIMIT.fresh(at(0));
        assert_eq!(LIMIT.decide(&mut state, at(0), 3), Decision::Pass);

        let longer = SlidingLog::new(4, Duration::from_nanos(500));
        longer.retune(&LIMIT, &mut state, at(50));
        assert_eq!(longer.decide(&mut state, at(50), 1), Decision::Pass);
        assert_eq!(longer.decide(&mut state, at(50), 1), wait(450));

        let stricter = SlidingLog::new(1, Duration::from_nanos(100));
        stricter.retune(&longer, &mut state, at(60));
        assert_eq!(stricter.decide(&mut state, at(60), 1), wait(90));
    }

    #[test]
    #[should_panic(expected = "a window needs a limit of at least 1, got 0")]
    fn new_panics_on_a_limit_of_0() {
        let _ = SlidingLog::new(0, Duration::from_secs(1));
    }

    #[test]
    #[should_panic(expected = "a window needs to be at least 1 ns long, got 0")]
    fn new_panics_on_a_window_of_0() {
        let _ = SlidingLog::new(1, Duration::ZERO);
    }

    #[test]
    fn there_is_room_for_what_has_expired() {
        let mut state = LIMIT.fresh(at(0));
        assert_eq!(LIMIT.decide(&mut state, at(0), 2), Decision::Pass);
        assert_eq!(LIMIT.decide(&mut state, at(30), 1), Decision::Pass);

        let room = [30, 99, 100, 129, 130].map(|now| LIMIT.room(&state, at(now)));
        assert_eq!(room, [0, 0, 2, 2, 3]);
        let status = LIMIT.status(&state, at(110));
        assert_eq!((status.remaining, status.reset_in.as_nanos()), (2, 20));
        let stricter = SlidingLog::new(1, Duration::from_nanos(100));
        assert_eq!(stricter.room(&state, at(50)), 0, "more is spent");
    }
}
