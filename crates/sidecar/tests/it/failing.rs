//! Services that refuse, die, are late or close silently, and clients that go.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::client::Client;
use super::support::{PATIENCE, Sidecar, wait_until};
use super::upstream::{self, exchange};

const LIMITS: [&str; 4] = ["--capacity", "1000000", "--cycle", "10m"];

fn start(at: std::net::SocketAddr, flags: &[&str]) -> Sidecar {
    Sidecar::start(at, &[&LIMITS[..], flags].concat())
}

const REQUEST: &str = "GET / HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\n\r\n";

#[test]
fn a_service_that_refuses_is_a_bad_gateway_and_the_cause_is_in_the_log() {
    let sidecar = start(upstream::nothing(), &[]);
    let mut client = Client::connect(sidecar.listen);
    for _ in 0..2 {
        let answer = client.get("/", "a");
        assert_eq!(answer.status, 502);
        assert_eq!(
            answer.header("content-type"),
            Some("application/problem+json")
        );
        let problem = r#"{"title":"Bad Gateway","status":502,"detail":"the upstream failed"}"#;
        assert_eq!(answer.text(), problem);
    }
    wait_until("it is in the log", || {
        sidecar.log().contains("Connection refused")
    });
    let grpc = [("x-client-id", "a"), ("content-type", "application/grpc")];
    let answer = client.send("POST", "/", &grpc, b"").unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("grpc-status"), Some("14"));
}

#[test]
fn a_service_that_does_not_accept_is_a_gateway_timeout() {
    // Nothing accepts, and the queue is full.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let full: Vec<_> = (0..200)
        .map_while(|_| {
            let timeout = std::time::Duration::from_millis(100);
            TcpStream::connect_timeout(&at, timeout).ok()
        })
        .collect();
    if full.len() == 200 {
        // This system takes any number.
        return;
    }
    let sidecar = start(at, &["--connect-timeout", "200ms"]);
    let answer = Client::connect(sidecar.listen).get("/", "a");
    assert_eq!(answer.status, 504);
}

#[test]
fn a_service_that_is_late_is_a_gateway_timeout_and_its_connection_ends() {
    let is_closed = Arc::new(AtomicBool::new(false));
    let closed = Arc::clone(&is_closed);
    let service = upstream::raw(move |_, mut connection| {
        connection.head().unwrap();
        // Half a head is none.
        connection.send("HTTP/1.1 200 OK\r\n");
        connection.rest();
        closed.store(true, Ordering::Relaxed);
    });
    let sidecar = start(service, &["--response-timeout", "200ms"]);
    let answer = Client::connect(sidecar.listen).get("/", "a");
    assert_eq!(answer.status, 504);
    assert!(
        answer.text().contains("did not respond in time"),
        "{}",
        answer.text()
    );
    wait_until("its connection ended", || is_closed.load(Ordering::Relaxed));
}

#[test]
fn the_time_for_a_response_begins_when_the_body_is_sent() {
    let service = upstream::raw(|_, mut connection| {
        connection.head().unwrap();
        connection.take(10).unwrap();
        connection.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    });
    let sidecar = start(service, &["--response-timeout", "300ms"]);
    let mut stream = TcpStream::connect(sidecar.listen).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = "POST / HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\nconnection: close\r\ncontent-length: 10\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    for _ in 0..10 {
        thread::sleep(std::time::Duration::from_millis(100));
        stream.write_all(b"x").unwrap();
    }
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
}

#[test]
fn a_body_that_stops_coming_is_the_fault_of_its_sender() {
    let service = upstream::raw(|_, mut connection| {
        connection.head().unwrap();
        connection.rest();
    });
    let sidecar = start(service, &["--body-timeout", "200ms"]);
    let head = "POST / HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\ncontent-length: 10\r\n\r\nfive5";
    let response = exchange(sidecar.listen, head);
    assert!(response.starts_with("HTTP/1.1 408"), "{response}");

    let service = upstream::raw(|_, mut connection| {
        connection.head().unwrap();
        connection.send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfive5");
        connection.rest();
    });
    let sidecar = start(service, &["--body-timeout", "200ms"]);
    let response = exchange(sidecar.listen, REQUEST);
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    assert!(response.ends_with("five5"), "{response}");
    wait_until("it is in the log", || {
        sidecar.log().contains("sent nothing more")
    });
}

