//! The Gregorian calendar, in days since 1 January 1970. A month is a number, and January is 0.

/// The days from the first day of the year 1 to 1 January 1970.
const EPOCH: i64 = days_before_year(1970);

/// The first day of a month. Month 12 is the January of the next year.
pub(crate) fn first_day(year: i64, month: usize) -> i64 {
    let before: i64 = (0..month).map(|month| days_of_month(year, month)).sum();
    days_before_year(year) - EPOCH + before
}

/// The first day of the month after that of `day`.
pub(crate) fn first_day_of_next_month(day: i64) -> i64 {
    // No year is longer than 366 days, and in a thousand years the leap years are not missed by more than two.
    let year = 1970 + day.div_euclid(366);
    (year..year + 4)
        .flat_map(|year| (1..=12).map(move |month| first_day(year, month)))
        .find(|first| day < *first)
        .unwrap_or(day + 1)
}

/// The length of a month.
pub(crate) fn days_of_month(year: i64, month: usize) -> i64 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        1 if is_leap => 29,
        1 => 28,
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    }
}

/// The days from the first day of the year 1 to the first day of `year`.
const fn days_before_year(year: i64) -> i64 {
    let years = year - 1;
    years * 365 + years / 4 - years / 100 + years / 400
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_months_follow_each_other_for_six_hundred_years() {
        let mut first = first_day(1969, 11);
        assert_eq!(first, -31);
        for year in 1970..2570 {
            for month in 0..12 {
                assert_eq!(first_day_of_next_month(first), first_day(year, month));
                first = first_day(year, month);
                assert_eq!(first_day_of_next_month(first - 1), first);
                let last = first + days_of_month(year, month) - 1;
                assert_eq!(first_day_of_next_month(last), last + 1, "{year} {month}");
            }
        }
        assert_eq!(first, 219_115, "1 December 2569");
    }

    #[test]
    fn every_fourth_year_is_a_leap_year_but_few_centuries() {
        let days = [1900, 2000, 2023, 2024, 2100, 2400].map(|year| days_of_month(year, 1));
        assert_eq!(days, [28, 29, 28, 29, 28, 29]);
    }
}
