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
            none_is_free(fleet.at(user).unwrap().try_acquire().await);
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
    let waiting = waiting(&exports.at("alice").unwrap(), 1).remove(0);
    sleep(Duration::from_millis(30)).await;

    drop(held);
    // It is behind the request that waits.
    none_is_free(exports.at("alice").unwrap().try_acquire().await);
    let _lease = ends(waiting).await;
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
