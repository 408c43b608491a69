use core::ops::RangeInclusive;
use core::time::Duration;

use crate::time::{Tick, WallClock};

use super::alignment::Alignment;
use super::{
    Decision, OutOfRange, Policy, Quota, Status, check_window, decide_in_window, room_in_window,
    spread,
};

/// At most `limit` in each hour, day or month of the calendar; **twice the limit can pass around the end of a window**.
///
/// For a quota that a provider resets at midnight, on the hour or on the first of the month. A
/// [`FixedWindow`](super::FixedWindow) begins with its first request instead.
///
/// **Window bound**: n = `limit` in each window of the calendar, by the wall clock. A half-open window of the same length that
/// begins anywhere holds at most 2 · n. For months that length is 28 days; 31 days can hold 3 · n, with a whole February.
///
/// # The wall clock
///
/// The policy reads a [`WallClock`] when a window begins, and again when its time is over. In between only the time that
/// passes counts, and a wait ends exactly at the end of the window.
///
/// * If the wall clock lags or was set back, the window lasts until the wall clock reaches its end. A wall clock that was set back
///   by a day makes a window a day longer. A window of the calendar is never counted twice.
/// * If the wall clock was set forward, or the machine was suspended, the policy sees it when the time of the window is over. That
///   window lasts no longer than it would have, and the next one ends at a boundary again.
///
/// The windows begin in UTC. [`with_utc_offset`](Self::with_utc_offset) is for a provider whose day begins elsewhere.
///
/// ```
/// use paceline::limiter::PolicyExt;
/// use paceline::policy::{AlignedWindow, Alignment};
/// use paceline::time::WallClock;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// // 29 February 2024, 23:59:58 UTC. A service leaves the clock out.
/// let clock = WallClock::starting_at(Duration::from_secs(1_709_251_198));
/// let limit = AlignedWindow::new(500, Alignment::Day).with_clock(clock).shared();
///
/// assert!(limit.try_acquire(500).is_pass());
/// assert_eq!(limit.try_acquire(1).retry_in(), Some(Duration::from_secs(2)), "at midnight");
/// # }
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[doc(alias(
    "reservoirRefreshInterval",
    "refillIntervallyAligned",
    "calendar window",
    "quota per day"
))]
pub struct AlignedWindow {
    limit: u32,
    alignment: Alignment,
    /// Seconds by which the local time is ahead of UTC.
    utc_offset: i32,
    clock: WallClock,
    /// The shortest delay until a request arrives, and by how much the longest one is longer.
    delay: Duration,
    margin: Duration,
}

/// The latest reading of the wall clock. It is before the end of every window, also of one that never ends.
const LAST: u64 = u64::MAX - 1;

impl AlignedWindow {
    /// At most `limit` in each window of `alignment`, in UTC, by the clock of the system.
    ///
    /// # Panics
    ///
    /// If `limit` or the length of an [`Alignment::Every`] is zero. [`try_new`](Self::try_new) returns an error instead.
    #[must_use]
    #[track_caller]
    pub const fn new(limit: u32, alignment: Alignment) -> Self {
        OutOfRange::or_panic(check_window(limit, alignment.longest()));
        Self {
            limit,
            alignment: alignment.named(),
            utc_offset: 0,
            clock: WallClock::system(),
            delay: Duration::ZERO,
            margin: Duration::ZERO,
        }
    }

    /// The same as [`new`](Self::new), for values from a configuration.
    ///
    /// ```
    /// use paceline::policy::{AlignedWindow, Alignment};
    ///
    /// let error = AlignedWindow::try_new(0, Alignment::Day).unwrap_err();
    /// assert_eq!(error.to_string(), "a window needs a limit of at least 1, got 0");
    /// ```
    ///
    /// # Errors
    ///
    /// If `limit` or the length of an [`Alignment::Every`] is zero.
    pub fn try_new(limit: u32, alignment: Alignment) -> Result<Self, OutOfRange> {
        check_window(limit, alignment.longest()).map(|()| Self::new(limit, alignment))
    }

    /// Reads another wall clock than that of the system.
    #[must_use]
    pub fn with_clock(self, clock: WallClock) -> Self {
        Self { clock, ..self }
    }

