use std::time::Duration;

use futures::StreamExt;

use paceline::policy::{Decision, SlidingLog, TokenBucket};
use paceline::prelude::*;
use paceline::time::Rate;
use paceline_redis::{OutagePolicy, Redis};

use super::{redis, until_up};
use crate::limits::{MINUTE, PATIENT, pause, wait_of};
use crate::servers::Server;

#[tokio::test]
async fn after_an_outage_the_bucket_lacks_what_insurances_may_have_passed() {
    let mut server = Server::start().await;
    let redis = redis(&server.url(), OutagePolicy::insured(1)).await;
    let rate = Rate::new(1, Duration::from_millis(700));
    let limit = redis.limit("a", TokenBucket::new(rate, 3)).unwrap();
    limit.acquire(1).await.unwrap();

    server.freeze();
    while redis.is_up() {
        let _ = limit.try_acquire(1).await;
    }
    pause(Duration::from_millis(2_200)).await;
    for _ in 0..3 {
        assert_eq!(limit.try_acquire(1).await, Ok(Decision::Pass));
    }
    server.thaw();
    until_up(&redis).await;
    let there = limit.try_acquire_up_to(3).await.unwrap();
    assert!(there <= 1, "{there}");
}

#[test]
fn a_runtime_that_ends_while_connecting_does_not_block_the_next() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let servers = runtime();
    let server = servers.block_on(Server::start());
    for polls in 0..12 {
        let redis = Redis::open(&server.url(), OutagePolicy::closed()).unwrap();
        let redis = redis.with_deadline(PATIENT).unwrap();
        let limit = redis.limit("a", SlidingLog::new(100, MINUTE)).unwrap();
        runtime().block_on(async {
            let mut asking = Box::pin(limit.peek(1));
            for _ in 0..=polls {
                if futures::poll!(asking.as_mut()).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        });
        runtime().block_on(async {
            let asked = tokio::time::timeout(PATIENT * 2, limit.acquire(1)).await;
            asked.expect("somebody makes trips").unwrap();
            assert!(limit.peek(1).await.is_ok());
        });
    }
    drop(server);
}

#[test]
fn a_limit_continues_when_the_runtime_of_its_task_has_ended() {
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap()
    };
    let lasting = runtime();
    let server = lasting.block_on(Server::start());
    let redis = Redis::open(&server.url(), OutagePolicy::closed()).unwrap();
    let window = Duration::from_millis(300);
    let limit = redis.limit("a", SlidingLog::new(1, window)).unwrap();

    let passing = runtime();
    let first = limit.clone();
    passing.block_on(async { while !first.try_acquire(1).await.unwrap().is_pass() {} });
    // The waiter starts the task in the runtime that ends.
    let first = limit.clone();
    passing.spawn(async move { first.acquire(1).await });
    std::thread::sleep(Duration::from_millis(20));
    let second = lasting.spawn(async move { limit.acquire(1).await });
    std::thread::sleep(Duration::from_millis(20));
    drop(passing);
    lasting.block_on(second).unwrap().unwrap();
}

#[test]
fn a_blocked_runtime_delays_another_by_at_most_the_deadline() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let (still, running) = (runtime(), runtime());
    let server = running.block_on(Server::start());
    let redis = Redis::open(&server.url(), OutagePolicy::closed()).unwrap();
    let limit = redis.limit("a", SlidingLog::new(5, MINUTE)).unwrap();
    running.block_on(until_up(&redis));

    // The task was started in a runtime that does not run.
    let mut asking = Box::pin(limit.try_acquire(1));
    still.block_on(async { assert!(futures::poll!(asking.as_mut()).is_pending()) });
    running.block_on(async {
        let asked = tokio::time::timeout(PATIENT, limit.try_acquire(1)).await;
        wait_of(asked.expect("there is a deadline"));
        let mut enforced = futures::stream::iter([1]).enforce(limit.clone());
        let refused = tokio::time::timeout(PATIENT, enforced.next()).await;
        assert!(refused.expect("an adapter has one, too").unwrap().is_err());
        let asked = tokio::time::timeout(PATIENT, limit.acquire_within(1, PATIENT / 20)).await;
        assert!(asked.expect("there is an end").unwrap_err().is_too_late());
    });
    // When that runtime runs again, the requests continue.
    let _ = still.block_on(asking).unwrap();
    still.block_on(limit.acquire(1)).unwrap();
    drop(server);
}

/// Tokio's paused clock does not wait for sockets, so whether a reply is in time is arbitrary.
#[test]
fn on_a_paused_clock_nothing_hangs() {
    let real = tokio::runtime::Runtime::new().unwrap();
    let server = real.block_on(Server::start());
    let paused = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let redis = Redis::open(&server.url(), OutagePolicy::open()).unwrap();
    let limit = redis.limit("a", SlidingLog::new(1_000, MINUTE)).unwrap();
    paused.block_on(async {
        for _ in 0..100 {
            assert!(limit.try_acquire(1).await.is_ok());
        }
    });
    drop((paused, server));
}
