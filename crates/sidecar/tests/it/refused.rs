//! Requests that end before they are requests: what the client, the metrics and the log hear of them.

use std::io::Write;
use std::thread;
use std::time::Duration;

use super::frames::{self, DATA, END_HEADERS, END_STREAM, HEADERS};
use super::support::{GET, Sidecar, head, rest};
use super::upstream::{self, UPGRADE, hello, nothing};

const SHORT: &str = "300ms";

fn bad_requests(sidecar: &Sidecar) -> Option<f64> {
    sidecar.metric("paceline_requests_total{outcome=\"bad_request\"}")
}

/// Checks that this is one answer of the sidecar with this status, and the end.
#[track_caller]
fn is_problem(answer: &str, status: u16) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
    for field in [
        "content-type: application/problem+json",
        "connection: close",
        &format!("content-length: {}", body.len()),
    ] {
        assert!(head.contains(field), "no {field}: {answer}");
    }
    let problem: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(problem["status"], status, "{body}");
    assert!(problem["detail"].is_string(), "{body}");
}

#[test]
fn what_the_parser_refuses_is_answered_counted_and_logged() {
    let sidecar = Sidecar::start(nothing(), &["--max-head-bytes", "100000"]);
    let target = "x".repeat(66_000);
    let large = "x".repeat(101_000);
    let many = "a: b\r\n".repeat(101);
    for (count, (request, status)) in (1_u32..).zip([
        ("GET / HTTP/1.1\r\n: a\r\n\r\n".to_owned(), 400),
        (
            "GET / HTTP/1.1\r\ncontent-length: x\r\n\r\n".to_owned(),
            400,
        ),
        ("\x16\x03\x01\x02\0\x01\0\x01\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/3.0\r\n\r\n".to_owned(), 400),
        (format!("GET /{target} HTTP/1.1\r\n\r\n"), 414),
        (format!("GET / HTTP/1.1\r\na: {large}\r\n\r\n"), 431),
        (format!("GET / HTTP/1.1\r\n{many}\r\n"), 431),
        // Not of the parser, and counted in the same way.
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400),
    ]) {
        is_problem(&sidecar.exchange(&request), status);
        let bad = Some(f64::from(count));
        assert_eq!(bad_requests(&sidecar), bad, "{request:.40}");
    }
    let log = sidecar.log();
    assert!(log.contains("a bad request"), "{log}");
    assert!(log.contains("status=400"), "{log}");
    assert!(log.contains("peer=127.0.0.1"), "{log}");
}

#[test]
fn a_flood_of_bad_requests_is_logged_once_a_second() {
    let sidecar = Sidecar::start(nothing(), &[]);
    for _ in 0..500 {
        is_problem(&sidecar.exchange("G\0\r\n\r\n"), 400);
    }
    assert_eq!(bad_requests(&sidecar), Some(500.0));
    let lines = sidecar.log().matches("a bad request").count();
    assert!((1..500).contains(&lines), "{lines}");
}

#[test]
fn a_bad_head_after_good_requests_is_refused_after_their_responses() {
    let sidecar = Sidecar::start(hello(), &[]);
    let bad = "GET / HTTP/1.1\r\n: a\r\n\r\n";
    // In one packet.
    let answers = sidecar.exchange([GET, GET, bad].concat());
    let (responses, last) = answers.split_at(answers.rfind("HTTP/1.1 ").unwrap());
    assert_eq!(responses.matches("HTTP/1.1 200 ").count(), 2, "{answers}");
    is_problem(last, 400);

    // On a connection that was idle.
    let mut stream = sidecar.open(GET);
    assert!(head(&mut stream).starts_with("HTTP/1.1 200 "));
    stream.write_all(bad.as_bytes()).unwrap();
    let answer = rest(&mut stream);
    is_problem(answer.strip_prefix("hello").unwrap(), 400);
    assert_eq!(bad_requests(&sidecar), Some(2.0));
}

#[test]
fn a_response_that_looks_like_a_refusal_is_not_one() {
    // To the letter what hyper itself writes.
    let refusal = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
    let service = upstream::Recorder::answering(refusal);
    let sidecar = Sidecar::start(service.at, &[]);
    let answers = sidecar.exchange([GET, GET, "\0"].concat());
    assert_eq!(answers.matches("via: 1.1 paceline").count(), 2, "{answers}");
    is_problem(&answers[answers.rfind("HTTP/1.1 ").unwrap()..], 400);
    assert_eq!(bad_requests(&sidecar), Some(1.0));
}

#[test]
fn a_late_head_is_answered_and_counted() {
    let sidecar = Sidecar::start(nothing(), &["--head-timeout", SHORT]);
    is_problem(&sidecar.exchange("GET / HTTP/1.1\r\nhost"), 408);
    // A connection on which nothing came is no request.
    assert_eq!(sidecar.exchange(""), "");
    assert_eq!(bad_requests(&sidecar), Some(1.0));
}

#[test]
fn a_client_that_goes_in_the_middle_of_a_head_made_no_request() {
    let sidecar = Sidecar::start(nothing(), &[]);
    for part in 1..GET.len() {
        drop(sidecar.open(&GET[..part]));
    }
    sidecar.wait_for_connections(0);
    assert_eq!(bad_requests(&sidecar), Some(0.0));
}

#[test]
fn a_broken_chunk_is_counted_once() {
    let sidecar = Sidecar::start(hello(), &[]);
    let chunk =
        "POST / HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\ntransfer-encoding: chunked\r\n\r\nx\r\n";
    is_problem(&sidecar.exchange(chunk), 400);
    assert_eq!(bad_requests(&sidecar), Some(1.0));
    sidecar.wait_for_log("a bad request");
}

#[test]
fn too_many_fields_of_http_2_are_answered_and_counted() {
    let sidecar = Sidecar::start(nothing(), &[]);
    let mut stream = frames::open(sidecar.listen, &[]);
    let block = frames::get(&b"\x00\x01b\x01c".repeat(100));
    frames::send(&mut stream, HEADERS, END_STREAM | END_HEADERS, 1, &block);
    let body = frames::next(&mut stream, DATA).payload;
    let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(problem["status"], 431);
    assert_eq!(bad_requests(&sidecar), Some(1.0));
    sidecar.wait_for_log("a bad request");
}

#[test]
fn an_upgraded_connection_has_no_heads() {
    let flags = ["--head-timeout", SHORT, "--idle-timeout", SHORT];
    let sidecar = Sidecar::start(upstream::echo(), &flags);
    let mut stream = sidecar.open(UPGRADE);
    assert!(head(&mut stream).starts_with("HTTP/1.1 101 "));
    let bytes = "\0\n\ncontent-length: 1\n\nHTTP/1.1 400 Bad Request\r\n\r\n";
    stream.write_all(bytes.as_bytes()).unwrap();
    // Longer than both limits.
    thread::sleep(Duration::from_secs(1));
    stream.write_all(b"end").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(rest(&mut stream), [bytes, "end"].concat());
    sidecar.wait_for_connections(0);
    assert_eq!(bad_requests(&sidecar), Some(0.0));
}
