//! Many requests on one connection, valid and broken, cut anywhere: the service sees none that the client did not send.
//!
//! What the client sent is judged by a strict parser here, which shares nothing with the sidecar.

use std::collections::VecDeque;
use std::io::Write;
use std::net::{Shutdown, SocketAddr};
use std::sync::{Arc, Mutex};

use fastrand::Rng;

use super::support::{Sidecar, connect, rest};
use super::upstream::{OK, raw};

/// A request as one side sees it: its first two words, its body, and whether the body has its end.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    line: String,
    body: Vec<u8>,
    is_whole: bool,
}

impl Seen {
    /// Whether this is what reached the service of that request.
    fn is_of(&self, sent: &Self) -> bool {
        let is_start = !self.is_whole && sent.body.starts_with(&self.body);
        self == sent || is_start && self.line == sent.line
    }
}

/// The requests in these bytes, up to the first fault. Lines may end with LF, as hyper and nginx allow.
fn parsed(mut bytes: &[u8]) -> Vec<Seen> {
    let mut all = Vec::new();
    while let Some((line, framing)) = head(&mut bytes) {
        let mut body = Vec::new();
        let is_whole = match framing {
            Framing::Length(length) => {
                let there = bytes.len().min(length);
                body.extend(&bytes[..there]);
                bytes = &bytes[there..];
                there == length
            }
            Framing::Chunks => chunks(&mut bytes, &mut body).is_some(),
        };
        all.push(Seen {
            line,
            body,
            is_whole,
        });
        if !is_whole {
            break;
        }
    }
    all
}

enum Framing {
    Length(usize),
    Chunks,
}

fn line<'b>(bytes: &mut &'b [u8]) -> Option<&'b [u8]> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let line = &bytes[..end];
    *bytes = &bytes[end + 1..];
    Some(line.strip_suffix(b"\r").unwrap_or(line))
}

fn head(bytes: &mut &[u8]) -> Option<(String, Framing)> {
    let mut first = line(bytes)?;
    while first.is_empty() {
        first = line(bytes)?;
    }
    let first = std::str::from_utf8(first).ok()?;
    let [method, target, version] = first.split(' ').collect::<Vec<_>>()[..] else {
        return None;
    };
    let mut framing = None;
    loop {
        let line = line(bytes)?;
        if line.is_empty() {
            break;
        }
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
        let is_value = |byte: &u8| *byte == b'\t' || !byte.is_ascii_control();
        if name.is_empty() || !name.iter().all(is_name) || !value.iter().all(is_value) {
            return None;
        }
        let this = if name.eq_ignore_ascii_case(b"content-length") {
            let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
            let length = std::str::from_utf8(value).ok()?.parse();
            Framing::Length(length.ok().filter(|_| digits)?)
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            let is_chunked = value.eq_ignore_ascii_case(b"chunked") && version == "HTTP/1.1";
            is_chunked.then_some(Framing::Chunks)?
        } else {
            continue;
        };
        if framing.replace(this).is_some() {
            return None;
        }
    }
    let is_known = matches!(version, "HTTP/1.1" | "HTTP/1.0");
    is_known.then(|| {
        (
            format!("{method} {target}"),
            framing.unwrap_or(Framing::Length(0)),
        )
    })
}

/// `None` if they do not end, or have a fault.
fn chunks(bytes: &mut &[u8], body: &mut Vec<u8>) -> Option<()> {
    loop {
        let size = crlf_line(bytes)?.split(|byte| *byte == b';').next()?;
        let size = std::str::from_utf8(size)
            .ok()?
            .trim_end_matches([' ', '\t']);
        if size.is_empty() || !size.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let size = usize::from_str_radix(size, 16).ok()?;
        if size == 0 {
            while !line(bytes)?.is_empty() {}
            return Some(());
        }
        let there = bytes.len().min(size);
        body.extend(&bytes[..there]);
        *bytes = bytes[there..]
            .strip_prefix(b"\r\n")
            .filter(|_| there == size)?;
    }
}

