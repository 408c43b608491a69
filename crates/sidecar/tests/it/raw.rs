//! Requests that two readers could read in two ways, byte by byte. The service must not hear of them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use super::support::{PATIENCE, Sidecar};
use super::upstream::{Recorder, exchange};

fn start(service: &Recorder) -> Sidecar {
    Sidecar::start(service.at, &["--capacity", "1000000", "--cycle", "10m"])
}

/// The status of the first response.
fn status(response: &str) -> &str {
    response.get(9..12).unwrap_or(response)
}

#[expect(clippy::too_many_lines, reason = "a table")]
#[test]
fn what_can_be_read_in_two_ways_does_not_reach_the_service() {
    let service = Recorder::ok();
    let sidecar = start(&service);
    let host = "host: a\r\nx-client-id: a\r\n";
    let body = "0\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\n\r\n";
    for (what, request) in [
        (
            "no host",
            "GET / HTTP/1.1\r\nx-client-id: a\r\n\r\n".to_owned(),
        ),
        (
            "two hosts",
            format!("GET / HTTP/1.1\r\nhost: a\r\n{host}\r\n"),
        ),
        (
            "two hosts, differing",
            format!("GET / HTTP/1.1\r\nhost: b\r\n{host}\r\n"),
        ),
        (
            "a list of hosts",
            "GET / HTTP/1.1\r\nhost: a, b\r\nx-client-id: a\r\n\r\n".to_owned(),
        ),
        (
            "a path in the host",
            "GET / HTTP/1.1\r\nhost: a/b\r\nx-client-id: a\r\n\r\n".to_owned(),
        ),
        (
            "a target for another host",
            format!("GET http://b/ HTTP/1.1\r\n{host}\r\n"),
        ),
        (
            "a target for another port",
            format!("GET http://a:81/ HTTP/1.1\r\n{host}\r\n"),
        ),
        (
            "a target with a user",
            format!("GET http://u@a/ HTTP/1.1\r\n{host}\r\n"),
        ),
        (
            "a target that is a host",
            format!("GET a:80 HTTP/1.1\r\n{host}\r\n"),
        ),
        ("the asterisk", format!("GET * HTTP/1.1\r\n{host}\r\n")),
        (
            "two clients",
            format!("GET / HTTP/1.1\r\n{host}x-client-id: b\r\n\r\n"),
        ),
        (
            "the same client twice",
            format!("GET / HTTP/1.1\r\n{host}x-client-id: a\r\n\r\n"),
        ),
        (
            "lengths that differ",
            format!(
                "POST / HTTP/1.1\r\n{host}content-length: 5\r\ncontent-length: 6\r\n\r\n{body}"
            ),
        ),
        (
            "a list of lengths",
            format!("POST / HTTP/1.1\r\n{host}content-length: 5, 6\r\n\r\n{body}"),
        ),
        (
            "a length with a sign",
            format!("POST / HTTP/1.1\r\n{host}content-length: +5\r\n\r\n{body}"),
        ),
        (
            "a length in hex",
            format!("POST / HTTP/1.1\r\n{host}content-length: 0x5\r\n\r\n{body}"),
        ),
        (
            "a length too large",
            format!("POST / HTTP/1.1\r\n{host}content-length: 18446744073709551616\r\n\r\n{body}"),
        ),
        (
            "an unknown coding",
            format!("POST / HTTP/1.1\r\n{host}transfer-encoding: identity\r\n\r\n{body}"),
        ),
        (
            "a coding after chunked",
            format!("POST / HTTP/1.1\r\n{host}transfer-encoding: chunked, identity\r\n\r\n{body}"),
        ),
        (
            "a coding in a second line",
            format!(
                "POST / HTTP/1.1\r\n{host}transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n{body}"
            ),
        ),
        (
            "a coding that looks like chunked",
            format!("POST / HTTP/1.1\r\n{host}transfer-encoding: xchunked\r\n\r\n{body}"),
        ),
        (
            "chunks in HTTP/1.0",
            format!("POST / HTTP/1.0\r\n{host}transfer-encoding: chunked\r\n\r\n{body}"),
        ),
        (
            "a space before the colon",
            format!("POST / HTTP/1.1\r\n{host}transfer-encoding : chunked\r\n\r\n{body}"),
        ),
        (
            "a folded line",
            format!("POST / HTTP/1.1\r\n{host}x-a: 1\r\n transfer-encoding: chunked\r\n\r\n{body}"),
        ),
        (
            "a line without a name",
            format!("GET / HTTP/1.1\r\n{host}: a\r\n\r\n"),
        ),
        (
            "CR in a value",
            format!("GET / HTTP/1.1\r\n{host}x-a: a\rb\r\n\r\n"),
        ),
        (
            "NUL in a value",
            format!("GET / HTTP/1.1\r\n{host}x-a: a\0b\r\n\r\n"),
        ),
        (
            "NUL in a name",
            format!("GET / HTTP/1.1\r\n{host}x\0a: b\r\n\r\n"),
        ),
        (
            "a space in the target",
            format!("GET /a b HTTP/1.1\r\n{host}\r\n"),
        ),
        ("another version", format!("GET / HTTP/1.2\r\n{host}\r\n")),
        ("no version", format!("GET /\r\n{host}\r\n")),
        ("a space first", format!(" GET / HTTP/1.1\r\n{host}\r\n")),
    ] {
        let response = exchange(sidecar.listen, &request);
        assert_eq!(status(&response), "400", "{what}: {response}");
        assert_eq!(service.seen(), [""; 0], "{what}");
    }
}

