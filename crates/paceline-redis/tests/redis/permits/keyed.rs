use paceline_redis::RedisKeyedPermits;

use super::*;

fn exports(redis: &Redis) -> RedisKeyedPermits {
    redis.keyed_permits("exports", 1, LONG).unwrap()
}

#[tokio::test]
async fn each_key_has_its_own_permits_in_the_whole_fleet() {
    let server = Server::start().await;
    let here = exports(&process(&server.url()));
    let there = exports(&process(&server.url()));
    let one = taken(&here.at("alice").unwrap()).await;
    let _other = taken(&here.at("bob").unwrap()).await;

    for fleet in [&here, &there] {
        for user in ["alice", "bob"] {
            let lease = fleet.at(user).unwrap().try_acquire().await.unwrap();
            assert!(lease.is_none());
        }
    }
    let keys: Vec<String> = server.cli(&["KEYS", "*{alice}*"]).await;
    assert_eq!(keys, ["paceline:exports:{alice}:permits"]);
    one.release().await.unwrap();
    let _next = taken(&there.at("alice").unwrap()).await;
}

#[tokio::test]
async fn requests_of_one_key_share_a_queue_while_any_waits_or_holds_a_lease() {
    let server = Server::start().await;
    let exports = exports(&process(&server.url()));
    let held = taken(&exports.at("alice").unwrap()).await;
    let alice = exports.at("alice").unwrap();
    let waiting = tokio::spawn(async move { taken(&alice).await });
    sleep(Duration::from_millis(30)).await;

    drop(held);
    // It is behind the request that waits.
    let lease = exports.at("alice").unwrap().try_acquire().await.unwrap();
    assert!(lease.is_none());
    let _lease = timeout(PATIENCE, waiting).await.unwrap().unwrap();
    assert_eq!(exports.remembered(), 1);
}

#[test]
fn an_idle_key_is_forgotten() {
    let exports = exports(&process("redis://127.0.0.1:1/"));
    let held: Vec<_> = (0..100)
        .map(|user| exports.at(&format!("busy {user}")).unwrap())
        .collect();
    for user in 0..100_000 {
        drop(exports.at(&format!("user {user}")).unwrap());
    }
    assert!(exports.remembered() <= 1_024, "{}", exports.remembered());
    assert_eq!(held.len(), 100);
}

#[test]
fn unfit_parameters_and_keys_are_refused_and_named() {
    let redis = process("redis://127.0.0.1:1/");
    let error = redis.keyed_permits("exports", 0, LONG).unwrap_err();
    assert_eq!(error.to_string(), "there must be at least 1 permit, got 0");
    assert!(redis.keyed_permits("", 1, LONG).is_err());
    assert!(exports(&redis).at("").is_err());
}
