//! Connections that switch to another protocol.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Message, client::IntoClientRequest};

use super::support::{PATIENCE, Sidecar, head, rest};
use super::upstream::{self, Recorder, SWITCH, UPGRADE};

/// Echoes the messages of a WebSocket, and the close.
async fn echo(stream: tokio::net::TcpStream) {
    let socket = tokio_tungstenite::accept_async(stream).await.unwrap();
    let (mut send, mut receive) = socket.split();
    while let Some(Ok(message)) = receive.next().await {
        // To a close it answers by itself, when it is asked for the next message.
        if !message.is_close() {
            send.send(message).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_web_socket_echoes_and_closes_with_its_code() {
    let sidecar = Sidecar::start(upstream::tasks(echo), &[]);
    let address = format!("ws://{}/chat", sidecar.listen);
    let mut request = address.into_client_request().unwrap();
    let id = "a".parse().unwrap();
    request.headers_mut().insert("x-client-id", id);
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

    assert_eq!(sidecar.metric("paceline_connections"), Some(1.0));
    let close = CloseFrame {
        code: CloseCode::Library(4001),
        reason: "done".into(),
    };
    socket.close(Some(close.clone())).await.unwrap();
    let closed = socket.next().await.unwrap().unwrap();
    assert_eq!(closed, Message::Close(Some(close)));
    drop(socket);
    sidecar.wait_for_connections(0);
}

/// A client that has switched to `raw`.
pub(crate) fn switched(sidecar: &Sidecar) -> TcpStream {
    let mut stream = sidecar.open(UPGRADE);
    let head = head(&mut stream);
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    assert!(head.contains("upgrade: raw\r\n"), "{head}");
    assert!(head.contains("connection: upgrade\r\n"), "{head}");
    stream
}

#[test]
fn each_side_may_end_first_and_the_other_goes_on() {
    // The service says all it has at once, with its head, and ends. Then it listens.
    let (said, heard) = channel();
    let service = upstream::raw(move |mut connection| {
        connection.head().unwrap();
        connection.send([SWITCH, "at once"].concat());
        connection.stream().shutdown(Shutdown::Write).unwrap();
        said.send(connection.rest()).unwrap();
    });
    let sidecar = Sidecar::start(service, &[]);
    let mut client = switched(&sidecar);
    assert_eq!(rest(&mut client), "at once");
    client.write_all(b"still here").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(heard.recv_timeout(PATIENCE).unwrap(), b"still here");

    // The client ends first.
    let service = upstream::raw(|mut connection| {
        connection.head().unwrap();
        connection.send(SWITCH);
        let all = connection.rest();
        connection.send(all);
    });
    let sidecar = Sidecar::start(service, &[]);
    let mut client = switched(&sidecar);
    client.write_all(b"all of it").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&mut client), "all of it");
}

#[test]
fn a_side_that_goes_takes_the_other_along() {
    let service = upstream::raw(|mut connection| {
        connection.head().unwrap();
        connection.send(SWITCH);
        connection.take(3);
        // It closes with bytes unread.
    });
    let sidecar = Sidecar::start(service, &[]);
    let mut client = switched(&sidecar);
    client.write_all(b"all of it").unwrap();
    assert_eq!(rest(&mut client), "");
    while client.write_all(b"more").is_ok() {
        thread::sleep(Duration::from_millis(5));
    }
    sidecar.wait_for_connections(0);
}

#[test]
fn an_upgraded_connection_has_no_limit_of_requests() {
    let limits = ["--head-timeout", "--idle-timeout", "--body-timeout"];
    let flags = limits.map(|limit| [limit, "100ms"]);
    let sidecar = Sidecar::start(upstream::echo(), flags.as_flattened());
    let mut stream = switched(&sidecar);
    thread::sleep(Duration::from_secs(1));
    echoes(&mut stream);
}

/// What goes to a service that echoes comes back.
pub(crate) fn echoes(stream: &mut TcpStream) {
    let mut back = [0; 5];
    stream.write_all(b"hello").unwrap();
    stream.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"hello");
}

#[test]
fn a_service_can_decline_to_switch() {
    let service = Recorder::answering("HTTP/1.1 400 No\r\ncontent-length: 2\r\n\r\nno");
    let sidecar = Sidecar::start(service.at, &[]);
    let mut client = sidecar.client();
    let fields = [
        ("x-client-id", "a"),
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
    ];
    for _ in 0..2 {
        let answer = client.send("GET", "/", &fields, b"");
        assert_eq!((answer.status, answer.text().as_str()), (400, "no"));
        assert_eq!(service.field("upgrade").as_deref(), Some("websocket"));
        assert_eq!(service.field("connection").as_deref(), Some("upgrade"));
    }
}

#[test]
fn a_switch_that_the_client_did_not_ask_for_is_a_bad_gateway() {
    let service = upstream::raw(|mut connection| {
        connection.head().unwrap();
        connection.send(SWITCH.replace("raw", "other"));
        connection.rest();
    });
    let sidecar = Sidecar::start(service, &[]);
    assert_eq!(sidecar.get("a").status, 502);
    let response = sidecar.exchange(UPGRADE.replace("upgrade\r\n", "upgrade, close\r\n"));
    assert!(response.starts_with("HTTP/1.1 502"), "{response}");
}

#[test]
fn http_2_is_not_reached_past_the_limit_by_an_upgrade() {
    let service = Recorder::ok();
    let sidecar = Sidecar::start(service.at, &[]);
    let fields = [
        ("x-client-id", "a"),
        ("connection", "Upgrade, HTTP2-Settings"),
        ("upgrade", "h2c"),
        ("http2-settings", "AAMAAABkAARAAAAAAAIAAAAA"),
    ];
    let answer = sidecar.client().send("GET", "/", &fields, b"");
    assert_eq!(answer.status, 200);
    for name in ["upgrade", "http2-settings", "connection"] {
        assert_eq!(service.field(name), None, "{name}");
    }
}
