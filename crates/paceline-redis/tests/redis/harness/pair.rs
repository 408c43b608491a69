#![expect(
    clippy::disallowed_methods,
    reason = "servers know nothing of a paused clock"
)]

use std::time::Duration;

use redis::{RedisError, ServerErrorKind, cmd};

use crate::servers::Server;

async fn write(server: &Server, value: &str) {
    server.cli::<()>(&["SET", "key", value]).await;
}

async fn read(server: &Server) -> String {
    server.cli(&["GET", "key"]).await
}

#[tokio::test]
async fn a_replica_copies_its_master_and_follows_it() {
    let master = Server::start().await;
    write(&master, "before").await;

    let replica = Server::start_replica_of(&master).await;
    assert_eq!(read(&replica).await, "before");

    write(&master, "since").await;
    replica.catch_up_with(&master).await;
    assert_eq!(read(&replica).await, "since");
}

#[tokio::test]
async fn a_replica_refuses_writes_until_it_is_promoted() {
    let master = Server::start().await;
    let replica = Server::start_replica_of(&master).await;

    let mut set = cmd("SET");
    let refused: RedisError = replica
        .try_command::<()>(set.arg("key").arg("mine"))
        .await
        .unwrap_err();
    replica.promote().await;
    write(&replica, "mine").await;

    assert_eq!(refused.kind(), ServerErrorKind::ReadOnly.into());
    assert_eq!(read(&replica).await, "mine");
}

#[tokio::test]
async fn a_replica_that_is_cut_off_keeps_the_old_state_when_promoted() {
    let mut master = Server::start().await;
    let replica = Server::start_replica_of(&master).await;
    // From here on the replica receives each write at once.
    write(&master, "old").await;
    replica.catch_up_with(&master).await;

    replica.cut_off().await;
    write(&master, "new").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(read(&replica).await, "old");

    master.kill();
    replica.promote().await;
    assert_eq!(read(&replica).await, "old");
}
