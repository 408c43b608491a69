use std::time::Duration;

use paceline::policy::{Decision, SlidingLog};
use paceline::redis::{OutagePolicy, Redis};

use super::{DEADLINE, hasty, opened, redis, until_up};
use crate::limits::{MINUTE, counted_in, pause};
use crate::servers::{Relay, Server};

#[tokio::test]
async fn a_slow_server_is_down_until_it_is_fast_again() {
    let server = Server::start().await;
    let relay = Relay::start(server.address());
    let redis = hasty(&relay.url(), OutagePolicy::open()).await;
    let limit = redis.limit("a", SlidingLog::new(1_000, MINUTE)).unwrap();

    relay.delay_replies(Duration::from_millis(80)).await;
    for _ in 0..20 {
        assert_eq!(limit.try_acquire(1).await, Ok(Decision::Pass));
    }
    assert!(!redis.is_up());
    assert!(redis.stats().timeouts >= 3, "{:?}", redis.stats());
    // Connections can be opened, but the server is too slow to be used.
    pause(Duration::from_millis(300)).await;
    assert!(!redis.is_up());

    relay.delay_replies(Duration::ZERO).await;
    until_up(&redis).await;
    assert_eq!(limit.try_acquire(1).await, Ok(Decision::Pass));
}

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
async fn queued_requests_are_answered_at_their_deadline() {
    let server = Server::start().await;
    let relay = Relay::start(server.address());
    let redis = redis(&relay.url(), OutagePolicy::closed()).await;
    let limit = redis.limit("a", SlidingLog::new(1_000, MINUTE)).unwrap();
    limit.acquire(1).await.unwrap();

    relay.drop_replies(true).await;
    // Some requests are made while others are in flight. None of them hangs.
    let asking = (0..30).map(|number| {
        let limit = limit.clone();
        async move {
            pause(DEADLINE / 20 * number).await;
            limit.try_acquire(1).await
        }
    });
    for answer in futures::future::join_all(asking).await {
        assert!(!answer.unwrap().is_pass());
    }
    assert!(redis.stats().timeouts >= 1, "{:?}", redis.stats());
    assert_eq!(redis.stats().passed_alone, 0);
}

#[tokio::test]
async fn a_single_late_answer_is_no_outage() {
    let server = Server::start().await;
    let relay = Relay::start(server.address());
    let redis = redis(&relay.url(), OutagePolicy::closed()).await;
    let limit = redis.limit("a", SlidingLog::new(1_000, MINUTE)).unwrap();
    limit.acquire(1).await.unwrap();

    relay.delay_replies(DEADLINE * 3 / 2).await;
    let _ = limit.try_acquire(1).await;
    relay.delay_replies(Duration::ZERO).await;
    limit.acquire(1).await.unwrap();
    assert_eq!(redis.stats().outages, 0);
    assert_eq!(redis.stats().connects, 1);
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

#[tokio::test]
async fn a_distant_server_works_with_a_long_deadline() {
    let server = Server::start().await;
    let relay = Relay::start(server.address());
    let redis = redis(&relay.url(), OutagePolicy::closed()).await;
    let redis = redis.with_deadline(crate::limits::PATIENT).unwrap();
    let limit = redis.limit("a", SlidingLog::new(10, MINUTE)).unwrap();

    // Longer than the 100 ms after which a permit is void.
    relay.delay_replies(Duration::from_millis(150)).await;
    limit.acquire(1).await.unwrap();
    limit.acquire(1).await.unwrap();
    assert_eq!(redis.stats().answered, 2);
}

#[tokio::test]
async fn a_server_that_needs_most_of_the_deadline_can_be_used() {
    let server = Server::start().await;
    let relay = Relay::start(server.address());
    relay.delay_replies(DEADLINE * 3 / 5).await;
    let redis = opened(&relay.url(), OutagePolicy::closed());
    until_up(&redis).await;

    let limit = redis.limit("a", SlidingLog::new(10, MINUTE)).unwrap();
    limit.acquire(1).await.unwrap();
    assert_eq!(redis.stats().outages, 0, "{:?}", redis.last_failure());
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
                limits.try_acquire(&format!("{key}"), 1).await
            }
        });
        futures::future::join_all(asking).await;
        if redis.stats().answered == before + 32 {
            return;
        }
    }
}
