//! A cluster of three masters.

use std::time::Duration;

use paceline::policy::{All, Decision, SlidingLog, TokenBucket};
use paceline::shed::Class;
use paceline::time::Rate;
use paceline_redis::{OutagePolicy, Redis};

use crate::failing::lock;
use crate::limits::{MINUTE, PATIENT, denied, log, passed, pause};
use crate::permits::{KEY, LONG, ends, permits, taken, waiting};
use crate::servers::{Cluster, Server, until};

async fn redis(cluster: &Cluster, when_down: OutagePolicy) -> Redis {
    let urls = cluster.urls();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let redis = Redis::open_cluster(&urls, when_down).unwrap();
    let redis = redis.with_deadline(PATIENT).unwrap();
    redis.connect().await.unwrap();
    redis
}

#[tokio::test]
async fn keys_on_all_nodes_are_limited_and_several_limits_of_one_decision_are_in_one_slot() {
    let cluster = Cluster::start().await;
    let redis = redis(&cluster, OutagePolicy::closed()).await;
    let users = redis.keyed("users", log(2)).unwrap();
    for user in 0..30 {
        let user = users.at(&format!("user {user}")).unwrap();
        passed(user.try_acquire(2).await);
        denied(user.try_acquire(1).await);
    }
    for node in cluster.nodes() {
        assert!(node.cli::<u64>(&["DBSIZE"]).await > 0, "{}", node.url());
    }

    let bucket = TokenBucket::new(Rate::per_minute(1), 3);
    let policy = All::new((bucket, log(5), SlidingLog::new(9, 2 * MINUTE)));
    for name in 0..20 {
        let limit = redis.limit(&format!("n{name}"), policy).unwrap();
        passed(limit.try_acquire(3).await);
        denied(limit.try_acquire(1).await);
        assert_eq!(limit.binding(), Some(0));

        let users = redis.keyed(&format!("n{name}"), log(2)).unwrap();
        let users = users.with_total(log(3)).unwrap();
        passed(users.at("ann").unwrap().try_acquire(2).await);
        denied(users.at("bob").unwrap().try_acquire(2).await);
        passed(users.at("bob").unwrap().try_acquire(1).await);
    }
    assert_eq!(redis.stats().faults, 0);
}

#[tokio::test]
async fn all_keys_of_a_pool_and_both_of_a_fleet_usage_are_in_one_slot() {
    let mut cluster = Cluster::start().await;
    let one = redis(&cluster, OutagePolicy::closed()).await;
    let usage = one.fleet_usage("api", 2, 1, LONG).unwrap();
    let critical = usage.admit(Class::Critical).await.unwrap().unwrap();
    let _sheddable = usage.admit(Class::Sheddable(0)).await.unwrap().unwrap();
    assert!(usage.admit(Class::Sheddable(0)).await.unwrap().is_none());
    critical.release().await.unwrap();
    let in_use = usage.in_use().await.unwrap();
    assert_eq!((in_use.critical, in_use.sheddable), (0, 1));

    let other = redis(&cluster, OutagePolicy::closed()).await;
    let held = taken(&permits(&one, 1, LONG)).await;
    let waiting = waiting(&permits(&other, 1, LONG), 1).remove(0);
    let owner = cluster.owner_of(KEY).await;
    let marks = ["EXISTS", "paceline:{jobs}:permits:waiting"];
    until("it waits", async || owner.cli::<u32>(&marks).await == 1).await;
    drop(held);
    let _lease = ends(waiting).await;
}