#[test]
fn a_length_beside_chunks_does_not_count_and_the_connection_ends() {
    let service = Recorder::ok();
    let sidecar = start(&service);
    for fields in [
        "content-length: 4\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 4\r\n",
    ] {
        let request = format!(
            "POST / HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\n{fields}\r\n\
             3\r\nabc\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\n\r\n"
        );
        let response = exchange(sidecar.listen, request);
        assert_eq!(status(&response), "200", "{response}");
        assert_eq!(response.matches("HTTP/1.1").count(), 1, "{response}");
        let seen = service.seen().pop().unwrap();
        assert!(!seen.contains("content-length"), "{seen}");
        assert!(seen.ends_with("\r\n\r\n3\r\nabc\r\n0\r\n\r\n"), "{seen}");
    }
    assert_eq!(service.seen().len(), 2);
}

#[test]
fn the_same_length_twice_is_one() {
    let service = Recorder::ok();
    let sidecar = start(&service);
    let request = "POST / HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\nconnection: close\r\n\
                   content-length: 3\r\ncontent-length: 3\r\n\r\nabc";
    let response = exchange(sidecar.listen, request);
    assert_eq!(status(&response), "200", "{response}");
    let seen = service.seen().pop().unwrap();
    assert_eq!(seen.matches("content-length: 3\r\n").count(), 1, "{seen}");
    assert!(seen.ends_with("\r\n\r\nabc"), "{seen}");
}

#[test]
fn a_broken_chunk_is_the_fault_of_the_client() {
    let service = Recorder::ok();
    let sidecar = start(&service);
    for chunk in [
        "x\r\nabc\r\n",
        "3\r\nabcd\r\n",
        "3 3\r\nabc\r\n",
        "ffffffffffffffffff\r\nabc",
    ] {
        let request = format!(
            "POST / HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\ntransfer-encoding: chunked\r\n\r\n\
             3\r\nabc\r\n{chunk}"
        );
        let response = exchange(sidecar.listen, request);
        assert_eq!(status(&response), "400", "{chunk:?}: {response}");
        assert!(response.contains("application/problem+json"), "{response}");
        // The service heard a body that did not end.
        assert!(
            service
                .seen()
                .iter()
                .all(|seen| !seen.ends_with("0\r\n\r\n"))
        );
    }
}

#[test]
fn a_client_is_named_by_one_short_visible_value() {
    let service = Recorder::ok();
    let sidecar = start(&service);
    let longest = "x".repeat(64);
    for (id, expected, what) in [
        (longest.as_bytes(), "200", ""),
        (b"a!~", "200", ""),
        (&[b'x'; 65], "400", "has at most 64 bytes, got 65"),
        (b"", "400", "is empty"),
        (b"a b", "400", "is not visible ASCII"),
        (b"a\tb", "400", "is not visible ASCII"),
        (b"\xc3\xa4", "400", "is not visible ASCII"),
        (b"\xff", "400", "is not visible ASCII"),
    ] {
        let before = service.seen().len();
        let mut request =
            b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\nx-client-id: ".to_vec();
        request.extend_from_slice(id);
        request.extend_from_slice(b"\r\n\r\n");
        let response = exchange(sidecar.listen, request);
        let id = String::from_utf8_lossy(id);
        assert_eq!(status(&response), expected, "{id:?}: {response}");
        assert!(response.contains(what), "{id:?}: {response}");
        assert_eq!(
            response.contains("`x-client-id`"),
            expected == "400",
            "{response}"
        );
        assert_eq!(service.seen().len() > before, expected == "200", "{id:?}");
    }
}

