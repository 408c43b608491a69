//! Limits on the real clock. Lower bounds alone: on a busy machine an emission may be late, and never early.
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a clock that shares nothing with the one under test"
)]

use std::future::poll_fn;
use std::thread;
use std::time::{Duration, Instant};

use futures::stream::BoxStream;
use futures::{SinkExt, StreamExt, stream};
use paceline::concurrency::Permits;
use paceline::limiter::Gate;
use paceline::policy::{Interval, SlidingLog, TokenBucket};
use paceline::prelude::*;
use paceline::time::{Rate, Resolution, Timer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Handle, Runtime};

const D: Duration = Duration::from_micros(700);

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

fn on_one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Runs it on one thread, and in a task on many.
fn on_both<F: Future<Output = ()> + Send + 'static>(test: impl Fn() -> F) {
    on_one_thread().block_on(test());
    let mut many = Builder::new_multi_thread();
    let many = many.worker_threads(2).enable_all().build().unwrap();
    many.block_on(async { tokio::spawn(test()).await.unwrap() });
}

#[test]
fn timers_are_never_early() {
    on_both(async || {
        for resolution in [Resolution::Exact, Resolution::Millis] {
            let mut timer = Timer::new().with_resolution(resolution);
            for nanos in (0..3_000_000).step_by(37_000) {
                let wait = Duration::from_nanos(nanos);
                let start = Instant::now();
                timer.arm(wait);
                poll_fn(|cx| timer.poll_elapsed(cx)).await;
                assert!(start.elapsed() >= wait, "{wait:?}");
            }
        }
    });
}

/// If items are at least `interval` apart, the n-th cannot come before (n − 1) intervals, whenever threads are suspended.
#[test]
fn emissions_are_never_early() {
    on_both(async || {
        for (interval, count) in [
            (10, 5_000),
            (100, 1_000),
            (500, 100),
            (999, 50),
            (1_000, 50),
            (1_500, 60),
            (5_500, 5),
            (10_000, 20),
        ] {
            let interval = micros(interval);
            let start = Instant::now();
            let mut paced = stream::repeat(()).min_interval(interval);
            for n in 0..count {
                paced.next().await;
                assert!(start.elapsed() >= interval * n, "the {n}th of {interval:?}");
            }
        }
    });
}

/// The consumer reads its own clock when it has the item, however long it was suspended before.
#[test]
fn from_next_poll_shows_no_consumer_a_gap_that_is_too_short() {
    on_both(async || {
        for (interval, count) in [(10, 5_000), (100, 1_000), (1_000, 50)] {
            let interval = micros(interval);
            let paced = stream::repeat(()).min_interval(interval);
            let mut paced = paced.with_count_from_next_poll().take(count);
            let mut last: Option<Instant> = None;
            while paced.next().await.is_some() {
                let now = Instant::now();
                assert!(
                    last.is_none_or(|last| now - last >= interval),
                    "{interval:?}"
                );
                last = Some(now);
            }
        }
    });
}

/// Items in bursts, with pauses that are shorter and longer than the interval.
fn in_bursts() -> BoxStream<'static, u64> {
    let items = stream::iter(0..60).then(|n| async move {
        if n % 7 == 0 {
            tokio::time::sleep(micros(n * 40)).await;
        }
        n
    });
    items.boxed()
}

fn all() -> Vec<u64> {
    (0..60).collect()
}

#[test]
fn sinks_get_everything_in_order_and_not_too_soon() {
    on_both(async || {
        let mut paced = Vec::new().pace_sends(Interval::every(D).owned());
        let start = Instant::now();
        paced.send_all(&mut in_bursts().map(Ok)).await.unwrap();
        assert!(start.elapsed() >= D * 59);
        assert_eq!(paced.into_parts(), (all(), None));

        let limit = TokenBucket::new(Rate::new(10, D), 10).shared();
        let mut paced = Vec::new().pace_sends_by_cost(limit, |_| 5);
        let start = Instant::now();
        paced.send_all(&mut in_bursts().map(Ok)).await.unwrap();
        assert!(start.elapsed() >= D * 29);
        assert_eq!(paced.into_parts(), (all(), None));
    });
}

