//! What clients do that are slow, silent, greedy or hostile, in raw bytes.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use super::client::{Client, metric, scrape};
use super::support::{PATIENCE, Sidecar, connect, head, upstream, wait_until};

/// Nothing listens here. Requests that are refused before do not notice.
const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);
/// A request without a client id: the sidecar itself answers 429.
const ANONYMOUS: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

/// A limit that these tests wait for, and one that they never reach.
const SHORT: &str = "300ms";
const LONG: &str = "1h";

fn sidecar(flags: &[&str]) -> Sidecar {
    before(NOWHERE, flags)
}

fn before(upstream: SocketAddr, flags: &[&str]) -> Sidecar {
    let mut all = vec!["--capacity", "1000", "--cycle", "10s"];
    all.extend(flags);
    Sidecar::start(upstream, &all)
}

/// What comes until the connection is closed or reset.
fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) => bytes.extend(&chunk[..read]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => panic!("neither closed nor reset: {error}"),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Sends these bytes on a new connection, and returns what comes until it is closed.
fn exchange(sidecar: &Sidecar, bytes: &[u8]) -> String {
    let mut stream = connect(sidecar.listen);
    stream.write_all(bytes).unwrap();
    rest(&mut stream)
}

fn connections(sidecar: &Sidecar) -> f64 {
    metric(&scrape(sidecar.admin), "paceline_connections").unwrap()
}

#[test]
fn a_silent_connection_is_closed_without_an_answer() {
    let sidecar = sidecar(&["--head-timeout", SHORT]);
    assert_eq!(rest(&mut connect(sidecar.listen)), "");
}

#[test]
fn one_byte_is_not_enough_to_stay() {
    let sidecar = sidecar(&["--head-timeout", SHORT]);
    // It could be the preface of HTTP/2.
    assert_eq!(exchange(&sidecar, b"P"), "");
    assert!(exchange(&sidecar, b"G").starts_with("HTTP/1.1 408 "));
}

#[test]
fn a_trickling_head_is_late_although_each_byte_is_not() {
    let sidecar = sidecar(&["--head-timeout", SHORT]);
    let mut stream = connect(sidecar.listen);
    stream.write_all(b"GET / HTTP/1.1\r\na: ").unwrap();
    stream
        .set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    let start = Instant::now();
    let mut answer = [0; 64];
    let read = loop {
        assert!(start.elapsed() < PATIENCE, "each byte extends the limit");
        let _ = stream.write_all(b"b");
        match stream.read(&mut answer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            ended => break ended,
        }
    };
    // A byte that crosses with the end resets the connection.
    match read {
        Ok(read) => assert!(answer[..read].starts_with(b"HTTP/1.1 408 ")),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
}

#[test]
fn an_idle_connection_is_closed_without_an_answer() {
    let sidecar = sidecar(&["--idle-timeout", SHORT]);
    let mut client = Client::connect(sidecar.listen);
    assert_eq!(client.send("GET", "/", &[], b"").unwrap().status, 429);
    let ended = client.answer(false).unwrap_err();
    assert_eq!(ended.kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn the_first_byte_after_an_answer_begins_the_limit_of_a_head() {
    let sidecar = sidecar(&["--idle-timeout", LONG, "--head-timeout", SHORT]);
    let mut stream = connect(sidecar.listen);
    stream.write_all(ANONYMOUS.as_bytes()).unwrap();
    assert!(head(&mut stream).starts_with("HTTP/1.1 429 "));
    // The next one in two pieces.
    stream.write_all(b"G").unwrap();
    let answer = rest(&mut stream);
    assert!(answer.contains("HTTP/1.1 408 "), "{answer}");
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let echo = upstream(|mut stream| {
        loop {
            let head = head(&mut stream);
            let path = head.split(' ').nth(1).unwrap();
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{path}");
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    let sidecar = before(echo, &[]);
    let mut stream = connect(sidecar.listen);
    let requests = ["/1", "/2", "/3"]
        .map(|path| format!("GET {path} HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\n\r\n"));
    stream.write_all(requests.concat().as_bytes()).unwrap();
    for path in ["/1", "/2", "/3"] {
        assert!(head(&mut stream).starts_with("HTTP/1.1 200 "));
        let mut body = [0; 2];
        stream.read_exact(&mut body).unwrap();
        assert_eq!(body, path.as_bytes());
    }
}

#[test]
fn a_client_that_reads_nothing_is_cut() {
    let (ended, has_ended) = std::sync::mpsc::channel();
    let endless = upstream(move |mut stream| {
        head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while stream.write_all(&[b'x'; 4096]).is_ok() {}
        ended.send(()).unwrap();
    });
    let sidecar = before(endless, &["--body-timeout", SHORT]);
    let mut stream = connect(sidecar.listen);
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\n\r\n")
        .unwrap();
    // The upstream is let go too, so that no work is left.
    has_ended.recv_timeout(PATIENCE).unwrap();
    wait_until("the connection is gone", || connections(&sidecar) == 0.0);
    assert!(rest(&mut stream).starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_reader_that_pauses_is_not_cut_before_the_limit() {
    let large = upstream(|mut stream| {
        head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 33554432\r\n\r\n");
        let _ = stream.write_all(&vec![b'x'; 33_554_432]);
        let _ = stream.read(&mut [0]);
    });
    let sidecar = before(large, &["--body-timeout", LONG, "--idle-timeout", SHORT]);
    let mut stream = connect(sidecar.listen);
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\n\r\n")
        .unwrap();
    head(&mut stream);
    // Longer than the limit between two requests, which does not hold while a response is under way.
    thread::sleep(Duration::from_secs(1));
    let mut body = vec![0; 33_554_432];
    stream.read_exact(&mut body).unwrap();
}

#[test]
fn a_refused_upload_gets_its_answer_although_it_is_not_read() {
    let sidecar = sidecar(&["--head-timeout", LONG]);
    let mut stream = connect(sidecar.listen);
    let length = 16 << 20;
    stream
        .write_all(
            format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n").as_bytes(),
        )
        .unwrap();
    stream.write_all(&vec![0; length]).unwrap();
    assert!(head(&mut stream).starts_with("HTTP/1.1 429 "));
}

#[test]
fn a_refused_request_with_a_small_body_keeps_its_connection() {
    let sidecar = sidecar(&[]);
    let mut client = Client::connect(sidecar.listen);
    for _ in 0..3 {
        let answer = client.send("POST", "/", &[], b"hello").unwrap();
        assert_eq!(answer.status, 429);
    }
}

#[test]
fn what_is_thrown_away_of_a_refused_upload_is_bounded_in_time() {
    let sidecar = sidecar(&["--head-timeout", SHORT]);
    let mut stream = connect(sidecar.listen);
    stream
        .write_all(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9999999999\r\n\r\n")
        .unwrap();
    let start = Instant::now();
    while stream.write_all(&[0; 4096]).is_ok() {
        assert!(start.elapsed() < PATIENCE, "it reads for ever");
    }
    wait_until("the connection is gone", || connections(&sidecar) == 0.0);
}

#[test]
fn a_head_of_64_kib_is_431() {
    let sidecar = sidecar(&[]);
    let with = |length: usize| {
        let filler = "x".repeat(length);
        let request =
            format!("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\na: {filler}\r\n\r\n");
        exchange(&sidecar, request.as_bytes())
    };
    assert!(with(60_000).starts_with("HTTP/1.1 429 "));
    assert!(with(66_000).starts_with("HTTP/1.1 431 "));
}

#[test]
fn the_101st_field_is_431() {
    let sidecar = sidecar(&[]);
    let with = |fields: usize| {
        let fields = "a: b\r\n".repeat(fields - 2);
        let request = format!("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{fields}\r\n");
        exchange(&sidecar, request.as_bytes())
    };
    assert!(with(100).starts_with("HTTP/1.1 429 "));
    assert!(with(101).starts_with("HTTP/1.1 431 "));
}

#[test]
fn other_bounds_of_a_head_hold_too() {
    let sidecar = sidecar(&["--max-fields", "3", "--max-head-bytes", "8192"]);
    let with = |fields: &str| {
        let request = format!("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{fields}\r\n");
        exchange(&sidecar, request.as_bytes())
    };
    assert!(with("a: b\r\n").starts_with("HTTP/1.1 429 "));
    assert!(with("a: b\r\nc: d\r\n").starts_with("HTTP/1.1 431 "));
    let long = format!("a: {}\r\n", "b".repeat(8192));
    assert!(with(&long).starts_with("HTTP/1.1 431 "));
}

#[test]
fn a_request_that_could_be_read_in_two_ways_is_400() {
    let heads: &[(&str, &str)] = &[
        (
            "lengths that differ",
            "content-length: 5\r\ncontent-length: 6",
        ),
        ("a list of lengths that differ", "content-length: 5, 6"),
        ("a length with a plus", "content-length: +5"),
        ("a negative length", "content-length: -5"),
        ("a length in hex", "content-length: 0x5"),
        ("an empty length", "content-length: "),
        (
            "a length beyond 64 bits",
            "content-length: 99999999999999999999",
        ),
        ("an unknown coding", "transfer-encoding: foo"),
        ("a coding after chunked", "transfer-encoding: chunked, foo"),
        (
            "a coding that is not the last one",
            "transfer-encoding: chunked, gzip",
        ),
        ("a folded field", "a: b\r\n c"),
        ("a space before the colon", "content-length : 5"),
        ("a tab before the colon", "content-length\t: 5"),
        ("a bare CR", "a: b\rcontent-length: 5"),
        ("a NUL", "a: b\0c"),
        ("a NUL in a name", "a\0: b"),
        ("a name with a space", "a b: c"),
        ("no name", ": b"),
        ("no colon", "a"),
    ];
    let sidecar = sidecar(&[]);
    for (what, head) in heads {
        let request =
            format!("POST / HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\n{head}\r\n\r\nhello");
        let answer = exchange(&sidecar, request.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 400 "), "{what}: {answer:?}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{what}: {answer:?}");
    }
    let lines: &[(&str, &str)] = &[
        ("no version", "GET /\r\n\r\n"),
        ("another version", "GET / HTTP/3.0\r\n\r\n"),
        ("a NUL in the path", "GET /\0 HTTP/1.1\r\n\r\n"),
        ("a bare CR in the path", "GET /\ra HTTP/1.1\r\n\r\n"),
        ("two spaces", "GET  / HTTP/1.1\r\n\r\n"),
        ("TLS", "\x16\x03\x01\x02\0\x01\0\x01\r\n\r\n"),
    ];
    for (what, line) in lines {
        let answer = exchange(&sidecar, line.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 400 "), "{what}: {answer:?}");
    }
}

#[test]
fn the_upstream_sees_one_framing() {
    let (saw, seen) = std::sync::mpsc::channel();
    let upstream = upstream(move |mut stream| {
        saw.send(head(&mut stream).to_ascii_lowercase()).unwrap();
    });
    let sidecar = before(upstream, &[]);
    let framings = [
        (
            "content-length: 5\r\ncontent-length: 5",
            "hello",
            "content-length: 5",
        ),
        ("content-length: 5, 5", "hello", "content-length: 5"),
        (
            "content-length: 99\r\ntransfer-encoding: chunked",
            "0\r\n\r\n",
            "transfer-encoding: chunked",
        ),
        (
            "transfer-encoding: chunked\r\ncontent-length: 99",
            "0\r\n\r\n",
            "transfer-encoding: chunked",
        ),
    ];
    for (fields, body, expected) in framings {
        let request =
            format!("POST / HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\n{fields}\r\n\r\n{body}");
        let mut stream = connect(sidecar.listen);
        stream.write_all(request.as_bytes()).unwrap();
        // Either it is refused, or the upstream has no choice.
        if head(&mut stream).starts_with("HTTP/1.1 400 ") {
            continue;
        }
        let head = seen.recv_timeout(PATIENCE).unwrap();
        let framings: Vec<_> = head
            .lines()
            .filter(|line| line.starts_with("content-length") || line.starts_with("transfer-enc"))
            .collect();
        assert_eq!(framings, [expected], "{fields}");
    }
}

#[test]
fn a_connection_beyond_the_bound_is_closed_at_once() {
    let sidecar = sidecar(&["--max-connections", "3"]);
    let mut held: Vec<_> = (0..3).map(|_| Client::connect(sidecar.listen)).collect();
    for client in &mut held {
        assert_eq!(client.send("GET", "/", &[], b"").unwrap().status, 429);
    }
    for _ in 0..100 {
        assert_eq!(rest(&mut connect(sidecar.listen)), "");
    }
    let complaints = sidecar.log().matches("too many connections").count();
    assert!((1..100).contains(&complaints), "{complaints}");

    held.pop();
    wait_until("there is room again", || {
        let mut client = Client::connect(sidecar.listen);
        client
            .send("GET", "/", &[], b"")
            .is_ok_and(|it| it.status == 429)
    });
    for client in &mut held {
        assert_eq!(client.send("GET", "/", &[], b"").unwrap().status, 429);
    }
}

#[test]
fn a_thousand_connections_that_are_cut_leave_nothing() {
    let sidecar = sidecar(&[]);
    for round in 0..1_000 {
        let mut stream = connect(sidecar.listen);
        let part = ANONYMOUS.len() * (round % 5) / 4;
        stream.write_all(&ANONYMOUS.as_bytes()[..part]).unwrap();
    }
    wait_until("they are gone", || connections(&sidecar) == 0.0);
    assert!(exchange(&sidecar, b"GET / HTTP/1.0\r\nhost: a\r\n\r\n").starts_with("HTTP/1.0 429 "));
}

#[test]
fn without_descriptors_it_waits_for_some_and_does_not_spin() {
    let sidecar = sidecar(&[]);
    let limit = |most| Rlimit {
        current: Some(most),
        maximum: Some(4096),
    };
    let pid = Pid::from_raw(sidecar.pid().try_into().unwrap());
    prlimit(pid, Resource::Nofile, limit(40)).unwrap();
    let held: Vec<_> = (0..100).map(|_| connect(sidecar.listen)).collect();
    wait_until("it complains", || {
        sidecar.log().contains("cannot accept a connection")
    });
    let before = cpu_ticks(&sidecar);
    thread::sleep(Duration::from_secs(1));
    let spent = cpu_ticks(&sidecar) - before;
    assert!(spent < 50, "{spent} of 100 hundredths of a second");

    drop(held);
    wait_until("it serves again", || {
        let mut client = Client::connect(sidecar.listen);
        client
            .send("GET", "/", &[], b"")
            .is_ok_and(|it| it.status == 429)
    });
}

/// Hundredths of a second of CPU.
fn cpu_ticks(sidecar: &Sidecar) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", sidecar.pid())).unwrap();
    let fields: Vec<_> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

mod http2 {
    use super::super::frames::{
        CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, PREFACE, RST_STREAM,
        SETTINGS, get, next, open, receive, send, try_send,
    };
    use super::{
        Duration, LONG, Read, SHORT, Write, before, connect, connections, exchange, head, sidecar,
        thread, upstream, wait_until,
    };

    #[test]
    fn a_preface_in_single_bytes_is_understood() {
        let sidecar = sidecar(&["--head-timeout", LONG]);
        let mut stream = connect(sidecar.listen);
        for byte in PREFACE {
            stream.write_all(&[*byte]).unwrap();
            thread::sleep(Duration::from_millis(2));
        }
        send(&mut stream, SETTINGS, 0, 0, &[]);
        let settings = next(&mut stream, SETTINGS);
        // MAX_CONCURRENT_STREAMS is 250.
        let all: Vec<_> = settings.payload.chunks(6).collect();
        assert!(all.contains(&&[0, 3, 0, 0, 0, 250][..]), "{all:?}");
    }

    #[test]
    fn a_part_of_the_preface_is_not_enough_to_stay() {
        let sidecar = sidecar(&["--head-timeout", SHORT]);
        let mut stream = connect(sidecar.listen);
        stream.write_all(&PREFACE[..10]).unwrap();
        assert!(receive(&mut stream).is_none());
    }

    #[test]
    fn a_connection_without_streams_is_told_and_closed() {
        let sidecar = sidecar(&["--idle-timeout", SHORT, "--head-timeout", SHORT]);
        let mut stream = open(sidecar.listen, &[]);
        next(&mut stream, GOAWAY);
        while receive(&mut stream).is_some() {}

        // After a stream too.
        let mut stream = open(sidecar.listen, &[]);
        send(&mut stream, HEADERS, END_STREAM | END_HEADERS, 1, &get(&[]));
        next(&mut stream, HEADERS);
        next(&mut stream, GOAWAY);
        while receive(&mut stream).is_some() {}
    }

    #[test]
    fn the_101st_field_is_431() {
        let sidecar = sidecar(&[]);
        let status = |fields: usize| {
            let mut stream = open(sidecar.listen, &[]);
            let block = get(&b"\x00\x01b\x01c".repeat(fields));
            send(&mut stream, HEADERS, END_STREAM | END_HEADERS, 1, &block);
            let answer = next(&mut stream, HEADERS);
            answer.payload
        };
        // The client is one of the fields. Status codes are literals in Huffman code. Nothing listens behind it.
        let refused = status(100);
        assert!(refused.starts_with(b"\x48\x83\x69\x90\xff"), "{refused:x?}");
        let failed = status(99);
        assert!(failed.starts_with(b"\x48\x82\x6c\x02"), "{failed:x?}");
    }

    #[test]
    fn a_head_of_64_kib_is_431() {
        let sidecar = sidecar(&[]);
        let status = |length: u32| {
            let mut stream = open(sidecar.listen, &[]);
            // A length of HPACK: 127, then the rest in groups of 7 bits.
            let mut field = b"\x00\x01b\x7f".to_vec();
            let mut rest = length - 127;
            while rest >= 128 {
                field.push((rest % 128 + 128).try_into().unwrap());
                rest /= 128;
            }
            field.push(rest.try_into().unwrap());
            field.extend(vec![b'c'; length as usize]);
            let block = get(&field);
            let pieces: Vec<_> = block.chunks(16_000).collect();
            for (index, piece) in pieces.iter().enumerate() {
                let (kind, first) = match index {
                    0 => (HEADERS, END_STREAM),
                    _ => (CONTINUATION, 0),
                };
                let last = if index + 1 == pieces.len() {
                    END_HEADERS
                } else {
                    0
                };
                send(&mut stream, kind, first | last, 1, piece);
            }
            next(&mut stream, HEADERS).payload
        };
        let failed = status(60_000);
        assert!(failed.starts_with(b"\x48\x82\x6c\x02"), "{failed:x?}");
        let refused = status(66_000);
        assert!(refused.starts_with(b"\x48\x83\x69\x90\xff"), "{refused:x?}");
    }

    #[test]
    fn a_stream_that_is_not_read_is_reset_and_the_others_go_on() {
        let endless = upstream(|mut stream| {
            head(&mut stream);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
            while stream.write_all(&[b'x'; 1024]).is_ok() {}
        });
        let sidecar = before(endless, &["--body-timeout", SHORT, "--idle-timeout", LONG]);
        // Streams begin without any window.
        let mut stream = open(sidecar.listen, &[0, 4, 0, 0, 0, 0]);
        send(&mut stream, HEADERS, END_STREAM | END_HEADERS, 1, &get(&[]));
        assert_eq!(next(&mut stream, HEADERS).stream, 1);
        let reset = next(&mut stream, RST_STREAM);
        assert_eq!(reset.stream, 1);

        // With some window, and then no more.
        send(&mut stream, SETTINGS, 0, 0, &[0, 4, 0, 0, 4, 0]);
        send(&mut stream, HEADERS, END_STREAM | END_HEADERS, 3, &get(&[]));
        assert_eq!(next(&mut stream, HEADERS).stream, 3);
        assert_eq!(next(&mut stream, DATA).stream, 3);
        assert_eq!(next(&mut stream, RST_STREAM).stream, 3);
        send(&mut stream, PING, 0, 0, &[7; 8]);
        let pong = next(&mut stream, PING);
        assert_eq!((pong.flags, pong.payload), (1, vec![7; 8]));
    }

    #[test]
    fn streams_that_are_reset_at_once_leave_nothing() {
        let silent = upstream(|mut stream| {
            head(&mut stream);
            let _ = stream.read(&mut [0]);
        });
        let sidecar = before(silent, &["--body-timeout", LONG, "--idle-timeout", LONG]);
        let mut stream = open(sidecar.listen, &[]);
        next(&mut stream, SETTINGS);
        // The server may end it for that.
        for id in (1..20_000).step_by(2) {
            let is_sent = try_send(
                &mut stream,
                HEADERS,
                END_STREAM | END_HEADERS,
                id,
                &get(&[]),
            ) && try_send(&mut stream, RST_STREAM, 0, id, &[0, 0, 0, 8]);
            if !is_sent {
                break;
            }
        }
        drop(stream);
        wait_until("the connection is gone", || connections(&sidecar) == 0.0);
        let answer = exchange(&sidecar, b"GET / HTTP/1.0\r\nhost: a\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.0 429 "), "{answer}");
    }

    #[test]
    fn a_flood_of_pings_without_a_reader_is_cut() {
        let sidecar = sidecar(&["--body-timeout", SHORT, "--idle-timeout", LONG]);
        let mut stream = open(sidecar.listen, &[]);
        while try_send(&mut stream, PING, 0, 0, &[0; 8]) {}
        wait_until("the connection is gone", || connections(&sidecar) == 0.0);
    }

    #[test]
    fn a_head_that_is_never_complete_ends() {
        let sidecar = sidecar(&["--idle-timeout", SHORT, "--head-timeout", SHORT]);
        let mut stream = open(sidecar.listen, &[]);
        // CONTINUATION is due, and does not come.
        send(&mut stream, HEADERS, END_STREAM, 1, &get(&[]));
        while receive(&mut stream).is_some() {}
    }
}
