use super::*;
use crate::servers::EXPIRES_AT;

async fn exists(server: &Server) -> bool {
    server.cli::<u32>(&["EXISTS", KEY]).await == 1
}

async fn ttl(server: &Server) -> Duration {
    let millis: i64 = server.cli(&["PTTL", KEY]).await;
    Duration::from_millis(u64::try_from(millis).expect("the key is there, and goes by itself"))
}

#[tokio::test]
async fn an_idle_limit_leaves_nothing_behind() {
    let server = Server::start().await;
    let permits = permits(&process(&server.url()), 2, LONG);
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
    let server = Server::start().await;
    let permits = permits(&process(&server.url()), 1, LONG);
    let _held = taken(&permits).await;
    let before = whole(&server).await;

    for _ in 0..10 {
        assert!(permits.try_acquire().await.unwrap().is_none());
    }
    assert_eq!(whole(&server).await, before);
}

#[tokio::test]
async fn a_key_of_another_type_is_an_error() {
    let server = Server::start().await;
    let redis = process(&server.url());
    let permits = permits(&redis, 1, LONG);
    redis.connect().await.unwrap();

    for set in [
        &["SET", KEY, "mine"][..],
        &["ZADD", KEY, "1", "mine"],
        &["LPUSH", KEY, "mine"],
    ] {
        server.cli::<()>(set).await;
        let tried = permits.try_acquire().await.unwrap_err().to_string();
        let asked = permits.in_use().await.unwrap_err();
        assert!(
            tried.contains("WRONGTYPE") && tried.contains(KEY),
            "{tried}"
        );
        assert!(asked.server_error().is_some(), "{asked}");
        assert!(exists(&server).await);
        server.flush_all().await;
    }
    let waited = {
        server.cli::<()>(&["SET", KEY, "mine"]).await;
        timeout(PATIENCE, permits.acquire()).await.unwrap()
    };
    assert!(waited.unwrap_err().to_string().contains("WRONGTYPE"));
    // This is no outage.
    assert!(redis.is_up());
    assert_eq!(redis.stats().outages, 0);
}

/// The server's clock cannot be set, so the recorded times are moved instead, as if the clock had gone back by a minute.
#[tokio::test]
async fn a_server_clock_that_goes_back_ends_no_lease_late_or_early() {
    const MINUTE: u64 = 60_000_000;
    let server = Server::start().await;
    let permits = permits(&process(&server.url()), 2, LONG);
    let _held = taken(&permits).await;
    let (id, end) = members(&server).await.remove(0);
    let at: f64 = server.cli(&["ZSCORE", KEY, "at"]).await;
    let ahead = server.time_us().await + MINUTE;
    let end_then = ahead + u64::try_from(LONG.as_micros()).unwrap();
    assert!(at < 0.0 && end > ahead);
    server
        .cli::<()>(&[
            "ZADD",
            KEY,
            &format!("-{ahead}"),
            "at",
            &end_then.to_string(),
            &id,
        ])
        .await;

    let _other = taken(&permits).await;
    // The second lease starts at the recorded time, not before it.
    let ends: Vec<_> = members(&server).await.iter().map(|(_, end)| *end).collect();
    assert_eq!(ends, [end_then, end_then]);
    assert!(permits.try_acquire().await.unwrap().is_none());
}

/// As if the clock had gone back by an hour: all recorded times are an hour ahead.
#[tokio::test]
async fn after_a_long_step_back_of_the_clock_leases_end_after_the_time_that_they_had_left() {
    const HOUR: u64 = 3_600_000_000;
    let server = Server::start().await;
    let dead = permits(&hasty(&server.url()), 2, SHORT);
    std::mem::forget(taken(&dead).await);
    let (id, end) = members(&server).await.remove(0);
    let short = u64::try_from(SHORT.as_micros()).unwrap();
    let ahead = (end - short + HOUR).to_string();
    let end = (end + HOUR).to_string();
    let key = "paceline:{other}:permits";
    server
        .cli::<()>(&["ZADD", key, &format!("-{ahead}"), "at", &end, &id])
        .await;

    let other = hasty(&server.url()).permits("other", 1, SHORT).unwrap();
    let before = server.time_us().await;
    let lease = taken(&other).await;
    assert!(server.time_us().await >= before + short);
    assert!(!lease.is_lost());
    lease.release().await.unwrap();
    assert_eq!(server.cli::<u32>(&["EXISTS", key]).await, 0);
}
