//! A cluster of three masters.

use std::time::Duration;

use paceline::policy::{All, Decision, SlidingLog, TokenBucket};
use paceline::time::Rate;
use paceline_redis::{OutagePolicy, Redis};

use crate::limits::{MINUTE, pause, wait_of};
use crate::servers::{Cluster, Server};

async fn redis(cluster: &Cluster, when_down: OutagePolicy) -> Redis {
    let urls = cluster.urls();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let redis = Redis::open_cluster(&urls, when_down).unwrap();
    let redis = redis.with_deadline(Duration::from_secs(10)).unwrap();
    redis.connect().await.unwrap();
    redis
}

#[tokio::test]
async fn keys_on_all_nodes_are_limited() {
    let cluster = Cluster::start().await;
    let redis = redis(&cluster, OutagePolicy::closed()).await;
    let users = redis.keyed("users", SlidingLog::new(2, MINUTE)).unwrap();

    for user in 0..30 {
        let user = format!("user {user}");
        assert_eq!(
            users.at(&user).unwrap().try_acquire(2).await,
            Ok(Decision::Pass)
        );
        assert!(wait_of(users.at(&user).unwrap().try_acquire(1).await) > MINUTE / 2);
    }
    for node in cluster.nodes() {
        assert!(node.cli::<u64>(&["DBSIZE"]).await > 0, "{}", node.url());
    }
}

#[tokio::test]
async fn several_limits_of_one_name_are_in_one_slot() {
    let cluster = Cluster::start().await;
    let redis = redis(&cluster, OutagePolicy::closed()).await;
    let bucket = TokenBucket::new(Rate::per_minute(1), 3);
    let policy = All::new((
        bucket,
        SlidingLog::new(5, MINUTE),
        SlidingLog::new(9, 2 * MINUTE),
    ));

    for name in 0..20 {
        let limit = redis.limit(&format!("n{name}"), policy).unwrap();
        assert_eq!(limit.try_acquire(3).await, Ok(Decision::Pass));
        assert!(wait_of(limit.try_acquire(1).await) > MINUTE / 2);
        assert_eq!(limit.binding(), Some(0));
    }
    assert_eq!(redis.stats().faults, 0);
}

/// Moves the slot of a key, with the key, from one node to another.
async fn move_slot(key: &str, from: &Server, to: &Server, all: &[Server]) {
    let slot: u64 = from.cli(&["CLUSTER", "KEYSLOT", key]).await;
    let slot = slot.to_string();
    let (from_id, to_id): (String, String) = (
        from.cli(&["CLUSTER", "MYID"]).await,
        to.cli(&["CLUSTER", "MYID"]).await,
    );
    to.cli::<()>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id])
        .await;
    from.cli::<()>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id])
        .await;
    let port = to.port().to_string();
    from.cli::<()>(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"])
        .await;
    // The others would hear of it a little later, and a client may ask any of them for its map.
    for node in [to, from].into_iter().chain(all) {
        node.cli::<()>(&["CLUSTER", "SETSLOT", &slot, "NODE", &to_id])
            .await;
    }
}

#[tokio::test]
async fn a_key_that_moves_to_another_node_keeps_its_state() {
    let mut cluster = Cluster::start().await;
    let redis = redis(&cluster, OutagePolicy::closed()).await;
    let limit = redis.limit("a", SlidingLog::new(5, MINUTE)).unwrap();
    assert_eq!(limit.try_acquire(3).await, Ok(Decision::Pass));

    let key = limit.keys()[0].clone();
    let owner = cluster.owner_of(&key).await.port();
    let of = |is_owner| {
        cluster
            .nodes()
            .iter()
            .find(|node| (node.port() == owner) == is_owner)
            .unwrap()
    };
    move_slot(&key, of(true), of(false), cluster.nodes()).await;
    assert_eq!(limit.try_acquire(2).await, Ok(Decision::Pass));
    assert!(wait_of(limit.try_acquire(1).await) > MINUTE / 2);
    let stats = redis.stats();
    assert_eq!(
        (stats.outages, stats.faults, stats.lost_states),
        (0, 0, 0),
        "{stats:?}"
    );
}

#[tokio::test]
async fn a_killed_node_is_an_outage() {
    let mut cluster = Cluster::start().await;
    let redis = redis(&cluster, OutagePolicy::open()).await;
    let limit = redis.limit("a", SlidingLog::new(1, MINUTE)).unwrap();
    assert_eq!(limit.try_acquire(1).await, Ok(Decision::Pass));

    let key = limit.keys()[0].clone();
    cluster.owner_of(&key).await.kill();
    while limit.try_acquire(1).await != Ok(Decision::Pass) {
        pause(Duration::from_millis(5)).await;
    }
    let stats = redis.stats();
    assert!(stats.passed_alone > 0 && stats.faults == 0, "{stats:?}");
}

#[test]
fn a_cluster_without_an_address_is_refused() {
    let error = Redis::open_cluster(&[], OutagePolicy::closed())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("[] are no URLs of a Redis cluster"),
        "{error}"
    );
}

#[tokio::test]
async fn a_pause_of_a_key_on_any_node_is_heard_by_another_client() {
    let cluster = Cluster::start().await;
    let clients = [
        redis(&cluster, OutagePolicy::closed()).await,
        redis(&cluster, OutagePolicy::closed()).await,
    ];
    let users = clients.map(|redis| redis.keyed("users", SlidingLog::new(5, MINUTE)).unwrap());
    for user in 0..10 {
        let user = user.to_string();
        assert!(
            users[1]
                .at(&user)
                .unwrap()
                .try_acquire(1)
                .await
                .unwrap()
                .is_pass()
        );
        users[0].at(&user).unwrap().pause_for(MINUTE).await.unwrap();
    }
    pause(Duration::from_secs(1)).await;
    let _ = users[1].at("x").unwrap().try_acquire(1).await;
    for user in 0..10 {
        let answer = users[1].at(&user.to_string()).unwrap().try_acquire(1).await;
        assert!(wait_of(answer) > MINUTE / 2);
    }
}

#[tokio::test]
async fn a_key_and_its_total_are_in_one_slot() {
    let cluster = Cluster::start().await;
    let redis = redis(&cluster, OutagePolicy::closed()).await;
    let log = |limit| SlidingLog::new(limit, MINUTE);
    for name in 0..10 {
        let users = redis.keyed(&format!("n{name}"), log(2)).unwrap();
        let users = users.with_total(log(3)).unwrap();
        assert_eq!(
            users.at("ann").unwrap().try_acquire(2).await,
            Ok(Decision::Pass)
        );
        assert!(wait_of(users.at("bob").unwrap().try_acquire(2).await) > MINUTE / 2);
        assert_eq!(
            users.at("bob").unwrap().try_acquire(1).await,
            Ok(Decision::Pass)
        );
    }
    assert_eq!(redis.stats().faults, 0);
}
