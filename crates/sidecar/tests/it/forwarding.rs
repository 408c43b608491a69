//! What reaches the service, and what comes back.

use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};

use super::client::Client;
use super::support::Sidecar;
use super::upstream::{self, Recorder, Reply, exchange, reply};

const LIMITS: [&str; 4] = ["--capacity", "1000000", "--cycle", "10m"];

/// A sidecar that refuses nothing.
fn wide(upstream: SocketAddr, flags: &[&str]) -> Sidecar {
    Sidecar::start(upstream, &[&LIMITS[..], flags].concat())
}

fn wide_h2c(upstream: SocketAddr) -> Sidecar {
    let upstream = format!("h2c://{upstream}");
    let flags = [
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
        "--upstream",
        &upstream,
    ];
    Sidecar::run(&[&flags[..], &LIMITS].concat())
}

/// What curl prints, with the head of the response.
fn curl(at: SocketAddr, path: &str, flags: &[&str]) -> String {
    curl_with(at, path, flags, &[])
}

fn curl_with(at: SocketAddr, path: &str, flags: &[&str], input: &[u8]) -> String {
    let mut child = Command::new("curl")
        .args(["--silent", "--show-error", "--include", "--max-time", "60"])
        .args(["--header", "x-client-id: a"])
        .args(flags)
        .arg(format!("http://{at}{path}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("curl is installed");
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // curl may stop to read before the end.
    std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text += &String::from_utf8_lossy(&output.stderr);
    text
}

fn body_of(response: &str) -> &str {
    response.split_once("\r\n\r\n").unwrap().1
}

#[test]
fn path_and_query_pass_byte_for_byte() {
    let service = Recorder::ok();
    let sidecar = wide(service.at, &[]);
    for target in [
        "/",
        "/a%2Fb/../c;d=1//e?x=%20&y=a+b&&z",
        "//two",
        "/?",
        "/a?b?c=/d",
        "/{x}|\"",
        "/\u{e9}",
    ] {
        let request = format!(
            "GET {target} HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\nconnection: close\r\n\r\n"
        );
        let response = exchange(sidecar.listen, request);
        assert!(response.starts_with("HTTP/1.1 200"), "{target}: {response}");
        let seen = service.seen().pop().unwrap();
        assert!(
            seen.starts_with(&format!("GET {target} HTTP/1.1\r\n")),
            "{target}: {seen}"
        );
    }
}

#[test]
fn fields_of_the_connection_stay_on_it() {
    let service = Recorder::answering(
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: keep-alive, x-hop\r\nx-hop: 1\r\n\
         keep-alive: timeout=9\r\nproxy-connection: a\r\nproxy-authenticate: Basic\r\n\
         x-end: 1\r\n\r\nok",
    );
    let sidecar = wide(service.at, &[]);
    let mut client = Client::connect(sidecar.listen);
    let fields = [
        ("x-client-id", "a"),
        ("connection", "x-hop, X-Client-Id, host"),
        (
            "connection",
            "x-forwarded-for, content-length, authorization",
        ),
        ("x-hop", "1"),
        ("keep-alive", "timeout=9"),
        ("proxy-connection", "keep-alive"),
        ("proxy-authorization", "Basic eA=="),
        ("te", "gzip, trailers;q=0.5"),
        ("te", "trailers"),
        ("upgrade", "websocket"),
        ("authorization", "Bearer eA"),
        ("x-forwarded-for", "192.0.2.1"),
        ("x-end", "1"),
    ];
    let answer = client.send("POST", "/", &fields, b"body").unwrap();
    assert_eq!(answer.status, 200);
    for name in [
        "x-hop",
        "keep-alive",
        "proxy-connection",
        "proxy-authenticate",
        "connection",
    ] {
        assert_eq!(answer.header(name), None, "{name} in the response");
    }
    assert_eq!(answer.header("x-end"), Some("1"));
    assert_eq!(answer.header("via"), Some("1.1 paceline"));

    for name in [
        "x-hop",
        "keep-alive",
        "proxy-connection",
        "proxy-authorization",
        "upgrade",
    ] {
        assert_eq!(service.field(name), None, "{name} in the request");
    }
    let field = |name| service.field(name).unwrap_or_default();
    assert_eq!(field("te"), "trailers");
    assert_eq!(field("connection"), "te");
    assert_eq!(field("x-client-id"), "a");
    assert_eq!(field("authorization"), "Bearer eA");
    assert_eq!(field("content-length"), "4");
    assert_eq!(field("x-forwarded-for"), "192.0.2.1, 127.0.0.1");
    assert_eq!(field("x-end"), "1");
}

#[test]
fn the_service_sees_its_own_host_and_where_the_request_came_from() {
    let service = Recorder::ok();
    let sidecar = wide(service.at, &[]);
    let head = "GET / HTTP/1.1\r\nhost: shop.example:81\r\nx-client-id: a\r\nconnection: close\r\n";
    exchange(sidecar.listen, format!("{head}\r\n"));
    let field = |name| service.field(name).unwrap_or_default();
    assert_eq!(field("host"), service.at.to_string());
    assert_eq!(field("x-forwarded-host"), "shop.example:81");
    assert_eq!(field("x-forwarded-proto"), "http");
    assert_eq!(field("x-forwarded-for"), "127.0.0.1");
    assert_eq!(field("via"), "1.1 paceline");

    // A proxy in front knows better.
    let known = "x-forwarded-proto: https\r\nx-forwarded-host: www.example\r\nvia: 2 front\r\n\
                 x-forwarded-for: 192.0.2.1\r\nx-forwarded-for: 192.0.2.2\r\n";
    exchange(sidecar.listen, format!("{head}{known}\r\n"));
    assert_eq!(field("x-forwarded-host"), "www.example");
    assert_eq!(field("x-forwarded-proto"), "https");
    assert_eq!(field("x-forwarded-for"), "192.0.2.1, 192.0.2.2, 127.0.0.1");
    assert_eq!(field("via"), "2 front, 1.1 paceline");
}

#[test]
fn an_absolute_target_and_the_asterisk_are_known() {
    let service = Recorder::ok();
    let sidecar = wide(service.at, &[]);
    for (line, host, seen) in [
        (
            "GET http://a.example/x?y HTTP/1.1",
            "a.example",
            "GET /x?y HTTP/1.1",
        ),
        (
            "GET http://A.example:80/x HTTP/1.1",
            "a.example",
            "GET /x HTTP/1.1",
        ),
        (
            "GET http://a.example HTTP/1.1",
            "a.example",
            "GET / HTTP/1.1",
        ),
        ("OPTIONS * HTTP/1.1", "a.example", "OPTIONS * HTTP/1.1"),
    ] {
        let request =
            format!("{line}\r\nhost: {host}\r\nx-client-id: a\r\nconnection: close\r\n\r\n");
        let response = exchange(sidecar.listen, request);
        assert!(response.starts_with("HTTP/1.1 200"), "{line}: {response}");
        let request = service.seen().pop().unwrap();
        assert!(
            request.starts_with(&format!("{seen}\r\n")),
            "{line}: {request}"
        );
        assert_eq!(service.field("host"), Some(service.at.to_string()));
    }
}

#[test]
fn connect_is_not_supported() {
    let service = Recorder::ok();
    let sidecar = wide(service.at, &[]);
    let request = "CONNECT a.example:80 HTTP/1.1\r\nhost: a.example:80\r\nx-client-id: a\r\n\r\n";
    let response = exchange(sidecar.listen, [request, "junk\r\n\r\n"].concat());
    assert!(response.starts_with("HTTP/1.1 501"), "{response}");
    assert!(service.seen().is_empty());
}

#[test]
fn a_response_without_a_body_keeps_its_length() {
    for (method, answer, status) in [
        (
            "HEAD",
            "HTTP/1.1 200 OK\r\ncontent-length: 1234\r\n\r\n",
            200,
        ),
        (
            "GET",
            "HTTP/1.1 304 Not Modified\r\ncontent-length: 1234\r\netag: \"a\"\r\n\r\n",
            304,
        ),
        ("GET", "HTTP/1.1 204 No Content\r\n\r\n", 204),
    ] {
        let service = Recorder::answering(answer);
        let sidecar = wide(service.at, &[]);
        let mut client = Client::connect(sidecar.listen);
        // Twice on one connection: no byte of a body is left over.
        for _ in 0..2 {
            let answer = client
                .send(method, "/", &[("x-client-id", "a")], b"")
                .unwrap();
            assert_eq!(answer.status, status);
            // hyper leaves out what may be left out: the length for 304.
            let length = (method == "HEAD").then_some("1234");
            assert_eq!(answer.header("content-length"), length, "{method} {status}");
            assert_eq!(answer.header("transfer-encoding"), None);
        }
        assert_eq!(service.seen().len(), 2);
    }
}

#[test]
fn a_megabyte_goes_up_and_down() {
    let service = upstream::http1(|request| async { Response::new(request.into_body().boxed()) });
    let megabyte: Vec<u8> = (b'a'..=b'z').cycle().take(1 << 20).collect();
    let sidecar = wide(service, &[]);
    let mut client = Client::connect(sidecar.listen);
    let answer = client
        .send("POST", "/", &[("x-client-id", "a")], &megabyte)
        .unwrap();
    assert_eq!(answer.header("content-length"), Some("1048576"));
    assert!(answer.body == megabyte);
    for flags in [
        &["--data-binary", "@-"][..],
        &[
            "--data-binary",
            "@-",
            "--header",
            "transfer-encoding: chunked",
        ],
        &["--data-binary", "@-", "--http2-prior-knowledge"],
        &["--data-binary", "@-", "--header", "expect: 100-continue"],
        &[
            "--request",
            "GET",
            "--data-binary",
            "@-",
            "--header",
            "transfer-encoding: chunked",
        ],
    ] {
        let response = curl_with(sidecar.listen, "/", flags, &megabyte);
        assert!(response.starts_with("HTTP/"), "{response}");
        let body = response.rsplit("\r\n\r\n").next().unwrap();
        assert!(
            body.as_bytes() == megabyte,
            "{flags:?}: {} bytes",
            body.len()
        );
    }
}

#[test]
fn http_2_is_spoken_on_both_sides() {
    let service = upstream::h2c(|request| async move {
        let seen = format!(
            "{:?} {} {:?} {:?}",
            request.version(),
            request.uri(),
            request.headers().get("x-forwarded-host"),
            request.headers().get("host"),
        );
        let body = request.into_body().collect().await.unwrap().to_bytes();
        reply([seen.as_bytes(), b" ", &body].concat())
    });
    let sidecar = wide_h2c(service);
    let seen = format!(
        "HTTP/2.0 http://{service}/a%2Fb?c Some(\"{}\") None",
        sidecar.listen
    );
    for flags in [&["--http1.1"][..], &["--http2-prior-knowledge"]] {
        let response = curl(sidecar.listen, "/a%2Fb?c", flags);
        assert_eq!(body_of(&response), format!("{seen} "), "{response}");
        let response = curl(
            sidecar.listen,
            "/a%2Fb?c",
            &[flags, &["--data", "body"]].concat(),
        );
        assert_eq!(body_of(&response), format!("{seen} body"), "{response}");
    }
}

fn with_trailers() -> Reply {
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", HeaderValue::from_static("7"));
    let frames = [
        Ok(Frame::data(Bytes::from_static(b"body"))),
        Ok(Frame::trailers(trailers)),
    ];
    let body = StreamBody::new(futures::stream::iter(frames));
    let mut response = Response::new(body.boxed());
    let announced = HeaderValue::from_static("x-sum");
    response.headers_mut().insert("trailer", announced);
    response
}

#[test]
fn trailers_pass_both_ways() {
    let check = |request: http::Request<hyper::body::Incoming>| async move {
        let body = request.into_body().collect().await.unwrap();
        let sum = body
            .trailers()
            .and_then(|trailers| trailers.get("x-sum").cloned());
        let mut response = with_trailers();
        if let Some(sum) = sum {
            response.headers_mut().insert("x-got", sum);
        }
        response
    };
    let sidecars = [
        wide(upstream::http1(check), &[]),
        wide_h2c(upstream::h2c(check)),
    ];
    for sidecar in sidecars {
        let request = "POST / HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\nte: trailers\r\n\
                       connection: te, close\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n\
                       4\r\nbody\r\n0\r\nx-sum: 5\r\n\r\n";
        let response = exchange(sidecar.listen, request);
        assert!(response.contains("x-got: 5\r\n"), "{response}");
        assert!(response.ends_with("0\r\nx-sum: 7\r\n\r\n"), "{response}");
        let response = Command::new("nghttp")
            .args([
                "--verbose",
                "--no-dep",
                "--header",
                "x-client-id: a",
                "--header",
                "te: trailers",
            ])
            .args(["--trailer", "x-sum: 9", "--data", "/dev/null"])
            .arg(format!("http://{}/", sidecar.listen))
            .output()
            .unwrap();
        let response = String::from_utf8_lossy(&response.stdout).into_owned();
        assert!(response.contains("x-sum: 7"), "{response}");
    }
}

#[test]
fn the_service_decides_whether_a_body_that_waits_may_come() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let service = upstream::raw(move |_, mut connection| {
        let head = connection.head().unwrap();
        assert!(head.contains("\r\nexpect: 100-continue\r\n"), "{head}");
        count.fetch_add(1, Ordering::Relaxed);
        if head.starts_with("POST /no ") {
            connection.send("HTTP/1.1 403 No\r\ncontent-length: 2\r\n\r\nno");
            // Nothing of the body comes, and the connection is not used again.
            assert_eq!(connection.rest(), b"");
        } else {
            // Nothing of the body comes before.
            connection
                .stream()
                .set_read_timeout(Some(Duration::from_millis(100)))
                .unwrap();
            assert_eq!(connection.take(1), None);
            connection
                .stream()
                .set_read_timeout(Some(super::support::PATIENCE))
                .unwrap();
            connection.send("HTTP/1.1 100 Continue\r\n\r\n");
            assert_eq!(connection.take(4).as_deref(), Some(&b"body"[..]));
            connection.send("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nyes");
        }
    });
    let sidecar = wide(service, &[]);
    let flags = [
        "--data",
        "body",
        "--header",
        "expect: 100-continue",
        "--expect100-timeout",
        "50",
    ];
    let response = curl(sidecar.listen, "/yes", &flags);
    assert!(
        response.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200"),
        "{response}"
    );
    assert!(response.ends_with("yes"), "{response}");
    let response = curl(sidecar.listen, "/no", &flags);
    assert!(response.starts_with("HTTP/1.1 403"), "{response}");
    assert!(response.ends_with("no"), "{response}");
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}

#[test]
fn a_service_that_never_says_continue_gets_the_body_after_a_second() {
    let service = upstream::raw(|_, mut connection| {
        connection.head().unwrap();
        assert_eq!(connection.take(4).as_deref(), Some(&b"body"[..]));
        connection.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    });
    let sidecar = wide(service, &[]);
    let flags = [
        "--data",
        "body",
        "--header",
        "expect: 100-continue",
        "--expect100-timeout",
        "50",
    ];
    let response = curl(sidecar.listen, "/", &flags);
    assert!(response.ends_with("ok"), "{response}");
}

#[test]
fn an_answer_that_comes_before_the_end_of_the_body_is_delivered() {
    let service = upstream::raw(|_, mut connection| {
        connection.head().unwrap();
        connection.take(1000).unwrap();
        // It closes with most of the body unread, so the sidecar's writes are reset.
        connection
            .send("HTTP/1.1 413 Too Much\r\ncontent-length: 4\r\nconnection: close\r\n\r\nmuch");
    });
    let sidecar = wide(service, &[]);
    let body = vec![b'x'; 20 << 20];
    for _ in 0..5 {
        let response = curl_with(
            sidecar.listen,
            "/",
            &["--data-binary", "@-", "--header", "expect:"],
            &body,
        );
        assert!(response.starts_with("HTTP/1.1 413"), "{response}");
        assert!(response.contains("\r\n\r\nmuch"), "{response}");
    }
    // curl 7.88 takes the end of the request's stream, which is no error, for one.
    let output = Command::new("nghttp")
        .args(["--verbose", "--no-dep", "--header", "x-client-id: a"])
        .args(["--data", env!("CARGO_BIN_EXE_paceline-sidecar")])
        .arg(format!("http://{}/", sidecar.listen))
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&output.stdout);
    assert!(output.contains(":status: 413"), "{output}");
    assert!(output.contains("much"), "{output}");
}

