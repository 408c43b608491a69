//! Tests of the test servers: what no other test would miss.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "servers know nothing of a paused clock"
)]

use std::env;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{RedisResult, cmd};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::permits;
use crate::servers::{Cut, PATIENCE, Relay, Server, connect, until};

#[tokio::test]
#[should_panic(expected = "no-such-option")]
async fn a_server_that_does_not_come_up_says_why() {
    Server::start_with(&["--no-such-option", "yes"]).await;
}

#[tokio::test]
async fn a_server_has_a_state_of_its_own_and_is_gone_with_its_files_when_it_is_dropped() {
    let (one, other) = tokio::join!(Server::start(), Server::start());
    one.cli::<()>(&["SET", "key", "here"]).await;
    assert_eq!(other.cli::<u64>(&["DBSIZE"]).await, 0);

    let (address, dir) = (one.address(), one.dir().to_owned());
    assert!(dir.is_dir());
    drop(one);
    assert!(TcpStream::connect(address).await.is_err());
    assert!(!dir.exists());
}

#[tokio::test]
async fn a_server_is_gone_when_its_tests_are_killed() {
    let mut tests = Command::new(env::current_exe().unwrap())
        .args(["--exact", "harness::stays", "--ignored", "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(tests.stdout.take().unwrap()).lines();
    let at = output.find_map(|line| Some(line.unwrap().split_once(STAYS)?.1.to_owned()));
    let (address, dir) = at.as_deref().unwrap().split_once(' ').unwrap();
    assert!(TcpStream::connect(address).await.is_ok());

    // This is SIGKILL: nothing is dropped.
    tests.kill().unwrap();
    tests.wait().unwrap();
    until("it is gone with its files", async || {
        TcpStream::connect(address).await.is_err() && !Path::new(dir).exists()
    })
    .await;
}

const STAYS: &str = "stays at ";

#[tokio::test]
#[ignore = "waits to be killed by the test above"]
async fn stays() {
    let server = Server::start().await;
    println!("{STAYS}{} {}", server.address(), server.dir().display());
    tokio::time::sleep(PATIENCE).await;
}

const A_WHILE: Duration = Duration::from_millis(100);

/// A relay in front of a server, and a connection through it.
async fn relayed() -> (Server, Relay, MultiplexedConnection) {
    let (server, relay) = permits::relayed().await;
    let connection = connect(&relay.url()).await.unwrap();
    (server, relay, connection)
}

async fn set(mut connection: MultiplexedConnection, value: u32) -> RedisResult<()> {
    let set = cmd("SET").arg("key").arg(value).to_owned();
    set.query_async(&mut connection).await
}

async fn get(mut connection: MultiplexedConnection) -> RedisResult<String> {
    cmd("GET").arg("key").query_async(&mut connection).await
}

#[tokio::test]
async fn delayed_replies_are_whole_and_never_early_on_an_open_connection() {
    let (server, relay, connection) = relayed().await;
    let long = "0123456789".repeat(100_000);
    server.cli::<()>(&["SET", "key", &long]).await;

    relay.delay_replies(A_WHILE).await;
    let start = Instant::now();
    let (a, b) = tokio::join!(get(connection.clone()), set(connection, 1));
    assert!(start.elapsed() >= A_WHILE);
    assert!(a.unwrap() == long);
    b.unwrap();
}

#[tokio::test]
async fn a_black_hole_hides_everything_until_it_is_mended() {
    let (server, relay, connection) = relayed().await;

    relay.cut(Cut::BlackHole).await;
    let asked = tokio::spawn(set(connection, 1));
    assert!(TcpStream::connect(relay.address()).await.is_ok());
    let url = relay.url();
    assert!(timeout(A_WHILE, connect(&url)).await.is_err());
    assert!(!asked.is_finished());
    assert_eq!(server.cli::<u64>(&["DBSIZE"]).await, 0);

    relay.mend().await;
    asked.await.unwrap().unwrap();
    assert_eq!(get(connect(&url).await.unwrap()).await.unwrap(), "1");
}
