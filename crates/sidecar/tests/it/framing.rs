//! Requests whose body has two ends, or one that is not known. nginx 1.22 answers the same, but where it is said.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::Command;

use super::frames::{self, END_HEADERS, END_STREAM, HEADERS, RST_STREAM};
use super::support::{File, GET, LAST_GET, PATIENCE, Process, Sidecar, rest, wait_until};
use super::upstream::{Recorder, hello};

/// What it is, the fields, and the status of the sidecar and of nginx. Where they differ, hyper has refused a last coding that is not
/// `chunked`, for which RFC 9112 has 400.
const FRAMINGS: &str = "\
a length, then chunks | content-length: 5 & transfer-encoding: chunked | 400 | 400
chunks, then a length | transfer-encoding: chunked & content-length: 5 | 400 | 400
the same in other letters | CONTENT-Length:5 & Transfer-ENCODING:Chunked | 400 | 400
chunks, then no length | transfer-encoding: chunked & content-length: 0 | 400 | 400
chunks, then a length that is none | transfer-encoding: chunked & content-length: x | 400 | 400
others between | content-length: 5 & x-a: b & x-c: d & transfer-encoding: chunked | 400 | 400
the same length twice | content-length: 5 & content-length: 5 | 400 | 400
the same length, written differently | content-length: 5 & content-length: 05 | 400 | 400
the same length three times | content-length: 5 & content-length: 5 & content-length: 5 | 400 | 400
no length twice | content-length: 0 & content-length: 0 | 400 | 400
lengths that differ | content-length: 5 & content-length: 6 | 400 | 400
a list of the same length | content-length: 5, 5 | 400 | 400
a list of lengths | content-length: 5, 6 | 400 | 400
a length with a plus | content-length: +5 | 400 | 400
a negative length | content-length: -5 | 400 | 400
an empty length | content-length:\x20 | 400 | 400
a length in hex | content-length: 0x5 | 400 | 400
a length with a point | content-length: 5.0 | 400 | 400
a length too large | content-length: 18446744073709551616 | 400 | 400
chunks twice | transfer-encoding: chunked & transfer-encoding: chunked | 400 | 400
chunks twice in one field | transfer-encoding: chunked, chunked | 501 | 501
another coding inside | transfer-encoding: gzip, chunked | 501 | 501
another coding inside, in a field | transfer-encoding: gzip & transfer-encoding: chunked | 400 | 400
no coding inside | transfer-encoding: identity, chunked | 501 | 501
no coding inside, in a field | transfer-encoding: identity & transfer-encoding: chunked | 400 | 400
an empty element | transfer-encoding: , chunked | 501 | 501
another coding | transfer-encoding: gzip | 400 | 501
no coding | transfer-encoding: identity | 400 | 501
a coding after chunks | transfer-encoding: chunked, identity | 400 | 501
a coding after chunks, in a field | transfer-encoding: chunked & transfer-encoding: identity | 400 | 400
an empty coding | transfer-encoding:\x20 | 400 | 501
a parameter | transfer-encoding: chunked;a=b | 400 | 501
quotes | transfer-encoding: \"chunked\" | 400 | 501
a longer name | transfer-encoding: xchunked | 400 | 501
a space before the colon | transfer-encoding : chunked | 400 | 400
a tab before the colon | content-length\t: 5 | 400 | 400
a folded line | x-a: 1 &  transfer-encoding: chunked | 400 | 400";

/// Each row: what it is, a request and one that is smuggled in its body, and both statuses.
fn rows() -> impl Iterator<Item = (&'static str, String, &'static str, &'static str)> {
    FRAMINGS.split('\n').map(|row| {
        let [what, fields, sidecar, nginx] = row.split(" | ").collect::<Vec<_>>()[..] else {
            panic!("{row}");
        };
        let fields = fields.replace(" & ", "\r\n");
        let request = format!(
            "POST / HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\n{fields}\r\n\r\n0\r\n\r\n{LAST_GET}"
        );
        (what, request, sidecar, nginx)
    })
}

