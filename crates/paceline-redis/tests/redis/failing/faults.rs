use paceline::policy::{Decision, SlidingLog, TokenBucket};
use paceline::time::Rate;
use paceline_redis::{OutagePolicy, Redis};

use super::{opened, redis, until_up};
use crate::limits::MINUTE;
use crate::servers::Server;

#[tokio::test]
async fn a_key_of_another_type_is_an_error_and_no_outage() {
    let server = Server::start().await;
    let redis = redis(&server.url(), OutagePolicy::open()).await;
    let log = redis.limit("a", SlidingLog::new(5, MINUTE)).unwrap();
    let bucket = redis
        .limit("a", TokenBucket::new(Rate::per_second(5), 5))
        .unwrap();
    for key in [&log.keys()[0], &bucket.keys()[0]] {
        server.cli::<()>(&["RPUSH", key, "x"]).await;
    }

    for _ in 0..5 {
        let error = log.try_acquire(1).await.unwrap_err().to_string();
        assert!(error.contains("WRONGTYPE"), "{error}");
        let error = bucket.acquire(1).await.unwrap_err();
        let error = error.limit().expect("a server error").to_string();
        assert!(error.contains("WRONGTYPE"), "{error}");
    }
    let stats = redis.stats();
    assert_eq!((stats.outages, stats.passed_alone), (0, 0));
    assert!(stats.faults >= 2, "{stats:?}");
    assert!(redis.is_up());
}

#[tokio::test]
async fn a_missing_password_is_reported() {
    let server = Server::start().await;
    server
        .cli::<()>(&["CONFIG", "SET", "requirepass", "secret"])
        .await;
    let redis = opened(&server.url(), OutagePolicy::closed());
    let limit = redis.limit("a", SlidingLog::new(5, MINUTE)).unwrap();

    assert!(limit.try_acquire(1).await.is_err());
    let failure = redis.last_failure().unwrap();
    assert!(failure.contains("NOAUTH"), "{failure}");
    let url = server.url().replace("redis://", "redis://:secret@");
    let redis = opened(&url, OutagePolicy::closed());
    until_up(&redis).await;
    assert_eq!(
        redis
            .limit("a", SlidingLog::new(5, MINUTE))
            .unwrap()
            .try_acquire(1)
            .await,
        Ok(Decision::Pass)
    );
}

#[tokio::test]
async fn a_server_out_of_memory_is_an_outage_and_no_fault() {
    let server =
        Server::start_with(&["--maxmemory", "1", "--maxmemory-policy", "noeviction"]).await;
    let redis = redis(&server.url(), OutagePolicy::open()).await;
    let limit = redis.limit("a", SlidingLog::new(5, MINUTE)).unwrap();

    for _ in 0..10 {
        assert_eq!(limit.try_acquire(1).await, Ok(Decision::Pass));
    }
    assert!(
        redis.stats().unavailable >= 3,
        "{:?} {:?}",
        redis.stats(),
        redis.last_failure()
    );
    assert_eq!(redis.stats().faults, 0);
}

#[test]
fn a_malformed_address_is_named_in_the_error() {
    let error = Redis::open("http://example.org", OutagePolicy::closed())
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("\"http://example.org\" is no URL of a Redis server"),
        "{error}"
    );
}

#[test]
fn an_insurance_for_more_replicas_than_permits_is_refused() {
    let redis = Redis::open("redis://127.0.0.1/", OutagePolicy::insured(6)).unwrap();
    let error = redis
        .limit("a", SlidingLog::new(5, MINUTE))
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "a limit of 5 cannot be divided among 6 replicas: each needs at least 1"
    );
}

#[test]
#[should_panic(expected = "an insurance needs at least 1 replica, got 0")]
fn an_insurance_for_no_replicas_is_refused() {
    let _ = OutagePolicy::insured(0);
}
