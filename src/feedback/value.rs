//! The syntax of header values: numbers, waits, and lists of items with parameters.

use core::time::Duration;

use super::date::{http_date, timestamp};

const NANOS_PER_SEC: u128 = 1_000_000_000;
const NANOS_PER_MILLI: u128 = 1_000_000;

/// The first number that is a time since 1970 in seconds (in 2001), and not a wait in seconds (31 years).
const FIRST_UNIX_SECS: u64 = 1_000_000_000;

/// The first number that is a time since 1970 in milliseconds, and not in seconds.
const FIRST_UNIX_MILLIS: u64 = 1_000 * FIRST_UNIX_SECS;

/// The unit of a wait that is a plain number.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Unit {
    Seconds,
    Millis,
    /// Seconds, or a time since 1970 if the number is too large for a wait.
    SecondsOrUnixTime,
}

/// A wait from `now` on: a number, a duration with units, an HTTP date or a timestamp. An instant in the past is no wait.
pub(super) fn wait(text: &str, unit: Unit, now: Duration) -> Option<Duration> {
    let until = |instant: Duration| instant.saturating_sub(now);
    let number = match unit {
        Unit::Millis => millis(text),
        Unit::Seconds => seconds(text),
        Unit::SecondsOrUnixTime => seconds(text).and_then(|number| match number.as_secs() {
            ..FIRST_UNIX_SECS => Some(number),
            FIRST_UNIX_SECS..FIRST_UNIX_MILLIS => Some(until(number)),
            FIRST_UNIX_MILLIS.. => millis(text).map(until),
        }),
    };
    number
        .or_else(|| with_units(text))
        .or_else(|| http_date(text, now).map(until))
        .or_else(|| timestamp(text).map(until))
}

/// A decimal number of seconds.
pub(super) fn seconds(text: &str) -> Option<Duration> {
    decimal(text, NANOS_PER_SEC)
}

/// A decimal number of milliseconds.
pub(super) fn millis(text: &str) -> Option<Duration> {
    decimal(text, NANOS_PER_MILLI)
}

/// A decimal number of units, each of `unit` nanoseconds. It is rounded up to nanoseconds, and saturates.
fn decimal(text: &str, unit: u128) -> Option<Duration> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    // This cannot overflow: 60 bits times the 47 bits of a day.
    let fraction = (fraction_digits(fraction)? * unit).div_ceil(FRACTIONS);
    let nanos = digits(whole)?.saturating_mul(unit).saturating_add(fraction);
    let rest = u32::try_from(nanos % NANOS_PER_SEC).ok()?;
    let secs = u64::try_from(nanos / NANOS_PER_SEC);
    Some(secs.map_or(Duration::MAX, |secs| Duration::new(secs, rest)))
}

/// A whole number, or the largest possible one.
fn digits(text: &str) -> Option<u128> {
    text.bytes().try_fold(0_u128, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u128::from(byte - b'0'))?;
        Some(number.saturating_mul(10).saturating_add(digit))
    })
}

/// The first [`FRACTION_DIGITS`] digits after the point, rounded up. They suffice for a day in nanoseconds.
fn fraction_digits(text: &str) -> Option<u128> {
    digits(text)?;
    let (first, rest) = text.split_at(text.len().min(FRACTION_DIGITS));
    let first = (first.len()..FRACTION_DIGITS).fold(digits(first)?, |number, _| number * 10);
    Some(first + u128::from(rest.bytes().any(|byte| byte != b'0')))
}

const FRACTION_DIGITS: usize = 18;
const FRACTIONS: u128 = 1_000_000_000_000_000_000;

