//! One `use` line is enough for a first program.

use paceline::prelude::*;

#[tokio::test(start_paused = true)]
async fn a_first_program_needs_one_use_line() {
    let limit = TokenBucket::new(Rate::per_second(10), 2).shared();
    for _ in 0..3 {
        limit.acquire_one().await;
    }
    let hosts = Interval::every(Duration::from_millis(50)).keyed();
    hosts.acquire_one("a.example").await;
    let quota = SlidingLog::new(90, Duration::from_secs(10)).shared();
    assert!(quota.try_acquire(90).is_pass());
    assert!(hosts.at("b.example").try_acquire(1).is_pass());
}
