//! What happens to requests that wait: how many, how long, and until when.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use futures::{FutureExt, StreamExt, stream};
use paceline::concurrency::{KeyedPermits, Permits};
use paceline::limiter::{Limiter, Limits, Line, Priority};
use paceline::policy::{Decision, FixedWindow, Interval, SlidingLog, TokenBucket};
use paceline::prelude::*;
use paceline::time::Rate;
use tokio::runtime::Builder;

use super::{bucket, queued, remaining, spawned, used, wait};
use crate::timed::{ms, now, since, sleep};

#[tokio::test(start_paused = true)]
async fn one_request_more_than_may_wait_is_refused_and_the_others_pass() {
    let limit = Interval::every(ms(100)).shared();
    let line = Line::new(limit.clone()).with_max_waiting(2);
    let passed = spawned([(); 3].map(|()| line.acquire(1)));
    tokio::task::yield_now().await;
    for _ in 0..2 {
        let refused = line.acquire(1).await.unwrap_err();
        assert!(refused.is_full());
        assert_eq!(refused.limit().unwrap().retry_in(), Some(ms(300)));
        assert_eq!(
            refused.to_string(),
            "2 requests wait already, and at most 2 may"
        );
    }
    assert_eq!(passed.await, [0, 100, 200]);
    assert_eq!((line.waiting(), limit.waiting()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_line_for_none_lets_pass_what_need_not_wait_and_answers_a_try() {
    let line = Line::new(bucket(2).shared()).with_max_waiting(0);
    line.acquire(1).await.unwrap();
    assert_eq!(line.try_acquire(1).await, Ok(Decision::Pass));
    assert_eq!(line.try_acquire(1).await, Ok(wait(100)));
    assert!(line.acquire(1).await.unwrap_err().is_full());
    assert_eq!(line.waiting(), 0);
    sleep(100).await;
    line.acquire(1).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_closed_line_fails_every_waiter_and_every_newcomer_and_counts_nothing() {
    let start = now();
    let limit = FixedWindow::new(1, ms(1_000)).shared();
    let line = Line::new(limit.clone());
    line.acquire(1).await.unwrap();
    let waiting: Vec<_> = (0..10).map(|_| tokio::spawn(line.acquire(1))).collect();
    let paced = tokio::spawn(stream::iter(0..3).try_pace(line.clone()).count());
    sleep(10).await;
    assert_eq!(line.waiting(), 11);
    line.clone().close();
    line.close();
    for waiter in waiting {
        assert!(waiter.await.unwrap().unwrap_err().is_closed());
    }
    assert!(line.is_closed());
    assert!(line.try_acquire(1).await.unwrap_err().is_closed());
    assert!(line.try_acquire(0).await.unwrap_err().is_closed());
    assert!(line.acquire(0).await.unwrap_err().is_closed());
    assert!(line.acquire_within(1, ms(1)).await.unwrap_err().is_closed());
    assert_eq!(
        line.acquire(1).await.unwrap_err().to_string(),
        "the line is closed"
    );
    assert_eq!(paced.await.unwrap(), 1, "the error ends it");
    assert_eq!(since(start), 10);
    assert_eq!((line.waiting(), limit.waiting()), (0, 0));
    assert_eq!(limit.stats().passed, 1);
}

#[tokio::test(start_paused = true)]
async fn too_late_and_too_costly_are_said_at_once() {
    let line = Line::new(SlidingLog::new(2, ms(500)).shared());
    line.acquire(2).await.unwrap();
    let start = now();
    let late = line.acquire_within(1, ms(499)).await.unwrap_err();
    assert!(late.is_too_late() && late.retry_in() == Some(ms(500)));
    let never = line.acquire(3).await.unwrap_err();
    assert_eq!(never.too_costly().unwrap().capacity(), 2);
    assert_eq!(since(start), 0);
    line.acquire_within(1, ms(500)).await.unwrap();
    assert_eq!(since(start), 500);
}

#[tokio::test(start_paused = true)]
async fn jitter_makes_waiters_later_each_by_its_own_and_never_looser() {
    let passed = async || {
        let line = Line::new(FixedWindow::new(5, ms(1_000)).shared());
        let line = line.with_jitter(ms(300)).with_seed(7);
        spawned([(); 10].map(|()| line.acquire(1))).await
    };
    let at = passed().await;
    assert_eq!(at[..5], [0; 5], "what need not wait is not delayed");
    assert!(
        at[5..].iter().all(|at| (1_000..=1_300).contains(at)),
        "{at:?}"
    );
    // They are spread, and none waits for the jitter of another.
    let mut spread = at[5..].to_vec();
    spread.sort_unstable();
    spread.dedup();
    assert!(spread.len() >= 4, "{at:?}");
    assert_eq!(passed().await, at, "the same seed, the same jitters");
}

#[tokio::test(start_paused = true)]
async fn with_jitter_no_two_emissions_are_closer_than_the_interval() {
    let line = Line::new(Interval::every(ms(100)).shared()).with_jitter(ms(80));
    let mut at = spawned([(); 50].map(|()| line.acquire(1))).await;
    at.sort_unstable();
    assert!(at.windows(2).all(|pair| pair[1] >= pair[0] + 100), "{at:?}");
    assert!(at[49] >= 4_900);
}

#[tokio::test(start_paused = true)]
async fn one_line_can_be_in_front_of_all_keys() {
    let users = Interval::every(ms(100)).keyed::<u32>();
    let line = Line::new(users).with_max_waiting(1);
    let at = |user| Limits::at(&line, user).unwrap();
    at(1).acquire(1).await.unwrap();
    at(2).acquire(1).await.unwrap();
    let waiting = queued(at(1).acquire(1));
    assert!(at(2).acquire(1).await.unwrap_err().is_full());
    line.close();
    assert!(waiting.into_inner().await.unwrap_err().is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_polled_late_keeps_the_spacing() {
    let line = Line::new(used(100)).with_jitter(ms(10));
    let late = queued(line.acquire(1));
    sleep(350).await;
    late.into_inner().await.unwrap();
    let passed = now();
    line.acquire(1).await.unwrap();
    assert!(since(passed) >= 100);
}

/// Joins, cancels and closes in a random order: the count of places ends at zero, and all that passed is what the limit counted.
#[test]
fn no_order_of_events_leaves_a_place_behind() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let limit = TokenBucket::new(Rate::per_second(100), 3).shared();
            let line = Line::new(limit.clone()).with_max_waiting(random.u32(0..6));
            let line = line.with_jitter(ms(random.u64(0..3)));
            let mut calls = Vec::new();
            let mut passed = 0;
            for _ in 0..60 {
                match random.u32(0..10) {
                    0..5 => calls.push(Box::pin(line.acquire(random.u32(1..4)))),
                    5..7 if !calls.is_empty() => {
                        drop(calls.swap_remove(random.usize(0..calls.len())));
                    }
                    7 => sleep(random.u64(0..20)).await,
                    8 if random.u32(0..20) == 0 => line.close(),
                    _ => {}
                }
                calls.retain_mut(|call| match call.as_mut().now_or_never() {
                    None => true,
                    Some(answer) => {
                        passed += u64::from(answer.is_ok());
                        false
                    }
                });
                // A call that is dropped has left, and a closed line lets none wait.
                assert_eq!(line.waiting(), calls.len(), "seed {seed}");
                assert!(!line.is_closed() || calls.is_empty());
            }
            drop(calls);
            assert_eq!((line.waiting(), limit.waiting()), (0, 0), "seed {seed}");
            assert_eq!(limit.stats().passed, passed, "seed {seed}");
        });
    }
}

/// While this task yields, the paused clock stands still. So no head is passed over, however late its thread is.
#[tokio::test(start_paused = true)]
async fn threads_and_tasks_stand_in_one_queue() {
    let limit = used(3_600_000);
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut threads = Vec::new();
    for number in 0..6 {
        let (asks, passed) = (limit.clone(), Arc::clone(&order));
        if number % 2 == 0 {
            threads.push(thread::spawn(move || {
                asks.acquire_blocking(1, Duration::MAX).unwrap();
                passed.lock().unwrap().push(number);
            }));
        } else {
            tokio::spawn(async move {
                asks.acquire_one().await;
                passed.lock().unwrap().push(number);
            });
        }
        // The next one comes when this one is queued.
        while limit.waiting() <= number {
            tokio::task::yield_now().await;
        }
    }
    for passed in 1..=6 {
        limit.reset();
        while order.lock().unwrap().len() < passed {
            tokio::task::yield_now().await;
        }
    }
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn a_thread_is_refused_at_its_deadline_and_leaves_the_queue() {
    let limit = Interval::every(Duration::from_secs(3_600)).shared();
    limit.acquire_blocking(1, Duration::ZERO).unwrap();
    let late = limit.acquire_blocking(1, ms(20)).unwrap_err();
    assert!(late.is_too_late());
    assert!(late.retry_in().unwrap() > Duration::from_secs(3_000));
    limit.pause_for(ms(10));
    assert_eq!((limit.waiting(), limit.stats().passed), (0, 1));

    let never = bucket(5).shared().acquire_blocking(6, ms(20));
    assert!(never.unwrap_err().is_too_costly());
}

#[test]
fn a_pause_that_is_made_while_a_thread_waits_is_felt_and_a_deadline_holds() {
    let limit = Interval::every(ms(30)).shared();
    limit.acquire_blocking(1, Duration::ZERO).unwrap();
    let waiting = limit.clone();
    let started = now();
    let thread = thread::spawn(move || waiting.acquire_blocking(1, ms(100)));
    while limit.waiting() == 0 && !thread.is_finished() {
        thread::yield_now();
    }
    limit.pause_for(Duration::from_secs(3_600));
    assert!(thread.join().unwrap().unwrap_err().is_too_late());
    assert!(started.elapsed() >= ms(100));
    assert_eq!(limit.waiting(), 0);
}

#[test]
fn threads_pass_over_a_future_that_is_kept_and_never_polled_though_nothing_runs_in_a_runtime() {
    let limit = Interval::every(ms(5)).shared();
    limit.acquire_blocking(1, Duration::ZERO).unwrap();
    let mut forgotten = limit.acquire(1);
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async { assert!((&mut forgotten).now_or_never().is_none()) });
    let threads = [(); 3].map(|()| {
        let limit = limit.clone();
        thread::spawn(move || limit.acquire_blocking(1, Duration::MAX))
    });
    for thread in threads {
        thread.join().unwrap().unwrap();
    }
    assert_eq!(limit.waiting(), 1);
}

#[test]
fn threads_pass_over_the_tasks_of_a_runtime_that_does_not_run() {
    let limit = Interval::every(ms(5)).shared();
    limit.acquire_blocking(1, Duration::ZERO).unwrap();
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        for _ in 0..2 {
            tokio::spawn(limit.acquire_owned(1));
        }
        tokio::task::yield_now().await;
    });
    let waiting = limit.clone();
    let thread = thread::spawn(move || waiting.acquire_blocking(1, Duration::from_secs(60)));
    thread.join().unwrap().unwrap();
    assert_eq!(limit.waiting(), 2);
}

