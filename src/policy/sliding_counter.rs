use core::time::Duration;

use crate::time::Tick;

use super::ledger::Ledger;
use super::{Decision, Policy};

/// A sliding window from a few counters: the memory of a handful of numbers instead of one for each request.
///
/// Time is cut into buckets, which begin with the first request after a quiet time. There are two kinds:
///
/// * [`strict`](Self::strict) counts the window's buckets and the oldest one, which lies partly inside, in full.
///   **Window bound**: a half-open window of the given length holds at most `limit`, wherever it begins. The price is that
///   what is spent counts for up to one bucket longer: the sustained rate is at least `limit` in window · (1 + 1 /
///   `buckets`), a bucket being rounded up to whole nanoseconds.
/// * [`smooth`](Self::smooth) is the two-counter approximation: the present window's count, plus the share of the last
///   window's that the sliding window still covers, as if it had been spread evenly. The sum is exact, so that the last
///   share of one request is gone only with its window: it sustains `limit` − 1 a window at least.
///   **Window bound**: less than 2 · `limit`. All of one window's limit can come at its end, and as time goes on nearly as
///   much again fits into the window that begins with that burst: the worst holds 2 · `limit` − 1.
///
/// What is not let pass is not counted: a steady stream a little over the limit is cut to the limit, and not starved.
///
/// **Memory**: 16 bytes for each bucket in which something was spent, at most `buckets` + 1 of them (`smooth`: 2); released
/// when all is over, but for 256 bytes at most.
///
/// The approximation with two counters is known from web servers' edges and is here in whole numbers, without rounding.
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
/// // Buckets of 25: the first one counts until no window reaches back to it.
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
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Strict { buckets: u32 },
    Smooth,
}

impl SlidingCounter {
    /// Never more than `limit` in any `window`, counted in `buckets` of equal length.
    ///
    /// # Panics
    ///
    /// If `limit`, `window` or `buckets` is zero.
    #[must_use]
    #[track_caller]
    pub const fn strict(limit: u32, window: Duration, buckets: u32) -> Self {
        super::assert_window(limit, window);
        assert!(buckets > 0, "a counter needs at least 1 bucket, got 0");
        Self {
            limit,
            window,
            kind: Kind::Strict { buckets },
        }
    }

    /// About `limit` in any `window`, and less than twice as much.
    ///
    /// # Panics
    ///
    /// If `limit` or `window` is zero.
    #[must_use]
    #[track_caller]
    pub const fn smooth(limit: u32, window: Duration) -> Self {
        super::assert_window(limit, window);
        Self {
            limit,
            window,
            kind: Kind::Smooth,
        }
    }

    /// How much a window holds.
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// How long a window is.
    #[must_use]
    pub const fn window(&self) -> Duration {
        self.window
    }

    /// How long a bucket is, in nanoseconds, at least 1: so long that they cover the window. Beyond the reach of a tick it
    /// is for ever.
    fn bucket(&self) -> u64 {
        let window = u64::try_from(self.window.as_nanos()).unwrap_or(u64::MAX);
        match self.kind {
            Kind::Strict { buckets } => window.div_ceil(u64::from(buckets)),
            Kind::Smooth => window,
        }
    }

    /// After how many buckets nothing is left of what was spent in one.
    fn reach(&self) -> u64 {
        match self.kind {
            Kind::Strict { buckets } => u64::from(buckets) + 1,
            Kind::Smooth => 2,
        }
    }

    fn bucket_at(&self, state: &SlidingCounterState, now: Tick) -> u64 {
        nanos_since(state.origin, now) / self.bucket()
    }

    fn beginning_of(&self, state: &SlidingCounterState, bucket: u64) -> Tick {
        let nanos = bucket.saturating_mul(self.bucket());
        state.origin.after(Duration::from_nanos(nanos))
    }

    /// Forgets what no longer counts in the `present` bucket.
    fn tidy(&self, state: &mut SlidingCounterState, present: u64) {
        if let Some(gone) = present.checked_sub(self.reach()) {
            state.ledger.forget(gone);
        }
    }

    /// From when on there is `room`, if so much at most may have been spent before.
    fn open_at(&self, state: &SlidingCounterState, now: Tick, room: u32) -> Tick {
        match self.kind {
            Kind::Strict { .. } => match state.ledger.must_go(u64::from(room)) {
                Some(bucket) => self.beginning_of(state, bucket.saturating_add(self.reach())),
                None => Tick::ZERO,
            },
            Kind::Smooth => self.smoothly_open_at(state, now, room),
        }
    }

    /// The last window's count falls in proportion as time goes on in the present one, and that one's in the next.
    fn smoothly_open_at(&self, state: &SlidingCounterState, now: Tick, room: u32) -> Tick {
        // Should the time go back, what was spent is no earlier for that.
        let latest = state.ledger.last().unwrap_or(0);
        let present = self.bucket_at(state, now).max(latest);
        let spent = state.ledger.spent_from(present);
        let last = match present.checked_sub(1) {
            Some(last) => state.ledger.spent_from(last) - spent,
            None => 0,
        };
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
        if decision.is_pass() && cost > 0 {
            let mut present = self.bucket_at(state, now);
            self.tidy(state, present);
            if state.ledger.is_empty() {
                state.origin = now.max(state.origin);
                present = 0;
            }
            state.ledger.spend(present, cost);
        }
        decision
    }

    fn peek(&self, state: &SlidingCounterState, now: Tick, cost: u32) -> Decision {
        let Some(room) = self.limit.checked_sub(cost) else {
            return Decision::Never {
                capacity: self.limit,
            };
        };
        if cost == 0 {
            return Decision::Pass;
        }
        Decision::from(self.open_at(state, now, room), now)
    }

    fn refund(&self, state: &mut SlidingCounterState, _now: Tick, cost: u32) {
        state.ledger.take_back(cost);
    }

    /// Moves each count to the latest new bucket that it may belong to.
    fn retune(&self, old: &Self, state: &mut SlidingCounterState, now: Tick) {
        if self == old {
            return;
        }
        old.tidy(state, old.bucket_at(state, now));
        let elapsed = nanos_since(state.origin, now);
        let (from, to) = (old.bucket(), self.bucket());
        state.ledger.redate(|bucket| {
            let next = bucket.saturating_add(1).saturating_mul(from);
            (next - 1).min(elapsed) / to
        });
    }

    fn settled_at(&self, state: &SlidingCounterState) -> Tick {
        let last = state.ledger.last();
        last.map_or(Tick::ZERO, |last| {
            self.beginning_of(state, last.saturating_add(self.reach()))
        })
    }
}

/// What a [`SlidingCounter`] let pass in which bucket.
#[derive(Clone, Debug)]
pub struct SlidingCounterState {
    /// Where the first bucket begins.
    origin: Tick,
    ledger: Ledger,
}

fn nanos_since(origin: Tick, now: Tick) -> u64 {
    now.as_nanos().saturating_sub(origin.as_nanos())
}
