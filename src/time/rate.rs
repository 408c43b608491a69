use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::str::FromStr;
use core::time::Duration;
use std::borrow::Cow;

use super::OutOfRange;
use super::error::ConfigError;
use super::tick::{NANOS_PER_SEC, saturating_duration};

/// A number of permits in each period: an exact fraction, never rounded to nanoseconds.
///
/// `Rate::per_second(3)` is three a second, not one every 333,333,333 ns. Two rates are equal if they are the same
/// fraction: `60/min` equals `1/s`.
///
/// It is parsed from and displayed as `permits/period`:
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
/// Units are `ns`, `us` or `µs`, `ms`, `s` or `sec`, `m` or `min`, `h` or `hour`, `d` or `day`. A whole number may stand before
/// the unit.
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

    /// The number of permits in each [`period`](Self::period); at least 1.
    #[must_use]
    pub const fn permits(self) -> u32 {
        self.permits
    }

    /// The time in which [`permits`](Self::permits) come; at least 1 ns.
    #[must_use]
    pub const fn period(self) -> Duration {
        self.period
    }

    /// The same rate with a period that is a multiple of its own, if the permits are not too many.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the permits are compared before"
    )]
    pub(crate) const fn in_period(self, period: Duration) -> Option<Self> {
        let (period, own) = (period.as_nanos(), self.period.as_nanos());
        let permits = period / own * self.permits as u128;
        if period % own > 0 || permits > u32::MAX as u128 {
            return None;
        }
        Some(Self {
            permits: permits as u32,
            period: saturating_duration(period),
        })
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
        // Equal fractions have equal quotients, also when both are rounded down.
        let quotient = (u128::from(self.permits) << 96) / self.period.as_nanos();
        quotient.hash(state);
    }
}

/// As it would be parsed: `30/s`, `100/min`, `5/250ms`.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match units_of(self.period) {
            (1, unit) => write!(f, "{}/{unit}", self.permits),
            (count, unit) => write!(f, "{}/{count}{unit}", self.permits),
        }
    }
}

impl FromStr for Rate {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        parse_rate(text).map_err(|reason| {
            let text = shortened(text);
            ConfigError::new(format!("`{text}` is not a rate: {reason}"))
        })
    }
}

/// The names of each unit (the first is displayed) and its nanoseconds, from the shortest to the longest.
const UNITS: [(&[&str], u128); 7] = [
    (&["ns"], 1),
    (&["us", "µs", "μs"], 1_000),
    (&["ms"], 1_000_000),
    (&["s", "sec", "second", "seconds"], NANOS_PER_SEC),
    (&["min", "m", "minute", "minutes"], 60 * NANOS_PER_SEC),
    (&["h", "hour", "hours"], 3_600 * NANOS_PER_SEC),
    (&["day", "d", "days"], 86_400 * NANOS_PER_SEC),
];

/// The error is the reason.
pub(crate) fn parse_rate(text: &str) -> Result<Rate, String> {
    let (permits, period) = text
        .split_once('/')
        .ok_or("write permits/period, as in 30/s, 100/min or 5/250ms")?;
    let permits = permits.trim();
    let most = u32::MAX;
    let permits = whole(permits)
        .and_then(|permits| u32::try_from(permits).ok())
        .ok_or_else(|| {
            let permits = shortened(permits);
            format!("the permits must be a whole number from 1 to {most}, got `{permits}`")
        })?;
    Rate::try_new(permits, parse_period(period.trim())?).map_err(|zero| zero.to_string())
}

/// A time as a whole number of the longest unit that measures it, such as `250ms`.
pub(crate) fn in_units(time: Duration) -> String {
    let (count, unit) = units_of(time);
    format!("{count}{unit}")
}

fn units_of(time: Duration) -> (u128, &'static str) {
    let nanos = time.as_nanos();
    let divides = |(_, unit): &&(_, u128)| nanos % unit == 0 && nanos > 0;
    let (names, unit) = UNITS.iter().rev().find(divides).unwrap_or(&UNITS[0]);
    (nanos / unit, names[0])
}