    /// The windows begin in a local time that is ahead of UTC by `seconds`, or behind it if they are negative.
    ///
    /// The offset is fixed: it does not follow daylight saving time, in which such a day begins an hour off for half a year.
    ///
    /// ```
    /// use paceline::policy::{AlignedWindow, Alignment};
    ///
    /// // Midnight of Pacific Standard Time is 08:00 UTC.
    /// let quota = AlignedWindow::new(10_000, Alignment::Day).with_utc_offset(-8 * 3_600);
    /// assert_eq!(quota.utc_offset(), -28_800);
    /// ```
    ///
    /// # Panics
    ///
    /// If the offset is a day or more.
    #[must_use]
    #[track_caller]
    pub fn with_utc_offset(self, seconds: i32) -> Self {
        crate::time::or_panic(self.try_with_utc_offset(seconds))
    }

    /// For the text of a policy.
    pub(super) fn try_with_utc_offset(self, seconds: i32) -> Result<Self, OutOfRange> {
        if seconds.unsigned_abs() >= 86_400 {
            let message = "an offset from UTC is less than a day, so at most 86399 seconds";
            return Err(OutOfRange::new("seconds", message).got_number(seconds.into()));
        }
        Ok(Self {
            utc_offset: seconds,
            ..self
        })
    }

    /// At most `limit` *arrive* in each window, if each request takes a time in `delay` to arrive. See [the module](super#a-margin).
    ///
    /// Before a window ends, nothing passes for the difference, in which a request could arrive in this window or in the next one.
    /// If the clocks may differ, the shortest delay is shorter by that, and the longest one longer.
    ///
    /// ```
    /// use paceline::limiter::PolicyExt;
    /// use paceline::policy::{AlignedWindow, Alignment};
    /// use paceline::time::WallClock;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let ms = Duration::from_millis;
    /// let clock = WallClock::starting_at(ms(59_900)); // 100 ms before a minute
    /// let limit = AlignedWindow::new(500, Alignment::Minute).with_clock(clock);
    /// let limit = limit.with_margin(ms(5)..=ms(80)).shared();
    ///
    /// assert!(limit.try_acquire(1).is_pass(), "arrives 20 ms before the minute ends, or earlier");
    /// tokio::time::advance(ms(20)).await;
    /// assert_eq!(limit.try_acquire(1).retry_in(), Some(ms(75)), "then it cannot arrive in this minute");
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If the longest delay is less than the shortest, or longer by a window: then nothing could pass. A
    /// [`SlidingLog`](super::SlidingLog) with a margin keeps to such windows, too.
    #[must_use]
    #[track_caller]
    pub fn with_margin(self, delay: RangeInclusive<Duration>) -> Self {
        crate::time::or_panic(self.try_with_margin(&delay))
    }

    /// For the text of a policy.
    pub(super) fn try_with_margin(
        self,
        delay: &RangeInclusive<Duration>,
    ) -> Result<Self, OutOfRange> {
        let margin = self.margin.saturating_add(spread(delay)?);
        if margin >= self.alignment.shortest() {
            let message = "the margin of an aligned window is shorter than the window (a sliding window can keep a longer one)";
            return Err(OutOfRange::new("delay", message).got_time(margin));
        }
        Ok(Self {
            delay: self.delay.saturating_add(*delay.start()),
            margin,
            ..self
        })
    }

    /// The most that passes in a window.
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// Where the windows begin.
    #[must_use]
    pub const fn alignment(&self) -> Alignment {
        self.alignment
    }

    /// The seconds by which the local time of the windows is ahead of UTC.
    #[must_use]
    pub const fn utc_offset(&self) -> i32 {
        self.utc_offset
    }

    /// The delays for which its windows hold of arrivals, if it was made [`with_margin`](Self::with_margin).
    #[must_use]
    pub fn margin(&self) -> Option<RangeInclusive<Duration>> {
        let longest = self.delay.saturating_add(self.margin);
        (!longest.is_zero()).then_some(self.delay..=longest)
    }

    /// The wall clock in nanoseconds since 1970.
    fn wall(&self) -> u64 {
        let nanos = u64::try_from(self.clock.now().as_nanos());
        nanos.unwrap_or(LAST).min(LAST)
    }

