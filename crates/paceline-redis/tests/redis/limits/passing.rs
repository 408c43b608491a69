use std::time::Duration;

use paceline::policy::{
    All, Decision, FixedWindow, Interval, SlidingCounter, SlidingLog, TokenBucket,
};
use paceline::time::Rate;
use paceline_redis::{OutagePolicy, Redis, RedisLimiter};

use super::{MINUTE, counted_in, pause, redis, wait_of};
use crate::servers::Server;

#[tokio::test]
async fn every_policy_passes_its_limit_and_no_more() {
    let server = Server::start().await;
    let redis = redis(&server).await;

    macro_rules! passes {
        ($policy:expr, $most:expr) => {
            let limit = redis.limit("a", $policy).unwrap();
            for _ in 0..$most {
                assert_eq!(limit.try_acquire(1).await, Ok(Decision::Pass));
            }
            let retry_in = wait_of(limit.try_acquire(1).await);
            assert!(
                retry_in <= 2 * MINUTE && retry_in > MINUTE / 2,
                "{retry_in:?}"
            );
        };
    }
    passes!(TokenBucket::new(Rate::per_minute(1), 3), 3);
    passes!(SlidingLog::new(3, MINUTE), 3);
    passes!(SlidingCounter::strict(3, MINUTE, 4), 3);
    passes!(FixedWindow::new(3, MINUTE), 3);
    passes!(
        All::new((SlidingLog::new(3, MINUTE), FixedWindow::new(9, MINUTE))),
        3
    );
    let redis = redis.with_prefix("other").unwrap();
    let limit = redis.limit("a", Interval::every(MINUTE)).unwrap();
    assert_eq!(limit.try_acquire(1).await, Ok(Decision::Pass));
    assert!(wait_of(limit.try_acquire(1).await) > MINUTE / 2);
    let smooth = redis.limit("a", SlidingCounter::smooth(3, MINUTE)).unwrap();
    for _ in 0..3 {
        assert_eq!(smooth.try_acquire(1).await, Ok(Decision::Pass));
    }
    assert!(wait_of(smooth.try_acquire(1).await) > MINUTE / 2);
    assert_eq!(redis.stats().lost_states, 0);
}

#[tokio::test]
async fn costs_of_zero_and_above_the_limit_need_no_round_trip() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let limit = redis.limit("a", SlidingLog::new(3, MINUTE)).unwrap();

    assert_eq!(limit.try_acquire(0).await, Ok(Decision::Pass));
    assert_eq!(
        limit.try_acquire(4).await,
        Ok(Decision::Never { capacity: 3 })
    );
    let error = limit.acquire(4).await.unwrap_err();
    assert!(error.is_too_costly());
    assert_eq!(
        error.to_string(),
        "a cost of 4 can never pass a limit of 3 at once"
    );
    assert_eq!(redis.stats().answered, 0);
}

#[tokio::test]
async fn a_refund_wakes_the_waiters_of_its_process() {
    const HOUR: Duration = Duration::from_secs(3_600);
    let server = Server::start().await;
    let redis = redis(&server).await;
    let limit = redis.limit("a", SlidingLog::new(1, HOUR)).unwrap();
    limit.acquire(1).await.unwrap();
    let waiter = limit.clone();
    let waiting = tokio::spawn(async move { waiter.acquire(1).await });
    while limit.binding().is_none() {
        pause(Duration::from_millis(1)).await;
    }
    limit.refund(1).await.unwrap();
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_peek_counts_nothing_and_a_refund_gives_back() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let limit = redis.limit("a", SlidingLog::new(3, MINUTE)).unwrap();

    assert_eq!(limit.peek(3).await, Ok(Decision::Pass));
    assert_eq!(limit.try_acquire(3).await, Ok(Decision::Pass));
    assert!(wait_of(limit.peek(1).await) > MINUTE / 2);
    assert!(wait_of(limit.try_acquire(1).await) > MINUTE / 2);
    limit.refund(2).await.unwrap();
    assert_eq!(limit.try_acquire(2).await, Ok(Decision::Pass));
    assert!(wait_of(limit.try_acquire(1).await) > MINUTE / 2);
}

#[tokio::test]
async fn all_available_permits_can_be_taken_at_once() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let limit = redis
        .limit("a", TokenBucket::new(Rate::per_minute(1), 5))
        .unwrap();

    assert_eq!(limit.try_acquire_up_to(3).await, Ok(3));
    assert_eq!(limit.try_acquire_up_to(9).await, Ok(2));
    assert_eq!(limit.try_acquire_up_to(9).await, Ok(0));
    assert_eq!(limit.try_acquire_up_to(0).await, Ok(0));
}