/// Moves the slot of a key, with the key, from one node to another.
async fn move_slot(key: &str, from: &Server, to: &Server, all: &[Server]) {
    let slot: u64 = from.cli(&["CLUSTER", "KEYSLOT", key]).await;
    let slot = slot.to_string();
    let id = async |node: &Server| -> String { node.cli(&["CLUSTER", "MYID"]).await };
    let (from_id, to_id) = (id(from).await, id(to).await);
    let set_slot = async |node: &Server, what: &str, id: &str| {
        let words = ["CLUSTER", "SETSLOT", &slot, what, id];
        node.cli::<()>(&words).await;
    };
    set_slot(to, "IMPORTING", &from_id).await;
    set_slot(from, "MIGRATING", &to_id).await;
    let port = to.port().to_string();
    let migrate = ["MIGRATE", "127.0.0.1", &port, key, "0", "5000"];
    from.cli::<()>(&migrate).await;
    // The others would hear of it a little later, and a client may ask any of them for its map.
    for node in [to, from].into_iter().chain(all) {
        set_slot(node, "NODE", &to_id).await;
    }
}

#[tokio::test]
async fn a_key_that_moves_to_another_node_keeps_its_state() {
    let mut cluster = Cluster::start().await;
    let redis = redis(&cluster, OutagePolicy::closed()).await;
    let limit = redis.limit("a", log(5)).unwrap();
    passed(limit.try_acquire(3).await);

    let key = limit.keys()[0].clone();
    let owner = cluster.owner_of(&key).await.port();
    let of = |is_owner| {
        let mut nodes = cluster.nodes().iter();
        nodes.find(|node| (node.port() == owner) == is_owner)
    };
    let (from, to) = (of(true).unwrap(), of(false).unwrap());
    move_slot(&key, from, to, cluster.nodes()).await;
    passed(limit.try_acquire(2).await);
    denied(limit.try_acquire(1).await);
    let stats = redis.stats();
    let troubles = (stats.outages, stats.faults, stats.lost_states);
    assert_eq!(troubles, (0, 0, 0), "{stats:?}");
}

/// Whether the login is wrong or missing.
#[tokio::test]
async fn a_login_that_no_node_accepts_is_a_fault_and_no_outage() {
    let cluster = Cluster::start().await;
    for node in cluster.nodes() {
        lock(node).await;
    }
    for (login, why) in [("", "NOAUTH"), (":wrong@", "authentication")] {
        let urls = cluster.urls();
        let urls = urls
            .iter()
            .map(|url| url.replace("redis://", &format!("redis://{login}")));
        let urls: Vec<String> = urls.collect();
        let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
        let redis = Redis::open_cluster(&urls, OutagePolicy::open()).unwrap();
        let redis = redis.with_deadline(PATIENT).unwrap();
        let limit = redis.limit("a", log(5)).unwrap();
        for _ in 0..3 {
            let error = limit.try_acquire(1).await.unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        let stats = redis.stats();
        assert_eq!((stats.outages, stats.passed_alone), (0, 0), "{stats:?}");
    }
}

#[tokio::test]
async fn a_killed_node_is_an_outage() {
    let mut cluster = Cluster::start().await;
    let redis = redis(&cluster, OutagePolicy::open()).await;
    let limit = redis.limit("a", log(1)).unwrap();
    passed(limit.try_acquire(1).await);

    let key = limit.keys()[0].clone();
    cluster.owner_of(&key).await.kill();
    while limit.try_acquire(1).await != Ok(Decision::Pass) {
        pause(Duration::from_millis(5)).await;
    }
    let stats = redis.stats();
    assert!(stats.passed_alone > 0 && stats.faults == 0, "{stats:?}");
}

#[tokio::test]
async fn a_pause_of_a_key_on_any_node_is_heard_by_another_client() {
    let cluster = Cluster::start().await;
    let users = async || {
        let redis = redis(&cluster, OutagePolicy::closed()).await;
        redis.keyed("users", log(5)).unwrap()
    };
    let (one, other) = (users().await, users().await);
    for user in 0..10 {
        let user = user.to_string();
        passed(other.at(&user).unwrap().try_acquire(1).await);
        one.at(&user).unwrap().pause_for(MINUTE).await.unwrap();
    }
    pause(Duration::from_secs(1)).await;
    let _ = other.at("x").unwrap().try_acquire(1).await;
    for user in 0..10 {
        denied(other.at(&user.to_string()).unwrap().try_acquire(1).await);
    }
}