    /// When the window ends that holds the earliest arrival of what leaves at `wall`.
    fn end_after(&self, wall: u64) -> u64 {
        let delay = i128::try_from(self.delay.as_nanos()).unwrap_or(i128::MAX / 2);
        let ahead = i128::from(self.utc_offset) * 1_000_000_000 + delay;
        let local_end = self.alignment.end_after(i128::from(wall) + ahead);
        u64::try_from(local_end - ahead).unwrap_or(u64::MAX)
    }

    /// The decision on a request in the window that counts `now`.
    fn in_window(&self, present: &AlignedWindowState, now: Tick, cost: u32) -> Decision {
        decide_in_window(self.limit, now, cost, |room| {
            if present.spent > u64::from(room) || self.is_closed(present, now) {
                present.ends_at
            } else {
                Tick::ZERO
            }
        })
    }

    /// Whether a request may arrive in the next window. A window that ends after the last tick has none.
    fn is_closed(&self, present: &AlignedWindowState, now: Tick) -> bool {
        let left = present.ends_at.since(now.max(present.began));
        !self.margin.is_zero() && left <= self.margin && present.ends_at < Tick::MAX
    }

    fn room_in(&self, present: &AlignedWindowState, now: Tick) -> u32 {
        if self.is_closed(present, now) {
            return 0;
        }
        room_in_window(self.limit, present.spent)
    }

    /// The window that counts `now`. It reads the wall clock if the time of the last one is over.
    fn present(&self, state: &AlignedWindowState, now: Tick) -> AlignedWindowState {
        if now < state.ends_at {
            return *state;
        }
        let wall = self.wall();
        if wall < state.ends_at_wall {
            // The wall clock lags or was set back. A second window would begin before the end of the first one.
            let left = Duration::from_nanos(state.ends_at_wall - wall);
            return AlignedWindowState {
                ends_at: now.after(left),
                ..*state
            };
        }
        self.opened(state, now, wall)
    }

    /// The next window, which begins at `now` with nothing spent. The wall clock shows `wall`.
    fn opened(&self, state: &AlignedWindowState, now: Tick, wall: u64) -> AlignedWindowState {
        let ends_at_wall = self.end_after(wall);
        let began = now.max(state.began);
        AlignedWindowState {
            began,
            ends_at: began.after(Duration::from_nanos(ends_at_wall - wall)),
            ends_at_wall,
            spent: 0,
        }
    }
}

impl Policy for AlignedWindow {
    type State = AlignedWindowState;

    fn fresh(&self, now: Tick) -> AlignedWindowState {
        AlignedWindowState {
            began: now,
            ..AlignedWindowState::default()
        }
    }

    fn decide(&self, state: &mut AlignedWindowState, now: Tick, cost: u32) -> Decision {
        if cost == 0 {
            return Decision::Pass;
        }
        let present = self.present(state, now);
        let decision = self.in_window(&present, now, cost);
        if decision.is_pass() {
            *state = present;
            state.spent += u64::from(cost);
        }
        decision
    }

    fn peek(&self, state: &AlignedWindowState, now: Tick, cost: u32) -> Decision {
        self.in_window(&self.present(state, now), now, cost)
    }

    /// As if the wall clock went on with the ticks.
    fn foresee(&self, state: &mut AlignedWindowState, then: Tick) {
        if state.ends_at_wall > 0 && state.ends_at <= then {
            let over = then.as_nanos() - state.ends_at.as_nanos();
            let wall = state.ends_at_wall.saturating_add(over).min(LAST);
            *state = self.opened(state, then, wall);
        }
    }

    fn room(&self, state: &AlignedWindowState, now: Tick) -> u32 {
        self.room_in(&self.present(state, now), now)
    }

    /// A month counts as 31 days, so that a caller that spreads the permits over the window is never refused, except while a
    /// [margin](Self::with_margin) closes it.
    fn quota(&self) -> Option<Quota> {
        Some(Quota {
            permits: self.limit,
            window: self.alignment.longest(),
        })
    }

    /// It resets at the end of the window.
    fn status(&self, state: &AlignedWindowState, now: Tick) -> Status {
        let present = self.present(state, now);
        let room = self.room_in(&present, now);
        let reset_in = match room {
            room if room == self.limit => Duration::ZERO,
            _ => present.ends_at.since(now),
        };
        Status::new(self.quota(), room, reset_in)
    }

