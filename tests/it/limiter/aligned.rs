//! Windows that begin on the hour, at midnight or with the month.

use std::time::Duration;

use paceline::limiter::{Keyed, PolicyExt};
use paceline::policy::{AlignedWindow, Alignment, All, Interval};
use paceline::time::WallClock;

use super::spawned;
use crate::timed::{now, since, sleep};

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
    let passed = spawned((0..count).map(|_| limit.acquire(1)));
    passed.await.into_iter().map(|at| at / 1_000).collect()
}

#[tokio::test(start_paused = true)]
async fn a_waiter_passes_at_the_boundary_of_the_calendar() {
    assert_eq!(
        passed(each(2, Alignment::Minute), 5).await,
        [0, 0, 10, 10, 70]
    );
    assert_eq!(passed(each(1, Alignment::Hour), 3).await, [0, 10, 3_610]);
    assert_eq!(passed(each(1, Alignment::Day), 3).await, [0, 10, 86_410]);
    let monday = 10 + 3 * 86_400;
    assert_eq!(
        passed(each(1, Alignment::Week), 3).await,
        [0, monday, monday + 7 * 86_400]
    );
    let five = Alignment::Every(secs(300));
    assert_eq!(passed(each(1, five), 3).await, [0, 10, 310]);
}

#[tokio::test(start_paused = true)]
async fn a_month_lasts_as_long_as_in_the_calendar() {
    const DAY: u64 = 86_400;
    let march = 10;
    let april = march + 31 * DAY;
    let may = april + 30 * DAY;
    assert_eq!(
        passed(each(1, Alignment::Month), 4).await,
        [0, march, april, may]
    );
}

#[tokio::test(start_paused = true)]
async fn a_day_begins_where_the_provider_is() {
    let pacific = each(1, Alignment::Day).with_utc_offset(-8 * 3_600);
    let eight = 10 + 8 * 3_600;
    assert_eq!(passed(pacific, 3).await, [0, eight, eight + 86_400]);
}

#[tokio::test(start_paused = true)]
async fn the_rest_of_a_window_is_no_help_after_its_end() {
    let limit = each(3, Alignment::Minute).shared();
    assert!(limit.try_acquire(1).is_pass());
    sleep(9_000).await;
    assert!(limit.try_acquire(2).is_pass());
    assert_eq!(limit.try_acquire(1).retry_in(), Some(secs(1)));
    sleep(1_000).await;
    assert!(limit.try_acquire(3).is_pass());
    assert_eq!(limit.try_acquire(1).retry_in(), Some(secs(60)));
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
async fn a_request_that_would_be_too_late_is_refused_at_once() {
    let limit = each(2, Alignment::Minute).shared();
    assert!(limit.try_acquire(2).is_pass());
    // Two pass after 10 s, and two after 70 s.
    let passed = spawned([(); 3].map(|()| limit.acquire(1)));
    sleep(1_000).await;

    let start = now();
    assert!(limit.acquire_within(1, secs(68)).await.is_err());
    assert_eq!(since(start), 0);
    assert!(limit.acquire_within(1, secs(70)).await.is_ok());
    assert_eq!(since(start), 69_000);
    assert_eq!(passed.await, [10_000, 10_000, 70_000]);
}

#[tokio::test(start_paused = true)]
async fn every_key_has_its_own_count_in_the_same_windows() {
    let limits = Keyed::<String, _>::new(each(1, Alignment::Hour));
    assert!(limits.try_acquire("ann", 1).is_pass());
    sleep(4_000).await;
    assert!(limits.try_acquire("bob", 1).is_pass());
    let waits = ["ann", "bob"].map(|key| limits.try_acquire(key, 1).retry_in());
    assert_eq!(waits, [Some(secs(6)); 2]);
    sleep(6_000).await;
    assert!(limits.try_acquire("ann", 1).is_pass());
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