/// A duration as Go prints it: `6m0s`, `1.5s`, `120ms`.
fn with_units(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut sum = Duration::ZERO;
    while !rest.is_empty() {
        let unit_at = rest.find(char::is_alphabetic)?;
        let (number, tail) = rest.split_at(unit_at);
        let unit_end = tail
            .find(|c: char| !c.is_alphabetic())
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        sum = sum.saturating_add(decimal(number, nanos_of(unit)?)?);
        rest = tail;
    }
    (!text.is_empty()).then_some(sum)
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

/// A number of requests, without its fraction.
pub(super) fn count(text: &str) -> Option<u64> {
    let (whole, fraction) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
    digits(fraction)?;
    let whole = digits(Some(whole).filter(|whole| !whole.is_empty())?)?;
    Some(u64::try_from(whole).unwrap_or(u64::MAX))
}

/// A number of remaining requests. A negative number is 0.
pub(super) fn count_left(text: &str) -> Option<u64> {
    match text.trim().strip_prefix('-') {
        Some(overdrawn) => count(overdrawn).map(|_| 0),
        None => count(text),
    }
}

/// One member of a list of a structured field (RFC 9651): `"burst";q=100;w=60`, `100;w=60` or `limit=100`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Member<'a> {
    /// The text before the parameters.
    pub(super) item: &'a str,
    params: &'a str,
}

impl<'a> Member<'a> {
    /// The item, without its quotes if it has any.
    pub(super) fn name(&self) -> &'a str {
        unquoted(self.item)
    }

    /// Whether the item is a string.
    pub(super) fn is_quoted(&self) -> bool {
        self.item.starts_with('"')
    }

    /// The parameters, in order.
    pub(super) fn params(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        split(self.params, ';').filter_map(|param| {
            let (key, value) = param.split_once('=')?;
            Some((key.trim(), unquoted(value.trim())))
        })
    }
}

/// The members of a list, without the empty ones. A list that breaks the syntax is read as far as possible.
pub(super) fn members(text: &str) -> impl Iterator<Item = Member<'_>> {
    split(text, ',')
        .map(|member| {
            let (item, params) = cut(member, ';');
            Member {
                item: item.trim(),
                params,
            }
        })
        .filter(|member| !member.item.is_empty())
}

fn split(text: &str, mark: char) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    core::iter::from_fn(move || {
        let (piece, after) = cut(rest?, mark);
        rest = (!after.is_empty()).then_some(after);
        Some(piece)
    })
}

/// The texts before and after the first mark outside of quotes.
fn cut(text: &str, mark: char) -> (&str, &str) {
    let (mut quoted, mut escaped) = (false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if c == mark && !quoted => return (&text[..at], &text[at + mark.len_utf8()..]),
            _ => {}
        }
    }
    (text, "")
}

