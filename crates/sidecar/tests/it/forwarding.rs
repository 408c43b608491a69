//! What reaches the service, and what comes back.

use std::io::Read;
use std::sync::mpsc::channel;
use std::time::Duration;

use futures::stream;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;

use super::support::{LAST_GET, PATIENCE, Sidecar, curl, nghttp};
use super::upstream::{self, LAST_OK, Recorder, Reply, reply};

#[test]
fn path_and_query_pass_byte_for_byte() {
    let service = Recorder::ok();
    let sidecar = Sidecar::start(service.at, &[]);
    for target in [
        "/",
        "/a%2Fb/../c;d=1//e?x=%20&y=a+b&&z",
        "//two",
        "/?",
        "/a?b?c=/d",
        "/{x}|\"",
        "/\u{e9}",
    ] {
        let response = sidecar.exchange(LAST_GET.replacen('/', target, 1));
        assert!(response.starts_with("HTTP/1.1 200"), "{target}: {response}");
        let seen = service.seen().pop().unwrap();
        let line = format!("GET {target} HTTP/1.1\r\n");
        assert!(seen.starts_with(&line), "{target}: {seen}");
    }
}

#[test]
fn fields_of_the_connection_stay_on_it() {
    let service = Recorder::answering(
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: keep-alive, x-hop\r\nx-hop: 1\r\n\
         keep-alive: timeout=9\r\nproxy-connection: a\r\nproxy-authenticate: Basic\r\n\
         x-end: 1\r\n\r\nok",
    );
    let sidecar = Sidecar::start(service.at, &[]);
    let fields = [
        ("x-client-id", "a"),
        ("connection", "x-hop, X-Client-Id, host"),
        ("connection", "x-forwarded-for, content-length"),
        ("connection", "authorization"),
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
    let answer = sidecar.client().send("POST", "/", &fields, b"body");
    assert_eq!(answer.status, 200);
    for (name, value) in [
        ("x-hop", None),
        ("keep-alive", None),
        ("proxy-connection", None),
        ("proxy-authenticate", None),
        ("connection", None),
        ("x-end", Some("1")),
        ("via", Some("1.1 paceline")),
    ] {
        assert_eq!(answer.header(name), value, "{name} in the response");
    }
    for (name, value) in [
        ("x-hop", None),
        ("keep-alive", None),
        ("proxy-connection", None),
        ("proxy-authorization", None),
        ("upgrade", None),
        ("te", Some("trailers")),
        ("connection", Some("te")),
        ("x-client-id", Some("a")),
        ("authorization", Some("Bearer eA")),
        ("content-length", Some("4")),
        ("x-forwarded-for", Some("192.0.2.1, 127.0.0.1")),
        ("x-end", Some("1")),
    ] {
        let seen = service.field(name);
        assert_eq!(seen.as_deref(), value, "{name} in the request");
    }
}

#[test]
fn the_service_sees_its_own_host_and_where_the_request_came_from() {
    let service = Recorder::ok();
    let sidecar = Sidecar::start(service.at, &[]);
    let head = LAST_GET.replace("host: a", "host: shop.example:81");
    sidecar.exchange(&head);
    let field = |name| service.field(name).unwrap_or_default();
    assert_eq!(field("host"), service.at.to_string());
    assert_eq!(field("x-forwarded-host"), "shop.example:81");
    assert_eq!(field("x-forwarded-proto"), "http");
    assert_eq!(field("x-forwarded-for"), "127.0.0.1");
    assert_eq!(field("via"), "1.1 paceline");

    // A proxy in front knows better.
    let known = "\r\nx-forwarded-proto: https\r\nx-forwarded-host: www.example\r\nvia: 2 front\r\n\
                 x-forwarded-for: 192.0.2.1\r\nx-forwarded-for: 192.0.2.2\r\n\r\n";
    sidecar.exchange(head.trim_end().to_owned() + known);
    assert_eq!(field("x-forwarded-host"), "www.example");
    assert_eq!(field("x-forwarded-proto"), "https");
    assert_eq!(field("x-forwarded-for"), "192.0.2.1, 192.0.2.2, 127.0.0.1");
    assert_eq!(field("via"), "2 front, 1.1 paceline");
}

#[test]
fn an_absolute_target_and_the_asterisk_are_known() {
    let service = Recorder::ok();
    let sidecar = Sidecar::start(service.at, &[]);
    for (line, expected) in [
        ("GET http://a.example/x?y", "GET /x?y"),
        ("GET http://A.example:80/x", "GET /x"),
        ("GET http://a.example", "GET /"),
        ("OPTIONS *", "OPTIONS *"),
    ] {
        let request = LAST_GET.replace("GET /", line);
        let response = sidecar.exchange(request.replace("host: a", "host: a.example"));
        assert!(response.starts_with("HTTP/1.1 200"), "{line}: {response}");
        let seen = service.seen().pop().unwrap();
        let expected = format!("{expected} HTTP/1.1\r\n");
        assert!(seen.starts_with(&expected), "{line}: {seen}");
        assert_eq!(service.field("host"), Some(service.at.to_string()));
    }
}

#[test]
fn connect_is_not_supported() {
    let service = Recorder::ok();
    let sidecar = Sidecar::start(service.at, &[]);
    let request = "CONNECT a.example:80 HTTP/1.1\r\nhost: a.example:80\r\nx-client-id: a\r\n\r\n";
    let response = sidecar.exchange([request, "junk\r\n\r\n"].concat());
    assert!(response.starts_with("HTTP/1.1 501"), "{response}");
    assert!(service.seen().is_empty());
}

#[test]
fn a_response_without_a_body_keeps_its_length() {
    for (method, status, fields) in [
        ("HEAD", 200, "content-length: 1234\r\n"),
        ("GET", 304, "content-length: 1234\r\netag: \"a\"\r\n"),
        ("GET", 204, ""),
    ] {
        let answer = format!("HTTP/1.1 {status} Of Its Own\r\n{fields}\r\n");
        let service = Recorder::answering(&answer);
        let sidecar = Sidecar::start(service.at, &[]);
        let mut client = sidecar.client();
        // Twice on one connection: no byte of a body is left over.
        for _ in 0..2 {
            let answer = client.send(method, "/", &[("x-client-id", "a")], b"");
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
    let service = upstream::http(|request| async { Response::new(request.into_body().boxed()) });
    let megabyte: Vec<u8> = (b'a'..=b'z').cycle().take(1 << 20).collect();
    let sidecar = Sidecar::start(service, &[]);
    let mut client = sidecar.client();
    let answer = client.send("POST", "/", &[("x-client-id", "a")], &megabyte);
    assert_eq!(answer.header("content-length"), Some("1048576"));
    assert!(answer.body == megabyte);
    let chunked = ["--header", "transfer-encoding: chunked"];
    for flags in [
        &[][..],
        &chunked,
        &["--http2-prior-knowledge"],
        &["--header", "expect: 100-continue"],
        &[&chunked[..], &["--request", "GET"]].concat(),
    ] {
        let all = [&["--data-binary", "@-"], flags].concat();
        let response = curl(sidecar.listen, "/", &all, &megabyte);
        assert!(response.starts_with("HTTP/"), "{response}");
        let body = response.rsplit("\r\n\r\n").next().unwrap().as_bytes();
        let end = String::from_utf8_lossy(&body[body.len().saturating_sub(90)..]);
        assert!(
            body == megabyte,
            "{flags:?}: {} bytes, ends with {end}",
            body.len()
        );
    }
}

#[test]
fn http_2_is_spoken_on_both_sides() {
    let service = upstream::http(|request| async move {
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
    let sidecar = Sidecar::h2c(service, &[]);
    let seen = format!(
        "HTTP/2.0 http://{service}/a%2Fb?c Some(\"{}\") None",
        sidecar.listen
    );
    for protocol in ["--http1.1", "--http2-prior-knowledge"] {
        for (flags, body) in [
            (&[protocol][..], ""),
            (&[protocol, "--data", "body"], "body"),
        ] {
            let response = curl(sidecar.listen, "/a%2Fb?c", flags, b"");
            let (_, got) = response.split_once("\r\n\r\n").unwrap();
            assert_eq!(got, format!("{seen} {body}"), "{response}");
        }
    }
}

/// Answers with a body, a trailer, and the trailer of the request as a field.
async fn with_trailers(request: Request<Incoming>) -> Reply {
    let body = request.into_body().collect().await.unwrap();
    let got = body.trailers().and_then(|trailers| trailers.get("x-sum"));
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", HeaderValue::from_static("7"));
    let frames = [Frame::data("body".into()), Frame::trailers(trailers)];
    let body = StreamBody::new(stream::iter(frames.map(Ok)));
    let response = Response::builder().header("trailer", "x-sum");
    let response = got
        .into_iter()
        .fold(response, |it, sum| it.header("x-got", sum));
    response.body(body.boxed()).unwrap()
}

#[test]
fn trailers_pass_both_ways() {
    let sidecars = [
        Sidecar::start(upstream::http(with_trailers), &[]),
        Sidecar::h2c(upstream::http(with_trailers), &[]),
    ];
    for sidecar in sidecars {
        let request = "POST / HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\nte: trailers\r\n\
                       connection: te, close\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n\
                       4\r\nbody\r\n0\r\nx-sum: 5\r\n\r\n";
        let response = sidecar.exchange(request);
        assert!(response.contains("x-got: 5\r\n"), "{response}");
        assert!(response.ends_with("0\r\nx-sum: 7\r\n\r\n"), "{response}");
        let trailer = ["--header", "te: trailers", "--trailer", "x-sum: 9"];
        let response = nghttp(&sidecar, &[&trailer[..], &["--data", "/dev/null"]].concat());
        assert!(response.contains("x-sum: 7"), "{response}");
    }
}

#[test]
fn trailers_of_a_request_pass_unannounced_and_name_neither_the_client_nor_the_connection() {
    let service = upstream::http(|request| async move {
        let body = request.into_body().collect().await.unwrap();
        let trailers = body.trailers().cloned().unwrap_or_default();
        let names: Vec<_> = trailers.keys().map(|name| name.as_str()).collect();
        reply(names.join(" "))
    });
    let request = "POST / HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\nconnection: close\r\n\
                   transfer-encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\nx-sum: 5\r\n\
                   x-client-id: b\r\nx-forwarded-for: b\r\nhost: b\r\nte: b\r\n\
                   connection: b\r\nauthorization: b\r\nx-end: 1\r\n\r\n";
    for sidecar in [Sidecar::start(service, &[]), Sidecar::h2c(service, &[])] {
        let response = sidecar.exchange(request);
        assert!(response.ends_with("\r\n\r\nx-sum x-end"), "{response}");
    }
}

#[test]
fn a_small_body_is_sent_with_its_head_and_a_client_of_http_1_0_expects_nothing() {
    let service = upstream::raw(|mut connection| {
        let mut first = [0; 4096];
        let read = connection.reader().read(&mut first).unwrap();
        let is_whole = first[..read].ends_with(b"\r\n\r\nbody");
        connection.send(if is_whole { LAST_OK } else { "" });
    });
    let sidecar = Sidecar::start(service, &[]);
    for head in [
        "POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n",
        "POST / HTTP/1.0\r\nexpect: 100-continue\r\n",
    ] {
        let fields = "x-client-id: a\r\ncontent-length: 4\r\n\r\nbody";
        let response = sidecar.exchange([head, fields].concat());
        assert!(response.contains(" 200 OK\r\n"), "{head}: {response}");
    }
}

#[test]
fn the_service_decides_whether_a_body_that_waits_may_come_and_gets_it_after_a_second_of_silence() {
    // curl would send the body after 50 ms.
    let flags = ["--data", "body", "--header", "expect: 100-continue"];
    let flags = [&flags[..], &["--expect100-timeout", "50"]].concat();
    let (ask, asked) = channel();
    let service = upstream::raw(move |mut connection| {
        let head = connection.head().unwrap();
        ask.send(()).unwrap();
        assert!(head.contains("\r\nexpect: 100-continue\r\n"), "{head}");
        if head.starts_with("POST /no ") {
            connection.send("HTTP/1.1 403 No\r\ncontent-length: 2\r\n\r\nno");
            // Nothing of the body comes, and the connection is not used again.
            assert_eq!(connection.rest(), b"");
            return;
        }
        // Nothing of the body comes before, for a second.
        if head.starts_with("POST /yes ") {
            let stream = connection.stream().try_clone().unwrap();
            let wait = |time| stream.set_read_timeout(Some(time)).unwrap();
            wait(Duration::from_millis(100));
            assert_eq!(connection.take(1), None);
            wait(PATIENCE);
            connection.send("HTTP/1.1 100 Continue\r\n\r\n");
        }
        assert_eq!(connection.take(4).as_deref(), Some(&b"body"[..]));
        connection.send(LAST_OK);
    });
    let sidecar = Sidecar::start(service, &[]);
    for (path, start, end) in [
        ("/yes", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200", "ok"),
        ("/no", "HTTP/1.1 403", "no"),
        ("/silent", "HTTP/1.1 ", "ok"),
    ] {
        let response = curl(sidecar.listen, path, &flags, b"");
        assert!(response.starts_with(start), "{path}: {response}");
        assert!(response.ends_with(end), "{path}: {response}");
    }
    assert_eq!(asked.try_iter().count(), 3);
}

#[test]
fn an_answer_that_comes_before_the_end_of_the_body_is_delivered() {
    let service = upstream::raw(|mut connection| {
        connection.head().unwrap();
        connection.take(1000).unwrap();
        // It closes with most of the body unread, so the sidecar's writes are reset.
        connection
            .send("HTTP/1.1 413 Too Much\r\ncontent-length: 4\r\nconnection: close\r\n\r\nmuch");
    });
    let sidecar = Sidecar::start(service, &[]);
    let body = vec![b'x'; 20 << 20];
    let flags = ["--data-binary", "@-", "--header", "expect:"];
    for _ in 0..5 {
        let response = curl(sidecar.listen, "/", &flags, &body);
        assert!(response.starts_with("HTTP/1.1 413"), "{response}");
        assert!(response.contains("\r\n\r\nmuch"), "{response}");
    }
    // curl 7.88 takes the end of the request's stream, which is no error, for one.
    let flags = ["--data", env!("CARGO_BIN_EXE_paceline-sidecar")];
    let output = nghttp(&sidecar, &flags);
    assert!(output.contains(":status: 413"), "{output}");
    assert!(output.contains("much"), "{output}");
}

#[test]
fn a_response_of_a_service_of_http_1_0_ends_with_its_connection() {
    let service = upstream::raw(|mut connection| {
        let head = connection.head().unwrap();
        assert!(head.starts_with("GET / HTTP/1.1\r\n"), "{head}");
        connection.send("HTTP/1.0 200 OK\r\nx-a: 1\r\n\r\nuntil the end");
    });
    let sidecar = Sidecar::start(service, &[]);
    let mut client = sidecar.client();
    for _ in 0..2 {
        let answer = client.get("/", "a");
        assert_eq!(answer.text(), "until the end");
        assert_eq!(answer.header("transfer-encoding"), Some("chunked"));
        assert_eq!(answer.header("via"), Some("1.0 paceline"));
    }
    // A client of HTTP/1.0 knows no chunks.
    let response = sidecar.exchange("GET / HTTP/1.0\r\nx-client-id: a\r\n\r\n");
    assert!(response.ends_with("\r\n\r\nuntil the end"), "{response}");
}

#[test]
fn cookies_of_http_2_are_one_field_for_http_1() {
    let service = Recorder::ok();
    let sidecar = Sidecar::start(service.at, &[]);
    let flags = ["--header", "cookie: a=1", "--header", "cookie: b=2"];
    let output = nghttp(&sidecar, &flags);
    assert!(output.contains(":status: 200"), "{output}");
    assert_eq!(service.field("cookie").as_deref(), Some("a=1; b=2"));
    assert_eq!(service.field("via").as_deref(), Some("2 paceline"));
}

#[test]
fn fields_of_the_service_pass_and_so_do_chunks() {
    let service = Recorder::answering(
        "HTTP/1.1 200 Fine\r\ntransfer-encoding: chunked\r\nset-cookie: a=1\r\n\
         set-cookie: b=2\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    );
    let sidecar = Sidecar::start(service.at, &[]);
    let response = sidecar.exchange(LAST_GET);
    assert!(response.starts_with("HTTP/1.1 200 Fine\r\n"), "{response}");
    assert!(
        response.contains("set-cookie: a=1\r\nset-cookie: b=2\r\n"),
        "{response}"
    );
    assert!(response.ends_with("2\r\nok\r\n0\r\n\r\n"), "{response}");
}

#[test]
fn methods_of_all_kinds_pass() {
    let service = Recorder::answering("HTTP/1.1 207 Multi\r\ncontent-length: 0\r\n\r\n");
    let sidecar = Sidecar::start(service.at, &[]);
    let response = sidecar.exchange(LAST_GET.replace("GET", "PROPFIND"));
    assert!(response.starts_with("HTTP/1.1 207"), "{response}");
    assert!(service.seen()[0].starts_with("PROPFIND / "));
}
