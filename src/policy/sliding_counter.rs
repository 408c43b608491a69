use core::ops::RangeInclusive;
use core::time::Duration;

use crate::time::{Rate, Tick};

use super::ledger::Ledger;
use super::{
    Decision, OutOfRange, Policy, Quota, check_window, decide_in_window, room_in_window, widened,
};

/// A sliding window made of a few counters. It needs the memory of a few numbers, not of one for each request.
///
/// Time is divided into buckets. The first bucket begins with the first request after an idle time. There are two kinds:
///
/// * [`strict`](Self::strict) counts all buckets of the window in full, also the oldest one, which is only partly inside.
///   **Window bound**: a half-open window of the given length holds at most `limit`, wherever it begins. The price: a
///   request counts for up to one bucket longer than the window. The sustained rate is at least `limit` in window · (1 + 1 /
///   `buckets`), with buckets rounded up to whole nanoseconds.
/// * [`smooth`](Self::smooth) is the usual approximation with two counters: the count of the current window, plus the part
///   of the last window that the sliding window still covers, as if its requests had been spread evenly. The sum is exact,
///   so that a fraction of a request counts until its window ends: the sustained rate is at least `limit` − 1 a window.
///   **Window bound**: less than 2 · `limit`. All requests of one window can come at its end. As time goes on, nearly the
///   same number fits into the window that begins with that burst: the worst window holds 2 · `limit` − 1.
///
/// A refused request is not counted. A steady stream slightly over the limit is cut to the limit and not starved.
///
/// **Memory**: 16 bytes for each bucket with a request, at most `buckets` + 1 of them (`smooth`: 2). When all counts have
/// expired, at most 256 bytes are kept.
///
/// Proxies and CDNs use the approximation with two counters. Here it is computed in whole numbers, without rounding.
///
/// With feature `tracing`, each decision of a `smooth` counter in memory is an event of level `TRACE` and target `paceline`, with the
/// sums it was made by: `current`, of this window; `previous`, of the last one; `weight`, the part of that which still counts, as
/// `0.517`; `total`, of both; `capacity`, the limit; `cost`, and whether it `passed`. It comes before what a
/// `TracingObserver` says of the request.
///
/// ```
/// use paceline::policy::{Decision, Policy, SlidingCounter};
/// use paceline::time::Tick;
/// use std::time::Duration;
///
/// const LIMIT: SlidingCounter = SlidingCounter::strict(2, Duration::from_nanos(100), 4);
/// let at = Tick::from_nanos;
/// let mut state = LIMIT.fresh(at(0));
///
/// assert_eq!(LIMIT.decide(&mut state, at(0), 1), Decision::Pass);
/// assert_eq!(LIMIT.decide(&mut state, at(60), 1), Decision::Pass);
/// // Buckets of 25: the first bucket counts until no window can overlap it.
/// assert_eq!(
///     LIMIT.decide(&mut state, at(100), 1),
///     Decision::Wait { retry_in: Duration::from_nanos(25) }
/// );
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[doc(alias("sliding window counter"))]
pub struct SlidingCounter {
    limit: u32,
    window: Duration,
    /// The number of buckets in a window of the strict kind; `None` for the smooth kind, in which a bucket is a window.
    pub(crate) buckets: Option<u32>,
}

impl SlidingCounter {
    /// At most `limit` in any `window`, counted in `buckets` of equal length.
    ///
    /// # Panics
    ///
    /// If `limit`, `window` or `buckets` is zero. [`try_strict`](Self::try_strict) returns an error instead.
    #[must_use]
    #[track_caller]
    pub const fn strict(limit: u32, window: Duration, buckets: u32) -> Self {
        OutOfRange::or_panic(Self::try_strict(limit, window, buckets))
    }

