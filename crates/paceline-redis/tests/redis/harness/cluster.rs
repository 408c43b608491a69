use redis::{ServerErrorKind, cmd};

use crate::servers::Cluster;

#[tokio::test]
async fn a_cluster_has_an_owner_for_each_key_and_recovers_when_a_killed_one_is_back() {
    let mut cluster = Cluster::start().await;
    // One key of each master.
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
    for node in cluster.nodes() {
        assert!(node.cli::<u32>(&["DBSIZE"]).await > 0);
    }

    let node = cluster.owner_of("foo").await;
    node.kill();
    node.start_again().await;
    cluster.is_well().await;
    let node = cluster.owner_of("foo").await;
    assert_eq!(node.cli::<Option<String>>(&["GET", "foo"]).await, None);
}
