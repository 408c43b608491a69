//! A request for any of several limits.

use std::time::Duration;

use futures::future::join_all;
use futures::poll;
use paceline::policy::SlidingLog;
use paceline_redis::{OutagePolicy, RedisLimiter};

use super::{MINUTE, a_minute_of, counted_in, log, pause, redis};
use crate::failing::{a_minute_of as hasty_minute_of, notice};
use crate::servers::Server;

/// How many permits the server has counted for the limit.
async fn counted(server: &Server, limit: &RedisLimiter<SlidingLog>) -> u64 {
    counted_in(server, &limit.keys()[0]).await
}

#[tokio::test]
async fn requests_at_once_take_each_permit_of_two_keys_once() {
    let (server, redis, slow) = a_minute_of(3).await;
    let quick = redis.limit("quick", log(7)).unwrap();
    let limits = [slow.clone(), quick.clone()];
    let requests = (0..10).map(|_| RedisLimiter::acquire_any(&limits, 1));
    let passed = join_all(requests).await;
    let second = passed
        .iter()
        .filter(|number| *number.as_ref().unwrap() == 1);
    assert_eq!(second.count(), 7);
    assert_eq!(
        (
            counted(&server, &slow).await,
            counted(&server, &quick).await
        ),
        (3, 7)
    );
    for limit in &limits {
        assert_eq!(limit.fetch_status().await.unwrap().remaining, 0);
    }
}

#[tokio::test]
async fn a_request_waits_for_the_quick_one_of_two_servers() {
    let (one, _, slow) = a_minute_of(1).await;
    let other = Server::start().await;
    let window = Duration::from_millis(100);
    let quick = redis(&other).await.limit("a", SlidingLog::new(1, window));
    let limits = [slow.clone(), quick.unwrap()];
    let before = other.time_us().await;
    let mut numbers = Vec::new();
    for _ in 0..4 {
        numbers.push(RedisLimiter::acquire_any(&limits, 1).await.unwrap());
    }
    assert_eq!(numbers, [0, 1, 1, 1]);
    let took = other.time_us().await - before;
    assert!(took >= 200_000, "{took} µs");
    assert_eq!(counted(&one, &slow).await, 1);
}

#[tokio::test]
async fn a_dropped_request_leaves_no_permit_at_any_limit() {
    let (server, redis, one) = a_minute_of(1).await;
    let other = redis.limit("other", log(1)).unwrap();
    let limits = [one.clone(), other.clone()];
    one.acquire(1).await.unwrap();
    {
        let mut dropped = Box::pin(RedisLimiter::acquire_any(&limits, 1));
        assert!(poll!(&mut dropped).is_pending());
    }
    // What was asked is given back.
    while other.fetch_status().await.unwrap().remaining == 0 {
        pause(Duration::from_millis(1)).await;
    }
    assert_eq!(RedisLimiter::acquire_any(&limits, 1).await.unwrap(), 1);
    let waits = RedisLimiter::acquire_any(&limits, 1);
    let waits = tokio::time::timeout(Duration::from_millis(20), waits);
    assert!(waits.await.is_err());
    assert_eq!(
        (counted(&server, &one).await, counted(&server, &other).await),
        (1, 1)
    );
}

#[tokio::test]
async fn where_one_server_is_gone_the_other_is_asked() {
    let (mut gone, down, first) = hasty_minute_of(5, OutagePolicy::closed()).await;
    let (server, _, second) = a_minute_of(5).await;
    let limits = [first.clone(), second.clone()];
    assert_eq!(RedisLimiter::acquire_any(&limits, 1).await.unwrap(), 0);
    gone.kill();
    notice(&down, &first).await;
    for _ in 0..3 {
        assert_eq!(RedisLimiter::acquire_any(&limits, 1).await.unwrap(), 1);
    }
    assert_eq!(counted(&server, &second).await, 3);
}

#[tokio::test]
async fn where_one_server_refuses_the_other_is_asked_and_where_both_do_it_is_an_error() {
    let (server, redis, first) = a_minute_of(5).await;
    let second = redis
        .limit("other", SlidingLog::new(5, 2 * MINUTE))
        .unwrap();
    let limits = [first.clone(), second.clone()];
    server.cli::<()>(&["SET", &first.keys()[0], "x"]).await;
    assert_eq!(RedisLimiter::acquire_any(&limits, 1).await.unwrap(), 1);
    server.cli::<()>(&["DEL", &second.keys()[0]]).await;
    server.cli::<()>(&["RPUSH", &second.keys()[0], "x"]).await;
    let error = RedisLimiter::acquire_any(&limits, 1).await.unwrap_err();
    let why = error.limit().expect("a fault").to_string();
    assert!(why.contains("WRONGTYPE"), "{why}");
}

#[test]
#[should_panic(expected = "any of several limits needs at least 1, got 0")]
fn no_limit_at_all_is_a_mistake() {
    drop(RedisLimiter::<SlidingLog>::acquire_any(&[], 1));
}
