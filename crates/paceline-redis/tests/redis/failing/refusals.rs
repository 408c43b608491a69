use std::future::poll_fn;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use paceline::limiter::Limiter;
use paceline::prelude::*;
use paceline_redis::{OutagePolicy, Redis};

use super::{a_minute_of, lock, opened, redis};
use crate::limits::{denied, log, passed, pause};
use crate::servers::Server;

#[tokio::test]
async fn a_refused_login_or_a_missing_database_is_a_fault_and_no_outage() {
    let server = Server::start().await;
    lock(&server).await;
    for (login, database, why) in [
        ("", "", "NOAUTH"),
        (":wrong@", "", "authentication"),
        ("bob:wrong@", "", "authentication"),
        (":secret@", "/99", "DB index is out of range"),
    ] {
        let url = server
            .url()
            .replace("redis://", &format!("redis://{login}"));
        let redis = opened(&(url + database), OutagePolicy::open());
        let limit = redis.limit("a", log(5)).unwrap();
        for _ in 0..3 {
            let error = limit.try_acquire(1).await.unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            let error = limit.acquire(1).await.unwrap_err();
            assert!(error.limit().is_some(), "{error}");
        }
        let error = redis.connect().await.unwrap_err();
        assert!(error.server_error().is_some(), "{error}");
        let failure = redis.last_failure().unwrap();
        assert!(failure.contains(why), "{failure}");
        let stats = redis.stats();
        assert_eq!((stats.outages, stats.passed_alone), (0, 0), "{stats:?}");
        assert!(stats.faults > 0, "{stats:?}");
        assert!(!redis.is_up());
    }
}

#[tokio::test]
async fn a_client_continues_after_its_login_is_accepted() {
    let server = Server::start().await;
    let url = server.url().replace("redis://", "redis://:secret@");
    let redis = opened(&url, OutagePolicy::open());
    let limit = redis.limit("a", log(5)).unwrap();
    limit.try_acquire(1).await.unwrap_err();
    lock(&server).await;
    while limit.try_acquire(1).await.is_err() {
        pause(Duration::from_millis(20)).await;
    }
    let stats = redis.stats();
    assert_eq!((stats.outages, stats.lost_states), (0, 0), "{stats:?}");
}

/// A key has another type; the user `bob` may not run scripts, and `eve` not a command in one of them.
#[tokio::test]
async fn where_faults_let_pass_any_fault_does_by_key_too_and_is_counted() {
    let server = Server::start().await;
    for user in [
        "bob on >x ~* +@all -evalsha -eval",
        "eve on >x ~* +@all -set",
    ] {
        let rules = format!("ACL SETUSER {user}");
        server
            .cli::<()>(&rules.split(' ').collect::<Vec<_>>())
            .await;
    }
    for (login, why) in [
        ("", "WRONGTYPE"),
        ("bob:x@", "NoPerm"),
        ("eve:x@", "script"),
        ("eve:wrong@", "authentication"),
    ] {
        let url = server
            .url()
            .replace("redis://", &format!("redis://{login}"));
        let always_open = opened(&url, OutagePolicy::always_open());
        // It is the same connection.
        let open = always_open.clone().when_down(OutagePolicy::open());
        for is_by_key in [false, true] {
            let limit = |redis: &Redis| {
                if is_by_key {
                    return redis.keyed("a", log(5)).unwrap().at("a").unwrap();
                }
                redis.limit("a", log(5)).unwrap()
            };
            let before = always_open.stats();
            let (limit, returns) = (limit(&always_open), limit(&open));
            match login {
                "" => server.cli::<()>(&["SET", &limit.keys()[0], "x"]).await,
                _ => server.cli::<()>(&["DEL", &limit.keys()[0]]).await,
            }
            for _ in 0..3 {
                passed(limit.try_acquire(1).await);
                limit.acquire(1).await.unwrap();
                let error = returns.try_acquire(1).await.unwrap_err().to_string();
                assert!(error.contains(why), "{error}");
            }
            let paced = stream::iter(0..20).try_pace(limit.clone().fail_fast());
            assert_eq!(paced.try_collect::<Vec<_>>().await.unwrap().len(), 20);
            let stats = always_open.stats();
            assert_eq!(stats.passed_alone - before.passed_alone, 26, "{why}");
            assert!(stats.faults - before.faults >= 26, "{why}: {stats:?}");
            assert_eq!(stats.outages, 0, "{why}");
        }
    }
}

