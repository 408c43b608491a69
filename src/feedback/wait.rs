//! When to come back, as text.

use core::time::Duration;

use super::date::{http_date, timestamp};

pub(super) const NANOS_PER_SEC: u128 = 1_000_000_000;
const NANOS_PER_MILLI: u128 = 1_000_000;

/// The first number that is seconds since 1970 (it is in 2001), and not seconds from now (31 years).
const FIRST_UNIX_SECS: u128 = 1_000_000_000;

/// The first number that is milliseconds since 1970, and not seconds since 1970.
const FIRST_UNIX_MILLIS: u128 = 1_000 * FIRST_UNIX_SECS;

/// From the time of the response on, or from 1970 on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum When {
    In(Duration),
    At(Duration),
}

/// What a bare number is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Number {
    Seconds,
    Millis,
    /// Seconds, or a time since 1970 if it is too long for a wait.
    SecondsOrTime,
}

impl Number {
    fn read(self, text: &str) -> Option<When> {
        let secs = decimal(text, NANOS_PER_SEC)?;
        let whole = secs / NANOS_PER_SEC;
        let millis = || decimal(text, NANOS_PER_MILLI).map(duration);
        Some(match self {
            Self::Millis => When::In(millis()?),
            Self::SecondsOrTime if whole >= FIRST_UNIX_MILLIS => When::At(millis()?),
            Self::SecondsOrTime if whole >= FIRST_UNIX_SECS => When::At(duration(secs)),
            Self::Seconds | Self::SecondsOrTime => When::In(duration(secs)),
        })
    }
}

/// A number, a duration with units, an HTTP date or a timestamp.
pub(super) fn read(text: &str, number: Number, now: Duration) -> Option<When> {
    number
        .read(text)
        .or_else(|| with_units(text).map(When::In))
        .or_else(|| http_date(text, now).map(When::At))
        .or_else(|| timestamp(text).map(When::At))
}

/// So many nanoseconds, or the longest there is.
pub(super) fn duration(nanos: u128) -> Duration {
    let rest = u32::try_from(nanos % NANOS_PER_SEC).unwrap_or(0);
    u64::try_from(nanos / NANOS_PER_SEC).map_or(Duration::MAX, |secs| Duration::new(secs, rest))
}

/// A decimal number of units of so many nanoseconds each, rounded up to nanoseconds.
pub(super) fn decimal(text: &str, unit: u128) -> Option<u128> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    // 60 bits times the 47 of a day: there is room.
    let fraction = (fraction_digits(fraction)? * unit).div_ceil(FRACTIONS);
    Some(digits(whole)?.saturating_mul(unit).saturating_add(fraction))
}

/// A whole number, or the largest there is.
pub(super) fn digits(text: &str) -> Option<u128> {
    text.bytes().try_fold(0_u128, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u128::from(byte - b'0'))?;
        Some(number.saturating_mul(10).saturating_add(digit))
    })
}

/// So many digits after the point, rounded up; enough for a day in nanoseconds.
fn fraction_digits(text: &str) -> Option<u128> {
    digits(text)?;
    let (first, rest) = text.split_at(text.len().min(FRACTION_DIGITS));
    let first = (first.len()..FRACTION_DIGITS).fold(digits(first)?, |number, _| number * 10);
    Some(first + u128::from(rest.bytes().any(|byte| byte != b'0')))
}

const FRACTION_DIGITS: usize = 18;
const FRACTIONS: u128 = 1_000_000_000_000_000_000;

/// As Go writes durations: `6m0s`, `1.5s`, `120ms`.
fn with_units(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut nanos = 0_u128;
    while !rest.is_empty() {
        let unit_at = rest.find(char::is_alphabetic)?;
        let (number, tail) = rest.split_at(unit_at);
        let unit_end = tail
            .find(|c: char| !c.is_alphabetic())
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        nanos = nanos.saturating_add(decimal(number, nanos_of(unit)?)?);
        rest = tail;
    }
    (!text.is_empty()).then(|| duration(nanos))
}