    /// The same as [`strict`](Self::strict), for values from a configuration.
    ///
    /// ```
    /// use paceline::policy::SlidingCounter;
    /// use std::time::Duration;
    ///
    /// let error = SlidingCounter::try_strict(100, Duration::from_secs(60), 0).unwrap_err();
    /// assert_eq!(error.to_string(), "a counter needs at least 1 bucket, got 0");
    /// ```
    ///
    /// # Errors
    ///
    /// If `limit`, `window` or `buckets` is zero.
    pub const fn try_strict(
        limit: u32,
        window: Duration,
        buckets: u32,
    ) -> Result<Self, OutOfRange> {
        if buckets == 0 {
            return Err(OutOfRange::new(
                "buckets",
                "a counter needs at least 1 bucket, got 0",
            ));
        }
        match Self::try_smooth(limit, window) {
            Ok(smooth) => Ok(Self {
                buckets: Some(buckets),
                ..smooth
            }),
            Err(error) => Err(error),
        }
    }

    /// At most the permits of `rate` in any window of its period, counted in `buckets` of equal length.
    ///
    /// ```
    /// use paceline::policy::SlidingCounter;
    /// use paceline::time::Rate;
    /// use std::time::Duration;
    ///
    /// let limit = SlidingCounter::strict_from_rate(Rate::per_minute(100), 6);
    /// assert_eq!(limit, SlidingCounter::strict(100, Duration::from_secs(60), 6));
    /// ```
    ///
    /// # Panics
    ///
    /// If `buckets` is zero. For values from a configuration use [`try_strict`](Self::try_strict).
    #[must_use]
    #[track_caller]
    pub const fn strict_from_rate(rate: Rate, buckets: u32) -> Self {
        Self::strict(rate.permits(), rate.period(), buckets)
    }

    /// About `limit` in any `window`, and less than twice as many.
    ///
    /// # Panics
    ///
    /// If `limit` or `window` is zero. [`try_smooth`](Self::try_smooth) returns an error instead.
    #[must_use]
    #[track_caller]
    pub const fn smooth(limit: u32, window: Duration) -> Self {
        OutOfRange::or_panic(Self::try_smooth(limit, window))
    }

    /// The same as [`smooth`](Self::smooth), for values from a configuration.
    ///
    /// # Errors
    ///
    /// If `limit` or `window` is zero.
    pub const fn try_smooth(limit: u32, window: Duration) -> Result<Self, OutOfRange> {
        match check_window(limit, window) {
            Ok(()) => Ok(Self {
                limit,
                window,
                buckets: None,
            }),
            Err(error) => Err(error),
        }
    }

    /// About the permits of `rate` in any window of its period, and less than twice as many.
    ///
    /// ```
    /// use paceline::policy::SlidingCounter;
    /// use paceline::time::Rate;
    /// use std::time::Duration;
    ///
    /// let limit = SlidingCounter::smooth_from_rate(Rate::per_minute(100));
    /// assert_eq!(limit, SlidingCounter::smooth(100, Duration::from_secs(60)));
    /// ```
    #[must_use]
    pub const fn smooth_from_rate(rate: Rate) -> Self {
        Self::smooth(rate.permits(), rate.period())
    }

    /// The limit of a window.
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// The length of a window.
    #[must_use]
    pub const fn window(&self) -> Duration {
        self.window
    }

    /// The number of buckets of a strict counter; `None` for a smooth one.
    #[must_use]
    pub const fn buckets(&self) -> Option<u32> {
        self.buckets
    }

    /// The window bound holds for *arrivals*, if each request takes a time in `delay` to arrive: the window is longer by the
    /// difference. See [the module](super#a-margin).
    ///
    /// ```
    /// use paceline::policy::SlidingCounter;
    /// use std::time::Duration;
    ///
    /// let ms = Duration::from_millis;
    /// let limit = SlidingCounter::strict(10, ms(1_000), 5).with_margin(ms(5)..=ms(80));
    /// assert_eq!(limit, SlidingCounter::strict(10, ms(1_075), 5));
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

