use core::error::Error;
use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use super::{OutOfRange, Rate};

/// As it would be parsed: `30/s`, `100/min`, `5/250ms`.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.period().as_nanos();
        let unit = UNITS
            .iter()
            .rev()
            .find(|unit| nanos % unit.nanos == 0)
            .unwrap_or(&UNITS[0]);
        match nanos / unit.nanos {
            1 => write!(f, "{}/{}", self.permits(), unit.names[0]),
            count => write!(f, "{}/{count}{}", self.permits(), unit.names[0]),
        }
    }
}

impl FromStr for Rate {
    type Err = ParseRateError;

    fn from_str(text: &str) -> Result<Self, ParseRateError> {
        parse(text).map_err(|wrong| ParseRateError {
            text: text.to_owned(),
            wrong,
        })
    }
}

/// A text that is not a rate. It says what was found and what would be right.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ParseRateError {
    text: String,
    wrong: Wrong,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Wrong {
    NoSlash,
    Permits(String),
    Count(String),
    Unit(String),
    PeriodTooLong,
    Zero(OutOfRange),
}

impl fmt::Display for ParseRateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a rate: ", self.text)?;
        match &self.wrong {
            Wrong::NoSlash => f.write_str("write permits/period, as in 30/s, 100/min or 5/250ms"),
            Wrong::Permits(found) => write!(
                f,
                "the permits must be a whole number from 1 to {}, got `{found}`",
                u32::MAX
            ),
            Wrong::Count(found) => write!(
                f,
                "the period must be a whole number of units, as in 250ms, got `{found}`"
            ),
            Wrong::Unit(found) => write!(
                f,
                "the unit must be one of ns, us, ms, s, min, h, day, got `{found}`"
            ),
            Wrong::PeriodTooLong => f.write_str("the period is longer than a Duration can be"),
            Wrong::Zero(zero) => zero.fmt(f),
        }
    }
}

impl Error for ParseRateError {}

struct Unit {
    /// The first one is what is displayed.
    names: &'static [&'static str],
    nanos: u128,
}

const NANOS_PER_SEC: u128 = 1_000_000_000;

/// From the shortest to the longest.
const UNITS: &[Unit] = &[
    Unit {
        names: &["ns"],
        nanos: 1,
    },
    Unit {
        names: &["us", "µs", "μs"],
        nanos: 1_000,
    },
    Unit {
        names: &["ms"],
        nanos: 1_000_000,
    },
    Unit {
        names: &["s", "sec", "second", "seconds"],
        nanos: NANOS_PER_SEC,
    },
    Unit {
        names: &["min", "m", "minute", "minutes"],
        nanos: 60 * NANOS_PER_SEC,
    },
    Unit {
        names: &["h", "hour", "hours"],
        nanos: 3_600 * NANOS_PER_SEC,
    },
    Unit {
        names: &["day", "d", "days"],
        nanos: 86_400 * NANOS_PER_SEC,
    },
];

fn parse(text: &str) -> Result<Rate, Wrong> {
    let (permits, period) = text.split_once('/').ok_or(Wrong::NoSlash)?;
    let permits = permits.trim();
    let permits = whole(permits)
        .and_then(|permits| u32::try_from(permits).ok())
        .ok_or_else(|| Wrong::Permits(permits.to_owned()))?;
    Rate::try_new(permits, parse_period(period.trim())?).map_err(Wrong::Zero)
}

fn parse_period(text: &str) -> Result<Duration, Wrong> {
    let unit_at = text
        .find(|c: char| c.is_alphabetic())
        .ok_or_else(|| Wrong::Unit(text.to_owned()))?;
    let (count, unit) = text.split_at(unit_at);
    let nanos = UNITS
        .iter()
        .find(|known| known.names.contains(&unit))
        .ok_or_else(|| Wrong::Unit(unit.to_owned()))?
        .nanos;
    let count = match count.trim() {
        "" => 1,
        count => whole(count).ok_or_else(|| Wrong::Count(text.to_owned()))?,
    };
    let nanos = nanos.checked_mul(count).ok_or(Wrong::PeriodTooLong)?;
    let secs = u64::try_from(nanos / NANOS_PER_SEC).map_err(|_| Wrong::PeriodTooLong)?;
    let rest = u32::try_from(nanos % NANOS_PER_SEC).map_err(|_| Wrong::PeriodTooLong)?;
    Ok(Duration::new(secs, rest))
}

/// Digits and nothing else: `parse` alone would take a sign.
fn whole(digits: &str) -> Option<u128> {
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

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
