#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "servers know nothing of a paused clock"
)]

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, FromRedisValue, RedisResult, cmd};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::servers::{Cut, PATIENCE, Relay, Server};

const A_WHILE: Duration = Duration::from_millis(100);

async fn relayed() -> (Server, Relay) {
    let server = Server::start().await;
    let relay = Relay::start(server.address());
    (server, relay)
}

/// A connection with long timeouts that does not reconnect.
async fn try_connect(client: Client) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    connection.await
}

async fn connect(relay: &Relay) -> MultiplexedConnection {
    let client = Client::open(relay.url()).unwrap();
    try_connect(client).await.unwrap()
}

async fn set(mut connection: MultiplexedConnection, value: u32) -> RedisResult<()> {
    let set = cmd("SET").arg("key").arg(value).to_owned();
    set.query_async(&mut connection).await
}

async fn get<T: FromRedisValue>(mut connection: MultiplexedConnection) -> RedisResult<T> {
    cmd("GET").arg("key").query_async(&mut connection).await
}

/// The value on the server, read without the relay.
async fn stored(server: &Server) -> Option<u32> {
    server.cli(&["GET", "key"]).await
}

async fn is_stored(server: &Server, value: u32) {
    let stored = async {
        while stored(server).await != Some(value) {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, stored).await.unwrap();
}

async fn waits<T>(task: &JoinHandle<T>) -> bool {
    sleep(A_WHILE).await;
    !task.is_finished()
}

#[tokio::test]
async fn delayed_replies_are_whole_and_never_early_on_an_open_connection() {
    let (server, relay) = relayed().await;
    let connection = connect(&relay).await;
    let long = "0123456789".repeat(100_000);
    server.cli::<()>(&["SET", "key", &long]).await;

    relay.delay_replies(A_WHILE).await;
    let start = Instant::now();
    let (a, b) = tokio::join!(get::<String>(connection.clone()), set(connection, 1));
    assert!(start.elapsed() >= A_WHILE);
    assert!(a.unwrap() == long);
    b.unwrap();
    assert_eq!(stored(&server).await, Some(1));
}

#[tokio::test]
async fn many_replies_are_delayed_at_the_same_time() {
    let (_server, relay) = relayed().await;
    let connection = connect(&relay).await;
    relay.delay_replies(A_WHILE * 5).await;

    let mut asked = Vec::new();
    for _ in 0..100 {
        asked.push(tokio::spawn(get::<Option<u32>>(connection.clone())));
        // Pauses so that each reply is read separately.
        sleep(Duration::from_millis(5)).await;
    }
    // Delayed one after the other, they would take 50 s.
    let answered = async {
        for asked in asked {
            assert_eq!(asked.await.unwrap().unwrap(), None);
        }
    };
    timeout(PATIENCE, answered).await.unwrap();
}

#[tokio::test]
async fn removing_a_delay_delivers_the_delayed_replies() {
    let (server, relay) = relayed().await;
    let connection = connect(&relay).await;
    relay.delay_replies(PATIENCE * 100).await;

    let asked = tokio::spawn(set(connection, 1));
    is_stored(&server, 1).await;
    assert!(waits(&asked).await);
    relay.delay_replies(Duration::ZERO).await;
    asked.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_dropped_reply_belongs_to_a_request_that_was_carried_out() {
    let (server, relay) = relayed().await;
    let connection = connect(&relay).await;

    relay.drop_replies(true).await;
    let asked = tokio::spawn(set(connection, 1));
    is_stored(&server, 1).await;
    assert!(waits(&asked).await);
    relay.drop_replies(false).await;

    assert!(asked.await.unwrap().unwrap_err().is_connection_dropped());
    assert_eq!(get::<u32>(connect(&relay).await).await.unwrap(), 1);
}

#[tokio::test]
async fn a_refusing_cut_closes_open_connections_and_refuses_new_ones() {
    let (server, relay) = relayed().await;
    let connection = connect(&relay).await;

    relay.cut(Cut::Refuse).await;
    let closed = set(connection, 1).await.unwrap_err();
    let refused = TcpStream::connect(relay.address()).await.unwrap_err();
    assert!(closed.is_connection_dropped(), "{closed:?}");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(stored(&server).await, None);

    relay.mend().await;
    set(connect(&relay).await, 2).await.unwrap();
    assert_eq!(stored(&server).await, Some(2));
}

#[tokio::test]
async fn a_black_hole_hides_everything_until_it_is_mended() {
    let (server, relay) = relayed().await;
    let connection = connect(&relay).await;

    relay.cut(Cut::BlackHole).await;
    let asked = tokio::spawn(set(connection, 1));
    assert!(TcpStream::connect(relay.address()).await.is_ok());
    let connecting = tokio::spawn(try_connect(Client::open(relay.url()).unwrap()));
    assert!(waits(&asked).await && !connecting.is_finished());
    assert_eq!(stored(&server).await, None);

    relay.mend().await;
    asked.await.unwrap().unwrap();
    let connected = connecting.await.unwrap().unwrap();
    assert_eq!(get::<u32>(connected).await.unwrap(), 1);
}

#[tokio::test]
async fn a_black_hole_hides_that_the_server_is_gone() {
    let (mut server, relay) = relayed().await;
    let connection = connect(&relay).await;

    relay.cut(Cut::BlackHole).await;
    server.kill();
    let asked = tokio::spawn(get::<Option<u32>>(connection));
    let mut stranger = TcpStream::connect(relay.address()).await.unwrap();
    assert!(timeout(A_WHILE, stranger.read_u8()).await.is_err());
    assert!(!asked.is_finished());

    relay.mend().await;
    assert!(asked.await.unwrap().unwrap_err().is_connection_dropped());
    assert!(stranger.read_u8().await.is_err());
    // Without the black hole, it is gone at once until it is back.
    server.start_again().await;
    let connection = connect(&relay).await;
    server.kill();
    let gone = get::<Option<u32>>(connection).await.unwrap_err();
    assert!(gone.is_connection_dropped());
}

#[tokio::test]
async fn a_switched_relay_closes_open_connections_and_leads_to_the_other_server() {
    let (server, relay) = relayed().await;
    let other = Server::start().await;
    let connection = connect(&relay).await;

    relay.switch_to(other.address()).await;
    let closed = set(connection, 1).await.unwrap_err();
    set(connect(&relay).await, 2).await.unwrap();

    assert!(closed.is_connection_dropped(), "{closed:?}");
    assert_eq!(stored(&server).await, None);
    assert_eq!(stored(&other).await, Some(2));
}