    /// The length of a bucket in nanoseconds, rounded up so that the buckets cover the window. A window longer than a tick
    /// can express never ends.
    fn bucket(&self) -> u64 {
        let window = u64::try_from(self.window.as_nanos()).unwrap_or(u64::MAX);
        window.div_ceil(u64::from(self.buckets.unwrap_or(1)))
    }

    /// The number of buckets after which a count has expired.
    fn reach(&self) -> u64 {
        u64::from(self.buckets.unwrap_or(1)) + 1
    }

    fn bucket_at(&self, state: &SlidingCounterState, now: Tick) -> u64 {
        nanos_since(state.origin, now) / self.bucket()
    }

    fn beginning_of(&self, state: &SlidingCounterState, bucket: u64) -> Tick {
        let nanos = bucket.saturating_mul(self.bucket());
        state.origin.after(Duration::from_nanos(nanos))
    }

    /// When the count of a bucket expires; [`Tick::ZERO`] if there is none.
    fn expires_at(&self, state: &SlidingCounterState, bucket: Option<u64>) -> Tick {
        bucket.map_or(Tick::ZERO, |bucket| {
            self.beginning_of(state, bucket.saturating_add(self.reach()))
        })
    }

    /// Drops the counts that have expired in the `present` bucket.
    fn expire(&self, state: &mut SlidingCounterState, present: u64) {
        if let Some(gone) = present.checked_sub(self.reach()) {
            state.ledger.forget(gone);
        }
    }

    /// The instant from which at most `room` of the earlier requests still counts.
    fn open_at(&self, state: &SlidingCounterState, now: Tick, room: u32) -> Tick {
        if self.buckets.is_none() {
            return self.smoothly_open_at(state, now, room);
        }
        self.expires_at(state, state.ledger.must_go(u64::from(room)))
    }

    /// The present window, and the counts of the last one and of this one.
    fn two_windows(&self, state: &SlidingCounterState, now: Tick) -> (u64, u64, u64) {
        // If the time goes back, the present bucket is still not before the last entry.
        let latest = state.ledger.last().unwrap_or(0);
        let present = self.bucket_at(state, now).max(latest);
        let spent = state.ledger.spent_from(present);
        let last = state.ledger.spent_from(present.saturating_sub(1)) - spent;
        (present, last, spent)
    }

    /// During the present window the count of the last window falls linearly to zero; during the next window the present
    /// count does.
    fn smoothly_open_at(&self, state: &SlidingCounterState, now: Tick, room: u32) -> Tick {
        let (present, last, spent) = self.two_windows(state, now);
        let (begins, falling, room) = match u64::from(room).checked_sub(spent) {
            Some(room) => (present, last, room),
            None => (present.saturating_add(1), spent, u64::from(room)),
        };
        if falling <= room {
            return self.beginning_of(state, begins);
        }
        // falling · (bucket − elapsed) <= room · bucket
        let bucket = self.bucket();
        let covered = u128::from(room) * u128::from(bucket) / u128::from(falling);
        let elapsed = bucket - u64::try_from(covered).unwrap_or(bucket);
        self.beginning_of(state, begins)
            .after(Duration::from_nanos(elapsed))
    }
}

#[cfg(feature = "tracing")]
impl SlidingCounter {
    /// Writes the sums by which a smooth counter has decided. The weight is in thousandths, rounded down.
    fn trace(&self, state: &SlidingCounterState, now: Tick, cost: u32, passed: bool) {
        if self.buckets.is_some() || !tracing::enabled!(target: "paceline", tracing::Level::TRACE) {
            return;
        }
        let (present, previous, current) = self.two_windows(state, now);
        let (bucket, begins) = (self.bucket(), self.beginning_of(state, present));
        let elapsed = nanos_since(begins, now);
        let total = current.saturating_add(covered(previous, bucket, elapsed));
        let left = u128::from(bucket.saturating_sub(elapsed));
        let weight = left * 1_000 / u128::from(bucket);
        let weight = format_args!("{}.{:03}", weight / 1_000, weight % 1_000);
        tracing::trace!(target: "paceline", cost, capacity = self.limit, current, previous, %weight, total, passed, "decided by two windows");
    }
}

