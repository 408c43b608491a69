//! What connections to the port may do, in virtual time.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream as Peer;

use paceline::time::Clock;
use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::task::spawn_blocking;

use crate::config::{Config, Source};

use super::*;

/// The admin port of a new sidecar that knows this number of clients.
fn port(clients: u32) -> SocketAddr {
    let address = "127.0.0.1:0".parse().unwrap();
    let mut config = Config::defaults();
    config.listen = address;
    config.upstream.authority = "127.0.0.1:1".parse().unwrap();
    config.fair.cycle = Duration::from_secs(1);
    config.fair.max_clients = clients.max(1);
    let sidecar = Sidecar::new(config, Source::default()).unwrap();
    for client in 0..clients {
        let client = format!("{client:064}");
        let _ = sidecar.limit.try_acquire(&client, &sidecar.config());
    }
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(address).unwrap();
    let listener = socket.listen(4_096).unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, Arc::new(sidecar)));
    address
}

async fn connected() -> TcpStream {
    TcpStream::connect(port(0)).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_head_is_closed_after_two_seconds() {
    for begun in ["", "G", "GET /healthz HTTP/1.1\r\nhost: localhost\r\n"] {
        let mut stream = connected().await;
        let mut clock = Clock::new();
        let start = clock.now();
        stream.write_all(begun.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        assert_eq!(clock.now().since(start).as_secs(), 2, "{begun:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_without_its_body_is_refused_after_ten_seconds() {
    for path in ["/mode", "/reload"] {
        let mut stream = connected().await;
        let head = change(path);
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 408", "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_read_is_closed() {
    let mut stream = connected().await;
    let request = b"GET /events HTTP/1.1\r\nhost: localhost\r\n\r\n";
    stream.write_all(request).await.unwrap();
    // Events fill the buffers of the connection. Then it makes no progress.
    while stream.write_all(b"x").await.is_ok() {
        let _ = timeout(PATIENCE, pending::<()>()).await;
    }
}

const PROBE: &str = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// A head, and the first half of its body.
fn change(path: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 14\r\n\r\n{{\"mode\""
    )
}

/// Runs peers of the port. Time stands still meanwhile, so no timeout closes their connections.
async fn at_one_instant(clients: u32, peers: impl FnOnce(SocketAddr) + Send + 'static) {
    let at = port(clients);
    spawn_blocking(move || peers(at)).await.unwrap();
}

fn open(at: SocketAddr, bytes: &str) -> Peer {
    let mut peer = Peer::connect(at).unwrap();
    let patience = Some(Duration::from_secs(60));
    peer.set_read_timeout(patience).unwrap();
    peer.write_all(bytes.as_bytes()).unwrap();
    peer
}

/// Sends a request, and reads its status.
fn begin(at: SocketAddr, request: &str, status: &str) -> Peer {
    let mut peer = open(at, request);
    let mut answer = [0; 12];
    peer.read_exact(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer);
    assert_eq!(answer, format!("HTTP/1.1 {status}"), "{request}");
    peer
}

/// What comes until the connection is closed.
fn rest(mut peer: Peer) -> String {
    let mut answer = String::new();
    let read = peer.read_to_string(&mut answer);
    read.unwrap_or_else(|error| panic!("{error} after {answer:?}"));
    answer
}

fn is_answered(at: SocketAddr, request: &str) {
    let answer = rest(open(at, request));
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
}

/// Whether nothing has come, not even the end.
fn is_silent(peer: &Peer) -> bool {
    peer.set_nonblocking(true).unwrap();
    let read = peer.peek(&mut [0]);
    peer.set_nonblocking(false).unwrap();
    read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// Holds this many connections, each with a part of a head, while probes and scrapes ask.
async fn probes_are_answered_beside(held: usize, begun: &'static str, next: &'static str) {
    at_one_instant(0, move |at| {
        let mut peers: Vec<_> = (0..held).map(|_| open(at, begun)).collect();
        for _ in 0..12 {
            is_answered(at, PROBE);
            is_answered(at, &PROBE.replace("healthz", "metrics"));
            for peer in &mut peers {
                if !is_silent(peer) || peer.write_all(next.as_bytes()).is_err() {
                    *peer = open(at, begun);
                }
            }
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn probes_are_answered_while_1200_silent_connections_are_held_and_renewed() {
    probes_are_answered_beside(1_200, "", "").await;
}

#[tokio::test(start_paused = true)]
async fn probes_are_answered_while_1200_half_heads_are_held_and_renewed() {
    let half = "GET /events HTTP/1.1\r\nhost: localhost\r\n";
    probes_are_answered_beside(1_200, half, "").await;
}

#[tokio::test(start_paused = true)]
async fn probes_are_answered_while_1200_slow_heads_are_held_and_renewed() {
    probes_are_answered_beside(1_200, "GET / HTTP/1.1\r\na:", "b").await;
}

#[tokio::test(start_paused = true)]
async fn requests_under_way_have_at_most_192_places_and_keep_them() {
    at_one_instant(0, |at| {
        let begin = |request: &str, status: &str| begin(at, request, status);
        let events = PROBE.replace("healthz", "events");
        let events: Vec<_> = (0..SUBSCRIBERS).map(|_| begin(&events, "200")).collect();
        // The sidecar asks for the body once the request has its place.
        let change = change("/mode").replace("\r\n\r\n", "\r\nexpect: 100-continue\r\n\r\n");
        let changes = places(CONNECTIONS) - SUBSCRIBERS;
        let changes: Vec<_> = (0..changes).map(|_| begin(&change, "100")).collect();
        for path in ["metrics", "clients", "events", ""] {
            begin(&PROBE.replace("healthz", path), "503");
        }
        let silent: Vec<_> = (0..300).map(|_| open(at, "")).collect();
        is_answered(at, PROBE);

        for mut peer in changes {
            peer.write_all(b":\"off\"}").unwrap();
            let answer = rest(peer);
            assert!(
                answer.ends_with("{\"mode\":\"off\",\"share\":100.0}"),
                "{answer}"
            );
        }
        for mut reader in events {
            let mut buffer = [0; 4096];
            while !is_silent(&reader) {
                assert_ne!(reader.read(&mut buffer).unwrap(), 0, "it was cut");
            }
        }
        drop(silent);
        is_answered(at, &PROBE.replace("healthz", "metrics"));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_scrape_is_not_cut_for_other_connections() {
    // More metrics than the buffers of a connection hold.
    at_one_instant(20_000, |at| {
        let scrape = begin(at, &PROBE.replace("healthz", "metrics"), "200");
        let silent: Vec<_> = (0..300).map(|_| open(at, "")).collect();
        is_answered(at, PROBE);
        let answer = rest(scrape);
        let (head, metrics) = answer.split_once("\r\n\r\n").unwrap();
        let length = format!("content-length: {}\r\n", metrics.len());
        assert!(head.contains(&length), "{head}, got {length}");
        drop(silent);
    })
    .await;
}

async fn pair() -> (impl AsyncWrite + Unpin, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (peer, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
    (with_patience(accepted.unwrap().0), peer.unwrap())
}

/// Writes until the peer's buffers are full.
async fn fill(stream: &mut (impl AsyncWrite + Unpin)) {
    let block = vec![0; 64 * 1024];
    let soon = Duration::from_secs(1);
    while timeout(soon, stream.write(&block)).await.is_ok() {}
}

#[tokio::test(start_paused = true)]
async fn a_write_that_makes_no_progress_fails() {
    let (mut stream, _peer) = pair().await;
    fill(&mut stream).await;
    let error = stream.write(b"x").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_reads_at_last_is_not_cut() {
    let (mut stream, mut peer) = pair().await;
    fill(&mut stream).await;
    let mut buffer = vec![0; 1024 * 1024];
    for _ in 0..4 {
        // Of the 10 s, 1 s is over.
        let soon = Duration::from_secs(1);
        while timeout(soon, peer.read(&mut buffer)).await.is_ok() {}
        fill(&mut stream).await;
    }
    let error = stream.write(b"x").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
}
