#![expect(
    clippy::disallowed_methods,
    reason = "servers know nothing of a paused clock"
)]

use std::env;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::net::TcpStream;

use crate::servers::{PATIENCE, Server};

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
async fn a_killed_server_refuses_and_comes_back_empty_on_its_port() {
    let mut server = Server::start().await;
    let address = server.address();
    server.cli::<()>(&["SET", "key", "lost"]).await;

    // A frozen server can be killed too.
    server.freeze();
    server.kill();
    let refused = TcpStream::connect(address).await.unwrap_err();
    server.start_again().await;

    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(server.address(), address);
    assert_eq!(server.cli::<u64>(&["DBSIZE"]).await, 0);
}

#[tokio::test]
async fn a_frozen_server_answers_when_thawed() {
    let mut server = Server::start().await;
    let mut connection = server.connection().await.unwrap();

    server.freeze();
    server.freeze();
    let asking = tokio::spawn(async move {
        let answer: String = redis::cmd("PING")
            .query_async(&mut connection)
            .await
            .unwrap();
        answer
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let was_asking = !asking.is_finished();
    server.thaw();

    assert!(was_asking);
    assert_eq!(asking.await.unwrap(), "PONG");
}

#[tokio::test]
async fn a_flushed_server_knows_no_keys_and_no_scripts() {
    let server = Server::start().await;
    server.cli::<()>(&["SET", "key", "here"]).await;
    let script: String = server.cli(&["SCRIPT", "LOAD", "return 1"]).await;
    let knows = ["SCRIPT", "EXISTS", &script];

    server.flush_all().await;
    assert_eq!(server.cli::<u64>(&["DBSIZE"]).await, 0);
    assert_eq!(server.cli::<(bool,)>(&knows).await, (true,));

    server.flush_scripts().await;
    assert_eq!(server.cli::<(bool,)>(&knows).await, (false,));
}

#[tokio::test]
async fn a_server_is_gone_when_its_tests_are_killed() {
    let mut tests = Command::new(env::current_exe().unwrap())
        .args(["--exact", "harness::one::stays", "--ignored", "--nocapture"])
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
    let gone = async {
        while TcpStream::connect(address).await.is_ok() || Path::new(dir).exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };

    tokio::time::timeout(PATIENCE, gone).await.unwrap();
}

const STAYS: &str = "stays at ";

#[tokio::test]
#[ignore = "waits to be killed by the test above"]
async fn stays() {
    let server = Server::start().await;
    println!("{STAYS}{} {}", server.address(), server.dir().display());
    tokio::time::sleep(PATIENCE).await;
}

#[tokio::test]
async fn the_clock_of_a_server_is_moved_while_it_runs_and_what_expires_with_it() {
    const HOUR: u64 = 3_600_000_000;
    let server = Server::start_with_clock().await;
    let system = Server::start().await;
    server.cli::<()>(&["SET", "key", "1", "PX", "600000"]).await;

    server.set_clock(-3_600);
    let behind = server.time_us().await;
    assert!(behind + HOUR <= system.time_us().await);
    assert!(server.cli::<u64>(&["PTTL", "key"]).await > 3_600_000);

    server.set_clock(3_600);
    let before = system.time_us().await;
    assert!(server.time_us().await >= before + HOUR);
    let time = ["EVAL", "return redis.call('TIME')", "0"];
    let ahead: (u64, u64) = server.cli(&time).await;
    assert!(ahead.0 >= (before + HOUR) / 1_000_000);
    assert_eq!(server.cli::<Option<u64>>(&["GET", "key"]).await, None);
}
