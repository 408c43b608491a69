use std::task::Context;
use std::time::Duration;

use paceline::limiter::Limiter;
use paceline::policy::SlidingLog;
use paceline_redis::{Redis, RedisLimiter};

use super::{MINUTE, pause, redis, wait_of};
use crate::servers::Server;

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

#[tokio::test]
async fn taking_all_available_permits_never_overtakes_a_waiter() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let limit = with_two_left(&redis).await;

    let first = stand(&redis, &limit, 5).await;
    assert_eq!(limit.try_acquire_up_to(9).await, Ok(0));
    let behind = limit.acquire_within(1, Duration::from_millis(10)).await;
    let retry_in = behind.unwrap_err().retry_in().unwrap();
    assert!(retry_in > MINUTE / 2, "{retry_in:?}");
    drop(first);
    assert_eq!(limit.try_acquire_up_to(9).await, Ok(2));
    let trips = redis.stats().answered;
    wait_of(limit.try_acquire(1).await);
    assert_eq!(limit.try_acquire_up_to(9).await, Ok(0));
    assert_eq!(redis.stats().answered, trips + 1, "it was known");
}

#[tokio::test]
async fn zero_and_endless_time_limits_work() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let limit = redis.limit("a", SlidingLog::new(1, MINUTE)).unwrap();

    let error = limit.acquire_within(1, Duration::ZERO).await.unwrap_err();
    assert!(error.is_too_late());
    assert_eq!(
        error.retry_in(),
        Some(Duration::ZERO),
        "as long as it waited"
    );
    limit.acquire_within(1, Duration::MAX).await.unwrap();
    let redis = redis.with_deadline(Duration::MAX).unwrap();
    let limit = redis.limit("b", SlidingLog::new(1, MINUTE)).unwrap();
    limit.acquire(1).await.unwrap();
    limit.refund(u32::MAX).await.unwrap();
    limit.refund(0).await.unwrap();
    assert_eq!(limit.try_acquire_up_to(u32::MAX).await, Ok(1));
}
