use core::ops::{Add, Sub};
use core::time::Duration;

/// A point in time: whole nanoseconds since an epoch, which is the first reading of a [`Clock`](super::Clock).
///
/// Sums saturate at [`Tick::ZERO`] and [`Tick::MAX`], 584 years later; nothing overflows.
///
/// ```
/// use paceline::time::Tick;
/// use std::time::Duration;
///
/// let tick = Tick::from_nanos(1_500).after(Duration::from_micros(1));
///
/// assert_eq!(tick.as_nanos(), 2_500);
/// assert_eq!(tick.since(Tick::ZERO), Duration::from_nanos(2_500));
/// assert_eq!(Tick::ZERO - tick, Duration::ZERO);
/// assert_eq!(Tick::ZERO + Duration::from_nanos(2_500), tick);
/// assert_eq!(tick - Duration::from_secs(1), Tick::ZERO);
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Tick(u64);

impl Tick {
    /// The epoch itself.
    pub const ZERO: Self = Self(0);

    /// The last tick. As the answer of a policy it means "never".
    pub const MAX: Self = Self(u64::MAX);

    /// The tick that is `nanos` nanoseconds after the epoch.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the epoch.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The tick `duration` later, at most [`Tick::MAX`].
    #[must_use]
    pub const fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(saturating_nanos(duration)))
    }

    /// The tick `count` times `step` later, at most [`Tick::MAX`].
    #[must_use]
    pub const fn after_times(self, step: Duration, count: u32) -> Self {
        let nanos = saturating_nanos(step).saturating_mul(count as u64);
        Self(self.0.saturating_add(nanos))
    }

    /// The tick `duration` earlier, at least [`Tick::ZERO`].
    #[must_use]
    pub const fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(saturating_nanos(duration)))
    }

    /// How long ago `earlier` was; zero if it is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The last point at or before it of a grid of `step` that begins at `origin`; `origin` if it is earlier.
    ///
    /// ```
    /// use paceline::time::Tick;
    /// use std::time::Duration;
    ///
    /// let (origin, step) = (Tick::from_nanos(5), Duration::from_nanos(100));
    ///
    /// assert_eq!(Tick::from_nanos(399).last_on_grid(origin, step).as_nanos(), 305);
    /// assert_eq!(Tick::from_nanos(405).last_on_grid(origin, step).as_nanos(), 405);
    /// ```
    ///
    /// # Panics
    ///
    /// If `step` is zero.
    #[must_use]
    #[track_caller]
    pub const fn last_on_grid(self, origin: Self, step: Duration) -> Self {
        assert!(
            !step.is_zero(),
            "a grid needs a step of at least 1 ns, got 0"
        );
        if self.0 <= origin.0 {
            return origin;
        }
        Self(self.0 - (self.0 - origin.0) % saturating_nanos(step))
    }
}

/// As [`after`](Tick::after).
impl Add<Duration> for Tick {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        self.after(duration)
    }
}

/// As [`before`](Tick::before).
impl Sub<Duration> for Tick {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        self.before(duration)
    }
}

/// As [`since`](Tick::since).
impl Sub for Tick {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

pub(super) const NANOS_PER_SEC: u128 = 1_000_000_000;

/// More than 584 years are [`Tick::MAX`].
const fn saturating_nanos(duration: Duration) -> u64 {
    let nanos = duration.as_nanos();
    if nanos > u64::MAX as u128 {
        return u64::MAX;
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "compared on the line above"
    )]
    let nanos = nanos as u64;
    nanos
}

/// A duration in nanoseconds, or the longest possible one.
#[expect(
    clippy::cast_possible_truncation,
    reason = "seconds are compared before, and the rest is less than a second"
)]
pub(crate) const fn saturating_duration(nanos: u128) -> Duration {
    if nanos >= Duration::MAX.as_nanos() {
        return Duration::MAX;
    }
    Duration::new(
        (nanos / NANOS_PER_SEC) as u64,
        (nanos % NANOS_PER_SEC) as u32,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saturates_at_both_ends() {
        assert_eq!(Tick::MAX.after(Duration::from_nanos(1)), Tick::MAX);
        assert_eq!(Tick::ZERO.after(Duration::MAX), Tick::MAX);
        assert_eq!(Tick::ZERO.before(Duration::from_nanos(1)), Tick::ZERO);
        assert_eq!(Tick::MAX.before(Duration::MAX), Tick::ZERO);
        assert_eq!(Tick::ZERO.since(Tick::MAX), Duration::ZERO);
        assert_eq!(Tick::MAX.since(Tick::ZERO), Duration::from_nanos(u64::MAX));
    }

    #[test]
    fn counts_single_nanoseconds() {
        let tick = Tick::from_nanos(7);

        assert_eq!(tick.after(Duration::from_nanos(3)).as_nanos(), 10);
        assert_eq!(tick.before(Duration::from_nanos(3)).as_nanos(), 4);
    }

    #[test]
    fn the_last_point_on_a_grid_is_at_or_before_the_tick() {
        let (origin, step) = (Tick(5), Duration::from_nanos(100));

        assert_eq!(Tick(0).last_on_grid(origin, step), origin);
        assert_eq!(Tick(104).last_on_grid(origin, step), origin);
        assert_eq!(Tick(105).last_on_grid(origin, step), Tick(105));
        assert_eq!(Tick(104).last_on_grid(origin, Duration::MAX), origin);
        assert_eq!(
            Tick::MAX.last_on_grid(Tick::ZERO, Duration::MAX),
            Tick::MAX,
            "after 584 years there is nothing else"
        );
    }

    #[test]
    fn a_duration_saturates() {
        assert_eq!(saturating_duration(0), Duration::ZERO);
        assert_eq!(saturating_duration(1_000_000_007), Duration::new(1, 7));
        assert_eq!(saturating_duration(Duration::MAX.as_nanos()), Duration::MAX);
        assert_eq!(
            saturating_duration(Duration::MAX.as_nanos() + 1),
            Duration::MAX
        );
    }
}
