//! What operators hear of a connection, as `tracing` events.
#![cfg(feature = "tracing")]

use std::time::Duration;

use futures::{StreamExt, stream};
use paceline::prelude::*;
use paceline::time::Clock;
use paceline_redis::OutagePolicy;
use tracing::Level;

use crate::failing::{lock, opened, until_up};
use crate::limits::{log, pause};
use crate::servers::Server;
use crate::written::Written;

fn count(written: &Written, text: &str) -> usize {
    let lines = written.lines();
    lines.iter().filter(|line| line.contains(text)).count()
}

#[tokio::test]
async fn an_outage_and_its_end_are_events() {
    let (written, _guard) = Written::up_to(Level::INFO);
    let mut server = Server::start().await;
    let redis = opened(&server.url(), OutagePolicy::closed());
    until_up(&redis).await;
    assert_eq!(count(&written, "the server of limits is up"), 1);
    assert_eq!(count(&written, "is down"), 0);

    server.kill();
    let limit = redis.limit("a", log(5)).unwrap();
    while redis.stats().outages == 0 {
        let _ = limit.try_acquire(1).await;
    }
    assert_eq!(count(&written, "the server of limits is down"), 1);
    server.start_again().await;
    until_up(&redis).await;
    assert!(count(&written, "the server of limits is up") >= 2);
}

#[tokio::test]
async fn a_server_that_evicts_keys_is_an_event_on_connecting() {
    let (written, _guard) = Written::up_to(Level::INFO);
    for (most, policy, events) in [
        ("0", "allkeys-lru", 0),
        ("50mb", "noeviction", 0),
        ("50mb", "allkeys-lru", 1),
    ] {
        let options = ["--maxmemory", most, "--maxmemory-policy", policy];
        let server = Server::start_with(&options).await;
        until_up(&opened(&server.url(), OutagePolicy::closed())).await;
        assert_eq!(count(&written, "evicts keys"), events, "{most} {policy}");
    }
    assert_eq!(count(&written, "allkeys-lru"), 1);
}

/// A stream cannot return the fault: it stands still, and the event says why.
#[tokio::test]
async fn a_wrong_password_is_said_once_a_second_at_most() {
    let (written, _guard) = Written::up_to(Level::INFO);
    let server = Server::start().await;
    lock(&server).await;
    let redis = opened(&server.url(), OutagePolicy::open());
    let limits = redis.keyed("a", log(5)).unwrap();
    let mut clock = Clock::new();
    let began = clock.now();
    let streams = (0..20).map(|key| {
        let limit = limits.at(&key.to_string()).unwrap();
        stream::iter([1]).pace(limit).count()
    });
    let streams = futures::future::join_all(streams);
    let waited = tokio::time::timeout(Duration::from_millis(1_200), streams).await;
    assert!(waited.is_err(), "something passed");
    pause(Duration::from_millis(1)).await;

    let said = count(&written, "refuses calls of limits");
    let seconds = usize::try_from(clock.now().since(began).as_secs()).unwrap();
    assert!((1..=seconds + 1).contains(&said), "{said} in {seconds} s");
    assert_eq!(count(&written, "NOAUTH"), said);
}

/// Nothing else shows it: requests pass.
#[tokio::test]
async fn a_fault_that_lets_pass_is_said_once_a_second_at_most() {
    let (written, _guard) = Written::up_to(Level::INFO);
    let server = Server::start().await;
    let redis = opened(&server.url(), OutagePolicy::always_open());
    let limit = redis.limit("a", log(5)).unwrap();
    server.cli::<()>(&["SET", &limit.keys()[0], "x"]).await;
    let mut clock = Clock::new();
    let began = clock.now();
    for _ in 0..200 {
        assert!(limit.try_acquire(1).await.unwrap().is_pass());
    }
    let said = count(&written, "refuses calls of limits");
    let seconds = usize::try_from(clock.now().since(began).as_secs()).unwrap();
    assert!((1..=seconds + 1).contains(&said), "{said} in {seconds} s");
    assert_eq!(count(&written, "WRONGTYPE"), said);
}