#[test]
fn a_blocked_thread_is_woken_when_its_line_is_closed() {
    let line = Line::new(Interval::every(Duration::from_secs(3_600)).shared());
    line.acquire_blocking(1, Duration::MAX).unwrap();
    let waiting = line.clone();
    let thread = thread::spawn(move || waiting.acquire_blocking(1, Duration::MAX));
    while line.waiting() == 0 {
        thread::yield_now();
    }
    line.close();
    assert!(thread.join().unwrap().unwrap_err().is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_line_reserves_and_a_closed_one_still_settles() {
    let limit = bucket(100).shared();
    let line = Line::new(limit.clone()).with_max_waiting(0);
    let first = line.reserve(80).await.unwrap();
    let second = line.reserve(20).await.unwrap();
    assert!(line.reserve(1).await.unwrap_err().is_full());
    assert_eq!(line.waiting(), 0);

    line.close();
    assert!(line.reserve(1).await.unwrap_err().is_closed());
    first.settle(50);
    drop(second);
    assert_eq!(remaining(&limit), 30);
}

#[tokio::test(start_paused = true)]
async fn handles_of_two_classes_share_one_line() {
    let line = Line::new(used(100)).with_max_waiting(3);
    let urgent = line.with_limiter(|limit| limit.clone().with_priority(Priority::High));
    let passed = spawned([&line, &line, &urgent].map(|line| line.acquire(1)));
    tokio::task::yield_now().await;
    let refused = urgent.acquire(1).await.unwrap_err();
    assert!(refused.is_full(), "three wait already");
    assert_eq!(passed.await, [200, 300, 100]);
    urgent.close();
    assert!(line.acquire(1).await.unwrap_err().is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_costs_nothing_any_more_leaves_the_line() {
    let mut line = Line::new(used(100));
    let asked = poll_fn(|cx| line.poll_decide(1, cx)).await;
    assert_eq!(asked, Ok(wait(100)), "it sleeps as the head");
    assert_eq!((line.waiting(), line.limiter().waiting()), (1, 1));
    let asked = poll_fn(|cx| line.poll_decide(0, cx)).await;
    assert_eq!(asked, Ok(Decision::Pass));
    assert_eq!((line.waiting(), line.limiter().waiting()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_line_around_permits_bounds_who_waits_and_passes_each_permit_on() {
    let permits = Permits::new(1);
    let line = Line::new(permits.clone()).with_max_waiting(2);
    let held = line.acquire_permit().await.unwrap();
    let waiting = [(); 2].map(|()| Box::pin(line.acquire_permit()));
    let [mut first, mut second] = waiting;
    assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none());
    let full = line.acquire_permit().now_or_never().unwrap().unwrap_err();
    assert!(full.is_full() && !full.is_closed());
    assert_eq!(
        full.to_string(),
        "2 requests wait already, and at most 2 may"
    );
    assert_eq!((line.waiting(), permits.stats().waiting), (2, 2));

    drop(first);
    assert_eq!((line.waiting(), permits.stats().waiting), (1, 1));
    let mut third = Box::pin(line.acquire_permit());
    assert!((&mut third).now_or_never().is_none());
    drop(held);
    let held = second.await.unwrap();
    assert_eq!((line.waiting(), permits.in_use()), (1, 1));

    line.close();
    assert!(third.await.unwrap_err().is_closed());
    assert!(line.acquire_permit().await.unwrap_err().is_closed());
    assert_eq!(
        (line.waiting(), permits.in_use(), permits.stats().waiting),
        (0, 1, 0)
    );
    drop(held);
    assert!(permits.try_acquire().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_full_line_around_permits_passes_what_has_not_to_wait() {
    let line = Line::new(Permits::new(1)).with_max_waiting(0);
    let held = line.acquire_permit().await.unwrap();
    assert!(line.acquire_permit().await.unwrap_err().is_full());
    drop(held);
    assert!(line.acquire_permit().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_line_of_permits_by_key_is_one_line_for_all_keys() {
    let line = Line::new(KeyedPermits::new(1)).with_max_waiting(1);
    let of = |key: &'static str| line.with_limiter(|keyed| keyed.at(key));
    let (ann, bob) = (of("ann"), of("bob"));
    let (_ann, _bob) = (ann.acquire_permit().await, bob.acquire_permit().await);
    let mut waits = Box::pin(ann.acquire_permit());
    assert!((&mut waits).now_or_never().is_none());
    assert!(bob.acquire_permit().await.unwrap_err().is_full());
    line.close();
    assert!(waits.await.unwrap_err().is_closed());
}
