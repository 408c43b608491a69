use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Context;
use std::time::Duration;

use futures::future::join_all;
use paceline::limiter::Limiter;
use paceline::policy::{Decision, SlidingLog, TokenBucket};
use paceline::redis::{OutagePolicy, Redis, RedisLimiter};
use paceline::time::Rate;

use super::{MINUTE, PATIENT, pause, redis, wait_of};
use crate::servers::{Relay, Server};

/// A limit of five a minute with three spent.
async fn with_two_left(redis: &Redis) -> RedisLimiter<SlidingLog> {
    let limit = redis.limit("a", SlidingLog::new(5, MINUTE)).unwrap();
    limit.acquire(3).await.unwrap();
    limit
}

/// A handle that waits for more than is available, after its first denial.
async fn stand(
    redis: &Redis,
    limit: &RedisLimiter<SlidingLog>,
    cost: u32,
) -> RedisLimiter<SlidingLog> {
    let mut handle = limit.clone();
    let trips = redis.stats().answered;
    let waker = futures::task::noop_waker();
    let mut cx = Context::from_waker(&waker);
    assert!(handle.poll_decide(cost, &mut cx).is_pending());
    while redis.stats().answered == trips {
        pause(Duration::from_millis(1)).await;
    }
    pause(Duration::from_millis(5)).await;
    handle
}

/// Four are spent, and the minute is not over: the last one passed without waiting for its end.
async fn assert_one_left(limit: &RedisLimiter<SlidingLog>) {
    assert!(wait_of(limit.peek(2).await) > Duration::ZERO);
    assert_eq!(limit.peek(1).await, Ok(Decision::Pass));
}

#[tokio::test]
async fn a_request_made_during_a_denied_round_trip_is_denied_too() {
    let server = Server::start().await;
    let relay = Relay::start(server.address());
    let redis = Redis::open(&relay.url(), OutagePolicy::closed()).unwrap();
    let redis = redis.with_deadline(PATIENT).unwrap();
    let limit = redis.limit("a", SlidingLog::new(1, MINUTE)).unwrap();
    limit.acquire(1).await.unwrap();

    relay.delay_replies(Duration::from_millis(100)).await;
    // In separate tasks, because the answer to one would otherwise wake the other.
    let asking = [0, 30].map(|later| {
        let limit = limit.clone();
        tokio::spawn(async move {
            pause(Duration::from_millis(later)).await;
            limit.try_acquire(1).await
        })
    });
    for answer in join_all(asking).await {
        assert!(wait_of(answer.unwrap()) > MINUTE / 2);
    }
}

#[tokio::test]
async fn a_request_with_a_reduced_cost_does_not_wait_for_the_old_cost() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let limit = with_two_left(&redis).await;

    let mut handle = stand(&redis, &limit, 5).await;
    let answer = poll_fn(|cx| handle.poll_decide(1, cx)).await;
    assert_eq!(answer, Ok(Decision::Pass));
    assert_one_left(&limit).await;
}

#[tokio::test]
async fn a_waiter_that_turns_into_a_try_no_longer_blocks_others() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let limit = with_two_left(&redis).await;

    let mut handle = stand(&redis, &limit, 5).await;
    assert!(wait_of(poll_fn(|cx| handle.poll_try(5, cx)).await) > MINUTE / 2);
    limit.acquire(1).await.unwrap();
    assert_one_left(&limit).await;
}

#[tokio::test]
async fn a_try_behind_a_waiter_is_answered() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let limit = with_two_left(&redis).await;

    let _first = stand(&redis, &limit, 5).await;
    let mut second = limit.clone();
    let waker = futures::task::noop_waker();
    assert!(
        second
            .poll_decide(1, &mut Context::from_waker(&waker))
            .is_pending()
    );
    wait_of(poll_fn(|cx| second.poll_try(1, cx)).await);
    wait_of(limit.try_acquire(1).await);
    assert_eq!(limit.peek(2).await, Ok(Decision::Pass), "nobody passed");
}

#[tokio::test]
async fn taking_all_available_permits_never_overtakes_a_waiter() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let limit = with_two_left(&redis).await;

    let first = stand(&redis, &limit, 5).await;
    assert_eq!(limit.try_acquire_up_to(9).await, Ok(0));
    drop(first);
    assert_eq!(limit.try_acquire_up_to(9).await, Ok(2));
    let trips = redis.stats().answered;
    wait_of(limit.try_acquire(1).await);
    assert_eq!(limit.try_acquire_up_to(9).await, Ok(0));
    assert_eq!(redis.stats().answered, trips + 1, "it was known");
}

#[tokio::test]
async fn a_request_outside_a_runtime_panics_and_blocks_no_other() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let limit = redis.limit("a", SlidingLog::new(5, MINUTE)).unwrap();

    let outside = limit.clone();
    let panicked = std::thread::spawn(move || {
        let asked = AssertUnwindSafe(|| futures::executor::block_on(outside.acquire(1)));
        catch_unwind(asked).is_err()
    });
    assert!(panicked.join().unwrap());
    let asked = tokio::time::timeout(PATIENT, limit.acquire(1)).await;
    asked.expect("somebody makes trips").unwrap();
}

#[test]
fn permits_dropped_outside_a_runtime_are_returned_by_the_next_request() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (server, redis) = runtime.block_on(async {
        let server = Server::start().await;
        let redis = redis(&server).await;
        (server, redis)
    });
    let limit = redis.limit("a", SlidingLog::new(5, MINUTE)).unwrap();

    let mut handle = limit.clone();
    runtime.block_on(async {
        let waker = futures::task::noop_waker();
        let mut cx = Context::from_waker(&waker);
        assert!(handle.poll_decide(1, &mut cx).is_pending());
        while redis.stats().answered == 0 {
            pause(Duration::from_millis(1)).await;
        }
        pause(Duration::from_millis(5)).await;
    });
    drop(handle);
    std::thread::sleep(Duration::from_millis(150));
    runtime.block_on(async {
        limit.acquire(1).await.unwrap();
        // The dropped permit was void by then, and was returned.
        assert_eq!(limit.try_acquire_up_to(9).await, Ok(4));
    });
    drop(server);
}

#[tokio::test]
async fn ten_thousand_simultaneous_requests_are_answered_in_few_round_trips() {
    const MANY: u32 = 10_000;
    let server = Server::start().await;
    let redis = redis(&server).await;
    let limit = redis
        .limit("a", TokenBucket::new(Rate::per_minute(1), 7_000))
        .unwrap();

    let answers = join_all((0..MANY).map(|_| limit.try_acquire(1))).await;
    let passed = answers
        .iter()
        .filter(|answer| **answer == Ok(Decision::Pass))
        .count();
    // A permit that a busy machine fetches later than 100 ms is void.
    assert!((6_000..=7_000).contains(&passed), "{passed}");
    assert!(redis.stats().answered < 1_000, "{:?}", redis.stats());
}

#[tokio::test]
async fn zero_and_endless_time_limits_work() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let limit = redis.limit("a", SlidingLog::new(1, MINUTE)).unwrap();

    let error = limit.acquire_within(1, Duration::ZERO).await.unwrap_err();
    assert!(error.is_too_late());
    limit.acquire_within(1, Duration::MAX).await.unwrap();
    let redis = redis.with_deadline(Duration::MAX).unwrap();
    let limit = redis.limit("b", SlidingLog::new(1, MINUTE)).unwrap();
    limit.acquire(1).await.unwrap();
    limit.refund(u32::MAX).await.unwrap();
    limit.refund(0).await.unwrap();
    assert_eq!(limit.try_acquire_up_to(u32::MAX).await, Ok(1));
}
