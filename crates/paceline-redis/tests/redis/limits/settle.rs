//! Costs that are known afterwards, in real time.

use std::time::Duration;

use paceline::policy::{All, FixedWindow, PerRequest, SlidingCounter, TokenBucket};
use paceline::time::Rate;
use paceline_redis::{OutagePolicy, Redis, RedisLimiter, RedisPolicy};

use super::{MINUTE, PATIENT, a_minute_of, client, denied, log, passed, pause, redis, wait_of};
use crate::failing;
use crate::servers::Server;

async fn left<P: RedisPolicy>(limit: &RedisLimiter<P>) -> u32 {
    limit.fetch_status().await.unwrap().remaining
}

#[tokio::test]
async fn what_was_not_used_comes_back_and_what_is_missing_is_owed() {
    async fn of<P: RedisPolicy>(redis: &Redis, name: &str, policy: P) {
        let limit = redis.limit(name, policy).unwrap();
        limit.reserve(60).await.unwrap().settle(10).await.unwrap();
        assert_eq!(left(&limit).await, 90, "{name}");
        limit.reserve(20).await.unwrap().settle(50).await.unwrap();
        assert_eq!(left(&limit).await, 40, "{name}");
        let last = limit.reserve(40).await.unwrap();
        assert_eq!(last.estimate(), 40);
        last.settle(90).await.unwrap();
        assert_eq!(left(&limit).await, 0, "{name}");
        denied(limit.try_acquire(1).await);
    }
    let server = Server::start().await;
    let redis = redis(&server).await;
    of(&redis, "bucket", TokenBucket::new(Rate::per_hour(60), 100)).await;
    of(&redis, "log", log(100)).await;
    of(&redis, "fixed", FixedWindow::new(100, MINUTE)).await;
    of(&redis, "strict", SlidingCounter::strict(100, MINUTE, 4)).await;
    of(&redis, "smooth", SlidingCounter::smooth(100, MINUTE)).await;
    assert_eq!(redis.stats().lost_states, 0);
}

#[tokio::test]
async fn a_reservation_that_is_dropped_keeps_its_estimate_and_one_that_would_wait_counts_nothing() {
    let (_server, _redis, limit) = a_minute_of(100).await;
    drop(limit.reserve(40).await.unwrap());
    assert_eq!(left(&limit).await, 60);

    let refused = limit.reserve_within(80, Duration::from_millis(25)).await;
    let refused = refused.unwrap_err();
    assert!(refused.is_too_late());
    assert!(refused.retry_in().unwrap() > MINUTE / 2);
    assert_eq!(left(&limit).await, 60);
    let counted = limit.reserve_within(20, PATIENT).await.unwrap();
    counted.settle(30).await.unwrap();
    assert_eq!(left(&limit).await, 30);
}

#[tokio::test]
async fn a_settlement_and_a_refund_let_a_waiter_of_their_process_pass() {
    for is_settled in [true, false] {
        let (_server, _redis, limit) = a_minute_of(100).await;
        let reserved = limit.reserve(100).await.unwrap();
        let waiter = tokio::spawn({
            let limit = limit.clone();
            async move { limit.acquire(30).await }
        });
        while limit.binding().is_none() {
            pause(Duration::from_millis(1)).await;
        }
        if is_settled {
            reserved.settle(60).await.unwrap();
        } else {
            limit.refund(40).await.unwrap();
        }
        waiter.await.unwrap().unwrap();
        assert_eq!(left(&limit).await, 10);
    }
}

#[tokio::test]
async fn requests_and_tokens_are_one_decision_and_a_settled_request_was_made() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let policy = All::new((PerRequest::new(FixedWindow::new(3, MINUTE)), log(1_000)));
    let limit = redis.limit("model", policy).unwrap();

    limit.reserve(900).await.unwrap().settle(0).await.unwrap();
    // The latest permits are tokens, not requests.
    limit.acquire(700).await.unwrap();
    limit.refund(700).await.unwrap();
    passed(limit.try_acquire(600).await);
    denied(limit.try_acquire(1).await);
    assert_eq!(limit.binding(), Some(0), "three requests were made");

    let other = redis.limit("other", policy).unwrap();
    other.acquire(1_000).await.unwrap();
    denied(other.try_acquire(1).await);
    assert_eq!(other.binding(), Some(1), "no tokens are left");
    assert!(limit.keys()[0].ends_with(":0:requests:fixed_window:2"));
}

#[tokio::test]
async fn requests_cannot_be_taken_ahead_and_a_retune_finds_the_policy_inside() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let limit = redis.limit("a", PerRequest::new(log(9))).unwrap();
    let error = limit.clone().with_prefetch(2, MINUTE).unwrap_err();
    assert!(error.to_string().contains("counts requests"), "{error}");

    // What is taken at once is one request.
    assert_eq!(limit.try_acquire_up_to(500).await, Ok(500));
    assert_eq!(left(&limit).await, 8);
    limit.retune(PerRequest::new(log(20))).await.unwrap();
    assert_eq!(left(&limit).await, 19);
}

#[tokio::test]
async fn a_settlement_that_does_not_reach_the_server_is_an_error() {
    let server = Server::start().await;
    let redis = client(&server.url(), OutagePolicy::open(), PATIENT);
    let limit = redis.limit("a", log(100)).unwrap();
    let [less, more] = [
        limit.reserve(50).await.unwrap(),
        limit.reserve(50).await.unwrap(),
    ];
    drop(server);
    assert!(less.settle(10).await.is_err());
    assert!(more.settle(90).await.is_err());
    // What passes without the server was not counted there.
    let alone = limit.reserve(70).await.unwrap();
    alone.settle(10).await.unwrap();
}

#[tokio::test]
async fn an_insurance_counts_what_is_charged_while_the_server_is_gone() {
    let mut server = Server::start().await;
    let redis = failing::redis(&server.url(), OutagePolicy::insured(1)).await;
    let bucket = TokenBucket::new(Rate::per_second(1_000), 100);
    let limit = redis.limit("a", bucket).unwrap();
    limit.acquire(1).await.unwrap();
    server.freeze();
    failing::notice(&redis, &limit).await;
    // It begins with everything spent.
    while !limit.try_acquire(1).await.unwrap().is_pass() {
        pause(MINUTE / 10_000).await;
    }
    assert!(limit.charge(1_000_000).await.is_err());
    assert!(wait_of(limit.try_acquire(1).await) > MINUTE);
}