/// The error is the reason.
pub(crate) fn parse_period(text: &str) -> Result<Duration, String> {
    let (count, unit) = text.split_at(text.find(char::is_alphabetic).unwrap_or(text.len()));
    let nanos = unit_nanos(unit).ok_or_else(|| match shortened(unit) {
        missing if missing.is_empty() => {
            let text = shortened(text);
            format!("`{text}` needs a unit: one of ns, us, ms, s, min, h, day, as in 250ms")
        }
        unit => format!("the unit must be one of ns, us, ms, s, min, h, day, got `{unit}`"),
    })?;
    let count = match count.trim() {
        "" => 1,
        count => whole(count).ok_or_else(|| {
            let text = shortened(text);
            format!("the period must be a whole number of units, as in 250ms, got `{text}`")
        })?,
    };
    let nanos = nanos.checked_mul(count);
    let nanos = nanos.filter(|nanos| *nanos <= Duration::MAX.as_nanos());
    let nanos = nanos.ok_or("the period is longer than a Duration can be")?;
    Ok(saturating_duration(nanos))
}

/// A text that is quoted in a message: its beginning, if it is long.
pub(crate) fn shortened(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(MOST_QUOTED) {
        None => text.into(),
        Some((end, _)) => format!("{}…", &text[..end]).into(),
    }
}

/// How many letters a message quotes.
const MOST_QUOTED: usize = 120;

/// The nanoseconds of a unit of time, in upper or lower case.
pub(crate) fn unit_nanos(name: &str) -> Option<u128> {
    let mut units = UNITS.iter();
    let (_, nanos) =
        units.find(|(names, _)| names.iter().any(|unit| unit.eq_ignore_ascii_case(name)))?;
    Some(*nanos)
}

/// Digits alone: `parse` would accept a sign too.
fn whole(digits: &str) -> Option<u128> {
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

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
    fn error(text: &str) -> String {
        text.parse::<Rate>().unwrap_err().to_string()
    }

    #[test]
    fn reads_what_it_writes() {
        for text in [
            "30/s",
            "100/min",
            "5/250ms",
            "1/day",
            "7/3h",
            "9/17ns",
            "4294967295/us",
        ] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), text);
        }
        let longest = Rate::new(1, Duration::MAX);
        assert_eq!(longest.to_string().parse(), Ok(longest));
    }

    #[test]
    fn takes_the_units_people_write() {
        for text in [
            "60/m",
            "60 / min",
            " 60/1minute",
            "60/60s",
            "60/60000 ms",
            "1/sec",
            "3600/h",
            "86400/d",
        ] {
            assert_eq!(text.parse(), Ok(Rate::per_second(1)), "{text}");
        }
    }

    #[test]
    fn says_what_is_wrong_and_what_would_be_right() {
        assert_eq!(
            error("30"),
            "`30` is not a rate: write permits/period, as in 30/s, 100/min or 5/250ms"
        );
        assert_eq!(
            error("1.5/s"),
            "`1.5/s` is not a rate: the permits must be a whole number from 1 to 4294967295, got `1.5`"
        );
        assert_eq!(
            error("3/1.5s"),
            "`3/1.5s` is not a rate: the period must be a whole number of units, as in 250ms, got `1.5s`"
        );
        assert_eq!(
            error("3/fortnight"),
            "`3/fortnight` is not a rate: the unit must be one of ns, us, ms, s, min, h, day, got `fortnight`"
        );
        assert_eq!(
            error("0/s"),
            "`0/s` is not a rate: a rate needs at least 1 permit, got 0"
        );
        assert_eq!(
            error("1/0s"),
            "`1/0s` is not a rate: a rate needs a period of at least 1 ns, got 0"
        );
        for nonsense in [
            "",
            "/",
            "/s",
            "3/",
            "-1/s",
            "+1/s",
            "4294967296/s",
            "1/99999999999999999999999day",
            "1/5",
            "1/s/s",
        ] {
            assert!(nonsense.parse::<Rate>().is_err(), "{nonsense}");
        }
    }
}