/// The part of a count of the last window that the sliding window still covers, rounded up.
fn covered(count: u64, bucket: u64, elapsed: u64) -> u64 {
    let left = u128::from(bucket.saturating_sub(elapsed));
    let covered = (u128::from(count) * left).div_ceil(bucket.into());
    u64::try_from(covered).unwrap_or(count)
}

impl Policy for SlidingCounter {
    type State = SlidingCounterState;

    fn fresh(&self, now: Tick) -> SlidingCounterState {
        SlidingCounterState {
            origin: now,
            ledger: Ledger::default(),
        }
    }

    fn decide(&self, state: &mut SlidingCounterState, now: Tick, cost: u32) -> Decision {
        let decision = self.peek(state, now, cost);
        #[cfg(feature = "tracing")]
        self.trace(state, now, cost, decision.is_pass());
        if decision.is_pass() && cost > 0 {
            self.charge(state, now, cost);
        }
        decision
    }

    fn peek(&self, state: &SlidingCounterState, now: Tick, cost: u32) -> Decision {
        decide_in_window(self.limit, now, cost, |room| self.open_at(state, now, room))
    }

    fn room(&self, state: &SlidingCounterState, now: Tick) -> u32 {
        if self.buckets.is_some() {
            let present = self.bucket_at(state, now);
            let counts_from = present.saturating_add(1).saturating_sub(self.reach());
            return room_in_window(self.limit, state.ledger.spent_from(counts_from));
        }
        let (present, last, spent) = self.two_windows(state, now);
        let begins = self.beginning_of(state, present);
        if now < begins {
            // The time has gone back.
            return 0;
        }
        let covered = covered(last, self.bucket(), nanos_since(begins, now));
        room_in_window(self.limit, spent.saturating_add(covered))
    }

    fn quota(&self) -> Option<Quota> {
        Some(Quota {
            permits: self.limit,
            window: self.window,
        })
    }

    fn refund(&self, state: &mut SlidingCounterState, _now: Tick, cost: u32) {
        state.ledger.take_back(cost);
    }

    /// Takes the permits from the bucket of this instant, or the latest ones before it. Those that have expired do not count anyway.
    fn refund_from(&self, state: &mut SlidingCounterState, _now: Tick, spent_at: Tick, cost: u32) {
        if state.origin <= spent_at {
            let bucket = self.bucket_at(state, spent_at);
            state.ledger.take_back_from(bucket, cost);
        }
    }

    /// The count of a bucket may be above the limit. It expires as every other.
    fn charge(&self, state: &mut SlidingCounterState, now: Tick, cost: u32) {
        if cost == 0 {
            return;
        }
        let mut present = self.bucket_at(state, now);
        self.expire(state, present);
        if state.ledger.is_empty() {
            state.origin = now.max(state.origin);
            present = 0;
        }
        state.ledger.spend(present, cost);
    }

    /// Moves each count to the latest new bucket that its requests may belong to.
    fn retune(&self, old: &Self, state: &mut SlidingCounterState, now: Tick) {
        if self == old {
            return;
        }
        old.expire(state, old.bucket_at(state, now));
        let elapsed = nanos_since(state.origin, now);
        let (from, to) = (old.bucket(), self.bucket());
        state.ledger.redate(|bucket| {
            let next = bucket.saturating_add(1).saturating_mul(from);
            (next - 1).min(elapsed) / to
        });
    }

    fn settled_at(&self, state: &SlidingCounterState) -> Tick {
        self.expires_at(state, state.ledger.last())
    }
}

/// The counts of a [`SlidingCounter`], by bucket.
#[derive(Clone, Debug)]
pub struct SlidingCounterState {
    /// Where the first bucket begins.
    origin: Tick,
    ledger: Ledger,
}