fn unquoted(text: &str) -> &str {
    text.strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
        .unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_000_000_000);

    fn nanos(text: &str, unit: Unit) -> Option<u128> {
        wait(text, unit, NOW).map(|wait| wait.as_nanos())
    }

    fn in_seconds(text: &str) -> Option<u128> {
        nanos(text, Unit::Seconds)
    }

    #[test]
    fn fractions_are_rounded_up() {
        assert_eq!(in_seconds("2"), Some(2_000_000_000));
        assert_eq!(in_seconds("1.337"), Some(1_337_000_000));
        assert_eq!(in_seconds(".5"), Some(500_000_000));
        assert_eq!(in_seconds("5."), Some(5_000_000_000));
        assert_eq!(in_seconds("0.0000000001"), Some(1));
        assert_eq!(in_seconds("0.0000000010"), Some(1));
        assert_eq!(in_seconds("0.9999999999999"), Some(1_000_000_000));
        assert_eq!(in_seconds("0.00000000000"), Some(0));
        let in_millis = |text| nanos(text, Unit::Millis);
        assert_eq!(in_millis("1"), Some(1_000_000));
        assert_eq!(in_millis("0.0000001"), Some(1));
        assert_eq!(in_millis("2.5"), Some(2_500_000));
    }

    #[test]
    fn a_duration_may_have_units() {
        assert_eq!(in_seconds("6m0s"), Some(360_000_000_000));
        assert_eq!(in_seconds("1s"), Some(1_000_000_000));
        assert_eq!(in_seconds("120ms"), Some(120_000_000));
        assert_eq!(in_seconds("2m59.56s"), Some(179_560_000_000));
        assert_eq!(in_seconds("1h2m3.5s"), Some(3_723_500_000_000));
        assert_eq!(in_seconds("1d"), Some(86_400_000_000_000));
        assert_eq!(in_seconds("17µs4ns"), Some(17_004));
        assert_eq!(in_seconds("0.0000000001h"), Some(360));
        assert_eq!(in_seconds("0.00000000000000000001d"), Some(1));
        assert_eq!(in_seconds("0.1ns"), Some(1));
    }

    #[test]
    fn a_number_too_large_for_a_wait_may_be_a_time() {
        let read = |text| wait(text, Unit::SecondsOrUnixTime, NOW);
        let wait = |secs, nanos| Some(Duration::new(secs, nanos));
        assert_eq!(read("999999999"), wait(999_999_999, 0));
        assert_eq!(read("1000000000"), wait(0, 0));
        assert_eq!(read("1470173023.123"), wait(470_173_023, 123_000_000));
        assert_eq!(read("999999999999"), wait(998_999_999_999, 0));
        assert_eq!(read("1000000000000"), wait(0, 0));
        assert_eq!(read("1470173023123"), wait(470_173_023, 123_000_000));
        assert_eq!(
            in_seconds("1470173023"),
            Some(1_470_173_023 * NANOS_PER_SEC)
        );
    }

    #[test]
    fn huge_numbers_are_the_longest_wait() {
        let huge = "9".repeat(300);
        assert_eq!(in_seconds(&huge), Some(Duration::MAX.as_nanos()));
        assert_eq!(
            in_seconds(&format!("{huge}h{huge}h")),
            Some(Duration::MAX.as_nanos())
        );
        assert_eq!(
            wait(&huge, Unit::SecondsOrUnixTime, Duration::ZERO),
            Some(Duration::MAX)
        );
    }

    #[test]
    fn other_texts_are_no_wait() {
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
            assert_eq!(in_seconds(text), None, "{text}");
        }
    }

    #[test]
    fn a_count_is_rounded_down_and_saturates() {
        assert_eq!(count("598.9"), Some(598));
        assert_eq!(count(" 7 "), Some(7));
        assert_eq!(count(&"9".repeat(99)), Some(u64::MAX));
        assert_eq!(count_left("-3"), Some(0));
        for text in ["", ".", ".5", "-", "-1", "+1", "1,000", "many", "1e3", "½"] {
            assert_eq!(count(text), None, "{text}");
        }
        assert_eq!(count_left("--1"), None);
    }

    fn read(text: &str) -> Vec<(&str, Vec<(&str, &str)>)> {
        members(text)
            .map(|member| (member.name(), member.params().collect()))
            .collect()
    }

    #[test]
    fn members_have_names_and_parameters() {
        assert_eq!(
            read(r#""burst";q=100;w=60, "daily" ; q=1000 ; w=86400;pk=:dHMxMjM=:"#),
            [
                ("burst", vec![("q", "100"), ("w", "60")]),
                (
                    "daily",
                    vec![("q", "1000"), ("w", "86400"), ("pk", ":dHMxMjM=:")]
                ),
            ]
        );
        assert_eq!(
            read("100, 10;w=1,1000;w=3600;burst"),
            [
                ("100", vec![]),
                ("10", vec![("w", "1")]),
                ("1000", vec![("w", "3600")]),
            ]
        );
        assert_eq!(
            read("limit=100, reset=50"),
            [("limit=100", vec![]), ("reset=50", vec![])]
        );
    }

    #[test]
    fn separators_in_quotes_are_text() {
        assert_eq!(
            read(r#""a,b;c\",";q=1;qu="x;,y", "d";q=2"#),
            [
                (r#"a,b;c\","#, vec![("q", "1"), ("qu", "x;,y")]),
                ("d", vec![("q", "2")]),
            ]
        );
    }

    #[test]
    fn a_list_that_breaks_the_syntax_is_read_as_far_as_possible() {
        assert_eq!(read(" ,, ;q=1,\t,"), []);
        assert_eq!(read(r#""open;q=1, "#), [(r#""open;q=1,"#, vec![])]);
        assert_eq!(read("ß;ü=é;=;;"), [("ß", vec![("ü", "é"), ("", "")])]);
        assert_eq!(read(r#"""#), [(r#"""#, vec![])]);
    }
}
