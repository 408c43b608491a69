use std::time::Duration;

use paceline::policy::SlidingLog;
use paceline_redis::{OutagePolicy, Redis};

use super::{DEADLINE, redis, until_up};
use crate::limits::{MINUTE, counted_in, pause};
use crate::servers::{Relay, Server};

#[tokio::test]
async fn a_call_with_a_lost_reply_is_counted_once_and_not_repeated() {
    let server = Server::start().await;
    let relay = Relay::start(server.address());
    let redis = redis(&relay.url(), OutagePolicy::closed()).await;
    let limit = redis.limit("a", SlidingLog::new(10, MINUTE)).unwrap();
    limit.acquire(1).await.unwrap();
    let key = &limit.keys()[0];

    relay.drop_replies(true).await;
    assert!(!limit.try_acquire(2).await.unwrap().is_pass());
    relay.drop_replies(false).await;
    pause(Duration::from_millis(50)).await;
    until_up(&redis).await;
    // The two permits were charged once, and the reply was lost.
    assert_eq!(counted_in(&server, key).await, 1 + 2);
}

#[tokio::test]
async fn a_deadline_below_a_millisecond_is_refused() {
    let redis = Redis::open("redis://127.0.0.1/", OutagePolicy::closed()).unwrap();
    let error = redis.with_deadline(Duration::from_micros(999)).unwrap_err();
    assert_eq!(error.to_string(), "a deadline is at least 1 ms, got 999µs");
}

#[tokio::test]
async fn a_permit_is_void_if_its_answer_is_read_late() {
    let server = Server::start().await;
    let redis = redis(&server.url(), OutagePolicy::closed()).await;
    let limit = redis.limit("a", SlidingLog::new(10, MINUTE)).unwrap();
    limit.acquire(1).await.unwrap();
    let spent = async || counted_in(&server, &limit.keys()[0]).await;
    assert_eq!(spent().await, 1);

    // The request is sent; then the process is suspended, and the reply waits in its socket.
    let mut asking = Box::pin(limit.acquire(1));
    while spent().await == 1 {
        assert!(futures::poll!(asking.as_mut()).is_pending());
        tokio::task::yield_now().await;
    }
    assert_eq!(spent().await, 2);
    let mut again = Box::pin(limit.acquire(1));
    while spent().await == 2 {
        assert!(futures::poll!(again.as_mut()).is_pending());
        tokio::task::yield_now().await;
        // Longer than the deadline and the 100 ms after which a permit is void.
        std::thread::sleep(DEADLINE + Duration::from_millis(200));
    }
    again.await.unwrap();
    assert_eq!(
        spent().await,
        3,
        "one was counted, came too late and was returned; one passed"
    );
}

/// With Nagle's algorithm a request would wait for the reply to the one before, and so for longer than the deadline.
#[tokio::test]
async fn requests_are_sent_without_waiting_for_earlier_ones_to_be_acknowledged() {
    let server = Server::start().await;
    let relay = Relay::start(server.address());
    let redis = Redis::open(&relay.url(), OutagePolicy::closed()).unwrap();
    let redis = redis.with_deadline(Duration::from_millis(30)).unwrap();
    let limits = redis.keyed("a", SlidingLog::new(1_000, MINUTE)).unwrap();

    // A busy machine misses the deadline in some rounds: one round in which all requests are in time is enough.
    loop {
        relay.delay_replies(Duration::ZERO).await;
        until_up(&redis).await;
        relay.delay_replies(Duration::from_millis(20)).await;
        let before = redis.stats().answered;
        let asking = (0..32).map(|key| {
            let limits = limits.clone();
            async move {
                pause(Duration::from_millis(2) * key).await;
                limits.at(&format!("{key}")).unwrap().try_acquire(1).await
            }
        });
        futures::future::join_all(asking).await;
        if redis.stats().answered == before + 32 {
            return;
        }
    }
}
