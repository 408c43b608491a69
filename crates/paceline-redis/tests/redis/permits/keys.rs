use std::future::poll_fn;

use paceline::concurrency::Admit;

use super::*;
use crate::servers::{Cut, EXPIRES_AT};

async fn exists(server: &Server) -> bool {
    server.cli::<u32>(&["EXISTS", KEY]).await == 1
}

async fn ttl(server: &Server) -> Duration {
    let millis: i64 = server.cli(&["PTTL", KEY]).await;
    Duration::from_millis(u64::try_from(millis).expect("the key is there, and goes by itself"))
}

#[tokio::test]
async fn an_idle_limit_leaves_nothing_behind() {
    let (server, permits) = so_many(2).await;
    let (one, two) = (taken(&permits).await, taken(&permits).await);

    one.release().await.unwrap();
    assert!(exists(&server).await);
    two.release().await.unwrap();
    assert!(!exists(&server).await);
    assert_eq!(permits.in_use().await.unwrap(), 0);
    assert!(!exists(&server).await);
}

#[tokio::test]
async fn a_key_expires_with_its_last_lease() {
    let server = Server::start().await;
    let redis = hasty(&server.url());
    let long = permits(&redis, 2, LONG);
    let short = permits(&redis, 2, SHORT);
    let held = taken(&long).await;
    // A shorter lease does not shorten the lifetime of the key.
    let _short = taken(&short).await;

    let left = ttl(&server).await;
    assert!(left <= LONG && left + PATIENCE > LONG, "{left:?}");
    held.release().await.unwrap();
    let left = ttl(&server).await;
    assert!(left <= SHORT, "{left:?}");
}

/// All members and scores, and when the key expires.
async fn whole(server: &Server) -> (Vec<String>, i64) {
    let members = server.cli(&["ZRANGE", KEY, "0", "-1", "WITHSCORES"]).await;
    (members, server.cli(&["EVAL", EXPIRES_AT, "1", KEY]).await)
}

#[tokio::test]
async fn a_refused_request_leaves_no_trace_in_redis() {
    let (server, permits) = so_many(1).await;
    let _held = taken(&permits).await;
    let before = whole(&server).await;

    for _ in 0..10 {
        none_is_free(permits.try_acquire().await);
    }
    assert_eq!(whole(&server).await, before);
}

#[tokio::test]
async fn a_key_of_another_type_is_an_error_and_no_outage() {
    let server = Server::start().await;
    let redis = process(&server.url());
    let permits = permits(&redis, 1, LONG);
    redis.connect().await.unwrap();

    let marks = "paceline:{jobs}:permits:waiting";
    for set in [
        &["SET", KEY, "mine"][..],
        &["ZADD", KEY, "1", "mine"],
        &["LPUSH", KEY, "mine"],
        &["SET", marks, "mine"],
        &["HSET", marks, "mine", "1 2 3 4"],
    ] {
        server.cli::<()>(set).await;
        let key = set[1];
        let is_named = |error: String| {
            let is_named = error.contains("WRONGTYPE") && error.contains(key);
            assert!(is_named, "{error}");
        };
        let waited = timeout(PATIENCE, permits.acquire()).await.unwrap();
        is_named(waited.unwrap_err().to_string());
        if key == KEY {
            let tried = permits.try_acquire().await;
            is_named(tried.unwrap_err().to_string());
            let mut handle = permits.clone();
            let admitted = poll_fn(|cx| handle.poll_admit((), cx)).await;
            is_named(admitted.unwrap_err().to_string());
            let asked = permits.in_use().await.unwrap_err();
            assert!(asked.server_error().is_some(), "{asked}");
        }
        assert_eq!(server.cli::<u32>(&["DBSIZE"]).await, 1);
        assert!(server.cli::<u32>(&["EXISTS", key]).await == 1);
        server.flush_all().await;
    }
    assert!(redis.is_up());
    assert_eq!(redis.stats().outages, 0);
}

#[tokio::test]
async fn a_server_clock_that_goes_back_ends_no_lease_late_or_early() {
    let server = Server::start_with_clock().await;
    server.set_clock(60);
    let permits = permits(&process(&server.url()), 2, LONG);
    let _held = taken(&permits).await;
    let (_, end) = members(&server).await.remove(0);

    server.set_clock(0);
    let _other = taken(&permits).await;
    // The second lease starts at the recorded time, not before it.
    let ends = members(&server).await.into_iter().map(|(_, end)| end);
    assert_eq!(ends.collect::<Vec<_>>(), [end, end]);
    none_is_free(permits.try_acquire().await);
}

#[tokio::test]
async fn after_a_long_step_back_of_the_clock_leases_end_after_the_time_that_they_had_left() {
    let server = Server::start_with_clock().await;
    let relay = Relay::start(server.address());
    let _lost = taken(&permits(&hasty(&relay.url()), 1, SHORT)).await;
    relay.cut(Cut::BlackHole).await;
    server.set_clock(-3_600);

    let before = server.time_us().await;
    let lease = taken(&permits(&hasty(&server.url()), 1, SHORT)).await;
    let left = u64::try_from(SHORT.as_micros()).unwrap();
    assert!(server.time_us().await >= before + left);
    assert!(!lease.is_lost());
    lease.release().await.unwrap();
    assert!(!exists(&server).await);
}