#[test]
fn a_response_of_a_service_of_http_1_0_ends_with_its_connection() {
    let service = upstream::raw(|_, mut connection| {
        let head = connection.head().unwrap();
        assert!(head.starts_with("GET / HTTP/1.1\r\n"), "{head}");
        connection.send("HTTP/1.0 200 OK\r\nx-a: 1\r\n\r\nuntil the end");
    });
    let sidecar = wide(service, &[]);
    let mut client = Client::connect(sidecar.listen);
    for _ in 0..2 {
        let answer = client.get("/", "a");
        assert_eq!(answer.text(), "until the end");
        assert_eq!(answer.header("transfer-encoding"), Some("chunked"));
        assert_eq!(answer.header("via"), Some("1.0 paceline"));
    }
    // A client of HTTP/1.0 knows no chunks.
    let response = exchange(sidecar.listen, "GET / HTTP/1.0\r\nx-client-id: a\r\n\r\n");
    assert!(response.ends_with("\r\n\r\nuntil the end"), "{response}");
}

#[test]
fn cookies_of_http_2_are_one_field_for_http_1() {
    let service = Recorder::ok();
    let sidecar = wide(service.at, &[]);
    let output = Command::new("nghttp")
        .args(["--no-dep", "--header", "x-client-id: a"])
        .args(["--header", "cookie: a=1", "--header", "cookie: b=2"])
        .arg(format!("http://{}/", sidecar.listen))
        .output()
        .unwrap();
    assert_eq!(output.stdout, b"ok");
    assert_eq!(service.field("cookie").as_deref(), Some("a=1; b=2"));
    assert_eq!(service.field("via").as_deref(), Some("2 paceline"));
}