#[test]
fn a_body_with_two_ends_is_refused_and_nothing_in_it_is_a_request() {
    let service = Recorder::ok();
    let sidecar = Sidecar::start(service.at, &[]);
    for (what, request, status, _) in rows() {
        let response = sidecar.exchange(request);
        assert_eq!(&response[9..12], status, "{what}: {response}");
        let responses = response.matches("HTTP/1.").count();
        assert_eq!(responses, 1, "{what}: {response}");
        assert!(response.contains("application/problem+json"), "{response}");
        assert_eq!(service.seen(), [""; 0], "{what}");
    }
    let rows = u32::try_from(rows().count()).unwrap();
    let bad = sidecar.metric("paceline_requests_total{outcome=\"bad_request\"}");
    assert_eq!(bad, Some(f64::from(rows)));
}

#[test]
fn a_request_before_it_is_answered_wherever_the_bytes_are_cut() {
    let service = Recorder::ok();
    let sidecar = Sidecar::start(service.at, &[]);
    let post = "POST / HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\n";
    let chunks =
        format!("{post}transfer-encoding: chunked\r\n\r\n5;a\r\n\r\n\r\na\r\n0\r\nb: c\r\n\r\n");
    let length = format!("{post}content-length: 4\r\n\r\n\r\n\r\n");
    let twice = format!("{post}content-length: 3\r\ncontent-length: 3\r\n\r\nabc");
    let all = [&chunks, &length, GET, &twice, GET].concat();
    for cut in (0..all.len()).step_by(5) {
        let mut stream = sidecar.open(&all[..cut]);
        // In a packet of its own, if the sidecar is quick enough.
        stream.write_all(&all.as_bytes()[cut..]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let responses = rest(&mut stream);
        let statuses: Vec<_> = responses.split("HTTP/1.1 ").skip(1).collect();
        let statuses: Vec<_> = statuses.iter().map(|rest| &rest[..3]).collect();
        assert_eq!(statuses, ["200", "200", "200", "400"], "{cut}: {responses}");
    }
}

#[test]
fn fields_with_such_names_in_a_body_or_a_value_are_no_framing() {
    let sidecar = Sidecar::start(hello(), &[]);
    let body = "\r\n\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n";
    for fields in [
        format!("content-length: {}\r\n\r\n{body}", body.len()),
        format!(
            "transfer-encoding: Chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
            body.len()
        ),
        "x-a: content-length: 1\r\nx-content-length: 2\r\ncontent-length: 0\r\n\r\n".to_owned(),
    ] {
        let post = format!("POST / HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\n{fields}");
        let responses = sidecar.exchange([&post, &post, LAST_GET].concat());
        assert_eq!(responses.matches("HTTP/1.1 200 ").count(), 3, "{responses}");
    }
}

#[test]
fn http_2_has_no_transfer_encoding() {
    let service = Recorder::ok();
    let sidecar = Sidecar::start(service.at, &[]);
    let mut stream = frames::open(sidecar.listen, &[]);
    let block = frames::get(b"\x00\x11transfer-encoding\x07chunked");
    frames::send(&mut stream, HEADERS, END_STREAM | END_HEADERS, 1, &block);
    // PROTOCOL_ERROR.
    assert_eq!(frames::next(&mut stream, RST_STREAM).payload, [0, 0, 0, 1]);
    assert_eq!(service.seen(), [""; 0]);
}

#[test]
fn nginx_answers_what_the_table_says() {
    let file = File::missing("nginx.conf");
    let folder = file.folder().to_str().unwrap();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary = temporary.map(|name| format!("{name}_temp_path {folder}/{name};"));
    file.write(&format!(
        "daemon off; master_process off; pid {folder}/pid; error_log stderr;\
         events {{}}\
         http {{\
           access_log off; {}\
           server {{ listen unix:{folder}/service; return 200 ok; }}\
           server {{\
             listen unix:{folder}/nginx;\
             location / {{ proxy_pass http://unix:{folder}/service; }}\
           }}\
         }}",
        temporary.concat()
    ));
    let mut nginx = Command::new("nginx");
    nginx.args(["-e", "stderr", "-c", file.path()]);
    let _nginx = Process::start(nginx);
    let socket = format!("{folder}/nginx");
    wait_until("nginx listens", || UnixStream::connect(&socket).is_ok());
    for (what, request, _, status) in rows() {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut response = [0; 12];
        stream.read_exact(&mut response).unwrap();
        let response = String::from_utf8_lossy(&response);
        assert_eq!(&response[9..], status, "{what}");
    }
}