#[test]
fn a_service_that_dies_in_its_body_ends_the_response_visibly() {
    for head in ["content-length: 10", "transfer-encoding: chunked"] {
        let service = upstream::raw(move |_, mut connection| {
            connection.head().unwrap();
            connection.send(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n5\r\nfive5"));
        });
        let sidecar = start(service, &[]);
        let mut client = Client::connect(sidecar.listen);
        let answer = client.send("GET", "/", &[("x-client-id", "a")], b"");
        assert!(answer.is_err(), "{head}: {answer:?}");
        wait_until("it is in the log", || sidecar.log().contains("broke off"));
    }
}

#[test]
fn a_service_that_closes_without_a_word_is_a_bad_gateway() {
    let count = Arc::new(AtomicUsize::new(0));
    let heads = Arc::clone(&count);
    let service = upstream::raw(move |_, mut connection| {
        connection.head().unwrap();
        heads.fetch_add(1, Ordering::Relaxed);
    });
    let sidecar = start(service, &[]);
    let answer = Client::connect(sidecar.listen).get("/", "a");
    assert_eq!(answer.status, 502);
    assert_eq!(
        count.load(Ordering::Relaxed),
        1,
        "a new connection is not repeated"
    );
}

/// A service that closes silently after every 50th answer, when the next request is on its way already.
fn closing() -> std::net::SocketAddr {
    upstream::raw(|_, mut connection| {
        for _ in 0..50 {
            if connection.head().is_none() {
                return;
            }
            connection.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        }
        // It closes only when it is asked again: the worst time.
        connection.head();
    })
}

#[test]
fn five_thousand_requests_pass_a_service_that_closes_after_each_50th() {
    let sidecar = start(closing(), &[]);
    let clients: Vec<_> = (0..5)
        .map(|_| {
            let at = sidecar.listen;
            thread::spawn(move || {
                let mut client = Client::connect(at);
                (0..1000)
                    .map(|_| client.get("/", "a").status)
                    .filter(|status| *status == 200)
                    .count()
            })
        })
        .collect();
    let passed: usize = clients
        .into_iter()
        .map(|client| client.join().unwrap())
        .sum();
    assert_eq!(passed, 5000);
}

#[test]
fn a_repeated_request_counts_once() {
    let sidecar = Sidecar::start(closing(), &["--capacity", "100", "--cycle", "10m"]);
    let mut client = Client::connect(sidecar.listen);
    let answers = (0..120).map(|_| client.get("/", "a").status);
    assert_eq!(answers.filter(|status| *status == 200).count(), 100);
}

#[test]
fn only_an_idempotent_request_without_a_body_is_repeated() {
    for (method, body, passes) in [
        ("DELETE", &b""[..], true),
        ("POST", b"", false),
        ("PUT", b"body", false),
        ("PATCH", b"", false),
    ] {
        let sidecar = start(closing(), &[]);
        let mut client = Client::connect(sidecar.listen);
        for _ in 0..50 {
            assert_eq!(client.get("/", "a").status, 200);
        }
        let answer = client
            .send(method, "/", &[("x-client-id", "a")], body)
            .unwrap();
        assert_eq!(answer.status == 200, passes, "{method}");
    }
}

#[test]
fn idle_connections_are_given_up_and_used_last_first() {
    let open = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&open);
    let service = upstream::raw(move |_, mut connection| {
        count.fetch_add(1, Ordering::Relaxed);
        while connection.head().is_some() {
            connection.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        }
        count.fetch_sub(1, Ordering::Relaxed);
    });
    let sidecar = start(service, &["--upstream-idle-timeout", "300ms"]);
    let mut client = Client::connect(sidecar.listen);
    for _ in 0..20 {
        assert_eq!(client.get("/", "a").status, 200);
    }
    assert_eq!(open.load(Ordering::Relaxed), 1, "they share a connection");
    wait_until("it is closed", || open.load(Ordering::Relaxed) == 0);
    assert_eq!(client.get("/", "a").status, 200);
}

#[test]
fn a_slow_reader_does_not_hold_up_another_request() {
    let service = upstream::http1(|request| async move {
        let length = if request.uri().path() == "/large" {
            64 << 20
        } else {
            2
        };
        upstream::reply(vec![b'x'; length])
    });
    let sidecar = start(service, &[]);
    let mut slow = TcpStream::connect(sidecar.listen).unwrap();
    slow.write_all(REQUEST.replace("GET /", "GET /large").as_bytes())
        .unwrap();
    let mut first = [0; 100];
    slow.read_exact(&mut first).unwrap();
    let mut client = Client::connect(sidecar.listen);
    for _ in 0..10 {
        assert_eq!(client.get("/", "a").text(), "xx");
    }
}

