//! Waits and dates as text. A date is the time since 1970; an earlier one is 1970.

use core::time::Duration;

use crate::time::{days_of_month, first_day, unit_nanos};

use super::value::{decimal, millis, seconds};

/// The first number that is a time since 1970 in seconds (in 2001), and not a wait in seconds (31 years).
const FIRST_UNIX_SECS: u64 = 1_000_000_000;

/// The first number that is a time since 1970 in milliseconds, and not in seconds.
const FIRST_UNIX_MILLIS: u64 = 1_000 * FIRST_UNIX_SECS;

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const DAY: i64 = 86_400;
/// The mean year of the Gregorian calendar, in seconds.
const YEAR: i64 = 31_556_952;
const END_OF_9999: u64 = 253_402_300_799;

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

/// A duration as Go prints it: `6m0s`, `1.5s`, `120ms`. The units are those of a [`Rate`](crate::time::Rate).
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
        sum = sum.saturating_add(decimal(number, unit_nanos(unit)?)?);
        rest = tail;
    }
    (!text.is_empty()).then_some(sum)
}

/// A date of RFC 9110, section 5.6.7, in the preferred format or one of the two obsolete ones, or a date of an e-mail, which
/// has an offset in place of `GMT`. `now` decides the century of a year with two digits.
///
/// The day of the week is not checked, since a wrong one does not change the date.
pub(super) fn http_date(text: &str, now: Duration) -> Option<Duration> {
    let words: Vec<&str> = text.split_ascii_whitespace().take(7).collect();
    let (first, rest) = words.split_first()?;
    let secs = match *rest {
        // Sun, 06 Nov 1994 08:49:37 GMT
        [day, month, year, time, zone] if is_weekday(first.strip_suffix(',')?) => {
            start_of_day(year_of_four(year)?, month, day)? + time_of_day(time)? - offset(zone)?
        }
        // Sunday, 06-Nov-94 08:49:37 GMT
        [date, time, zone] if is_weekday(first.strip_suffix(',')?) => {
            let mut parts = date.splitn(3, '-');
            let (day, month, year) = (parts.next()?, parts.next()?, parts.next()?);
            let digits = number(year, 2..=2)?;
            let time = time_of_day(time)? - offset(zone)?;
            let now = i64::try_from(now.as_secs().min(END_OF_9999)).ok()?;
            // The latest year that is at most about 50 years ahead.
            let latest = 1970 + now / YEAR + 51;
            let year = latest - (latest - digits).rem_euclid(100);
            [year, year - 100]
                .into_iter()
                .filter_map(|year| Some(start_of_day(year, month, day)? + time))
                .find(|secs| *secs <= now + 50 * YEAR)?
        }
        // Sun Nov  6 08:49:37 1994
        [month, day, time, year] if is_weekday(first) => {
            start_of_day(year_of_four(year)?, month, day)? + time_of_day(time)?
        }
        _ => return None,
    };
    Some(since_epoch(secs))
}

/// A timestamp of RFC 3339 or ISO 8601: `2024-02-29T08:49:37.25Z`, `2024-02-29 09:49+0100`. Seconds are optional, and so is
/// the colon in the offset.
pub(super) fn timestamp(text: &str) -> Option<Duration> {
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let mut parts = date.splitn(3, '-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    let month = number(month, 2..=2).and_then(|month| usize::try_from(month).ok())?;
    let month = MONTHS.get(month.checked_sub(1)?)?;

    let zone_at = rest.find(['Z', 'z', '+', '-'])?;
    let (time, zone) = rest.split_at(zone_at);
    let (time, fraction) = time.split_at(time.find('.').unwrap_or(time.len()));
    let fraction = match fraction {
        "" => Duration::ZERO,
        fraction => seconds(fraction)?,
    };
    let start = start_of_day(year_of_four(year)?, month, day)?;
    let secs = start + time_of_day(time)? - offset(zone)?;
    Some(since_epoch(secs).saturating_add(fraction))
}

/// When a day of the Gregorian calendar begins, in seconds since 1970; `None` if there is no such day.
fn start_of_day(year: i64, month: &str, day: &str) -> Option<i64> {
    let month = MONTHS
        .iter()
        .position(|known| known.eq_ignore_ascii_case(month))?;
    let day = number(day, 1..=2).filter(|day| (1..=days_of_month(year, month)).contains(day))?;
    Some((first_day(year, month) + day - 1) * DAY)
}

fn year_of_four(digits: &str) -> Option<i64> {
    number(digits, 4..=4).filter(|year| *year > 0)
}

/// The seconds since midnight, of `08:49:37` or `08:49`. A leap second is valid.
fn time_of_day(text: &str) -> Option<i64> {
    let mut parts = text.splitn(3, ':');
    let mut part = |most| number(parts.next()?, 2..=2).filter(|part| *part <= most);
    let (hours, minutes) = (part(23)?, part(59)?);
    let seconds = if text.len() > 5 { part(60)? } else { 0 };
    Some(hours * 3_600 + minutes * 60 + seconds)
}

/// The seconds by which a zone is ahead of UTC: `Z`, `GMT`, `UTC`, `+02:00` or `+0200`.
fn offset(zone: &str) -> Option<i64> {
    let is_utc = |utc: &&str| utc.eq_ignore_ascii_case(zone);
    if ["Z", "GMT", "UTC"].iter().any(is_utc) {
        return Some(0);
    }
    let (sign, digits) = match zone.strip_prefix('+') {
        Some(digits) => (1, digits),
        None => (-1, zone.strip_prefix('-')?),
    };
    let (hours, minutes) = match digits.split_once(':') {
        Some(parts) => parts,
        None => digits.split_at_checked(2)?,
    };
    let (hours, minutes) = (number(hours, 2..=2)?, number(minutes, 2..=2)?);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3_600 + minutes * 60))
}

