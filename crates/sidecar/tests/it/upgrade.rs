//! Connections that switch to another protocol.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;

use futures::{SinkExt, StreamExt};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Message, client::IntoClientRequest};

use super::client::{Client, metric, scrape};
use super::support::{PATIENCE, Sidecar, wait_until};
use super::upstream::{self, Connection, Recorder, exchange};

fn start(at: SocketAddr) -> Sidecar {
    Sidecar::start(at, &["--capacity", "1000000", "--cycle", "10m"])
}

/// Echoes the messages of a WebSocket, and the close.
fn echo() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let socket = tokio_tungstenite::accept_async(stream).await.unwrap();
                    let (mut send, mut receive) = socket.split();
                    while let Some(Ok(message)) = receive.next().await {
                        // To a close it answers by itself, when it is asked for the next message.
                        if !message.is_close() {
                            send.send(message).await.unwrap();
                        }
                    }
                });
            }
        });
    });
    at
}

#[tokio::test]
async fn a_web_socket_echoes_and_closes_with_its_code() {
    let sidecar = start(echo());
    let mut request = format!("ws://{}/chat", sidecar.listen)
        .into_client_request()
        .unwrap();
    request
        .headers_mut()
        .insert("x-client-id", "a".parse().unwrap());
    let (mut socket, response) = tokio_tungstenite::connect_async(request).await.unwrap();
    assert_eq!(response.status(), 101);
    for number in 0..10_000 {
        let text = Message::text(format!("message {number}"));
        socket.send(text.clone()).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), text);
    }
    let large = Message::binary(vec![7; 1 << 20]);
    socket.send(large.clone()).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), large);

    assert_eq!(
        metric(&scrape(sidecar.admin), "paceline_connections"),
        Some(1.0)
    );
    let close = CloseFrame {
        code: CloseCode::Library(4001),
        reason: "done".into(),
    };
    socket.close(Some(close.clone())).await.unwrap();
    let closed = socket.next().await.unwrap().unwrap();
    assert_eq!(closed, Message::Close(Some(close)));
    drop(socket);
    wait_until("it is no longer counted", || {
        metric(&scrape(sidecar.admin), "paceline_connections") == Some(0.0)
    });
}

const UPGRADE: &str = "GET / HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\nconnection: upgrade\r\n\
                       upgrade: raw\r\n\r\n";
const SWITCH: &str =
    "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: raw\r\n\r\n";

/// A client that has switched to `raw`.
fn switched(at: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(UPGRADE.as_bytes()).unwrap();
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    assert!(head.contains("upgrade: raw\r\n"), "{head}");
    assert!(head.contains("connection: upgrade\r\n"), "{head}");
    stream
}

#[test]
fn each_side_may_end_first_and_the_other_goes_on() {
    // The service says all it has at once, with its head, and ends. Then it listens.
    let (said, heard) = std::sync::mpsc::channel();
    let service = upstream::raw(move |_, mut connection: Connection| {
        connection.head().unwrap();
        connection.send([SWITCH, "at once"].concat());
        connection.stream().shutdown(Shutdown::Write).unwrap();
        said.send(connection.rest()).unwrap();
    });
    let sidecar = start(service);
    let mut client = switched(sidecar.listen);
    let mut rest = String::new();
    client.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "at once");
    client.write_all(b"still here").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(heard.recv_timeout(PATIENCE).unwrap(), b"still here");

    // The client ends first.
    let service = upstream::raw(|_, mut connection: Connection| {
        connection.head().unwrap();
        connection.send(SWITCH);
        let all = connection.rest();
        connection.send(all);
    });
    let sidecar = start(service);
    let mut client = switched(sidecar.listen);
    client.write_all(b"all of it").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut rest = String::new();
    client.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "all of it");
}

#[test]
fn a_side_that_goes_takes_the_other_along() {
    let service = upstream::raw(|_, mut connection: Connection| {
        connection.head().unwrap();
        connection.send(SWITCH);
        connection.take(3);
        // It closes with bytes unread.
    });
    let sidecar = start(service);
    let mut client = switched(sidecar.listen);
    client.write_all(b"all of it").unwrap();
    let mut rest = Vec::new();
    let _ = client.read_to_end(&mut rest);
    assert_eq!(rest, b"");
    while client.write_all(b"more").is_ok() {
        thread::sleep(std::time::Duration::from_millis(5));
    }
    wait_until("it is no longer counted", || {
        metric(&scrape(sidecar.admin), "paceline_connections") == Some(0.0)
    });
}

#[test]
fn a_service_can_decline_to_switch() {
    let service = Recorder::answering("HTTP/1.1 400 No\r\ncontent-length: 2\r\n\r\nno");
    let sidecar = start(service.at);
    let mut client = Client::connect(sidecar.listen);
    let fields = [
        ("x-client-id", "a"),
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
    ];
    for _ in 0..2 {
        let answer = client.send("GET", "/", &fields, b"").unwrap();
        assert_eq!((answer.status, answer.text().as_str()), (400, "no"));
        assert_eq!(service.field("upgrade").as_deref(), Some("websocket"));
        assert_eq!(service.field("connection").as_deref(), Some("upgrade"));
    }
}

#[test]
fn a_switch_that_the_client_did_not_ask_for_is_a_bad_gateway() {
    let service = upstream::raw(|_, mut connection: Connection| {
        connection.head().unwrap();
        connection.send(
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: other\r\n\r\n",
        );
        connection.rest();
    });
    let sidecar = start(service);
    let answer = Client::connect(sidecar.listen).get("/", "a");
    assert_eq!(answer.status, 502);
    let response = exchange(
        sidecar.listen,
        UPGRADE.replace("upgrade\r\n", "upgrade, close\r\n"),
    );
    assert!(response.starts_with("HTTP/1.1 502"), "{response}");
}

#[test]
fn http_2_is_not_reached_past_the_limit_by_an_upgrade() {
    let service = Recorder::ok();
    let sidecar = start(service.at);
    let fields = [
        ("x-client-id", "a"),
        ("connection", "Upgrade, HTTP2-Settings"),
        ("upgrade", "h2c"),
        ("http2-settings", "AAMAAABkAARAAAAAAAIAAAAA"),
    ];
    let answer = Client::connect(sidecar.listen)
        .send("GET", "/", &fields, b"")
        .unwrap();
    assert_eq!(answer.status, 200);
    for name in ["upgrade", "http2-settings", "connection"] {
        assert_eq!(service.field(name), None, "{name}");
    }
}
