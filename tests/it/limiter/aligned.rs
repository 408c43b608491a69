//! Windows that begin on the hour, at midnight or with the month.

use std::time::Duration;

use paceline::limiter::PolicyExt;
use paceline::policy::{AlignedWindow, Alignment, All, Interval};
use paceline::time::WallClock;

use super::spawned;
use crate::timed::{now, since};

/// 29 February 2024, 23:59:50 UTC: a Thursday, and the last day of a month.
const LEAP_DAY: Duration = Duration::from_secs(1_709_251_190);

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn each(limit: u32, alignment: Alignment) -> AlignedWindow {
    AlignedWindow::new(limit, alignment).with_clock(WallClock::starting_at(LEAP_DAY))
}

/// After how many seconds each of `count` requests passes.
async fn passed(window: AlignedWindow, count: usize) -> Vec<u64> {
    let limit = window.shared();
    let passed = spawned((0..count).map(|_| limit.acquire_owned(1)));
    passed.await.into_iter().map(|at| at / 1_000).collect()
}

#[tokio::test(start_paused = true)]
async fn a_waiter_passes_at_the_boundary_of_the_calendar_where_the_provider_is() {
    const HOUR: u64 = 3_600;
    const DAY: u64 = 24 * HOUR;
    // The beginnings of three windows after the 10 s to midnight. The week begins on Monday, and March has 31 days, April 30.
    for (alignment, utc_offset, begins) in [
        (Alignment::Minute, 0, [0, 60, 120]),
        (Alignment::Every(secs(300)), 0, [0, 300, 600]),
        (Alignment::Hour, 0, [0, HOUR, 2 * HOUR]),
        (Alignment::Day, 0, [0, DAY, 2 * DAY]),
        (Alignment::Day, -8, [8 * HOUR, 32 * HOUR, 56 * HOUR]),
        (Alignment::Week, 0, [3 * DAY, 10 * DAY, 17 * DAY]),
        (Alignment::Month, 0, [0, 31 * DAY, 61 * DAY]),
    ] {
        let window = each(2, alignment).with_utc_offset(utc_offset * 3_600);
        let [first, second, third] = begins.map(|at| at + 10);
        assert_eq!(
            passed(window, 7).await,
            [0, 0, first, first, second, second, third],
            "{alignment:?} at {utc_offset} h"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_waits_for_a_wall_clock_that_lags() {
    let start = now();
    let tokio = WallClock::starting_at(LEAP_DAY);
    // 4 s after the start it is set back by 3 s.
    let lagging = WallClock::new(move || {
        let back = if start.elapsed() < secs(4) { 0 } else { 3 };
        tokio.now().saturating_sub(secs(back))
    });
    let window = AlignedWindow::new(1, Alignment::Minute).with_clock(lagging);
    assert_eq!(passed(window, 3).await, [0, 13, 73]);
}

#[tokio::test(start_paused = true)]
async fn a_quota_a_day_and_a_spacing_are_one_limit() {
    let start = now();
    let day = each(3, Alignment::Day);
    let limit = All::new((Interval::every(secs(4)), day)).shared();
    let mut passed = Vec::new();
    for _ in 0..5 {
        limit.acquire(1).await.unwrap();
        passed.push(since(start));
    }
    assert_eq!(passed, [0, 4_000, 8_000, 12_000, 16_000]);
    let left = limit.status().unwrap();
    assert_eq!((left.remaining, left.binding), (0, Some(0)));
}
