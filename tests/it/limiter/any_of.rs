//! The first of several limits that has room.

use std::convert::Infallible;
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;

use fastrand::Rng;
use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt, join_all};
use paceline::limiter::{AnyOf, Limiter, Shared, WhenFull};
use paceline::policy::Decision;
use paceline::prelude::*;
use paceline::time::Resolution;

use super::{bucket, queued, remaining, too_costly, used, wait};
use crate::timed::{arriving, assert_left, drained, ms, now, since, sleep};

#[tokio::test(start_paused = true)]
async fn a_request_takes_from_exactly_one_limit_and_a_losing_wait_costs_nothing() {
    let (slow, quick) = (used(100), used(40));
    let any = AnyOf::new([slow.clone(), quick.clone()]);
    let start = now();
    assert_eq!(any.acquire(1).await.unwrap(), 1);
    assert_eq!(since(start), 40);
    assert_eq!((slow.stats().passed, quick.stats().passed), (1, 2));
    slow.acquire_one().await;
    assert_eq!(since(start), 100, "it has left the other queue");
}

#[tokio::test(start_paused = true)]
async fn none_overtakes_those_that_wait_for_one_limit_alone() {
    let (slow, quick) = (used(100), used(40));
    let any = AnyOf::new([slow.clone(), quick.clone()]);
    let start = now();
    let plain = quick.acquire(1).map(|passed| passed.map(|()| 7));
    let requests: [BoxFuture<'_, _>; 3] = [
        plain.boxed(),
        any.acquire(1).boxed(),
        any.acquire(1).boxed(),
    ];
    let passed = requests.map(|request| request.map(|passed| (passed.unwrap(), since(start))));
    assert_eq!(join_all(passed).await, [(7, 40), (1, 80), (0, 100)]);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_request_leaves_every_queue() {
    let (one, other) = (used(100), used(100));
    let any = AnyOf::new([one.clone(), other.clone()]);
    let dropped = queued(Box::pin(any.acquire(1)));
    assert_eq!(one.try_acquire(1), wait(200));
    assert_eq!(any.try_acquire(1), Err(wait(200)));
    drop(dropped);
    assert_eq!((one.peek(1), other.peek(1)), (wait(100), wait(100)));
    sleep(100).await;
    assert_eq!(any.try_acquire(1), Ok(0));
    assert_eq!(any.try_acquire(1), Ok(1));
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_can_never_pass_the_cost_is_left_out() {
    let (small, large) = (bucket(2).shared(), bucket(5).shared());
    let any = AnyOf::new([small.clone(), large.clone()]);
    assert_eq!(any.acquire(4).await.unwrap(), 1);
    let start = now();
    assert_eq!(any.acquire(3).await.unwrap(), 1);
    assert_eq!((since(start), remaining(&small)), (200, 2));
    assert_eq!(any.acquire(2).await.unwrap(), 0, "it is asked again");
    assert_eq!(too_costly(any.acquire(6).await.unwrap_err()), (6, 5));
    assert_eq!(any.try_acquire(6), Err(Decision::Never { capacity: 5 }));
    let none = AnyOf::<Shared<Interval>>::try_new([]).unwrap_err();
    assert_eq!(
        none.to_string(),
        "any of several limits needs at least 1, got 0"
    );
}

#[test]
fn without_a_limit_it_panics_in_the_file_of_the_caller() {
    let empty = thread::Builder::new().name("an empty list".into());
    let (sender, files) = std::sync::mpsc::channel();
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |panic| match thread::current().name() {
        Some("an empty list") => {
            let file = panic.location().map(|at| at.file().to_owned());
            sender.send(file).unwrap();
        }
        _ => before(panic),
    }));
    let empty = empty.spawn(|| AnyOf::<Shared<Interval>>::new([])).unwrap();
    assert!(empty.join().is_err());
    assert_eq!(files.recv().unwrap().as_deref(), Some(file!()));
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_too_long_at_every_limit_fails_at_once() {
    let (slow, quick) = (used(100), used(40));
    let any = AnyOf::new([slow, quick]);
    let start = now();
    let late = any.acquire_within(1, ms(39)).await.unwrap_err();
    assert_eq!((late.retry_in(), since(start)), (Some(ms(40)), 0));
    assert_eq!(any.acquire_within(1, ms(40)).await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_can_never_pass_one_cost_is_asked_for_a_lower_one() {
    let (small, large) = (bucket(2).shared(), bucket(5).shared());
    let mut any = AnyOf::new([small.clone(), large.clone()]);
    large.acquire(5).await.unwrap();
    assert_eq!(any.poll_try(3, &mut cx()), Poll::Ready(Ok(wait(300))));
    assert_eq!(any.poll_try(2, &mut cx()), PASS);
    assert_eq!(remaining(&small), 0);
    small.reset();
    assert!(any.poll_decide(3, &mut cx()).is_ready());
    assert_eq!(any.poll_decide(2, &mut cx()), PASS);
    assert_eq!(remaining(&small), 0);
    assert_eq!(any.poll_try(3, &mut cx()), Poll::Ready(Ok(wait(300))));
    small.retune(bucket(3));
    small.reset();
    assert_eq!(any.poll_try(3, &mut cx()), PASS);
    let never = Poll::Ready(Ok(Decision::Never { capacity: 5 }));
    assert_eq!(any.poll_decide(6, &mut cx()), never);
    small.retune(bucket(6));
    small.reset();
    assert_eq!(any.poll_decide(6, &mut cx()), PASS);
}

#[tokio::test(start_paused = true)]
async fn an_observer_around_it_sees_what_passed_without_room_for_its_key() {
    let keys = bucket(1).keyed::<u8>().with_max_keys(1);
    let keys = keys.with_when_full(WhenFull::Pass);
    let mut any = AnyOf::new([keys.at(0), keys.at(1)]);
    assert_eq!(any.poll_decide(1, &mut cx()), PASS);
    assert_eq!((any.try_acquire(1), any.shadowed()), (Ok(1), None));
    assert_eq!(any.poll_decide(1, &mut cx()), PASS);
    assert!(any.shadowed().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_known_beside_a_limit_that_can_never_pass_the_cost() {
    let (small, large) = (bucket(2).shared(), bucket(5).shared());
    let any = AnyOf::new([small, large.clone()]);
    large.acquire(5).await.unwrap();
    let start = now();
    let late = any.acquire_within(3, ms(299)).await.unwrap_err();
    assert_eq!((late.retry_in(), since(start)), (Some(ms(300)), 0));
    assert_eq!(any.acquire_within(3, ms(300)).await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_has_looked_keeps_its_position_in_every_queue() {
    let (one, other) = (used(100), Interval::every(ms(200)).shared());
    let mut looks = AnyOf::new([one.clone(), other.clone()]);
    assert_eq!(looks.poll_open(1, &mut cx()), PASS);
    assert_eq!((one.waiting(), other.waiting()), (0, 0));
    let later = queued(one.acquire_owned(1));
    other.acquire_one().await;
    assert!(looks.poll_decide(1, &mut cx()).is_ready());
    sleep(100).await;
    assert_eq!(looks.poll_decide(1, &mut cx()), PASS);
    assert_eq!((one.stats().passed, other.stats().passed), (2, 1));
    drop(later);
}

#[tokio::test(start_paused = true)]
async fn a_first_look_starts_the_clock_of_every_limit() {
    let empty = [0; 2].map(|_| bucket(1).with_empty_start().shared());
    let start = now();
    let items = arriving([(100, ()), (100, ())], 100);
    let left = drained(items.pace(AnyOf::new(empty))).await;
    assert_left(&left, [(100, ()), (100, ())], 100);
    assert_eq!(since(start), 100);
}

#[tokio::test(start_paused = true)]
async fn its_status_is_that_with_the_most_room_and_it_waits_as_exactly_as_one_of_them() {
    let exact = bucket(2).shared();
    let millis = || bucket(5).shared().with_resolution(Resolution::Millis);
    assert_eq!(remaining(&AnyOf::new([exact.clone(), millis()])), 5);
    assert_eq!(remaining(&AnyOf::new([millis(), exact.clone()])), 5);
    let both = AnyOf::new([millis(), exact]);
    assert_eq!(both.resolution(), Resolution::Exact);
    let any = AnyOf::new([millis(), millis()]);
    assert_eq!(any.resolution(), Resolution::Millis);
}

#[tokio::test(start_paused = true)]
async fn a_pause_and_its_end_at_one_limit_are_felt_at_once() {
    let (one, other) = (used(10), used(10));
    for limit in [&one, &other] {
        limit.pause_for(ms(10_000));
    }
    let any = AnyOf::new([one, other.clone()]);
    let start = now();
    let waiting = tokio::spawn(async move { (any.acquire(1).await.unwrap(), since(start)) });
    sleep(500).await;
    other.resume();
    assert_eq!(waiting.await.unwrap(), (1, 500));
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_paced_by_all_of_them_together() {
    let limits = [30, 50].map(|millis| Interval::every(ms(millis)).shared());
    let start = now();
    let paced = futures::stream::iter(0..8).pace(AnyOf::new(limits));
    let left: Vec<u64> = paced.map(|_| since(start)).collect().await;
    assert_eq!(left, [0, 0, 30, 50, 60, 90, 100, 120]);
}

const PASS: Poll<Result<Decision, Infallible>> = Poll::Ready(Ok(Decision::Pass));

const fn cx() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// A request of the judge: when it came, and of which limit alone, if it is not for any.
#[derive(Clone, Copy)]
struct Request {
    at: u64,
    alone: Option<usize>,
}

/// When each request passes, and where: an interval after the last at each limit, in order of arrival, the first limit that has room.
fn expected(intervals: &[u64], requests: &[Request]) -> Vec<(u64, usize)> {
    let mut passed = vec![None; requests.len()];
    let mut open_at = vec![0; intervals.len()];
    for now in 0.. {
        if passed.iter().all(Option::is_some) {
            break;
        }
        let mut has_head = vec![false; intervals.len()];
        for (request, passed) in requests.iter().zip(&mut passed) {
            if request.at > now || passed.is_some() {
                continue;
            }
            let own = (0..intervals.len())
                .filter(|limit| request.alone.is_none_or(|only| only == *limit));
            let free = own
                .clone()
                .find(|limit| !has_head[*limit] && open_at[*limit] <= now);
            if let Some(limit) = free {
                *passed = Some((now, limit));
                open_at[limit] = now + intervals[limit];
            } else {
                own.for_each(|limit| has_head[limit] = true);
            }
        }
    }
    passed.into_iter().flatten().collect()
}

#[tokio::test(start_paused = true)]
async fn random_requests_pass_where_and_when_the_soonest_limit_serves_them_in_order() {
    for seed in 0..300 {
        let mut random = Rng::with_seed(seed);
        let intervals: Vec<u64> = (0..random.usize(1..4)).map(|_| random.u64(1..30)).collect();
        let mut at = 0;
        let requests: Vec<Request> = (0..30)
            .map(|_| {
                at += random.u64(0..2) * random.u64(1..20);
                let limit = random.usize(..intervals.len());
                let alone = (random.u8(..3) == 0).then_some(limit);
                Request { at, alone }
            })
            .collect();
        let limits: Vec<_> = intervals
            .iter()
            .map(|millis| Interval::every(ms(*millis)).shared())
            .collect();
        let any = AnyOf::new(limits.clone());
        let start = now();
        let tasks = requests.iter().map(|request| {
            let (request, any) = (*request, any.clone());
            let limit = request.alone.map(|limit| limits[limit].clone());
            tokio::spawn(async move {
                sleep(request.at).await;
                let limit = match (limit, request.alone) {
                    (Some(limit), Some(number)) => {
                        limit.acquire_one().await;
                        number
                    }
                    _ => any.acquire(1).await.unwrap(),
                };
                (since(start), limit)
            })
        });
        let passed: Vec<_> = join_all(tasks)
            .await
            .into_iter()
            .map(Result::unwrap)
            .collect();
        assert_eq!(passed, expected(&intervals, &requests), "{seed}");
    }
}

#[test]
fn threads_win_each_permit_once() {
    let buckets = [0; 3].map(|_| TokenBucket::new(Rate::per_hour(1), 400).shared());
    let any = AnyOf::new(buckets.clone());
    let won = Arc::new([const { AtomicU64::new(0) }; 3]);
    let threads = [0; 4].map(|_| {
        let (any, won) = (any.clone(), Arc::clone(&won));
        thread::spawn(move || {
            for _ in 0..250 {
                let number = any.acquire(1).now_or_never().unwrap().unwrap();
                won[number].fetch_add(1, Ordering::Relaxed);
            }
        })
    });
    for thread in threads {
        thread.join().unwrap();
    }
    let won: Vec<u64> = won.iter().map(|won| won.load(Ordering::Relaxed)).collect();
    let passed: Vec<u64> = buckets.iter().map(|bucket| bucket.stats().passed).collect();
    assert_eq!(won, passed);
    assert_eq!(won.iter().sum::<u64>(), 1_000);
}