#[test]
fn readers_and_writers_get_every_byte_and_not_too_soon() {
    on_both(async || {
        let bytes: Vec<u8> = (0..60_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        let limit = || TokenBucket::new(Rate::new(1_000, micros(100)), 10_000).owned();
        let start = Instant::now();
        let mut read = Vec::new();
        let mut reader = bytes.as_slice().pace_reads(limit());
        reader.read_to_end(&mut read).await.unwrap();
        assert!(start.elapsed() >= micros(5_000));
        assert_eq!(read, bytes);

        let start = Instant::now();
        let mut writer = Vec::new().pace_writes(limit());
        writer.write_all(&bytes).await.unwrap();
        assert!(start.elapsed() >= micros(5_000));
        assert_eq!(writer.into_inner(), bytes);
    });
}

/// How many open files of this process are kernel timers.
fn kernel_timers() -> usize {
    let files = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = files.filter_map(|file| std::fs::read_link(file.unwrap().path()).ok());
    targets
        .filter(|target| target.to_string_lossy().contains("timerfd"))
        .count()
}

#[test]
fn ten_thousand_streams_share_one_timer_and_one_task() {
    on_one_thread().block_on(async {
        let interval = micros(5_000);
        let start = Instant::now();
        let mut paced: Vec<_> = (0..10_000)
            .map(|_| Box::pin(stream::iter(0..3).min_interval(interval)))
            .collect();
        let mut first = stream::select_all(&mut paced);
        for _ in 0..10_000 {
            first.next().await;
        }
        let begins_to_wait = futures::poll!(first.next());
        // Other tests of this process have some too.
        assert!(kernel_timers() < 100);
        assert!(Handle::current().metrics().num_alive_tasks() <= 1);
        let rest = first.count().await;
        assert_eq!(rest + usize::from(begins_to_wait.is_ready()), 20_000);
        assert!(start.elapsed() >= 2 * interval);

        drop(paced);
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
    });
}

/// As the guide on platforms says.
#[test]
fn another_executor_waits_in_a_runtime_that_it_has_entered() {
    let mut many = Builder::new_multi_thread();
    let many = many.worker_threads(1).enable_all().build().unwrap();
    let _entered = many.enter();
    let limit = Interval::every(micros(2_000)).shared();
    let start = Instant::now();
    futures::executor::block_on(async {
        for n in 0..4 {
            limit.acquire_one().await;
            assert!(start.elapsed() >= micros(2_000) * n);
        }
    });
}

#[test]
fn permits_need_no_runtime() {
    let permits = Permits::new(1);
    let taken = futures::executor::block_on(permits.acquire());
    let waiting = permits.clone();
    let waiter = thread::spawn(move || drop(futures::executor::block_on(waiting.acquire())));
    while permits.stats().waiting == 0 {
        thread::yield_now();
    }
    drop(taken);
    waiter.join().unwrap();
}

#[test]
fn a_stream_may_move_to_another_runtime_whose_predecessor_has_ended() {
    let mut paced = stream::repeat(()).min_interval(micros(2_000));
    let start = Instant::now();
    for n in 0..4 {
        on_one_thread().block_on(async {
            paced.next().await;
            // It has begun to wait there.
            assert!(futures::poll!(paced.next()).is_pending());
        });
        assert!(start.elapsed() >= micros(2_000) * n);
    }
}

#[tokio::test]
async fn a_task_that_is_woken_for_something_else_goes_on_waiting() {
    let mut gate = Gate::new(Interval::every(D).owned());
    let start = Instant::now();
    poll_fn(|cx| gate.poll_one(cx)).await.unwrap();
    for n in 1..20 {
        while tokio::time::timeout(micros(100), poll_fn(|cx| gate.poll_one(cx)))
            .await
            .is_err()
        {}
        assert!(start.elapsed() >= D * n);
    }
}

#[test]
fn permits_are_never_granted_early_on_many_threads() {
    on_both(async || {
        let limit = Interval::every(micros(50)).shared();
        let keyed = Interval::every(micros(50)).keyed::<u8>();
        let permits = Permits::new(1).with_cooldown(micros(50));
        let start = Instant::now();
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let (limit, keyed, permits) = (limit.clone(), keyed.clone(), permits.clone());
                tokio::spawn(async move {
                    for _ in 0..50 {
                        limit.acquire(1).await.unwrap();
                        keyed.acquire(7, 1).await.unwrap();
                        keyed
                            .acquire_within(7, 1, micros(60_000_000))
                            .await
                            .unwrap();
                        drop(permits.acquire().await);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert!(
            start.elapsed() >= micros(50) * 799,
            "two a round for the key"
        );
        assert_eq!(limit.stats().passed, 400);
    });
}

/// When n + 1 requests have passed, the tokens of all that are more than the burst have come.
#[test]
fn a_crowd_at_a_token_bucket_passes_in_time_and_never_early() {
    const BURST: u32 = 10;
    on_both(async || {
        let start = Instant::now();
        let bucket = TokenBucket::new(Rate::new(BURST, micros(1_000)), BURST);
        let keyed = bucket.keyed();
        let limits = [
            bucket.shared(),
            bucket.shared().with_resolution(Resolution::Exact),
            bucket.shared().with_resolution(Resolution::Millis),
        ];
        let mut crowds: Vec<Vec<_>> = limits.iter().map(|_| Vec::new()).collect();
        let mut of_one_key = Vec::new();
        for _ in 0..300 {
            for (limit, crowd) in limits.iter().zip(&mut crowds) {
                let passes = limit.acquire_owned(1);
                crowd.push(tokio::spawn(async move {
                    passes.await.unwrap();
                    start.elapsed()
                }));
            }
            let passes = keyed.acquire(7, 1);
            of_one_key.push(tokio::spawn(async move {
                passes.await.unwrap();
                start.elapsed()
            }));
        }
        crowds.push(of_one_key);
        for crowd in crowds {
            let mut passed_at = Vec::new();
            for request in crowd {
                passed_at.push(request.await.unwrap());
            }
            passed_at.sort();
            for (n, passed_at) in (0..).zip(passed_at) {
                let due = micros(100) * (n + 1_u32).saturating_sub(BURST);
                assert!(passed_at >= due, "the {n}th after {passed_at:?}");
            }
        }
    });
}

/// No task is stuck and each pass is counted once, whatever is changed and whichever requests are given up meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whatever_is_changed_on_many_threads_all_tasks_get_through() {
    const TASKS: u64 = 16;
    const EACH: u64 = 40;
    let limit = TokenBucket::new(Rate::per_second(5_000), 5).shared();
    let keys = TokenBucket::new(Rate::per_second(2_000), 5).keyed();
    let permits = Permits::new(3).with_cooldown(micros(100));
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
                        1 => limit.pause_for(micros(300)),
                        2 => limit.resume(),
                        3 => keys.with(&(n % 3), |limit| limit.resume()),
                        4 => permits.resize(2 + u32::try_from(n % 3).unwrap()),
                        5 => limit.refund(1),
                        // These requests leave the queue, maybe just as their turn comes.
                        _ => {
                            let most = micros(n * 10);
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
                thread::sleep(micros(500));
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
                2 => limit.pause_for(micros(100)),
                _ => assert!(!format!("{limit:?}").is_empty()),
            }
            if Instant::now() >= end {
                break;
            }
            thread::sleep(micros(150));
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
