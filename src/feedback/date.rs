//! Dates as text. All give the time since 1970; what was before is 1970.

use core::time::Duration;

use super::wait::{NANOS_PER_SEC, decimal, duration};

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const DAY: i64 = 86_400;
const END_OF_9999: u64 = 253_402_300_799;

/// Days from the first day of the year 1 to the first of 1970.
const EPOCH: i64 = days_before_year(1970);

/// A date of RFC 9110, 5.6.7: the preferred format and the two obsolete ones. `now` tells which century a year of two
/// digits is in.
///
/// That the day of the week is the right one is not checked: the date is meant all the same.
pub(super) fn http_date(text: &str, now: Duration) -> Option<Duration> {
    let words: Vec<&str> = text.split_ascii_whitespace().take(7).collect();
    let (first, rest) = words.split_first()?;
    let secs = match *rest {
        // Sun, 06 Nov 1994 08:49:37 GMT
        [day, month, year, time, zone] if is_weekday(first.strip_suffix(',')?, zone) => {
            let date = Date::new(year_of_four(year)?, month, day)?;
            date.start() + time_of_day(time)?
        }
        // Sunday, 06-Nov-94 08:49:37 GMT
        [date, time, zone] if is_weekday(first.strip_suffix(',')?, zone) => {
            let mut parts = date.splitn(3, '-');
            let (day, month, year) = (parts.next()?, parts.next()?, parts.next()?);
            in_year_of_two(year, month, day, time_of_day(time)?, now)?
        }
        // Sun Nov  6 08:49:37 1994
        [month, day, time, year] if is_weekday(first, "GMT") => {
            let date = Date::new(year_of_four(year)?, month, day)?;
            date.start() + time_of_day(time)?
        }
        _ => return None,
    };
    Some(since_epoch(secs))
}

/// A timestamp of RFC 3339: `2024-02-29T08:49:37.25Z`, `2024-02-29 09:49:37+01:00`.
pub(super) fn timestamp(text: &str) -> Option<Duration> {
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let mut parts = date.splitn(3, '-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    let month = number(month, 2..=2).and_then(|month| usize::try_from(month).ok())?;
    let date = Date::new(year_of_four(year)?, MONTHS.get(month.checked_sub(1)?)?, day)?;

    let zone_at = rest.find(['Z', 'z', '+', '-'])?;
    let (time, zone) = rest.split_at(zone_at);
    let (time, fraction) = time.split_at(time.find('.').unwrap_or(time.len()));
    let nanos = if fraction.is_empty() {
        0
    } else {
        decimal(fraction, NANOS_PER_SEC)?
    };
    let secs = date.start() + time_of_day(time)? - offset(zone)?;
    Some(since_epoch(secs).saturating_add(duration(nanos)))
}

/// A day of the Gregorian calendar.
struct Date {
    year: i64,
    month: usize,
    day: i64,
}

impl Date {
    fn new(year: i64, month: &str, day: &str) -> Option<Self> {
        let month = MONTHS
            .iter()
            .position(|known| known.eq_ignore_ascii_case(month))?;
        let day = number(day, 1..=2)?;
        (1..=days_of_month(year, month))
            .contains(&day)
            .then_some(Self { year, month, day })
    }

    /// When it begins, in seconds since 1970.
    fn start(&self) -> i64 {
        let before: i64 = (0..self.month)
            .map(|month| days_of_month(self.year, month))
            .sum();
        (days_before_year(self.year) - EPOCH + before + self.day - 1) * DAY
    }
}

/// In the latest year with these last two digits in which the date is not more than 50 years ahead.
fn in_year_of_two(digits: &str, month: &str, day: &str, time: i64, now: Duration) -> Option<i64> {
    let digits = number(digits, 2..=2)?;
    let now = i64::try_from(now.as_secs().min(END_OF_9999)).ok()?;
    let this = year_at(now);
    let latest = this + 50;
    let year = latest - (latest - digits).rem_euclid(100);
    [year, year - 100]
        .into_iter()
        .filter_map(|year| Date::new(year, month, day))
        .find(|date| {
            date.year < latest
                || Date {
                    year: this,
                    ..*date
                }
                .start()
                    + time
                    <= now
        })
        .map(|date| date.start() + time)
}

fn year_of_four(digits: &str) -> Option<i64> {
    number(digits, 4..=4).filter(|year| *year > 0)
}

/// The year in which a second since 1970 is.
fn year_at(secs: i64) -> i64 {
    let days = EPOCH + secs / DAY;
    let mut year = days * 400 / days_before_year(401);
    while days_before_year(year + 1) <= days {
        year += 1;
    }
    year
}

const fn days_before_year(year: i64) -> i64 {
    let years = year - 1;
    years * 365 + years / 4 - years / 100 + years / 400
}

fn days_of_month(year: i64, month: usize) -> i64 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        1 if is_leap => 29,
        1 => 28,
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    }
}

