//! Limits on the real clock. Lower bounds alone: on a busy machine an emission may be late, and never early.
#![expect(
    clippy::disallowed_types,
    reason = "a clock that shares nothing with the one under test"
)]

use std::future::poll_fn;
use std::thread;
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use paceline::concurrency::Permits;
use paceline::policy::{Interval, SlidingLog, TokenBucket};
use paceline::prelude::*;
use paceline::time::{Rate, Resolution, Timer};

/// If items are at least `interval` apart, the n-th cannot come before (n − 1) intervals, whenever threads are suspended.
async fn spaced(interval: Duration, count: u32) {
    let start = Instant::now();
    let mut paced = stream::repeat(()).min_interval(interval);
    for n in 0..count {
        paced.next().await;
        assert!(start.elapsed() >= interval * n, "the {n}th of {interval:?}");
    }
}

async fn every_interval() {
    for (micros, count) in [
        (100, 300),
        (500, 100),
        (1_000, 100),
        (1_500, 60),
        (10_000, 20),
    ] {
        spaced(Duration::from_micros(micros), count).await;
    }
}

#[tokio::test]
async fn emissions_are_never_early_on_one_thread() {
    every_interval().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn emissions_are_never_early_on_many_threads() {
    tokio::spawn(every_interval()).await.unwrap();
}

#[tokio::test]
async fn timers_of_millis_are_never_early() {
    let mut timer = Timer::new().with_resolution(Resolution::Millis);
    for micros in (0..3_000).step_by(37) {
        let wait = Duration::from_micros(micros);
        let start = Instant::now();
        timer.arm(wait);
        poll_fn(|cx| timer.poll_elapsed(cx)).await;
        assert!(start.elapsed() >= wait);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_tasks_on_many_threads_stay_inside_one_limit_and_all_are_served() {
    const TASKS: u32 = 16;
    const EACH: u32 = 50;
    let start = Instant::now();
    let limit = Interval::every(Duration::from_micros(200)).shared();
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let limit = limit.clone();
            tokio::spawn(async move {
                for n in 0..EACH {
                    limit.acquire(1).await.unwrap();
                    if n % 7 == 0 {
                        // This request leaves the queue before its turn.
                        let _ =
                            tokio::time::timeout(Duration::from_micros(50), limit.acquire(1)).await;
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let least = Duration::from_micros(200) * (TASKS * EACH - 1);
    assert!(start.elapsed() >= least, "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn streams_on_many_threads_share_a_bucket() {
    const STREAMS: u32 = 8;
    const EACH: u32 = 40;
    let start = Instant::now();
    let limit = TokenBucket::new(Rate::per_second(2_000), 20).shared();
    let tasks: Vec<_> = (0..STREAMS)
        .map(|_| {
            let paced = stream::iter(0..EACH).pace(limit.clone());
            tokio::spawn(paced.count())
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap(), EACH as usize);
    }
    let least = Duration::from_micros(500) * (STREAMS * EACH - 20);
    assert!(start.elapsed() >= least, "{:?}", start.elapsed());
}

/// No task is stuck and each pass is counted once, whatever is changed and whichever requests are given up meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whatever_is_changed_on_many_threads_all_tasks_get_through() {
    const TASKS: u64 = 16;
    const EACH: u64 = 40;
    let limit = TokenBucket::new(Rate::per_second(5_000), 5).shared();
    let keys = TokenBucket::new(Rate::per_second(2_000), 5).keyed();
    let permits = Permits::new(3).with_cooldown(Duration::from_micros(100));
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (limit, keys, permits) = (limit.clone(), keys.clone(), permits.clone());
            tokio::spawn(async move {
                let mut more = 0;
                for n in 0..EACH {
                    let permit = permits.acquire().await;
                    limit.acquire(1).await.unwrap();
                    keys.acquire(task % 3, 1).await.unwrap();
                    drop(permit);
                    match (task + n) % 8 {
                        0 => limit.retune(TokenBucket::new(Rate::per_second(5_000), 5)),
                        1 => limit.pause_for(Duration::from_micros(300)),
                        2 => limit.resume(),
                        3 => keys.with(&(n % 3), |limit| limit.resume()),
                        4 => permits.resize(2 + u32::try_from(n % 3).unwrap()),
                        5 => limit.refund(1),
                        // These requests leave the queue, maybe just as their turn comes.
                        _ => {
                            let most = Duration::from_micros(n * 10);
                            let line = async { drop(permits.acquire().await) };
                            let _ = tokio::time::timeout(most, line).await;
                            let dear = tokio::time::timeout(most, limit.acquire(4)).await;
                            more += u64::from(dear.is_ok());
                        }
                    }
                }
                more
            })
        })
        .collect();
    let mut more = 0;
    for task in tasks {
        more += task.await.unwrap();
    }
    assert_eq!(limit.stats().passed, TASKS * EACH + more);
    assert_eq!(keys.stats().passed, TASKS * EACH);
    assert_eq!((limit.stats().waiting, keys.stats().waiting), (0, 0));
    assert_eq!(permits.in_use(), 0);
}

/// When a request began, when it was over, and its cost. It passed in between.
type Passed = (Instant, Instant, u32);

/// Most requests take prefetched permits, and every operation on the limit reclaims those.
#[test]
fn no_window_of_a_shared_log_holds_more_than_its_limit_whatever_is_changed() {
    const WINDOW: Duration = Duration::from_millis(40);
    const LIMIT: u32 = 960;
    let log = SlidingLog::new(LIMIT, WINDOW);
    let limit = log.shared();
    let end = Instant::now() + Duration::from_millis(400);
    let asks = |cost: u32| {
        let mut passed: Vec<Passed> = Vec::new();
        while Instant::now() < end {
            let before = Instant::now();
            if limit.try_acquire(cost).is_pass() {
                passed.push((before, Instant::now(), cost));
            }
            if passed.len() % 100 == 99 {
                thread::sleep(Duration::from_micros(500));
            }
        }
        passed
    };
    let mut passed: Vec<Passed> = thread::scope(|scope| {
        let askers = [1, 1, 3].map(|cost| scope.spawn(move || asks(cost)));
        for n in 0.. {
            match n % 4 {
                0 => limit.retune(log),
                1 => assert!(limit.stats().waiting == 0),
                2 => limit.pause_for(Duration::from_micros(100)),
                _ => assert!(!format!("{limit:?}").is_empty()),
            }
            if Instant::now() >= end {
                break;
            }
            thread::sleep(Duration::from_micros(150));
        }
        askers.map(|asker| asker.join().unwrap()).concat()
    });
    assert_eq!(limit.stats().passed, u64::try_from(passed.len()).unwrap());

    passed.sort_unstable();
    for (first, (begins, ..)) in passed.iter().enumerate().step_by(7) {
        let is_inside =
            |(before, after, _): &&Passed| before >= begins && *after < *begins + WINDOW;
        let inside = passed[first..].iter().filter(is_inside);
        let total: u32 = inside.map(|(.., cost)| cost).sum();
        assert!(total <= LIMIT, "{total}");
    }
}