#[tokio::test]
async fn several_limits_are_charged_together_or_not_at_all_and_the_binding_one_is_named() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let policy = All::new((
        SlidingLog::new(9, MINUTE),
        SlidingLog::new(2, Duration::from_secs(50)),
    ));
    let limit = redis.limit("a", policy).unwrap();

    assert_eq!(limit.binding(), None);
    for _ in 0..2 {
        assert_eq!(limit.try_acquire(1).await, Ok(Decision::Pass));
    }
    for _ in 0..9 {
        assert!(wait_of(limit.try_acquire(1).await) <= Duration::from_secs(50));
    }
    assert_eq!(limit.binding(), Some(1));
    let [log, _] = limit.keys() else {
        panic!("{:?}", limit.keys())
    };
    assert_eq!(counted_in(&server, log).await, 2);
}

#[tokio::test]
async fn keys_share_nothing_and_similar_names_are_different_keys() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let keyed = redis.keyed("users", SlidingLog::new(1, MINUTE)).unwrap();

    for key in [
        "bob",
        "bob ",
        "{bob}",
        "bob:sliding_log:2",
        "böb",
        "%20",
        "a/b",
    ] {
        assert_eq!(
            keyed.at(key).unwrap().try_acquire(1).await,
            Ok(Decision::Pass),
            "{key}"
        );
        assert!(wait_of(keyed.at(key).unwrap().try_acquire(1).await) > MINUTE / 2);
    }
    assert_eq!(keyed.remembered(), 7);
    let error = keyed.at("").unwrap_err().to_string();
    assert_eq!(error, "a key of a limit in Redis has 1 to 200 bytes, got 0");
}

#[test]
fn different_names_never_share_a_key() {
    let redis = Redis::open("redis://127.0.0.1/", OutagePolicy::closed()).unwrap();
    let under = |prefix| redis.clone().with_prefix(prefix).unwrap();
    let log = SlidingLog::new(1, MINUTE);
    let key = |limit: RedisLimiter<SlidingLog>| limit.keys()[0].clone();

    let keys = [
        key(redis.limit("bob", log).unwrap()),
        key(under("paceline:users").limit("bob", log).unwrap()),
        key(redis.keyed("users", log).unwrap().at("bob").unwrap()),
        key(under("a:b").keyed("c", log).unwrap().at("bob").unwrap()),
        key(under("a").keyed("b:c", log).unwrap().at("bob").unwrap()),
    ];
    assert_eq!(
        keys,
        [
            "paceline:{bob}:sliding_log:2",
            "paceline%3Ausers:{bob}:sliding_log:2",
            "paceline:users:{bob}:sliding_log:2",
            "a%3Ab:c:{bob}:sliding_log:2",
            "a:b%3Ac:{bob}:sliding_log:2",
        ]
    );
    let longest = "x".repeat(200);
    let keyed = under(&longest).keyed(&longest, log).unwrap();
    assert!(keyed.at(&longest).is_ok());
    for refused in [redis.keyed("", log), redis.keyed(&"x".repeat(201), log)] {
        let error = refused.unwrap_err().to_string();
        assert!(error.starts_with("a name of a limit in Redis has 1 to 200 bytes, got "));
    }
}

#[tokio::test]
async fn idle_keys_are_evicted_and_keys_in_use_never_are() {
    const MANY: usize = 100_000;
    let server = Server::start().await;
    let redis = redis(&server).await;
    let keyed = redis.keyed("users", SlidingLog::new(1, MINUTE)).unwrap();

    let mut held: Vec<_> = (0..MANY)
        .map(|key| keyed.at(&key.to_string()).unwrap())
        .collect();
    for key in ["one more", "and another"] {
        assert_eq!(
            keyed.at(key).unwrap().try_acquire(1).await,
            Ok(Decision::Pass)
        );
        assert!(wait_of(keyed.at(key).unwrap().try_acquire(1).await) > MINUTE / 2);
    }
    assert_eq!(keyed.remembered(), MANY);
    held.truncate(10);
    // Keys are evicted only now and then.
    for key in 0..1_000 {
        let _ = keyed.at(&format!("new {key}")).unwrap();
    }
    assert!(keyed.remembered() < 1_100, "{}", keyed.remembered());
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
    let server = Server::start().await;
    let redis = redis(&server).await;
    let limit = redis.limit("a", SlidingLog::new(2, MINUTE)).unwrap();

    limit.acquire_within(1, MINUTE).await.unwrap();
    let error = limit
        .acquire_within(2, Duration::from_secs(1))
        .await
        .unwrap_err();
    assert!(error.is_too_late());
    assert_eq!(error.to_string(), "could not pass within 1s");
    let retry_in = error.retry_in().unwrap();
    assert!((MINUTE / 2..=MINUTE).contains(&retry_in), "{retry_in:?}");
    let trips = redis.stats().answered;
    let error = limit
        .acquire_within(2, Duration::from_secs(20))
        .await
        .unwrap_err();
    assert!(error.is_too_late());
    assert!(error.retry_in().unwrap() > MINUTE / 2);
    assert_eq!(redis.stats().answered, trips, "it was known");
    assert_eq!(limit.try_acquire(1).await, Ok(Decision::Pass));
    let error = limit.acquire_within(3, MINUTE).await.unwrap_err();
    assert!(error.is_too_costly());
    assert_eq!(error.retry_in(), None);
}