#[test]
fn requests_in_one_packet_are_answered_in_order() {
    let service = Recorder::ok();
    let sidecar = start(&service);
    let one = |path, end| format!("GET {path} HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\n{end}\r\n");
    let requests = [
        one("/1", ""),
        one("/2", ""),
        one("/3", "connection: close\r\n"),
    ]
    .concat();
    let response = exchange(sidecar.listen, requests);
    assert_eq!(response.matches("HTTP/1.1 200").count(), 3, "{response}");
    let seen: Vec<_> = service
        .seen()
        .iter()
        .map(|seen| seen[..6].to_owned())
        .collect();
    assert_eq!(seen, ["GET /1", "GET /2", "GET /3"]);
}

#[test]
fn a_broken_response_is_a_bad_gateway() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
        "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx-a : 1\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx-a: 1\r\n folded\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx-a: a\0b\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 20 OK\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "junk\r\n\r\n",
    ] {
        let service = Recorder::answering(answer);
        let sidecar = start(&service);
        let request = "GET / HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\nconnection: close\r\n\r\n";
        let response = exchange(sidecar.listen, request);
        assert_eq!(status(&response), "502", "{answer:?}: {response}");
        // Not repeated: something was heard.
        assert_eq!(service.seen().len(), 1, "{answer:?}");
    }
}

#[test]
fn bytes_after_a_response_do_not_answer_the_next_request() {
    let service = Recorder::answering(
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil",
    );
    let sidecar = start(&service);
    let mut stream = TcpStream::connect(sidecar.listen).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    for end in ["", "", "connection: close\r\n"] {
        let request = format!("GET / HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\n{end}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
    }
    let mut responses = String::new();
    stream.read_to_string(&mut responses).unwrap();
    assert!(!responses.contains("evil"), "{responses}");
    assert_eq!(responses.matches("HTTP/1.1 200").count(), 3, "{responses}");
}

/// The status that nghttp prints.
fn nghttp(sidecar: &Sidecar, flags: &[&str]) -> String {
    let output = Command::new("nghttp")
        .args(["--verbose", "--no-dep", "--timeout", "30"])
        .args(flags)
        .arg(format!("http://{}/", sidecar.listen))
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    let status = output.split_once(":status: ");
    status.map_or(output.clone(), |(_, status)| status[..3].to_owned())
}

#[test]
fn http_2_is_checked_in_the_same_way() {
    let service = Recorder::ok();
    let sidecar = start(&service);
    let id = ["--header", "x-client-id: a"];
    for flags in [
        &["--header", "host: b"][..],
        &["--header", "host: b", "--header", "host: b"],
        &["--header", ":authority: a", "--header", "host: b"],
        &["--header", "x-client-id: b"],
        &["--header", ":path: *"],
    ] {
        let status = nghttp(&sidecar, &[&id[..], flags].concat());
        assert_eq!(status, "400", "{flags:?}");
        assert_eq!(service.seen(), [""; 0], "{flags:?}");
    }
    let same = ["--header", ":authority: a:80", "--header", "host: A"];
    assert_eq!(nghttp(&sidecar, &[&id[..], &same].concat()), "200");
    assert_eq!(service.field("x-forwarded-host").as_deref(), Some("a:80"));
}

#[test]
fn a_length_that_http_2_does_not_keep_does_not_reach_the_service_as_a_request() {
    let service = Recorder::ok();
    let sidecar = start(&service);
    let flags = ["--header", "x-client-id: a", "--data", "/etc/hostname"];
    for length in ["content-length: 100000", "content-length: 1"] {
        let status = nghttp(&sidecar, &[&flags[..], &["--header", length]].concat());
        assert_ne!(status, "200", "{length}");
        // The service has heard a head at most, and the end of the connection before a body.
        let seen = service.seen();
        assert!(
            seen.iter().all(|seen| seen.ends_with("\r\n\r\n")),
            "{seen:?}"
        );
    }
}
