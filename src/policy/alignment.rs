use core::time::Duration;

use crate::time::first_day_of_next_month;

/// Where the windows of an [`AlignedWindow`](super::AlignedWindow) begin.
///
/// ```
/// use paceline::policy::Alignment;
/// use std::time::Duration;
///
/// assert_eq!(Alignment::Day.longest(), Duration::from_secs(86_400));
/// assert_eq!(Alignment::Month.longest(), 31 * Alignment::Day.longest());
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
#[doc(alias("calendar", "refillIntervallyAligned"))]
pub enum Alignment {
    /// At second 0 of each minute.
    Minute,
    /// At minute 0 of each hour.
    Hour,
    /// At midnight.
    Day,
    /// At midnight before each Monday.
    Week,
    /// At midnight before the first day of each month. A month has 28 to 31 days.
    Month,
    /// At every multiple of this length, counted from the beginning of 1970. A length of more than 584 years never ends.
    Every(Duration),
}

const DAY: Duration = Duration::from_secs(86_400);
const DAY_NANOS: i128 = 86_400_000_000_000;

/// The first Monday is 5 January 1970.
const FIRST_MONDAY: i128 = 4 * DAY_NANOS;

impl Alignment {
    /// The length of a window. Of the months it is the longest: 31 days.
    #[must_use]
    pub const fn longest(self) -> Duration {
        match self {
            Self::Minute => Duration::from_secs(60),
            Self::Hour => Duration::from_secs(3_600),
            Self::Day => DAY,
            Self::Week => Duration::from_secs(7 * 86_400),
            Self::Month => Duration::from_secs(31 * 86_400),
            Self::Every(length) => length,
        }
    }

    pub(super) const fn shortest(self) -> Duration {
        match self {
            Self::Month => Duration::from_secs(28 * 86_400),
            other => other.longest(),
        }
    }

    /// One name for windows that are the same: every 60 seconds are those of a minute.
    pub(super) const fn named(self) -> Self {
        match self {
            Self::Every(length) if length.subsec_nanos() == 0 => match length.as_secs() {
                60 => Self::Minute,
                3_600 => Self::Hour,
                86_400 => Self::Day,
                _ => self,
            },
            _ => self,
        }
    }

    /// When the window that holds `at` ends. Both are nanoseconds since the beginning of 1970.
    pub(super) fn end_after(self, at: i128) -> i128 {
        let first = match self {
            Self::Month => return end_of_month(at),
            Self::Week => FIRST_MONDAY,
            _ => 0,
        };
        let length = i128::try_from(self.longest().as_nanos()).unwrap_or(i128::MAX / 2);
        at - (at - first).rem_euclid(length) + length
    }
}

fn end_of_month(at: i128) -> i128 {
    let day = i64::try_from(at.div_euclid(DAY_NANOS)).unwrap_or(i64::MAX / 2);
    i128::from(first_day_of_next_month(day)) * DAY_NANOS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In whole seconds.
    fn end(alignment: Alignment, at: i128) -> i128 {
        const SECOND: i128 = 1_000_000_000;
        let end = alignment.end_after(at * SECOND);
        assert_eq!(alignment.end_after(end - 1), end, "its last nanosecond");
        assert_eq!(end % SECOND, 0);
        end / SECOND
    }

    #[test]
    fn a_window_ends_at_the_next_boundary_of_the_calendar() {
        // Thursday, 29 February 2024, 23:59:58.
        let leap_day = 1_709_251_198;
        let midnight = 1_709_251_200;
        for alignment in [
            Alignment::Minute,
            Alignment::Hour,
            Alignment::Day,
            Alignment::Month,
        ] {
            assert_eq!(end(alignment, leap_day), midnight, "{alignment:?}");
        }
        assert_eq!(end(Alignment::Week, leap_day), midnight + 3 * 86_400);
        assert_eq!(end(Alignment::Minute, midnight), midnight + 60);
        assert_eq!(end(Alignment::Hour, midnight), midnight + 3_600);
        assert_eq!(end(Alignment::Day, midnight), midnight + 86_400);
        assert_eq!(end(Alignment::Month, midnight), midnight + 31 * 86_400);
    }

    #[test]
    fn a_month_ends_after_28_to_31_days() {
        let days = |first: i128| (end(Alignment::Month, first) - first) / 86_400;
        // 2023, then February of 2024 and 2100.
        let mut first = 1_672_531_200;
        let year: Vec<_> = (0..12)
            .map(|_| {
                let days = days(first);
                first += days * 86_400;
                days
            })
            .collect();
        assert_eq!(year, [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]);
        assert_eq!([1_706_745_600, 4_105_123_200].map(days), [29, 28]);
    }

    #[test]
    fn any_length_is_counted_from_1970_and_also_before_it() {
        let five = Alignment::Every(Duration::from_secs(300));
        assert_eq!(end(five, 1_709_251_198), 1_709_251_200);
        assert_eq!([-1, 0].map(|at| end(five, at)), [0, 300]);
        assert_eq!(end(Alignment::Day, -1), 0);
        assert_eq!(end(Alignment::Week, 0), 4 * 86_400);
        assert_eq!(end(Alignment::Month, -1), 0);
        let ever = Alignment::Every(Duration::MAX);
        assert!(ever.end_after(i128::from(u64::MAX)) > i128::from(u64::MAX));
    }
}