#[test]
fn fields_of_the_service_pass_and_a_length_beside_chunks_does_not() {
    let service = Recorder::answering(
        "HTTP/1.1 200 Fine\r\ntransfer-encoding: chunked\r\ncontent-length: 99\r\nset-cookie: a=1\r\n\
         set-cookie: b=2\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    );
    let sidecar = wide(service.at, &[]);
    let request = "GET / HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\nconnection: close\r\n\r\n";
    let response = exchange(sidecar.listen, request);
    assert!(response.starts_with("HTTP/1.1 200 Fine\r\n"), "{response}");
    assert!(
        response.contains("set-cookie: a=1\r\nset-cookie: b=2\r\n"),
        "{response}"
    );
    assert!(!response.contains("content-length"), "{response}");
    assert!(response.ends_with("2\r\nok\r\n0\r\n\r\n"), "{response}");
}

#[test]
fn methods_of_all_kinds_pass() {
    let service = upstream::http1(|request| async move {
        let mut response = reply("");
        if *request.method() == Method::from_bytes(b"PROPFIND").unwrap() {
            *response.status_mut() = StatusCode::MULTI_STATUS;
        }
        response
    });
    let sidecar = wide(service, &[]);
    let response = curl(sidecar.listen, "/", &["--request", "PROPFIND"]);
    assert!(response.starts_with("HTTP/1.1 207"), "{response}");
}