fn nanos_since(origin: Tick, now: Tick) -> u64 {
    now.as_nanos().saturating_sub(origin.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_nanos(100);

    fn at(nanos: u64) -> Tick {
        Tick::from_nanos(nanos)
    }

    #[test]
    fn there_is_room_in_a_strict_counter_for_the_buckets_that_have_expired() {
        let limit = SlidingCounter::strict(2, WINDOW, 4);
        let mut state = limit.fresh(at(0));
        assert_eq!(limit.room(&state, at(0)), 2);
        for now in [0, 60] {
            assert_eq!(limit.decide(&mut state, at(now), 1), Decision::Pass);
        }
        let room = [60, 124, 125, 174, 175].map(|now| limit.room(&state, at(now)));
        assert_eq!(room, [0, 0, 1, 1, 2]);
        let reset_in = limit.status(&state, at(100)).reset_in;
        assert_eq!(reset_in.as_nanos(), 75);
    }

    #[test]
    fn there_is_room_in_a_smooth_counter_for_the_part_that_is_not_covered() {
        let limit = SlidingCounter::smooth(10, WINDOW);
        let mut state = limit.fresh(at(0));
        assert_eq!(limit.decide(&mut state, at(0), 8), Decision::Pass);
        let room = [99, 100, 112, 113, 199, 200].map(|now| limit.room(&state, at(now)));
        assert_eq!(room, [2, 2, 2, 3, 9, 10]);

        assert_eq!(limit.decide(&mut state, at(150), 1), Decision::Pass);
        assert_eq!(limit.room(&state, at(150)), 5);
        assert_eq!(limit.room(&state, at(99)), 0, "the time has gone back");
    }

    #[test]
    fn a_debt_expires_bucket_by_bucket() {
        let limit = SlidingCounter::strict(2, WINDOW, 4);
        let mut state = limit.fresh(at(0));
        limit.charge(&mut state, at(0), 5);
        limit.charge(&mut state, at(60), u32::MAX);
        limit.charge(&mut state, at(60), u32::MAX);
        assert_eq!(limit.room(&state, at(124)), 0);
        for _ in 0..2 {
            limit.refund_from(&mut state, at(124), at(74), u32::MAX);
        }
        let room = [124, 125].map(|now| limit.room(&state, at(now)));
        assert_eq!(room, [0, 2]);
        limit.refund_from(&mut state, at(124), at(10), 4);
        assert_eq!(limit.room(&state, at(124)), 1);
    }

    #[test]
    fn a_smooth_debt_falls_in_the_next_window() {
        let limit = SlidingCounter::smooth(10, WINDOW);
        let mut state = limit.fresh(at(0));
        limit.charge(&mut state, at(0), 40);
        let wait = Duration::from_nanos(178);
        assert_eq!(
            limit.decide(&mut state, at(0), 1),
            Decision::Wait { retry_in: wait },
            "40 · 22 / 100 is the first below 9"
        );
        limit.refund_from(&mut state, at(150), at(99), 24);
        assert_eq!(limit.room(&state, at(150)), 2);
        limit.refund_from(&mut state, at(200), at(99), 24);
        assert_eq!(limit.room(&state, at(200)), 10);
    }

    #[test]
    fn an_instant_before_the_first_bucket_returns_nothing() {
        let limit = SlidingCounter::strict(2, WINDOW, 4);
        let mut state = limit.fresh(at(50));
        limit.charge(&mut state, at(50), 2);
        limit.refund_from(&mut state, at(50), at(49), 2);
        assert_eq!(limit.room(&state, at(50)), 0);
    }

    #[test]
    fn two_windows_may_count_more_than_the_largest_number_if_the_time_goes_back() {
        let limit = SlidingCounter::smooth(u32::MAX, WINDOW);
        let mut state = limit.fresh(at(0));
        assert_eq!(limit.decide(&mut state, at(0), u32::MAX), Decision::Pass);
        let room = limit.room(&state, at(199));
        assert_eq!(limit.decide(&mut state, at(199), room), Decision::Pass);
        assert_eq!([199, 100].map(|now| limit.room(&state, at(now))), [0, 0]);
    }
}
