//! The master is found by Sentinel, and followed through failovers.

use std::time::Duration;

use paceline::policy::{FixedWindow, Interval};
use paceline_redis::{OutagePolicy, Redis};

use crate::failing::{DEADLINE, lock, until_up};
use crate::limits::{MINUTE, passed, pause, wait_of};
use crate::servers::{Cut, Relay, Server};

fn opened(sentinels: &[&str], master: &str, when_down: OutagePolicy) -> Redis {
    let redis = Redis::open_sentinel(sentinels, master, when_down).unwrap();
    redis.with_deadline(DEADLINE).unwrap()
}

/// A master, its replica, and a sentinel that knows both.
async fn watched() -> (Server, Server, Server) {
    let master = Server::start().await;
    let replica = Server::start_replica_of(&master).await;
    let sentinel = Server::start_sentinel_of(master.port()).await;
    sentinel.knows_replicas(1).await;
    (master, replica, sentinel)
}

/// Waits until the server, or the sentinel, has refused to let the client in.
async fn refused(redis: &Redis) {
    while redis.connect().await.unwrap_err().server_error().is_none() {
        pause(Duration::from_millis(5)).await;
    }
}

async fn role(server: &Server) -> String {
    server.info("replication", "role").await
}

#[tokio::test]
async fn it_follows_a_failover_skips_sentinels_that_are_down_and_what_was_lost_counts_as_spent() {
    let (master, replica, sentinel) = watched().await;
    let mut dead = Server::start().await;
    dead.kill();
    let hanging = Relay::start(sentinel.address());
    hanging.cut(Cut::BlackHole).await;
    let urls = [&*dead.url(), &hanging.url(), &sentinel.url()];
    let redis = opened(&urls, "mymaster", OutagePolicy::closed());
    until_up(&redis).await;
    let limit = |name| redis.limit(name, FixedWindow::new(5, MINUTE)).unwrap();
    let (kept, lost) = (limit("kept"), limit("lost"));
    passed(kept.try_acquire(3).await);
    passed(lost.try_acquire(3).await);
    assert_eq!(role(&master).await, "master");
    replica.catch_up_with(&master).await;
    // Replication is asynchronous. This replica is behind for certain.
    let writable = |value| ["CONFIG", "SET", "replica-read-only", value];
    replica.cli::<()>(&writable("no")).await;
    replica.cli::<()>(&["DEL", &lost.keys()[0]]).await;
    replica.cli::<()>(&writable("yes")).await;

    sentinel.fail_over_to(&replica).await;
    // The first limits do not ask while their windows last.
    let other = FixedWindow::new(u32::MAX, MINUTE);
    let other = redis.limit("other", other).unwrap();
    while redis.stats().connects < 2 || !redis.is_up() {
        let _ = other.try_acquire(1).await.unwrap();
        pause(Duration::from_millis(5)).await;
    }
    assert_eq!(role(&replica).await, "master");
    assert!(wait_of(kept.try_acquire(3).await) > Duration::from_secs(5));
    let key = &kept.keys()[0];
    assert_eq!(replica.cli::<u32>(&["EXISTS", key]).await, 1);
    // The old master may have kept what the other limit counted last.
    let before = redis.stats().lost_states;
    while redis.stats().lost_states == before {
        assert!(!lost.try_acquire(2).await.unwrap().is_pass());
        pause(Duration::from_millis(5)).await;
    }
    assert_eq!(redis.stats().faults, 0, "{:?}", redis.last_failure());
}

#[tokio::test]
async fn a_limit_comes_back_on_the_new_master_after_the_old_one_died() {
    let (mut master, replica, sentinel) = watched().await;
    let redis = opened(&[&sentinel.url()], "mymaster", OutagePolicy::closed());
    until_up(&redis).await;
    let limit = redis.limit("a", Interval::every(DEADLINE)).unwrap();
    limit.acquire(1).await.unwrap();

    master.kill();
    sentinel
        .set_of_master("down-after-milliseconds", "500")
        .await;
    limit.acquire(1).await.unwrap();
    assert_eq!(role(&replica).await, "master");
    assert_eq!(redis.stats().connects, 2);
    assert!(redis.stats().outages >= 1, "{:?}", redis.stats());
}

#[tokio::test]
async fn a_login_for_the_master_is_in_a_url_with_its_name() {
    let master = Server::start().await;
    let sentinel = Server::start_sentinel_of(master.port()).await;
    lock(&master).await;
    let urls = [&*sentinel.url()];
    let redis = opened(&urls, "redis://:secret@mymaster/3", OutagePolicy::open());
    until_up(&redis).await;

    for (master, why) in [
        ("redis://:wrong@mymaster", "authentication"),
        ("mymaster", "NOAUTH"),
    ] {
        let redis = opened(&urls, master, OutagePolicy::open());
        refused(&redis).await;
        let said = redis.last_failure().unwrap();
        assert!(said.contains(why), "{said}");
    }
}

#[tokio::test]
async fn a_name_that_no_sentinel_knows_is_a_fault_and_no_outage() {
    let master = Server::start().await;
    let sentinel = Server::start_sentinel_of(master.port()).await;
    let redis = opened(&[&sentinel.url()], "other", OutagePolicy::open());
    refused(&redis).await;
    let place = sentinel.address();
    let said = format!("refused: sentinel {place}: it knows no master \"other\"");
    assert_eq!(redis.last_failure().unwrap(), said);
    assert_eq!(redis.stats().outages, 0);
}

async fn fails_at(redis: &Redis, what: &str, place: &Server) {
    redis.connect().await.unwrap_err();
    let said = redis.last_failure().unwrap();
    let place = format!("cannot be reached: {what} {}: ", place.address());
    assert!(said.starts_with(&place), "{said}");
}

#[tokio::test]
async fn a_failure_says_where_it_happened() {
    let (mut master, mut replica, mut sentinel) = watched().await;
    let redis = opened(&[&sentinel.url()], "mymaster", OutagePolicy::closed());
    master.kill();
    fails_at(&redis, "master", &master).await;

    replica.kill();
    sentinel.kill();
    let redis = opened(&[&sentinel.url()], "mymaster", OutagePolicy::closed());
    fails_at(&redis, "sentinel", &sentinel).await;
}

/// It is a stale answer: the sentinel has not heard of the failover yet.
#[tokio::test]
async fn a_replica_is_not_taken_for_the_master() {
    let master = Server::start().await;
    let replica = Server::start_replica_of(&master).await;
    let sentinel = Server::start_sentinel_of(replica.port()).await;
    let redis = opened(&[&sentinel.url()], "mymaster", OutagePolicy::closed());
    redis.connect().await.unwrap_err();
    let said = redis.last_failure().unwrap();
    assert!(said.ends_with("it is a replica"), "{said}");
}