fn crlf_line<'b>(bytes: &mut &'b [u8]) -> Option<&'b [u8]> {
    let end = bytes.windows(2).position(|two| two == b"\r\n")?;
    let line = &bytes[..end];
    *bytes = &bytes[end + 2..];
    (!line.contains(&b'\n')).then_some(line)
}

/// A service that writes down what it gets.
fn recorder() -> (SocketAddr, Arc<Mutex<Vec<Seen>>>) {
    let seen = Arc::<Mutex<Vec<Seen>>>::default();
    let record = Arc::clone(&seen);
    let at = raw(move |mut connection| {
        while let Some(head) = connection.head() {
            let mut all = head.into_bytes();
            let mut request;
            loop {
                request = parsed(&all).pop().expect("the sidecar sends valid heads");
                if request.is_whole {
                    break;
                }
                let Some(byte) = connection.take(1) else {
                    break;
                };
                all.extend(byte);
            }
            let is_whole = request.is_whole;
            record.lock().unwrap().push(request);
            if !is_whole || !connection.send(OK) {
                break;
            }
        }
    });
    (at, seen)
}

const EVIL: &str = "GET /evil HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\n\r\n";

/// A valid request with a body that looks like another one.
fn request(rng: &mut Rng, path: &str, is_last: bool) -> Vec<u8> {
    let close = if is_last { "connection: close\r\n" } else { "" };
    let fields = format!("host: a\r\nx-client-id: a\r\n{close}");
    let body = match rng.u8(..3) {
        0 => EVIL.to_owned(),
        1 => format!("\r\n\r\n{EVIL}{EVIL}"),
        _ => format!("0\r\n\r\n{EVIL}"),
    };
    let text = match rng.u8(..4) {
        0 => format!("GET {path} HTTP/1.1\r\n{fields}\r\n"),
        1 => format!("\r\nDELETE {path} HTTP/1.1\n{fields}\n"),
        2 => {
            let length = body.len();
            format!("POST {path} HTTP/1.1\r\n{fields}Content-Length: {length}\r\n\r\n{body}")
        }
        _ => {
            let (first, second) = body.split_at(rng.usize(1..body.len()));
            let (one, two) = (first.len(), second.len());
            let trailer = ["", "x-a: b\r\nx-c: d\r\n"][rng.usize(..2)];
            format!(
                "PUT {path} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n{fields}\r\n\
                 {one:x}\r\n{first}\r\n{two:04X} ;a=\"b\"\r\n{second}\r\n0\r\n{trailer}\r\n"
            )
        }
    };
    text.into_bytes()
}

const BYTES: &[u8] = b"\r\n\t :;,0159afAF-+xX\0\x0b\x0c\x7f\x80\xff";

const FIELDS: &[&str] = &[
    "content-length: 0",
    "content-length: 5",
    "Content-Length: 05",
    "content-length: 5, 5",
    "content-length : 5",
    "content-length:\t7",
    "content-length: +5",
    "content-length: 18446744073709551617",
    "transfer-encoding: chunked",
    "Transfer-Encoding:chunked",
    "transfer-encoding : chunked",
    "transfer-encoding: gzip, chunked",
    "transfer-encoding: chunked, identity",
    "transfer-encoding: identity",
    "transfer-encoding:\x0bchunked",
    " transfer-encoding: chunked",
    "x-a: b\rtransfer-encoding: chunked",
    "x-a: b\ncontent-length: 5",
    "connection: content-length, transfer-encoding",
    "transfer_encoding: chunked",
    "connection: upgrade\r\nupgrade: h2c",
    "",
];

