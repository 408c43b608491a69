use std::collections::BTreeSet;

use redis::{ServerErrorKind, cmd};

use crate::servers::Cluster;

#[tokio::test]
async fn a_cluster_takes_keys_of_all_slots_on_three_masters() {
    let cluster = Cluster::start().await;
    let mut connection = cluster.client().get_async_connection().await.unwrap();

    for key in 0..100 {
        let set = cmd("SET").arg(key).arg(key).to_owned();
        set.query_async::<()>(&mut connection).await.unwrap();
    }
    for key in 0..100 {
        let get = cmd("GET").arg(key).to_owned();
        assert_eq!(get.query_async::<u32>(&mut connection).await.unwrap(), key);
    }

    let mut keys = Vec::new();
    for node in cluster.nodes() {
        keys.push(node.cli::<u32>(&["DBSIZE"]).await);
    }
    assert_eq!(keys.iter().sum::<u32>(), 100);
    assert!(keys.iter().all(|&keys| keys > 0), "{keys:?}");
    assert_eq!(BTreeSet::from_iter(cluster.urls()).len(), 3);
}

#[tokio::test]
async fn every_node_but_the_owner_of_a_key_says_that_it_has_moved() {
    let mut cluster = Cluster::start().await;

    for key in ["foo", "bar", "hello", "{1}a"] {
        let owner = cluster.owner_of(key).await.port();
        for node in cluster.nodes() {
            let answer = node.try_command::<()>(cmd("SET").arg(key).arg(1)).await;
            if node.port() == owner {
                answer.unwrap();
            } else {
                let moved = answer.unwrap_err();
                assert_eq!(moved.kind(), ServerErrorKind::Moved.into());
                let (to, _) = moved.redirect_node().unwrap();
                assert_eq!(to, format!("127.0.0.1:{owner}"));
            }
        }
    }
}

#[tokio::test]
async fn a_cluster_recovers_when_a_killed_node_is_back() {
    let mut cluster = Cluster::start().await;
    let node = cluster.owner_of("key").await;
    node.cli::<()>(&["SET", "key", "lost"]).await;

    node.kill();
    node.start_again().await;
    cluster.is_well().await;

    let node = cluster.owner_of("key").await;
    assert_eq!(node.cli::<Option<String>>(&["GET", "key"]).await, None);
}
