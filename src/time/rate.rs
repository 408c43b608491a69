use core::cmp::Ordering;
use core::hash::{Hash, Hasher};
use core::time::Duration;

use super::OutOfRange;

/// So many permits in each period: an exact fraction, never rounded to nanoseconds.
///
/// `Rate::per_second(3)` is three a second, not one every 333,333,333 ns. Two rates are equal if they are the same
/// fraction, however written: `60/min` is `1/s`.
///
/// It is written as `permits/period`, both ways:
///
/// ```
/// use paceline::time::Rate;
/// use std::time::Duration;
///
/// const LIMIT: Rate = Rate::per_minute(100);
///
/// assert_eq!("100/min".parse(), Ok(LIMIT));
/// assert_eq!("5/250ms".parse(), Ok(Rate::new(5, Duration::from_millis(250))));
/// assert_eq!(Rate::per_second(30).to_string(), "30/s");
/// assert_eq!(Rate::per_minute(60), Rate::per_second(1));
/// ```
///
/// Units are `ns`, `us` or `µs`, `ms`, `s` or `sec`, `m` or `min`, `h` or `hour`, `d` or `day`, with a whole number before
/// them or none.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    permits: u32,
    period: Duration,
}

impl Rate {
    /// `permits` in each `period`.
    ///
    /// In a `const` a bad rate does not compile.
    ///
    /// # Panics
    ///
    /// If `permits` or `period` is zero. [`Rate::try_new`] gives an error instead.
    #[must_use]
    #[track_caller]
    pub const fn new(permits: u32, period: Duration) -> Self {
        OutOfRange::or_panic(Self::try_new(permits, period))
    }

    /// `permits` in each `period`.
    ///
    /// # Errors
    ///
    /// If `permits` or `period` is zero.
    pub const fn try_new(permits: u32, period: Duration) -> Result<Self, OutOfRange> {
        if permits == 0 {
            return Err(OutOfRange::new(
                "permits",
                "a rate needs at least 1 permit, got 0",
            ));
        }
        if period.is_zero() {
            return Err(OutOfRange::new(
                "period",
                "a rate needs a period of at least 1 ns, got 0",
            ));
        }
        Ok(Self { permits, period })
    }

    /// `permits` in each second.
    ///
    /// # Panics
    ///
    /// If `permits` is zero.
    #[must_use]
    #[track_caller]
    pub const fn per_second(permits: u32) -> Self {
        Self::new(permits, Duration::from_secs(1))
    }

    /// `permits` in each minute.
    ///
    /// # Panics
    ///
    /// If `permits` is zero.
    #[must_use]
    #[track_caller]
    pub const fn per_minute(permits: u32) -> Self {
        Self::new(permits, Duration::from_secs(60))
    }

    /// `permits` in each hour.
    ///
    /// # Panics
    ///
    /// If `permits` is zero.
    #[must_use]
    #[track_caller]
    pub const fn per_hour(permits: u32) -> Self {
        Self::new(permits, Duration::from_secs(3_600))
    }

    /// `permits` in each 24 hours.
    ///
    /// # Panics
    ///
    /// If `permits` is zero.
    #[must_use]
    #[track_caller]
    pub const fn per_day(permits: u32) -> Self {
        Self::new(permits, Duration::from_secs(86_400))
    }

    /// How many permits come in each [`period`](Self::period); at least 1.
    #[must_use]
    pub const fn permits(self) -> u32 {
        self.permits
    }

    /// How long it takes for [`permits`](Self::permits) to come; at least 1 ns.
    #[must_use]
    pub const fn period(self) -> Duration {
        self.period
    }

    /// The fraction in its lowest terms, in permits and nanoseconds.
    fn lowest_terms(self) -> (u128, u128) {
        let (permits, nanos) = (u128::from(self.permits), self.period.as_nanos());
        let (mut a, mut b) = (nanos, permits);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        (permits / a, nanos / a)
    }
}

impl PartialEq for Rate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Rate {}

impl PartialOrd for Rate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The faster rate is the greater one.
impl Ord for Rate {
    fn cmp(&self, other: &Self) -> Ordering {
        // 32 bits times 94 bits: there is room.
        let ours = u128::from(self.permits) * other.period.as_nanos();
        let theirs = u128::from(other.permits) * self.period.as_nanos();
        ours.cmp(&theirs)
    }
}

impl Hash for Rate {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.lowest_terms().hash(state);
    }
}

/// The error of [`Rate::try_new`].
pub type RateError = OutOfRange;

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

    use super::*;

    #[test]
    fn is_compared_as_a_fraction() {
        assert_eq!(Rate::per_minute(60), Rate::per_second(1));
        assert_ne!(
            Rate::per_second(3),
            Rate::new(1, Duration::from_nanos(333_333_333))
        );
        assert!(Rate::per_second(3) < Rate::new(1, Duration::from_nanos(333_333_333)));
        assert!(Rate::new(u32::MAX, Duration::from_nanos(1)) > Rate::new(1, Duration::MAX));
        assert_eq!(Rate::per_day(86_400).lowest_terms(), (1, 1_000_000_000));
        assert_eq!(Rate::per_minute(90).lowest_terms(), (3, 2_000_000_000));
    }

    #[test]
    fn equal_rates_are_one_key() {
        let rates = [
            Rate::per_minute(60),
            Rate::per_second(1),
            Rate::per_second(2),
        ];
        let keys: std::collections::HashSet<Rate> = rates.into();
        assert_eq!(keys.len(), 2);
        let hash = |rate: Rate| BuildHasherDefault::<DefaultHasher>::default().hash_one(rate);
        assert_eq!(hash(rates[0]), hash(rates[1]));
        assert_ne!(hash(rates[1]), hash(rates[2]));
    }

    #[test]
    #[should_panic(expected = "a rate needs at least 1 permit, got 0")]
    fn refuses_no_permits() {
        let _ = Rate::per_second(0);
    }

    #[test]
    #[should_panic(expected = "a rate needs a period of at least 1 ns, got 0")]
    fn refuses_no_period() {
        let _ = Rate::new(1, Duration::ZERO);
    }
}
