//! How do I keep a quota that begins anew at midnight or on the first of the month, also after a restart?
#![expect(clippy::disallowed_methods, reason = "shows the time")]

use std::time::Duration;

use paceline::policy::{AlignedWindow, Alignment, All, PerRequest};
use paceline::prelude::*;
use paceline::time::WallClock;
use tokio::time::Instant;

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    let start = Instant::now();
    // 29 February 2024, 22:00 UTC. A service leaves the clock out and has that of the system.
    let clock = WallClock::starting_at(Duration::from_secs(1_709_251_200 - 7_200));

    // The day of this provider begins at midnight UTC, two hours from now.
    let daily = AlignedWindow::new(5_000, Alignment::Day).with_clock(clock.clone());
    let limit = daily.clone().shared();
    assert!(limit.try_acquire(5_000).is_pass());
    limit.acquire_one().await;
    assert_eq!(start.elapsed(), 2 * HOUR);
    println!("the first call of March after {:?}", start.elapsed());

    // Midnight of Pacific Standard Time is 08:00 UTC.
    let pacific = daily.with_utc_offset(-8 * 3_600).shared();
    assert!(pacific.try_acquire(5_000).is_pass());
    assert_eq!(pacific.try_acquire(1).retry_in(), Some(8 * HOUR));

    // 100,000 tokens a month and 60 requests a minute, in one decision. March has 31 days.
    let monthly = AlignedWindow::new(100_000, Alignment::Month).with_clock(clock);
    let per_minute = PerRequest::new(SlidingLog::new(60, Duration::from_secs(60)));
    let both = All::new((monthly, per_minute)).shared();
    assert!(both.try_acquire(99_000).is_pass());
    assert_eq!(both.try_acquire(2_000).retry_in(), Some(31 * DAY));

    // After a restart, a bucket need not be full again: it starts with the level that was saved.
    let bucket = TokenBucket::new(Rate::per_minute(60), 1_000);
    let before = bucket.shared();
    before.acquire(900).await.expect("a bucket starts full");
    let saved = before.status().map_or(0, |left| left.remaining);
    let after = bucket.with_start(saved).shared();
    assert!(after.try_acquire(100).is_pass());
    assert_eq!(
        after.try_acquire(1).retry_in(),
        Some(Duration::from_secs(1))
    );

    // For a window, charge what was spent before the restart.
    let window = SlidingLog::new(60, Duration::from_secs(60)).shared();
    window.charge(45);
    assert_eq!(window.status().map(|left| left.remaining), Some(15));
}