fn nanos_of(unit: &str) -> Option<u128> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => NANOS_PER_MILLI,
        "s" => NANOS_PER_SEC,
        "m" => 60 * NANOS_PER_SEC,
        "h" => 3_600 * NANOS_PER_SEC,
        "d" => 86_400 * NANOS_PER_SEC,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In nanoseconds from now.
    fn wait(text: &str, number: Number) -> Option<u128> {
        match read(text, number, Duration::ZERO)? {
            When::In(wait) => Some(wait.as_nanos()),
            When::At(_) => None,
        }
    }

    fn seconds(text: &str) -> Option<u128> {
        wait(text, Number::Seconds)
    }

    #[test]
    fn fractions_are_rounded_up() {
        assert_eq!(seconds("2"), Some(2_000_000_000));
        assert_eq!(seconds("1.337"), Some(1_337_000_000));
        assert_eq!(seconds(".5"), Some(500_000_000));
        assert_eq!(seconds("5."), Some(5_000_000_000));
        assert_eq!(seconds("0.0000000001"), Some(1));
        assert_eq!(seconds("0.0000000010"), Some(1));
        assert_eq!(seconds("0.9999999999999"), Some(1_000_000_000));
        assert_eq!(seconds("0.00000000000"), Some(0));
        let millis = |text| wait(text, Number::Millis);
        assert_eq!(millis("1"), Some(1_000_000));
        assert_eq!(millis("0.0000001"), Some(1));
        assert_eq!(millis("2.5"), Some(2_500_000));
    }

    #[test]
    fn durations_with_units() {
        assert_eq!(seconds("6m0s"), Some(360_000_000_000));
        assert_eq!(seconds("1s"), Some(1_000_000_000));
        assert_eq!(seconds("120ms"), Some(120_000_000));
        assert_eq!(seconds("2m59.56s"), Some(179_560_000_000));
        assert_eq!(seconds("1h2m3.5s"), Some(3_723_500_000_000));
        assert_eq!(seconds("1d"), Some(86_400_000_000_000));
        assert_eq!(seconds("17µs4ns"), Some(17_004));
        assert_eq!(seconds("0.0000000001h"), Some(360));
        assert_eq!(seconds("0.00000000000000000001d"), Some(1));
        assert_eq!(seconds("0.1ns"), Some(1));
    }

    #[test]
    fn a_number_too_long_for_a_wait_may_be_a_time() {
        let read = |text| read(text, Number::SecondsOrTime, Duration::ZERO);
        let at = |secs, nanos| Some(When::At(Duration::new(secs, nanos)));
        assert_eq!(
            read("999999999"),
            Some(When::In(Duration::from_secs(999_999_999)))
        );
        assert_eq!(read("1000000000"), at(1_000_000_000, 0));
        assert_eq!(read("1470173023.123"), at(1_470_173_023, 123_000_000));
        assert_eq!(read("999999999999"), at(999_999_999_999, 0));
        assert_eq!(read("1000000000000"), at(1_000_000_000, 0));
        assert_eq!(read("1470173023123"), at(1_470_173_023, 123_000_000));
        assert_eq!(seconds("1470173023"), Some(1_470_173_023 * NANOS_PER_SEC));
    }

    #[test]
    fn huge_numbers_are_the_longest_wait() {
        let huge = "9".repeat(300);
        assert_eq!(seconds(&huge), Some(Duration::MAX.as_nanos()));
        assert_eq!(
            seconds(&format!("{huge}h{huge}h")),
            Some(Duration::MAX.as_nanos())
        );
        assert_eq!(
            read(&huge, Number::SecondsOrTime, Duration::ZERO),
            Some(When::At(Duration::MAX))
        );
    }

    #[test]
    fn what_is_no_wait_is_none() {
        for text in [
            "",
            ".",
            "-1",
            "+1",
            "1e3",
            "1,5",
            "0x10",
            "inf",
            "NaN",
            "soon",
            "s",
            "1.s.",
            "5 s",
            "-5s",
            "1fortnight",
            "1s2",
            "1.2.3",
            "٣",
            "½",
            "\0",
        ] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }
}