#[tokio::test]
async fn too_many_clients_are_an_outage_and_are_named() {
    let server = Server::start().await;
    let mut other = server.connection().await.unwrap();
    let mut limited = redis::cmd("CONFIG");
    limited.arg(&["SET", "maxclients", "1"]);
    let () = limited.query_async(&mut other).await.unwrap();
    for login in ["", ":secret@", "bob:secret@"] {
        let url = server
            .url()
            .replace("redis://", &format!("redis://{login}"));
        let redis = opened(&url, OutagePolicy::open());
        let limit = redis.limit("a", log(5)).unwrap();
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
async fn a_server_out_of_memory_is_an_outage_and_no_fault() {
    let full = ["--maxmemory", "1", "--maxmemory-policy", "noeviction"];
    let server = Server::start_with(&full).await;
    let redis = redis(&server.url(), OutagePolicy::open()).await;
    let limit = redis.limit("a", log(5)).unwrap();

    for _ in 0..10 {
        passed(limit.try_acquire(1).await);
    }
    let (stats, why) = (redis.stats(), redis.last_failure());
    assert!(stats.unavailable >= 3, "{stats:?} {why:?}");
    assert_eq!(stats.faults, 0);
}

/// Before the first permit, and in the middle.
#[tokio::test]
async fn a_stream_that_fails_fast_ends_with_the_fault_and_keeps_its_items() {
    let server = Server::start().await;
    let redis = redis(&server.url(), OutagePolicy::open()).await;
    let wrong = server.url().replace("redis://", "redis://:wrong@");
    let refused = opened(&wrong, OutagePolicy::open());

    for (redis, passes, why) in [(redis, 2, "WRONGTYPE"), (refused, 0, "authentication")] {
        let limit = redis.limit("a", log(5)).unwrap();
        let key = limit.keys()[0].clone();
        let mut paced = stream::iter(0..5).try_pace(limit.fail_fast());
        for item in 0..passes {
            assert_eq!(paced.next().await, Some(Ok(item)));
        }
        server.cli::<()>(&["DEL", &key]).await;
        server.cli::<()>(&["RPUSH", &key, "x"]).await;
        let error = paced.next().await.unwrap().unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert_eq!(paced.next().await, None);
        let (rest, held) = paced.into_parts();
        assert_eq!(held, Some(passes));
        assert_eq!(rest.collect::<Vec<_>>().await.len(), 4 - passes);
        let stats = redis.stats();
        assert_eq!((stats.outages, stats.passed_alone), (0, 0), "{stats:?}");
    }
}

#[tokio::test]
async fn a_limit_that_fails_fast_is_else_as_any() {
    let (mut server, _redis, limit) = a_minute_of(3, OutagePolicy::open()).await;
    let mut fast = limit.clone().fail_fast();
    for _ in 0..2 {
        passed(poll_fn(|cx| fast.poll_decide(1, cx)).await);
    }
    assert_eq!(fast.status().map(|status| status.remaining), Some(1));
    let mut other = fast.clone();
    denied(poll_fn(|cx| other.poll_try(2, cx)).await);

    // Queued, and out of the queue again.
    assert!(futures::poll!(poll_fn(|cx| fast.poll_decide(3, cx))).is_pending());
    fast.give_up();
    passed(limit.try_acquire(1).await);

    server.kill();
    let passed = stream::iter(0..20).try_pace(fast).try_collect::<Vec<_>>();
    assert_eq!(passed.await.unwrap().len(), 20, "an outage is no fault");
}
