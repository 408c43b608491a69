//! The kernel timer, on the real clock. Lower bounds alone: on a busy machine an emission may be late, and never early.
#![cfg(feature = "precise")]
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a clock that shares nothing with the one under test"
)]

use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::stream::BoxStream;
use futures::{SinkExt, Stream, StreamExt, stream};
use paceline::concurrency::Permits;
use paceline::limiter::Gate;
use paceline::policy::{Interval, TokenBucket};
use paceline::prelude::*;
use paceline::time::{Rate, Timer};
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

/// If items are at least `interval` apart, the n-th cannot come before (n − 1) intervals, whenever threads are suspended.
async fn count_spaced<T>(paced: impl Stream<Item = T>, interval: Duration) -> usize {
    let start = Instant::now();
    let mut paced = std::pin::pin!(paced);
    let mut count = 0;
    while paced.next().await.is_some() {
        assert!(
            start.elapsed() >= interval * count,
            "the {count}th of {interval:?}"
        );
        count += 1;
    }
    count as usize
}

#[test]
fn timers_are_never_early() {
    on_both(async || {
        let mut timer = Timer::new();
        for nanos in (0..3_000_000).step_by(37_000) {
            let wait = Duration::from_nanos(nanos);
            let start = Instant::now();
            timer.arm(wait);
            poll_fn(|cx| timer.poll_elapsed(cx)).await;
            assert!(start.elapsed() >= wait, "{wait:?}");
        }
    });
}

#[test]
fn emissions_are_never_early() {
    on_both(async || {
        for (interval, count) in [
            (10, 5_000),
            (100, 1_000),
            (999, 50),
            (1_000, 50),
            (5_500, 5),
        ] {
            let interval = micros(interval);
            let paced = stream::iter(0..count).min_interval(interval);
            assert_eq!(count_spaced(paced, interval).await, count);
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

/// What a consumer receives that gives up waiting again and again.
async fn impatient<T>(stream: impl Stream<Item = T>) -> Vec<T> {
    let mut stream = std::pin::pin!(stream);
    let mut items = Vec::new();
    for n in 0.. {
        let patience = micros(n % 5 * 150);
        match tokio::time::timeout(patience, stream.next()).await {
            Ok(Some(item)) => items.push(item),
            Ok(None) => break,
            Err(_) => {}
        }
    }
    items
}

#[test]
fn no_stream_adapter_loses_or_doubles_anything() {
    on_both(async || {
        let limit = || Interval::every(D).shared();
        assert_eq!(impatient(in_bursts().pace(limit())).await, all());
        let by_cost = in_bursts().pace_by_cost(limit(), |_| 1);
        let by_cost: Result<Vec<_>, _> = impatient(by_cost).await.into_iter().collect();
        assert_eq!(by_cost.unwrap(), all());
        let batches = in_bursts().pace_batches(limit(), 3);
        assert_eq!(impatient(batches).await.concat(), all());
        let by_key = in_bursts().pace_by_key(Interval::every(D).keyed(), |n| n % 3, 8);
        let mut by_key = impatient(by_key).await;
        by_key.sort_unstable();
        assert_eq!(by_key, all());

        let groups = in_bursts().grouped_within(4, D);
        assert_eq!(impatient(groups).await.concat(), all());
        let heavy = in_bursts().grouped_weighted_within(40, D, |n| *n);
        assert_eq!(impatient(heavy).await.concat(), all());
        let results = || in_bursts().map(Ok::<u64, u64>);
        let tried = results().try_grouped_within(4, D);
        let tried: Result<Vec<_>, _> = impatient(tried).await.into_iter().collect();
        assert_eq!(tried.unwrap().concat(), all());
        let tried = results().try_grouped_weighted_within(40, D, |n| *n);
        let tried: Result<Vec<_>, _> = impatient(tried).await.into_iter().collect();
        assert_eq!(tried.unwrap().concat(), all());
    });
}

#[test]
fn lossy_adapters_keep_order_and_count_what_they_drop() {
    on_both(async || {
        let mut debounced = std::pin::pin!(in_bursts().debounce(D));
        let items: Vec<u64> = debounced.by_ref().collect().await;
        assert!(items.is_sorted());
        assert_eq!(items.last(), Some(&59));
        assert_eq!(items.len() as u64 + debounced.dropped_count(), 60);

        let mut sampled = std::pin::pin!(in_bursts().sample(D).with_keep_last());
        let items: Vec<u64> = sampled.by_ref().collect().await;
        assert!(items.is_sorted());
        assert_eq!(items.len() as u64 + sampled.dropped_count(), 60);
    });
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

#[tokio::test(start_paused = true)]
async fn a_paused_clock_sees_exact_instants() {
    let start = tokio::time::Instant::now();
    let paced = stream::iter(0..11).min_interval(Duration::from_millis(100));
    assert_eq!(paced.count().await, 11);
    assert_eq!(start.elapsed(), Duration::from_secs(1));
}

#[tokio::test]
async fn a_task_that_is_woken_for_something_else_goes_on_waiting() {
    let gate = Gate::new(Interval::every(D).owned());
    let mut gate = gate;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_streams_on_two_threads_share_a_limit() {
    let limit = Arc::new(Interval::every(micros(50)).shared());
    let start = Instant::now();
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let limit = Arc::clone(&limit);
            tokio::spawn(async move {
                let paced = stream::iter(0..100).pace((*limit).clone());
                paced.count().await
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap(), 100);
    }
    assert!(start.elapsed() >= micros(50) * 799);
    assert_eq!(limit.stats().passed, 800);
}
