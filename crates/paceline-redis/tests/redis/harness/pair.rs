#![expect(
    clippy::disallowed_methods,
    reason = "servers know nothing of a paused clock"
)]

use std::time::Duration;

use redis::{RedisResult, ServerErrorKind, cmd};

use crate::servers::Server;

async fn write(server: &Server, value: &str) -> RedisResult<()> {
    server.try_command(cmd("SET").arg("key").arg(value)).await
}

async fn read(server: &Server) -> String {
    server.cli(&["GET", "key"]).await
}

#[tokio::test]
async fn a_replica_follows_its_master_and_keeps_the_old_state_when_it_is_cut_off_and_promoted() {
    let mut master = Server::start().await;
    write(&master, "first").await.unwrap();
    let replica = Server::start_replica_of(&master).await;
    assert_eq!(read(&replica).await, "first");
    // From here on the replica receives each write at once.
    write(&master, "old").await.unwrap();
    replica.catch_up_with(&master).await;
    assert_eq!(read(&replica).await, "old");

    replica.cut_off().await;
    write(&master, "new").await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(read(&replica).await, "old");

    master.kill();
    let refused = write(&replica, "mine").await.unwrap_err();
    assert_eq!(refused.kind(), ServerErrorKind::ReadOnly.into());
    replica.promote().await;
    assert_eq!(read(&replica).await, "old");
    write(&replica, "mine").await.unwrap();
}