    fn refund(&self, state: &mut AlignedWindowState, _now: Tick, cost: u32) {
        state.spent = state.spent.saturating_sub(cost.into());
    }

    /// Nothing, if another window has begun since.
    fn refund_from(&self, state: &mut AlignedWindowState, now: Tick, spent_at: Tick, cost: u32) {
        if state.began <= spent_at {
            self.refund(state, now, cost);
        }
    }

    /// A debt is forgotten at the end of its window, as every other count.
    fn charge(&self, state: &mut AlignedWindowState, now: Tick, cost: u32) {
        if cost > 0 {
            *state = self.present(state, now);
            state.spent = state.spent.saturating_add(cost.into());
        }
    }

    /// Another limit keeps the window and its count. If the windows begin elsewhere, the count of the old window counts in the new
    /// one.
    fn retune(&self, old: &Self, state: &mut AlignedWindowState, now: Tick) {
        let begin = |of: &Self| (of.alignment, of.utc_offset, of.delay);
        if begin(self) == begin(old) && self.clock == old.clock {
            return;
        }
        let before = old.present(state, now);
        *state = AlignedWindowState {
            began: before.began,
            spent: before.spent,
            ..self.present(&self.fresh(now), now)
        };
    }

    fn settled_at(&self, state: &AlignedWindowState) -> Tick {
        match state.spent {
            0 => Tick::ZERO,
            _ => state.ends_at,
        }
    }

    /// Also by the wall clock: a key of a [`Keyed`](crate::limiter::Keyed) limit is not forgotten before.
    fn is_settled(&self, state: &AlignedWindowState, now: Tick) -> bool {
        state.spent == 0 || (state.ends_at <= now && state.ends_at_wall <= self.wall())
    }
}