fn is_weekday(word: &str) -> bool {
    word.get(..3)
        .is_some_and(|word| DAYS.iter().any(|day| day.eq_ignore_ascii_case(word)))
}

/// A number of this many digits.
fn number(text: &str, digits: core::ops::RangeInclusive<usize>) -> Option<i64> {
    let all = text.bytes().all(|byte| byte.is_ascii_digit());
    (all && digits.contains(&text.len()))
        .then(|| text.parse().ok())
        .flatten()
}

fn since_epoch(secs: i64) -> Duration {
    Duration::from_secs(u64::try_from(secs).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 15 July 2024, 08:49:37.
    const NOW: Duration = Duration::from_secs(1_721_033_377);

    fn secs(text: &str) -> Option<u64> {
        http_date(text, NOW).map(|date| date.as_secs())
    }

    #[test]
    fn a_date_may_have_any_format_of_rfc_9110_or_an_offset() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 +0000",
            "Sun, 06 Nov 1994 09:19:37 +0030",
            "Sunday, 06-Nov-94 07:49:37 -01:00",
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "sun, 6 nov 1994 08:49:37 utc",
        ] {
            assert_eq!(secs(text), Some(784_111_777), "{text}");
        }
        assert_eq!(secs("Mon, 15 Jul 2024 08:49:37 GMT"), Some(NOW.as_secs()));
        assert_eq!(secs("Fri, 31 Dec 9999 23:59:59 GMT"), Some(END_OF_9999));
        assert_eq!(secs("Thu, 01 Jan 1970 00:00:01 GMT"), Some(1));
        assert_eq!(
            secs("Sat, 01 Jan 0001 00:00:00 GMT"),
            Some(0),
            "before 1970"
        );
    }

    #[test]
    fn only_a_leap_year_has_a_29_february() {
        for (text, expected) in [
            ("Thu, 29 Feb 2024 00:00:00 GMT", Some(1_709_164_800)),
            ("Fri, 01 Mar 2024 00:00:00 GMT", Some(1_709_251_200)),
            ("Tue, 29 Feb 2000 00:00:00 GMT", Some(951_782_400)),
            ("Wed, 01 Mar 2000 00:00:00 GMT", Some(951_868_800)),
            ("Mon, 01 Mar 2100 00:00:00 GMT", Some(4_107_542_400)),
            ("Mon, 29 Feb 2100 00:00:00 GMT", None),
            ("Wed, 29 Feb 2023 00:00:00 GMT", None),
        ] {
            assert_eq!(secs(text), expected, "{text}");
        }
    }

    #[test]
    fn a_leap_second_is_the_first_of_the_next_minute() {
        let leap = secs("Sat, 31 Dec 2016 23:59:60 GMT");
        assert_eq!(leap, secs("Sun, 01 Jan 2017 00:00:00 GMT"));
    }

    #[test]
    fn a_year_of_two_digits_is_at_most_50_years_ahead() {
        let year = |text| http_date(text, NOW).map(|date| date.as_secs() / 31_556_952 + 1970);
        assert_eq!(year("Monday, 15-Jul-24 08:49:38 GMT"), Some(2024));
        assert_eq!(year("Friday, 15-Jul-73 00:00:00 GMT"), Some(2073));
        assert_eq!(
            year("Sunday, 15-Jul-74 08:49:37 GMT"),
            Some(2074),
            "50 years"
        );
        assert_eq!(
            year("Monday, 16-Jul-74 08:49:37 GMT"),
            Some(1974),
            "a day more"
        );
        assert_eq!(year("Tuesday, 29-Feb-00 12:00:00 GMT"), Some(2000));
        assert_eq!(year("Friday, 29-Feb-23 12:00:00 GMT"), None);

        let late = Duration::from_secs(4_070_908_800); // 2099
        let next = http_date("Saturday, 01-Jan-01 00:00:00 GMT", late);
        assert_eq!(next, Some(Duration::from_secs(4_133_980_800)), "2101");
        assert!(http_date("Saturday, 01-Jan-01 00:00:00 GMT", Duration::MAX).is_some());
    }

    #[test]
    fn a_timestamp_may_have_an_offset_and_a_fraction_and_no_seconds() {
        for text in [
            "2024-07-15T08:49:37Z",
            "2024-07-15t08:49:37.000z",
            "2024-07-15 10:49:37+02:00",
            "2024-07-15T03:19:37-05:30",
            "2024-07-14T23:49:37-09:00",
            "2024-07-15T10:49:37+0200",
            "2024-07-15T08:49:37.0+0000",
        ] {
            assert_eq!(timestamp(text), Some(NOW), "{text}");
        }
        let later = NOW + Duration::new(0, 123_456_790);
        assert_eq!(timestamp("2024-07-15T08:49:37.1234567891Z"), Some(later));

        let minute = Some(Duration::from_secs(NOW.as_secs() - 37));
        assert_eq!(timestamp("2024-07-15T08:49Z"), minute);
        assert_eq!(timestamp("2024-07-15 10:49+0200"), minute);
    }

    #[test]
    fn other_texts_are_no_date() {
        for text in [
            "",
            ",",
            "Sun",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:60:37 GMT",
            "Sun, 06 Nov 1994 08:49:61 GMT",
            "Sun, 06 Nov 1994 8:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 31 Nov 1994 08:49:37 GMT",
            "Sun, 06 Now 1994 08:49:37 GMT",
            "Sun, 06 Nov 94 08:49:37 GMT",
            "Sun, 06 Nov 0000 08:49:37 GMT",
            "Sun, -6 Nov 1994 08:49:37 GMT",
            "Day, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-1994 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994 GMT",
            "ß, 06 Nov 1994 08:49:37 GMT",
        ] {
            assert_eq!(secs(text), None, "{text}");
        }
        for text in [
            "2024-07-15T08:49:37",
            "2024-07-15",
            "2024-13-15T08:49:37Z",
            "2024-00-15T08:49:37Z",
            "2023-02-29T08:49:37Z",
            "2024-07-15T08:49:37+24:00",
            "2024-07-15T08:49:37+02",
            "2024-07-15T08:49:37+2:00",
            "2024-07-15T08:49:37+ß2",
            "2024-07-15T08:49:Z",
            "2024-07-15T08Z",
            "2024-07-15T8:49Z",
            "2024-07-15T08:49:37.Z",
            "2024-07-15T08:49:37ß",
            "24-07-15T08:49:37Z",
        ] {
            assert_eq!(timestamp(text), None, "{text}");
        }
    }

    /// The first instant that a number of seconds can mean.
    const FIRST: Duration = Duration::from_secs(FIRST_UNIX_SECS);

    fn nanos(text: &str, unit: Unit) -> Option<u128> {
        wait(text, unit, FIRST).map(|wait| wait.as_nanos())
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
        assert_eq!(in_seconds("2min"), in_seconds("2m"), "as in a rate");
    }

    #[test]
    fn a_number_too_large_for_a_wait_may_be_a_time() {
        let read = |text| wait(text, Unit::SecondsOrUnixTime, FIRST);
        let wait = |secs, nanos| Some(Duration::new(secs, nanos));
        assert_eq!(read("999999999"), wait(999_999_999, 0));
        assert_eq!(read("1000000000"), wait(0, 0));
        assert_eq!(read("1470173023.123"), wait(470_173_023, 123_000_000));
        assert_eq!(read("999999999999"), wait(998_999_999_999, 0));
        assert_eq!(read("1000000000000"), wait(0, 0));
        assert_eq!(read("1470173023123"), wait(470_173_023, 123_000_000));
        assert_eq!(in_seconds("1470173023"), Some(1_470_173_023_000_000_000));
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
}
