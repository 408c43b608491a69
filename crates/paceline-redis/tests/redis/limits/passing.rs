use std::task::{Context, Waker};
use std::time::Duration;

use paceline::limiter::Limiter;
use paceline::policy::{Decision, FixedWindow, Interval, SlidingCounter, SlidingLog, TokenBucket};
use paceline::time::Rate;
use paceline_redis::{Redis, RedisPolicy};

use super::{MINUTE, a_minute_of, denied, log, passed, pause, redis};
use crate::servers::Server;

#[tokio::test]
async fn every_policy_passes_its_limit_and_no_more_and_counts_as_spent_when_its_state_is_lost() {
    async fn of<P: RedisPolicy>(server: &Server, redis: &Redis, name: &str, policy: P, most: u32) {
        println!("{name}");
        let limit = redis.limit(name, policy.clone()).unwrap();
        for _ in 0..most {
            passed(limit.try_acquire(1).await);
        }
        denied(limit.try_acquire(1).await);

        let limit = redis.limit(&format!("{name}, lost"), policy).unwrap();
        passed(limit.try_acquire(1).await);
        server.cli::<()>(&["DEL", &limit.keys()[0]]).await;
        denied(limit.try_acquire(1).await);
        assert_eq!(limit.try_acquire_up_to(9).await, Ok(0));
    }
    let server = &Server::start().await;
    let redis = &redis(server).await;
    let bucket = TokenBucket::new(Rate::per_minute(1), 3);
    let strict = SlidingCounter::strict(3, MINUTE, 4);
    let smooth = SlidingCounter::smooth(3, MINUTE);
    of(server, redis, "bucket", bucket, 3).await;
    of(server, redis, "interval", Interval::every(MINUTE), 1).await;
    of(server, redis, "log", log(3), 3).await;
    of(server, redis, "strict", strict, 3).await;
    of(server, redis, "smooth", smooth, 3).await;
    of(server, redis, "fixed", FixedWindow::new(3, MINUTE), 3).await;
    assert_eq!(redis.stats().lost_states, 6);
}

#[tokio::test]
async fn costs_of_zero_and_above_the_limit_need_no_round_trip() {
    let (_server, redis, limit) = a_minute_of(3).await;

    passed(limit.try_acquire(0).await);
    let never = Decision::Never { capacity: 3 };
    assert_eq!(limit.try_acquire(4).await, Ok(never));
    let error = limit.acquire(4).await.unwrap_err();
    assert!(error.is_too_costly());
    assert_eq!(
        error.to_string(),
        "a cost of 4 can never pass a limit of 3 at once"
    );
    assert_eq!(redis.stats().answered, 0);
}

#[tokio::test]
async fn a_waiter_passes_at_the_time_the_server_states() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let window = Duration::from_millis(200);
    let limit = redis.limit("a", SlidingLog::new(1, window)).unwrap();

    let began = server.time_us().await;
    for _ in 0..4 {
        limit.acquire(1).await.unwrap();
    }
    let took = server.time_us().await - began;
    assert!(took >= 600_000, "{took} µs");
    // One round trip for each permit and one for each wait, and some more if a busy machine fetches a permit too late.
    let answered = redis.stats().answered;
    assert!((7..=10).contains(&answered), "{answered}");
}

#[tokio::test]
async fn a_request_that_cannot_pass_in_time_fails_and_is_not_counted() {
    let (_server, redis, limit) = a_minute_of(2).await;

    limit.acquire_within(1, MINUTE).await.unwrap();
    let mut trips = Vec::new();
    for (time, said) in [
        (1, "could not pass within 1s"),
        (20, "could not pass within 20s"),
    ] {
        let within = Duration::from_secs(time);
        let error = limit.acquire_within(2, within).await.unwrap_err();
        assert!(error.is_too_late());
        assert_eq!(error.to_string(), said);
        let retry_in = error.retry_in().unwrap();
        assert!((MINUTE / 2..=MINUTE).contains(&retry_in), "{retry_in:?}");
        trips.push(redis.stats().answered);
    }
    assert_eq!(trips[0], trips[1], "it was known");
    passed(limit.try_acquire(1).await);
    let error = limit.acquire_within(3, MINUTE).await.unwrap_err();
    assert!(error.is_too_costly());
    assert_eq!(error.retry_in(), None);
}

#[tokio::test]
async fn taking_all_available_permits_never_overtakes_a_waiter() {
    let (_server, redis, limit) = a_minute_of(5).await;
    limit.acquire(3).await.unwrap();

    // It waits for more than is available, after its first denial.
    let mut first = limit.clone();
    let mut cx = Context::from_waker(Waker::noop());
    assert!(first.poll_decide(5, &mut cx).is_pending());
    while limit.binding().is_none() {
        pause(Duration::from_millis(1)).await;
    }
    assert_eq!(limit.try_acquire_up_to(9).await, Ok(0));
    let behind = limit.acquire_within(1, Duration::from_millis(10)).await;
    let retry_in = behind.unwrap_err().retry_in().unwrap();
    assert!(retry_in > MINUTE / 2, "{retry_in:?}");
    drop(first);
    assert_eq!(limit.try_acquire_up_to(9).await, Ok(2));
    let trips = redis.stats().answered;
    denied(limit.try_acquire(1).await);
    assert_eq!(limit.try_acquire_up_to(9).await, Ok(0));
    assert_eq!(redis.stats().answered, trips + 1, "it was known");
}

#[tokio::test]
async fn a_cheap_request_is_not_refused_for_a_dear_one_of_the_same_call() {
    let (_server, _redis, limit) = a_minute_of(4).await;
    let [first, dear, cheap] = [3, 3, 1].map(|cost| limit.try_acquire(cost));
    let (first, dear, cheap) = tokio::join!(first, dear, cheap);
    passed(first);
    denied(dear);
    passed(cheap);
}

/// An interval passes a request of any cost, and then waits for as many intervals.
#[tokio::test]
async fn of_an_interval_one_request_passes_in_the_place_of_a_dropped_one() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let limit = redis.limit("a", Interval::every(MINUTE)).unwrap();
    let mut dropped = Box::pin(limit.acquire(3));
    assert!(futures::poll!(&mut dropped).is_pending());
    let waiting = [(); 3].map(|()| tokio::spawn(limit.acquire(1)));
    let passed = || waiting.iter().filter(|waits| waits.is_finished()).count();
    // Its permit has come.
    while limit.status().is_none() {
        pause(Duration::from_millis(1)).await;
    }
    drop(dropped);
    while passed() == 0 {
        pause(Duration::from_millis(1)).await;
    }
    pause(Duration::from_millis(50)).await;
    assert_eq!(passed(), 1);
}

#[tokio::test]
async fn zero_and_endless_time_limits_work() {
    let (_server, redis, limit) = a_minute_of(1).await;

    let error = limit.acquire_within(1, Duration::ZERO).await.unwrap_err();
    assert!(error.is_too_late());
    // As long as it waited.
    assert_eq!(error.retry_in(), Some(Duration::ZERO));
    limit.acquire_within(1, Duration::MAX).await.unwrap();
    let redis = redis.with_deadline(Duration::MAX).unwrap();
    let limit = redis.limit("b", log(1)).unwrap();
    limit.acquire(1).await.unwrap();
    limit.refund(u32::MAX).await.unwrap();
    limit.refund(0).await.unwrap();
    assert_eq!(limit.try_acquire_up_to(u32::MAX).await, Ok(1));
}
