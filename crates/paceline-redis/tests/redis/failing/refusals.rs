use std::future::poll_fn;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use paceline::limiter::Limiter;
use paceline::policy::{Decision, SlidingLog};
use paceline::prelude::*;
use paceline_redis::{OutagePolicy, Redis};

use super::{opened, redis};
use crate::limits::{MINUTE, PATIENT, pause};
use crate::servers::Server;

#[tokio::test]
async fn a_refused_login_is_a_fault_and_no_outage() {
    let server = Server::start().await;
    server
        .cli::<()>(&["CONFIG", "SET", "requirepass", "secret"])
        .await;
    for (user, why) in [
        ("", "NOAUTH"),
        (":wrong@", "authentication"),
        ("bob:wrong@", "authentication"),
    ] {
        let url = server.url().replace("redis://", &format!("redis://{user}"));
        let redis = opened(&url, OutagePolicy::open());
        let limit = redis.limit("a", SlidingLog::new(5, MINUTE)).unwrap();
        for _ in 0..3 {
            let error = limit.try_acquire(1).await.unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            let error = limit.acquire(1).await.unwrap_err();
            assert!(error.limit().is_some(), "{error}");
        }
        let error = redis.connect().await.unwrap_err();
        assert!(error.server_error().is_some(), "{error}");
        let stats = redis.stats();
        assert_eq!((stats.outages, stats.passed_alone), (0, 0), "{stats:?}");
        assert!(stats.faults > 0, "{stats:?}");
        assert!(!redis.is_up());
    }
}

#[tokio::test]
async fn a_missing_database_is_a_fault_and_no_outage() {
    let server = Server::start().await;
    let url = format!("{}/99", server.url());
    let redis = opened(&url, OutagePolicy::open());
    let limit = redis.limit("a", SlidingLog::new(5, MINUTE)).unwrap();
    let error = limit.try_acquire(1).await.unwrap_err().to_string();
    assert!(error.contains("DB index is out of range"), "{error}");
    assert_eq!(redis.stats().passed_alone, 0);
}

#[tokio::test]
async fn a_client_continues_after_its_login_is_accepted() {
    let server = Server::start().await;
    let url = server.url().replace("redis://", "redis://:secret@");
    let redis = opened(&url, OutagePolicy::open());
    let limit = redis.limit("a", SlidingLog::new(5, MINUTE)).unwrap();
    limit.try_acquire(1).await.unwrap_err();
    server
        .cli::<()>(&["CONFIG", "SET", "requirepass", "secret"])
        .await;
    while limit.try_acquire(1).await.is_err() {
        pause(Duration::from_millis(20)).await;
    }
    assert_eq!(redis.stats().outages, 0);
    assert_eq!(redis.stats().lost_states, 0);
}

#[tokio::test]
async fn too_many_clients_are_an_outage_and_are_named() {
    let server = Server::start().await;
    let mut other = server.connection().await.unwrap();
    let limited = redis::cmd("CONFIG")
        .arg(&["SET", "maxclients", "1"])
        .clone();
    let () = limited.query_async(&mut other).await.unwrap();
    for login in ["", ":secret@", "bob:secret@"] {
        let url = server
            .url()
            .replace("redis://", &format!("redis://{login}"));
        let redis = opened(&url, OutagePolicy::open());
        let limit = redis.limit("a", SlidingLog::new(5, MINUTE)).unwrap();
        for _ in 0..5 {
            assert!(limit.try_acquire(1).await.unwrap().is_pass());
        }
        let why = redis.last_failure().unwrap();
        assert!(why.contains("max number of clients"), "{why}");
        assert_eq!(redis.stats().faults, 0, "{why}");
        assert!(redis.connect().await.unwrap_err().server_error().is_none());
    }
    drop(other);
}

#[tokio::test]
async fn a_wait_with_a_time_limit_returns_a_fault() {
    let server = Server::start().await;
    let redis = redis(&server.url(), OutagePolicy::closed()).await;
    let limit = redis.limit("a", SlidingLog::new(5, MINUTE)).unwrap();
    server.cli::<()>(&["RPUSH", &limit.keys()[0], "x"]).await;
    for _ in 0..2 {
        let error = limit.acquire_within(1, PATIENT).await.unwrap_err();
        assert!(error.limit().is_some(), "{error}");
    }
}

/// Before the first permit, and in the middle.
#[tokio::test]
async fn a_stream_that_fails_fast_ends_with_the_fault_and_keeps_its_items() {
    let server = Server::start().await;
    let redis = redis(&server.url(), OutagePolicy::open()).await;
    let wrong = server.url().replace("redis://", "redis://:wrong@");
    let refused = opened(&wrong, OutagePolicy::open());
    let policy = SlidingLog::new(5, MINUTE);

    for (redis, passes) in [(redis, 2), (refused, 0)] {
        let limit = redis.limit("a", policy).unwrap();
        let key = limit.keys()[0].clone();
        let mut paced = stream::iter(0..5).try_pace(limit.fail_fast());
        for item in 0..passes {
            assert_eq!(paced.next().await, Some(Ok(item)));
        }
        server.cli::<()>(&["DEL", &key]).await;
        server.cli::<()>(&["RPUSH", &key, "x"]).await;
        let error = paced.next().await.unwrap().unwrap_err().to_string();
        let why = if passes > 0 {
            "WRONGTYPE"
        } else {
            "authentication"
        };
        assert!(error.contains(why), "{error}");
        assert_eq!(paced.next().await, None);
        let (rest, held) = paced.into_parts();
        assert_eq!(held, Some(passes));
        assert_eq!(rest.collect::<Vec<_>>().await.len(), 4 - passes);
    }
}

#[tokio::test]
async fn a_limit_that_fails_fast_is_else_as_any() {
    let mut server = Server::start().await;
    let redis = redis(&server.url(), OutagePolicy::open()).await;
    let limit = redis.limit("a", SlidingLog::new(3, MINUTE)).unwrap();
    let mut fast = limit.clone().fail_fast();
    for _ in 0..2 {
        let passed = poll_fn(|cx| fast.poll_decide(1, cx)).await;
        assert_eq!(passed, Ok(Decision::Pass));
    }
    assert_eq!(fast.status().map(|status| status.remaining), Some(1));
    let mut other = fast.clone();
    assert!(
        poll_fn(|cx| other.poll_try(2, cx))
            .await
            .unwrap()
            .retry_in()
            > Some(MINUTE / 2)
    );

    // Queued, and out of the queue again.
    assert!(futures::poll!(poll_fn(|cx| fast.poll_decide(3, cx))).is_pending());
    fast.give_up();
    assert_eq!(limit.try_acquire(1).await, Ok(Decision::Pass));

    server.kill();
    let passed = stream::iter(0..20).try_pace(fast).try_collect::<Vec<_>>();
    assert_eq!(passed.await.unwrap().len(), 20, "an outage is no fault");
}

#[test]
fn a_malformed_address_is_refused_without_its_password() {
    for url in ["http://bob:hunter2@example.org", "redis://bob:hunter2@"] {
        let Err(error) = Redis::open(url, OutagePolicy::closed()) else {
            continue;
        };
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
    let redis = Redis::open("redis://bob:hunter2@127.0.0.1/", OutagePolicy::closed()).unwrap();
    let limit = redis.limit("a", SlidingLog::new(5, MINUTE)).unwrap();
    assert!(!format!("{redis:?} {limit:?}").contains("hunter2"));
}