/// Seconds since midnight; a leap second counts.
fn time_of_day(text: &str) -> Option<i64> {
    let mut parts = text.splitn(3, ':');
    let mut part = |most| {
        let part = number(parts.next()?, 2..=2)?;
        (part <= most).then_some(part)
    };
    Some(part(23)? * 3_600 + part(59)? * 60 + part(60)?)
}

/// How many seconds a zone is ahead.
fn offset(zone: &str) -> Option<i64> {
    if zone.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let (sign, zone) = match zone.strip_prefix('+') {
        Some(zone) => (1, zone),
        None => (-1, zone.strip_prefix('-')?),
    };
    let (hours, minutes) = zone.split_once(':')?;
    let (hours, minutes) = (number(hours, 2..=2)?, number(minutes, 2..=2)?);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3_600 + minutes * 60))
}

fn is_weekday(word: &str, zone: &str) -> bool {
    let is_utc = ["GMT", "UTC"]
        .iter()
        .any(|utc| utc.eq_ignore_ascii_case(zone));
    is_utc
        && word
            .get(..3)
            .is_some_and(|word| DAYS.iter().any(|day| day.eq_ignore_ascii_case(word)))
}

/// As many digits, and nothing else.
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
    fn all_three_formats_of_rfc_9110() {
        for text in [
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
    fn leap_years_have_a_29_february_and_others_do_not() {
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
            year("Monday, 15-Jul-74 08:49:38 GMT"),
            Some(1974),
            "a second more"
        );
        assert_eq!(year("Tuesday, 29-Feb-00 12:00:00 GMT"), Some(2000));
        assert_eq!(year("Friday, 29-Feb-23 12:00:00 GMT"), None);

        let late = Duration::from_secs(4_070_908_800); // 2099
        let next = http_date("Saturday, 01-Jan-01 00:00:00 GMT", late);
        assert_eq!(next, Some(Duration::from_secs(4_133_980_800)), "2101");
        assert!(http_date("Saturday, 01-Jan-01 00:00:00 GMT", Duration::MAX).is_some());
    }

    #[test]
    fn the_year_of_a_second_is_found_at_its_edges() {
        for (secs, year) in [
            (0, 1970),
            (31_535_999, 1970),
            (31_536_000, 1971),
            (951_782_400, 2000),
            (1_735_689_599, 2024),
            (1_735_689_600, 2025),
            (253_402_300_799, 9999),
        ] {
            assert_eq!(year_at(secs), year, "{secs}");
        }
    }

    #[test]
    fn timestamps_of_rfc_3339() {
        for text in [
            "2024-07-15T08:49:37Z",
            "2024-07-15t08:49:37.000z",
            "2024-07-15 10:49:37+02:00",
            "2024-07-15T03:19:37-05:30",
            "2024-07-14T23:49:37-09:00",
        ] {
            assert_eq!(timestamp(text), Some(NOW), "{text}");
        }
        let later = NOW + Duration::new(0, 123_456_790);
        assert_eq!(timestamp("2024-07-15T08:49:37.1234567891Z"), Some(later));
    }

    #[test]
    fn what_is_no_date_is_none() {
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
            "2024-07-15T08:49:37+0200",
            "2024-07-15T08:49:37+24:00",
            "2024-07-15T08:49:37.Z",
            "2024-07-15T08:49:37ß",
            "24-07-15T08:49:37Z",
        ] {
            assert_eq!(timestamp(text), None, "{text}");
        }
    }
}