/// Breaks some bytes, most of them in lines that matter.
fn mutated(rng: &mut Rng, mut bytes: Vec<u8>) -> Vec<u8> {
    for _ in 0..rng.usize(1..4) {
        let at = rng.usize(..bytes.len());
        let byte = BYTES[rng.usize(..BYTES.len())];
        match rng.u8(..6) {
            0 => bytes[at] = byte,
            1 => bytes.insert(at, byte),
            2 => drop(bytes.remove(at)),
            3 => {
                let end = bytes.len().min(at + rng.usize(1..40));
                drop(bytes.drain(at..end));
            }
            _ => {
                let after = |at: &usize| bytes[..*at].ends_with(b"\n");
                let starts: Vec<_> = (1..bytes.len()).filter(after).collect();
                if !starts.is_empty() {
                    let start = starts[rng.usize(..starts.len())];
                    let field = FIELDS[rng.usize(..FIELDS.len())];
                    let line = [field, "\r\n"].concat().into_bytes();
                    drop(bytes.splice(start..start, line));
                }
            }
        }
        if bytes.is_empty() {
            bytes.push(byte);
        }
    }
    bytes
}

/// Sends them in some pieces, and returns what comes until the end.
fn exchange(rng: &mut Rng, sidecar: &Sidecar, bytes: &[u8], ends: bool) -> String {
    let mut stream = connect(sidecar.listen);
    let mut rest_of = bytes;
    while !rest_of.is_empty() {
        let length = match rng.u8(..4) {
            0 => rest_of.len(),
            _ => rng.usize(1..=rest_of.len()),
        };
        // It may be refused already.
        if stream.write_all(&rest_of[..length]).is_err() {
            break;
        }
        rest_of = &rest_of[length..];
    }
    if ends {
        let _ = stream.shutdown(Shutdown::Write);
    }
    rest(&mut stream)
}

#[test]
fn valid_requests_are_answered_and_seen_as_they_are() {
    let (service, seen) = recorder();
    let sidecar = Sidecar::start(service, &[]);
    for case in 0..cases(200) {
        let mut rng = Rng::with_seed(case);
        let count = rng.usize(1..6);
        let requests = (1..=count).map(|number| {
            let path = format!("/{case}/{number}");
            request(&mut rng, &path, number == count)
        });
        let bytes = requests.collect::<Vec<_>>().concat();
        seen.lock().unwrap().clear();
        let responses = exchange(&mut rng, &sidecar, &bytes, false);
        let answered = responses.matches("HTTP/1.1 200 ").count();
        let text = String::from_utf8_lossy(&bytes);
        assert_eq!(answered, count, "case {case}: {text}\n{responses}");
        assert_eq!(*seen.lock().unwrap(), parsed(&bytes), "case {case}: {text}");
    }
}

#[test]
fn of_broken_requests_the_service_sees_only_what_was_sent() {
    let (service, seen) = recorder();
    let sidecar = Sidecar::start(service, &[]);
    let mut sent = Vec::new();
    for case in 0..cases(500) {
        let mut rng = Rng::with_seed(case);
        let requests = (1..=rng.usize(1..4)).map(|number| {
            let path = format!("/{case}/{number}");
            let valid = request(&mut rng, &path, false);
            if rng.u8(..3) == 0 {
                valid
            } else {
                mutated(&mut rng, valid)
            }
        });
        let bytes = requests.collect::<Vec<_>>().concat();
        exchange(&mut rng, &sidecar, &bytes, true);
        sent.push(bytes);
    }
    sidecar.wait_for_connections(0);
    let seen = seen.lock().unwrap();
    // Most cases have a request that is valid.
    assert!(
        seen.len() > sent.len() / 4,
        "{} of {}",
        seen.len(),
        sent.len()
    );
    let mut expected: VecDeque<_> = sent.iter().flat_map(|bytes| parsed(bytes)).collect();
    for seen in seen.iter() {
        let at = expected.iter().position(|sent| seen.is_of(sent));
        let at = at.unwrap_or_else(|| {
            let path = seen.line.split(' ').nth(1).unwrap();
            let texts = sent.iter().map(|bytes| bytes.escape_ascii().to_string());
            let texts: Vec<_> = texts.filter(|text| text.contains(path)).collect();
            panic!("nobody sent {seen:?}, but {texts:#?}");
        });
        expected.remove(at);
    }
}

/// More of them with `SMUGGLING_CASES`.
fn cases(few: u64) -> u64 {
    let cases = std::env::var("SMUGGLING_CASES").ok();
    cases.and_then(|cases| cases.parse().ok()).unwrap_or(few)
}
