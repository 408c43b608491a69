use std::time::Duration;

use futures::{StreamExt, stream};
use paceline::policy::{Decision, SlidingLog, TokenBucket};
use paceline::prelude::*;
use paceline::time::Rate;
use paceline_redis::{OutagePolicy, Redis, RedisLimiter, RedisPolicy};

use super::{hasty, opened, redis, until_down, until_up};
use crate::limits::{MINUTE, Passed, pause};
use crate::servers::{Cut, Relay, Server};

/// Asks until the client notices the outage.
async fn notice<P: RedisPolicy>(redis: &Redis, limit: &RedisLimiter<P>) {
    while redis.is_up() {
        let _ = limit.try_acquire(1).await;
    }
}

#[tokio::test]
async fn closed_passes_nothing_until_redis_is_back() {
    let mut server = Server::start().await;
    let redis = redis(&server.url(), OutagePolicy::closed()).await;
    let limit = redis.limit("a", SlidingLog::new(1_000, MINUTE)).unwrap();
    limit.acquire(1).await.unwrap();

    server.kill();
    for _ in 0..100 {
        let Ok(Decision::Wait { retry_in }) = limit.try_acquire(1).await else {
            panic!("something passed");
        };
        assert!(retry_in > Duration::ZERO);
    }
    let mut waiting = Box::pin(limit.acquire(1));
    assert!(futures::poll!(waiting.as_mut()).is_pending());
    pause(Duration::from_millis(300)).await;
    assert!(futures::poll!(waiting.as_mut()).is_pending());
    assert_eq!(redis.stats().outages, 1);
    assert_eq!(redis.stats().passed_alone, 0);
    assert!(redis.last_failure().is_some());

    server.start_again().await;
    until_up(&redis).await;
    // The restarted server does not know what was spent before.
    drop(waiting);
    assert!(!limit.try_acquire(1).await.unwrap().is_pass());
    assert_eq!(redis.stats().lost_states, 1);
}

#[tokio::test]
async fn open_passes_everything_and_counts_it() {
    let mut server = Server::start().await;
    let redis = redis(&server.url(), OutagePolicy::open()).await;
    let limit = redis.limit("a", SlidingLog::new(1, MINUTE)).unwrap();
    limit.acquire(1).await.unwrap();

    server.kill();
    assert_eq!(stream::iter(0..500).pace(limit.clone()).count().await, 500);
    for _ in 0..500 {
        assert_eq!(limit.try_acquire(1).await, Ok(Decision::Pass));
    }
    assert_eq!(limit.try_acquire_up_to(7).await, Ok(7));
    assert!(redis.stats().passed_alone >= 1_000, "{:?}", redis.stats());
}

#[tokio::test]
async fn a_stream_continues_when_a_killed_server_is_back() {
    let mut server = Server::start().await;
    let redis = hasty(&server.url(), OutagePolicy::closed()).await;
    let window = Duration::from_millis(200);
    let limit = redis.limit("a", SlidingLog::new(5, window)).unwrap();

    let mut paced = stream::iter(0..30).pace(limit);
    let mut passed = Passed::default();
    for item in 0..30 {
        if item == 8 {
            server.kill();
            server.start_again().await;
        }
        assert_eq!(paced.next().await, Some(item));
        passed.note();
    }
    assert!(
        passed.most_in(window.saturating_sub(Duration::from_millis(100))) <= 5,
        "{passed:?}"
    );
}

#[tokio::test]
async fn a_frozen_server_is_detected_and_so_is_its_return() {
    let mut server = Server::start().await;
    let redis = redis(&server.url(), OutagePolicy::open()).await;
    let limit = redis.limit("a", SlidingLog::new(1_000, MINUTE)).unwrap();
    limit.acquire(1).await.unwrap();

    server.freeze();
    notice(&redis, &limit).await;
    assert!(redis.stats().timeouts >= 3, "{:?}", redis.stats());
    let skipped = redis.stats().skipped;
    assert_eq!(limit.try_acquire(1).await, Ok(Decision::Pass));
    assert!(
        redis.stats().skipped > skipped,
        "nobody asks a server that is known to be down"
    );

    server.thaw();
    until_up(&redis).await;
    let answered = redis.stats().answered;
    assert_eq!(limit.try_acquire(1).await, Ok(Decision::Pass));
    assert_eq!(redis.stats().answered, answered + 1);
    assert_eq!(
        redis.stats().lost_states,
        0,
        "it is the same run of the server"
    );
}

#[tokio::test]
async fn a_bucket_does_not_fill_while_other_insurances_may_be_in_use() {
    let mut server = Server::start().await;
    let redis = redis(&server.url(), OutagePolicy::insured(2)).await;
    let limit = redis
        .limit("a", TokenBucket::new(Rate::per_second(1), 10))
        .unwrap();
    assert_eq!(limit.try_acquire_up_to(10).await, Ok(10));

    server.freeze();
    notice(&redis, &limit).await;
    pause(Duration::from_secs(4)).await;
    server.thaw();
    until_up(&redis).await;
    // It fills until the outage is noticed, for about half a second. With the outage it would be six seconds.
    let there = limit.try_acquire_up_to(10).await.unwrap();
    assert!(there <= 2, "{there}");
}

#[tokio::test]
async fn a_refused_first_connection_is_an_outage() {
    let mut server = Server::start().await;
    server.kill();
    let redis = opened(&server.url(), OutagePolicy::closed());
    let limit = redis
        .limit("a", SlidingLog::new(5, Duration::from_millis(100)))
        .unwrap();

    assert!(!limit.try_acquire(1).await.unwrap().is_pass());
    until_down(&redis).await;
    let error = redis.connect().await.unwrap_err().to_string();
    assert!(error.contains("refused"), "{error}");
    server.start_again().await;
    limit.acquire(1).await.unwrap();
    assert_eq!(redis.stats().connects, 1);
}

#[tokio::test]
async fn a_network_that_drops_everything_is_detected() {
    let server = Server::start().await;
    let relay = Relay::start(server.address());
    let redis = redis(&relay.url(), OutagePolicy::closed()).await;
    let limit = redis.limit("a", SlidingLog::new(1_000, MINUTE)).unwrap();
    limit.acquire(1).await.unwrap();

    relay.cut(Cut::BlackHole).await;
    notice(&redis, &limit).await;
    relay.mend().await;
    limit.acquire(1).await.unwrap();
    assert_eq!(redis.stats().outages, 1);
}