/// The window of an [`AlignedWindow`] in which a request passed last, and the cost spent in it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct AlignedWindowState {
    /// When the first request of the window passed, or the creation of the state.
    began: Tick,
    ends_at: Tick,
    /// The end of the window by the wall clock, in nanoseconds since 1970.
    ends_at_wall: u64,
    /// More than the limit in debt.
    spent: u64,
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    const SECOND: u64 = 1_000_000_000;
    /// 29 February 2024, 23:59:58 UTC.
    const LEAP_DAY: u64 = 1_709_251_198;

    /// A wall clock that only the test moves, in seconds.
    #[derive(Clone)]
    struct Wall(Arc<Mutex<u64>>);

    impl Wall {
        fn at(secs: u64) -> Self {
            Self(Arc::new(Mutex::new(secs)))
        }

        fn shows(&self, secs: u64) {
            *self.0.lock().unwrap() = secs;
        }

        fn clock(&self) -> WallClock {
            let wall = self.clone();
            WallClock::new(move || Duration::from_secs(*wall.0.lock().unwrap()))
        }

        fn limit(&self, limit: u32, alignment: Alignment) -> AlignedWindow {
            AlignedWindow::new(limit, alignment).with_clock(self.clock())
        }
    }

    fn at(secs: u64) -> Tick {
        Tick::from_nanos(secs * SECOND)
    }

    fn wait(secs: u64) -> Decision {
        Decision::Wait {
            retry_in: Duration::from_secs(secs),
        }
    }

    #[test]
    fn a_wait_ends_at_the_boundary_of_the_calendar() {
        let wall = Wall::at(LEAP_DAY);
        let waits = |alignment, offset| {
            let limit = wall.limit(1, alignment).with_utc_offset(offset);
            let mut state = limit.fresh(at(7));
            assert_eq!(limit.decide(&mut state, at(7), 1), Decision::Pass);
            limit
                .peek(&state, at(7), 1)
                .retry_in()
                .map(|wait| wait.as_secs())
        };
        assert_eq!(waits(Alignment::Minute, 0), Some(2));
        assert_eq!(waits(Alignment::Hour, 0), Some(2));
        assert_eq!(waits(Alignment::Day, 0), Some(2));
        assert_eq!(waits(Alignment::Month, 0), Some(2));
        assert_eq!(waits(Alignment::Week, 0), Some(2 + 3 * 86_400), "on Monday");
        assert_eq!(waits(Alignment::Every(Duration::from_secs(7)), 0), Some(3));

        // It is 1 March already where the clocks are ahead, and half past five in India.
        assert_eq!(waits(Alignment::Day, 3_600), Some(2 + 23 * 3_600));
        assert_eq!(waits(Alignment::Month, 2), Some(31 * 86_400));
        assert_eq!(waits(Alignment::Hour, 19_800), Some(2 + 1_800));
        assert_eq!(waits(Alignment::Day, -8 * 3_600), Some(2 + 8 * 3_600));
    }

    #[test]
    fn every_window_has_the_whole_limit_and_no_more() {
        let wall = Wall::at(LEAP_DAY);
        let limit = wall.limit(3, Alignment::Day);
        let mut state = limit.fresh(at(0));
        assert_eq!(limit.decide(&mut state, at(0), 2), Decision::Pass);
        assert_eq!(limit.decide(&mut state, at(1), 2), wait(1));
        assert_eq!(
            limit.decide(&mut state, at(1), 4),
            Decision::Never { capacity: 3 }
        );
        assert_eq!(limit.room(&state, at(1)), 1);

        wall.shows(LEAP_DAY + 2);
        assert_eq!(limit.decide(&mut state, at(2), 3), Decision::Pass);
        let status = limit.status(&state, at(12));
        assert_eq!((status.remaining, status.reset_in.as_secs()), (0, 86_390));
        assert_eq!(limit.settled_at(&state), at(86_402));
    }

    #[test]
    fn a_window_goes_on_while_the_wall_clock_lags() {
        let wall = Wall::at(LEAP_DAY);
        let limit = wall.limit(2, Alignment::Day);
        let mut state = limit.fresh(at(0));
        assert_eq!(limit.decide(&mut state, at(0), 2), Decision::Pass);

        wall.shows(LEAP_DAY + 1);
        assert_eq!(limit.decide(&mut state, at(2), 1), wait(1));
        assert_eq!(
            (limit.room(&state, at(2)), limit.is_settled(&state, at(2))),
            (0, false)
        );
        assert_eq!(limit.status(&state, at(2)).reset_in.as_secs(), 1);
        wall.shows(LEAP_DAY + 2);
        assert!(limit.is_settled(&state, at(3)));
        assert_eq!(limit.decide(&mut state, at(3), 2), Decision::Pass);
        assert_eq!(limit.decide(&mut state, at(3), 1), wait(86_400));
    }

    #[test]
    fn a_window_that_a_clock_set_back_shows_again_has_no_second_count() {
        let wall = Wall::at(LEAP_DAY);
        let limit = wall.limit(2, Alignment::Hour);
        let mut state = limit.fresh(at(0));
        assert_eq!(limit.decide(&mut state, at(0), 2), Decision::Pass);
        wall.shows(LEAP_DAY + 2);
        assert_eq!(limit.decide(&mut state, at(2), 1), Decision::Pass);

        // Back by two hours. What is left of the window can be used meanwhile.
        wall.shows(LEAP_DAY - 3_598);
        assert_eq!(limit.decide(&mut state, at(3_602), 1), Decision::Pass);
        assert_eq!(limit.decide(&mut state, at(3_602), 1), wait(7_200));
        wall.shows(LEAP_DAY + 3_602);
        assert_eq!(limit.decide(&mut state, at(10_802), 2), Decision::Pass);
    }

    #[test]
    fn a_clock_set_forward_is_seen_when_the_window_is_over() {
        let wall = Wall::at(LEAP_DAY);
        let limit = wall.limit(2, Alignment::Minute);
        let mut state = limit.fresh(at(0));
        assert_eq!(limit.decide(&mut state, at(0), 2), Decision::Pass);

        wall.shows(LEAP_DAY + 42);
        assert_eq!(limit.decide(&mut state, at(1), 1), wait(1));
        wall.shows(LEAP_DAY + 43);
        assert_eq!(limit.decide(&mut state, at(2), 2), Decision::Pass);
        assert_eq!(limit.decide(&mut state, at(2), 1), wait(19));
    }

    #[test]
    fn a_charge_counts_until_its_window_ends_and_a_refund_only_there() {
        let wall = Wall::at(LEAP_DAY);
        let limit = wall.limit(3, Alignment::Day);
        let mut state = limit.fresh(at(0));
        limit.charge(&mut state, at(0), u32::MAX);
        limit.charge(&mut state, at(0), u32::MAX);
        assert_eq!(limit.decide(&mut state, at(0), 1), wait(2));
        limit.refund_from(&mut state, at(1), at(0), u32::MAX);
        assert_eq!(limit.decide(&mut state, at(1), 1), wait(1));

        wall.shows(LEAP_DAY + 2);
        assert_eq!(limit.decide(&mut state, at(2), 3), Decision::Pass);
        limit.refund_from(&mut state, at(3), at(1), 3);
        assert_eq!(limit.room(&state, at(3)), 0, "it was spent yesterday");
        limit.refund_from(&mut state, at(3), at(2), 2);
        assert_eq!(limit.room(&state, at(3)), 2);
        limit.charge(&mut state, at(3), 0);
        assert_eq!(limit.room(&state, at(3)), 2);
    }

    #[test]
    fn a_queue_is_foreseen_although_the_wall_clock_stands_still() {
        let wall = Wall::at(LEAP_DAY);
        let limit = wall.limit(2, Alignment::Minute);
        let mut state = limit.fresh(at(0));
        assert_eq!(limit.decide(&mut state, at(0), 2), Decision::Pass);
        for minute in 0..3 {
            let then = at(2 + 60 * minute);
            limit.foresee(&mut state, then);
            assert_eq!(limit.decide(&mut state, then, 2), Decision::Pass);
            limit.foresee(&mut state, then);
            assert_eq!(limit.decide(&mut state, then, 1), wait(60));
        }
    }

    #[test]
    fn other_windows_keep_the_count() {
        let wall = Wall::at(LEAP_DAY);
        let hours = wall.limit(5, Alignment::Hour);
        let mut state = hours.fresh(at(0));
        assert_eq!(hours.decide(&mut state, at(0), 4), Decision::Pass);

        let days = wall.limit(5, Alignment::Day).with_utc_offset(-3_600);
        days.retune(&hours, &mut state, at(1));
        assert_eq!(days.decide(&mut state, at(1), 1), Decision::Pass);
        assert_eq!(days.decide(&mut state, at(1), 1), wait(3_602));
        let fewer = AlignedWindow {
            limit: 2,
            ..days.clone()
        };
        fewer.retune(&days, &mut state, at(1));
        assert_eq!(fewer.decide(&mut state, at(1), 1), wait(3_602));

        // The window is over, and its count too.
        wall.shows(LEAP_DAY + 3_602);
        hours.retune(&fewer, &mut state, at(3_603));
        assert_eq!(hours.decide(&mut state, at(3_603), 5), Decision::Pass);
        assert_eq!(hours.decide(&mut state, at(3_603), 1), wait(3_600));
    }

    #[test]
    fn at_the_end_of_time_a_window_does_not_end() {
        let wall = Wall::at(u64::MAX);
        let limit = wall.limit(1, Alignment::Month);
        let mut state = limit.fresh(at(0));
        assert_eq!(limit.decide(&mut state, at(0), 1), Decision::Pass);
        for secs in [1, 1_000, 1_000_000] {
            let left = Duration::from_nanos(1);
            let answer = limit.decide(&mut state, at(secs), 1);
            assert_eq!(answer, Decision::Wait { retry_in: left });
        }
    }

    #[test]
    fn a_window_refuses_what_is_out_of_range() {
        let errors = [
            AlignedWindow::try_new(0, Alignment::Day),
            AlignedWindow::try_new(1, Alignment::Every(Duration::ZERO)),
            AlignedWindow::new(1, Alignment::Day).try_with_utc_offset(-86_400),
        ]
        .map(|made| made.unwrap_err().parameter());
        assert_eq!(errors, ["limit", "window", "seconds"]);
    }

    #[test]
    #[should_panic(expected = "at most 86399 seconds, got 90000")]
    fn an_offset_of_more_than_a_day_panics() {
        let _ = AlignedWindow::new(1, Alignment::Day).with_utc_offset(90_000);
    }
}
