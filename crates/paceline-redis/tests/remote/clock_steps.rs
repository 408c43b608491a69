//! The server's clock is set back or forward.

use testkit::clock::Stopwatch;

use super::server::Server;
use super::{ms, one, process};
use crate::remote::OutagePolicy;
use paceline::policy::SlidingLog;

const HOUR: i64 = 3_600_000_000;

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_back_costs_one_window_and_one_lost_state() {
    let (server, process, limit) = one(OutagePolicy::closed(), SlidingLog::new(2, ms(100))).await;
    for _ in 0..4 {
        limit.acquire(1).await.unwrap();
    }
    server.world().step -= HOUR;
    let watch = Stopwatch::start();
    let mut passed = Vec::new();
    for _ in 0..6 {
        limit.acquire(1).await.unwrap();
        passed.push(watch.elapsed());
    }
    assert_eq!(passed, [100, 100, 200, 200, 300, 300].map(ms));
    assert_eq!(process.stats().lost_states, 1);
}

#[tokio::test(start_paused = true)]
async fn another_process_goes_on_too_when_the_clock_was_set_back() {
    let server = Server::start();
    let mut limits = Vec::new();
    for _ in 0..2 {
        let process = process(&server, OutagePolicy::closed()).await;
        limits.push(process.limit(0, SlidingLog::new(2, ms(100))));
        limits[limits.len() - 1].acquire(1).await.unwrap();
    }
    server.world().step -= HOUR;
    let watch = Stopwatch::start();
    for _ in 0..3 {
        for limit in &limits {
            limit.acquire(1).await.unwrap();
        }
    }
    // Each process finds the state lost once.
    assert!(watch.elapsed() <= ms(600), "{:?}", watch.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_forward_passes_one_burst() {
    let (server, process, limit) = one(OutagePolicy::closed(), SlidingLog::new(2, ms(100))).await;
    limit.acquire(2).await.unwrap();
    server.world().step += HOUR;
    let watch = Stopwatch::start();
    for number in 0..3 {
        limit.acquire(2).await.unwrap();
        assert_eq!(watch.elapsed(), ms(100) * number);
    }
    assert_eq!(process.stats().lost_states, 0);
}
