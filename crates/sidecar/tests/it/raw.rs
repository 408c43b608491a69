//! Requests that two readers could read in two ways, byte by byte. The service must not hear of them.

use std::io::Read;

use super::support::{GET, LAST_GET, Sidecar, head, nghttp};
use super::upstream::{self, Recorder, reply};

/// The status of the first response.
fn status(response: &str) -> &str {
    response.get(9..12).unwrap_or(response)
}

/// The head of a POST of client `a`, up to its other fields.
const POST: &str = "POST / HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\n";

#[test]
fn what_can_be_read_in_two_ways_does_not_reach_the_service() {
    let service = Recorder::ok();
    let sidecar = Sidecar::start(service.at, &[]);
    for row in TWO_WAYS.split('\n') {
        let [what, line, fields] = row.split(" | ").collect::<Vec<_>>()[..] else {
            panic!("{row}");
        };
        let fields = fields.replace("{known}", "host: a & x-client-id: a");
        let fields = fields.replace(" & ", "\r\n");
        let smuggled = format!("0\r\n\r\n{GET}");
        let body = if line.starts_with("POST") {
            &smuggled
        } else {
            ""
        };
        let response = sidecar.exchange(format!("{line}\r\n{fields}\r\n\r\n{body}"));
        assert_eq!(status(&response), "400", "{what}: {response}");
        let responses = response.matches("HTTP/1.").count();
        assert_eq!(responses, 1, "{what}: {response}");
        assert_eq!(service.seen(), [""; 0], "{what}");
    }
}

/// What it is, the first line, and the fields.
const TWO_WAYS: &str = "\
no host | GET / HTTP/1.1 | x-client-id: a
two hosts | GET / HTTP/1.1 | host: a & {known}
two hosts, differing | GET / HTTP/1.1 | host: b & {known}
a list of hosts | GET / HTTP/1.1 | host: a, b & x-client-id: a
a path in the host | GET / HTTP/1.1 | host: a/b & x-client-id: a
a target for another host | GET http://b/ HTTP/1.1 | {known}
a target for another port | GET http://a:81/ HTTP/1.1 | {known}
a target with a user | GET http://u@a/ HTTP/1.1 | {known}
a target that is a host | GET a:80 HTTP/1.1 | {known}
the asterisk | GET * HTTP/1.1 | {known}
two clients | GET / HTTP/1.1 | {known} & x-client-id: b
the same client twice | GET / HTTP/1.1 | {known} & x-client-id: a
chunks in HTTP/1.0 | POST / HTTP/1.0 | {known} & transfer-encoding: chunked
a line without a name | GET / HTTP/1.1 | {known} & : a
a line without a colon | GET / HTTP/1.1 | {known} & a
a name with a space | GET / HTTP/1.1 | {known} & x a: b
CR in a value | GET / HTTP/1.1 | {known} & x-a: a\rcontent-length: 5
NUL in a value | GET / HTTP/1.1 | {known} & x-a: a\0b
NUL in a name | GET / HTTP/1.1 | {known} & x\0a: b
NUL in the target | GET /\0 HTTP/1.1 | {known}
CR in the target | GET /\ra HTTP/1.1 | {known}
a space in the target | GET /a b HTTP/1.1 | {known}
two spaces | GET  / HTTP/1.1 | {known}
another version | GET / HTTP/1.2 | {known}
a version of another protocol | GET / HTTP/3.0 | {known}
no version | GET / | {known}
a space first |  GET / HTTP/1.1 | {known}
TLS | \x16\x03\x01\x02\0\x01\0\x01 | {known}";

#[test]
fn a_broken_chunk_is_the_fault_of_the_client() {
    let service = Recorder::ok();
    let sidecar = Sidecar::start(service.at, &[]);
    for chunk in [
        "x\r\nabc\r\n",
        "3\r\nabcd\r\n",
        "3 3\r\nabc\r\n",
        "ffffffffffffffffff\r\nabc",
    ] {
        let chunks = format!("transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n{chunk}");
        let response = sidecar.exchange([POST, &chunks].concat());
        assert_eq!(status(&response), "400", "{chunk:?}: {response}");
        assert!(response.contains("application/problem+json"), "{response}");
        // The service heard a body that did not end.
        let seen = service.seen();
        let is_ended = seen.iter().any(|seen| seen.ends_with("0\r\n\r\n"));
        assert!(!is_ended, "{seen:?}");
    }
}