#[test]
fn the_request_ends_when_its_client_goes() {
    let begun = Arc::new(AtomicUsize::new(0));
    let ended = Arc::new(AtomicUsize::new(0));
    let counts = [Arc::clone(&begun), Arc::clone(&ended)];
    let service = upstream::raw(move |_, mut connection| {
        let Some(head) = connection.head() else {
            return;
        };
        if head.starts_with("GET /body") {
            connection.send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfive5");
        }
        counts[0].fetch_add(1, Ordering::Relaxed);
        connection.rest();
        counts[1].fetch_add(1, Ordering::Relaxed);
    });
    // One request at a time: a permit that stayed would be seen.
    let sidecar = start(service, &["--concurrency", "1"]);
    for (number, path) in ["/head", "/body", "/upload"].into_iter().enumerate() {
        let mut stream = TcpStream::connect(sidecar.listen).unwrap();
        let fields = match path {
            "/upload" => "content-length: 10\r\n\r\nfive5",
            _ => "\r\n",
        };
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\n{fields}");
        stream.write_all(request.as_bytes()).unwrap();
        wait_until("it is under way", || {
            begun.load(Ordering::Relaxed) == number + 1
        });
        assert_eq!(Client::connect(sidecar.listen).get("/", "a").status, 503);
        if path == "/body" {
            let mut first = [0; 12];
            stream.read_exact(&mut first).unwrap();
            assert_eq!(&first, b"HTTP/1.1 200");
        }
        drop(stream);
        wait_until("the request ended", || {
            ended.load(Ordering::Relaxed) == number + 1
        });
    }
}

/// A sidecar in front of a service of HTTP/2.
fn start_h2c(at: std::net::SocketAddr, flags: &[&str]) -> Sidecar {
    let upstream = format!("h2c://{at}");
    let addresses = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    Sidecar::run(&[&addresses[..], &["--upstream", &upstream], &LIMITS, flags].concat())
}

/// Tells that it was dropped.
struct Ended(Arc<AtomicUsize>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_stream_that_is_late_ends_and_its_connection_stays() {
    let ended = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ended);
    let service = upstream::h2c(move |request| {
        let ended = Ended(Arc::clone(&count));
        async move {
            if request.uri().path() == "/late" {
                std::future::pending::<()>().await;
            }
            drop(ended);
            upstream::reply("ok")
        }
    });
    let sidecar = start_h2c(service, &["--response-timeout", "200ms"]);
    let mut client = Client::connect(sidecar.listen);
    for number in 0..3 {
        assert_eq!(client.get("/late", "a").status, 504);
        wait_until("the stream ended", || {
            ended.load(Ordering::Relaxed) == 2 * number + 1
        });
        assert_eq!(client.get("/", "a").text(), "ok");
    }
}

#[test]
fn a_stream_ends_when_its_client_goes() {
    let begun = Arc::new(AtomicUsize::new(0));
    let ended = Arc::new(AtomicUsize::new(0));
    let counts = [Arc::clone(&begun), Arc::clone(&ended)];
    let service = upstream::h2c(move |_| {
        counts[0].fetch_add(1, Ordering::Relaxed);
        let ended = Ended(Arc::clone(&counts[1]));
        async move {
            std::future::pending::<()>().await;
            drop(ended);
            upstream::reply("never")
        }
    });
    let sidecar = start_h2c(service, &["--concurrency", "1"]);
    for number in 0..2 {
        let mut stream = TcpStream::connect(sidecar.listen).unwrap();
        stream.write_all(REQUEST.as_bytes()).unwrap();
        wait_until("it is under way", || {
            begun.load(Ordering::Relaxed) == number + 1
        });
        drop(stream);
        wait_until("the stream ended", || {
            ended.load(Ordering::Relaxed) == number + 1
        });
    }
}

#[test]
fn a_service_of_http_2_that_is_not_there_or_is_none_is_a_bad_gateway() {
    let sidecar = start_h2c(upstream::nothing(), &[]);
    assert_eq!(Client::connect(sidecar.listen).get("/", "a").status, 502);
    let sidecar = start_h2c(upstream::Recorder::ok().at, &["--response-timeout", "1s"]);
    let status = Client::connect(sidecar.listen).get("/", "a").status;
    assert_eq!(status, 502);
}

#[test]
fn a_service_that_comes_back_is_asked_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let answer_one = |listener: TcpListener| {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = [0; 4096];
        let _ = stream.read(&mut head).unwrap();
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
            .unwrap();
    };
    let sidecar = start(at, &[]);
    let mut client = Client::connect(sidecar.listen);
    let mut listener = Some(listener);
    for _ in 0..2 {
        let listener = listener
            .take()
            .unwrap_or_else(|| TcpListener::bind(at).unwrap());
        let answering = thread::spawn(move || answer_one(listener));
        assert_eq!(client.get("/", "a").status, 200);
        answering.join().unwrap();
        assert_eq!(client.get("/", "a").status, 502);
    }
}