#[test]
fn a_client_is_named_by_one_short_visible_value() {
    let service = Recorder::ok();
    let sidecar = Sidecar::start(service.at, &[]);
    for (id, expected, what) in [
        (&[b'x'; 64][..], "200", ""),
        (b"a!~", "200", ""),
        (&[b'x'; 65], "400", "has at most 64 bytes, got 65"),
        (b"", "400", "is empty"),
        (b"a b", "400", "is not visible ASCII"),
        (b"a\tb", "400", "is not visible ASCII"),
        (b"\xc3\xa4", "400", "is not visible ASCII"),
        (b"\xff", "400", "is not visible ASCII"),
    ] {
        let before = service.seen().len();
        let head = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\nx-client-id: ";
        let response = sidecar.exchange([head, id, b"\r\n\r\n"].concat());
        let id = String::from_utf8_lossy(id);
        assert_eq!(status(&response), expected, "{id:?}: {response}");
        assert!(response.contains(what), "{id:?}: {response}");
        let is_refused = expected == "400";
        assert_eq!(response.contains("`x-client-id`"), is_refused, "{response}");
        assert_eq!(service.seen().len() > before, !is_refused, "{id:?}");
    }
}

#[test]
fn requests_in_one_packet_are_answered_in_order() {
    let service = upstream::http(|request| async move { reply(request.uri().path().to_owned()) });
    let sidecar = Sidecar::start(service, &[]);
    let paths = ["/1", "/2", "/3"];
    let mut stream = sidecar.open(paths.map(|path| GET.replacen('/', path, 1)).concat());
    for path in paths {
        assert!(head(&mut stream).starts_with("HTTP/1.1 200 "));
        let mut body = [0; 2];
        stream.read_exact(&mut body).unwrap();
        assert_eq!(body, path.as_bytes());
    }
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
        let response = Sidecar::start(service.at, &[]).exchange(LAST_GET);
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
    let sidecar = Sidecar::start(service.at, &[]);
    let responses = sidecar.exchange([GET, GET, LAST_GET].concat());
    assert!(!responses.contains("evil"), "{responses}");
    assert_eq!(responses.matches("HTTP/1.1 200").count(), 3, "{responses}");
}

/// The status that nghttp prints.
fn status_of_nghttp(sidecar: &Sidecar, flags: &[&str]) -> String {
    let output = nghttp(sidecar, flags);
    let status = output.split_once(":status: ");
    status.map_or(output.clone(), |(_, status)| status[..3].to_owned())
}

#[test]
fn http_2_is_checked_in_the_same_way() {
    let service = Recorder::ok();
    let sidecar = Sidecar::start(service.at, &[]);
    for flags in [
        &["--header", "host: b"][..],
        &["--header", "host: b", "--header", "host: b"],
        &["--header", ":authority: a", "--header", "host: b"],
        &["--header", "x-client-id: b"],
        &["--header", ":path: *"],
    ] {
        assert_eq!(status_of_nghttp(&sidecar, flags), "400", "{flags:?}");
        assert_eq!(service.seen(), [""; 0], "{flags:?}");
    }
    let same = ["--header", ":authority: a:80", "--header", "host: A"];
    assert_eq!(status_of_nghttp(&sidecar, &same), "200");
    assert_eq!(service.field("x-forwarded-host").as_deref(), Some("a:80"));
}

#[test]
fn a_length_that_http_2_does_not_keep_does_not_reach_the_service_as_a_request() {
    let service = Recorder::ok();
    let sidecar = Sidecar::start(service.at, &[]);
    for length in ["content-length: 100000", "content-length: 1"] {
        let flags = ["--data", "/etc/hostname", "--header", length];
        assert_ne!(status_of_nghttp(&sidecar, &flags), "200", "{length}");
        // The service has heard a head at most, and the end of the connection before a body.
        let seen = service.seen();
        let is_head = |seen: &String| seen.ends_with("\r\n\r\n");
        assert!(seen.iter().all(is_head), "{seen:?}");
    }
}
