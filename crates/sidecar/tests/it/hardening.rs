//! What clients do that are slow, silent, greedy or hostile, in raw bytes.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use super::client::Client;
use super::frames::{
    self, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, PREFACE, RST_STREAM, SETTINGS,
};
use super::support::{GET, PATIENCE, Sidecar, connect, head, rest, wait_until};
use super::upstream::{self, nothing};

/// A request without a client id: the sidecar itself answers 429.
const ANONYMOUS: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

/// A limit that these tests wait for, and one that they never reach.
const SHORT: &str = "300ms";
const LONG: &str = "1h";

/// In front of nothing. Requests that are refused before do not notice.
fn sidecar(flags: &[&str]) -> Sidecar {
    Sidecar::start(nothing(), flags)
}

#[test]
fn a_connection_without_a_whole_head_is_closed() {
    let sidecar = sidecar(&["--head-timeout", SHORT]);
    for (bytes, answer) in [
        (&b""[..], ""),
        // It could be the preface of HTTP/2.
        (b"P", ""),
        (&PREFACE[..10], ""),
        (b"G", "HTTP/1.1 408 "),
    ] {
        let got = sidecar.exchange(bytes);
        assert!(got.starts_with(answer), "{bytes:?}: {got}");
        assert_eq!(got.is_empty(), answer.is_empty(), "{bytes:?}: {got}");
    }
}

#[test]
fn a_trickling_head_is_late_although_each_byte_is_not() {
    let sidecar = sidecar(&["--head-timeout", SHORT]);
    let mut stream = sidecar.open("GET / HTTP/1.1\r\na: ");
    let moment = Duration::from_millis(20);
    stream.set_read_timeout(Some(moment)).unwrap();
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
    let mut client = sidecar.client();
    assert_eq!(client.send("GET", "/", &[], b"").status, 429);
    let ended = client.answer(false).unwrap_err();
    assert_eq!(ended.kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn the_first_byte_after_an_answer_begins_the_limit_of_a_head() {
    let sidecar = sidecar(&["--idle-timeout", LONG, "--head-timeout", SHORT]);
    let mut stream = sidecar.open(ANONYMOUS);
    assert!(head(&mut stream).starts_with("HTTP/1.1 429 "));
    // The next one in two pieces.
    stream.write_all(b"G").unwrap();
    let answer = rest(&mut stream);
    assert!(answer.contains("HTTP/1.1 408 "), "{answer}");
}

#[test]
fn a_client_that_reads_nothing_is_cut() {
    let (ended, has_ended) = channel();
    let endless = upstream::raw(move |mut connection| {
        connection.head();
        connection.send("HTTP/1.1 200 OK\r\n\r\n");
        while connection.send([b'x'; 4096]) {}
        ended.send(()).unwrap();
    });
    let sidecar = Sidecar::start(endless, &["--body-timeout", SHORT]);
    let mut stream = sidecar.open(GET);
    // The upstream is let go too, so that no work is left.
    has_ended.recv_timeout(PATIENCE).unwrap();
    sidecar.wait_for_connections(0);
    assert!(rest(&mut stream).starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_reader_that_pauses_is_not_cut_before_the_limit() {
    let large = upstream::http(|_| async { upstream::reply(vec![b'x'; 1 << 25]) });
    let flags = ["--body-timeout", LONG, "--idle-timeout", SHORT];
    let sidecar = Sidecar::start(large, &flags);
    let mut stream = sidecar.open(GET);
    head(&mut stream);
    // Longer than the limit between two requests, which does not hold while a response is under way.
    thread::sleep(Duration::from_secs(1));
    let mut body = vec![0; 1 << 25];
    stream.read_exact(&mut body).unwrap();
}

#[test]
fn what_is_thrown_away_of_a_refused_upload_is_bounded_in_time() {
    let sidecar = sidecar(&["--head-timeout", SHORT]);
    let mut stream =
        sidecar.open("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9999999999\r\n\r\n");
    let start = Instant::now();
    while stream.write_all(&[0; 4096]).is_ok() {
        assert!(start.elapsed() < PATIENCE, "it reads for ever");
    }
    sidecar.wait_for_connections(0);
}

#[test]
fn a_head_beyond_its_bounds_is_431() {
    let wide = sidecar(&[]);
    let narrow = sidecar(&["--max-fields", "3", "--max-head-bytes", "8192"]);
    let length = |length| format!("a: {}\r\n", "x".repeat(length));
    let fields = |count: usize| "a: b\r\n".repeat(count - 2);
    for (sidecar, fields, status) in [
        (&wide, length(32_000), 429),
        (&wide, length(33_000), 431),
        (&wide, fields(100), 429),
        (&wide, fields(101), 431),
        (&narrow, fields(3), 429),
        (&narrow, fields(4), 431),
        (&narrow, length(8_192), 431),
    ] {
        let head = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n";
        let answer = sidecar.exchange(format!("{head}{fields}\r\n"));
        let expected = format!("HTTP/1.1 {status} ");
        assert!(answer.starts_with(&expected), "{}: {answer}", fields.len());
    }
}

/// Waits until a new connection is served.
fn wait_for_room(sidecar: &Sidecar) {
    wait_until("there is room again", || {
        let answer = sidecar.client().try_send("GET", "/", &[], b"");
        answer.is_ok_and(|answer| answer.status == 429)
    });
}

#[test]
fn a_connection_beyond_the_bound_is_closed_at_once() {
    let sidecar = sidecar(&["--max-connections", "3"]);
    let mut held: Vec<_> = (0..3).map(|_| sidecar.client()).collect();
    let is_served = |client: &mut Client| {
        assert_eq!(client.send("GET", "/", &[], b"").status, 429);
    };
    held.iter_mut().for_each(is_served);
    for _ in 0..100 {
        assert_eq!(rest(&mut connect(sidecar.listen)), "");
    }
    let complaints = sidecar.log().matches("too many connections").count();
    assert!((1..100).contains(&complaints), "{complaints}");

    held.pop();
    wait_for_room(&sidecar);
    held.iter_mut().for_each(is_served);
}

#[test]
fn a_thousand_connections_that_are_cut_leave_nothing() {
    let sidecar = sidecar(&[]);
    for round in 0..1_000 {
        let part = ANONYMOUS.len() * (round % 5) / 4;
        drop(sidecar.open(&ANONYMOUS[..part]));
    }
    sidecar.wait_for_connections(0);
    assert_eq!(sidecar.anonymous().status, 429);
}

#[test]
fn without_descriptors_it_waits_for_some_and_does_not_spin() {
    let sidecar = sidecar(&[]);
    let most = Rlimit {
        current: Some(40),
        maximum: Some(4096),
    };
    let pid = Pid::from_raw(sidecar.pid().try_into().unwrap());
    prlimit(pid, Resource::Nofile, most).unwrap();
    let held: Vec<_> = (0..100).map(|_| connect(sidecar.listen)).collect();
    sidecar.wait_for_log("cannot accept a connection");
    let before = cpu_ticks(&sidecar);
    thread::sleep(Duration::from_secs(1));
    let spent = cpu_ticks(&sidecar) - before;
    assert!(spent < 50, "{spent} of 100 hundredths of a second");

    drop(held);
    wait_for_room(&sidecar);
}

/// Hundredths of a second of CPU.
fn cpu_ticks(sidecar: &Sidecar) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", sidecar.pid())).unwrap();
    let fields = stat.rsplit(')').next().unwrap().split_whitespace();
    let times = fields.skip(11).take(2);
    times.map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

#[test]
fn a_preface_of_http2_in_single_bytes_is_understood() {
    let sidecar = sidecar(&["--head-timeout", LONG]);
    let mut stream = connect(sidecar.listen);
    for byte in PREFACE {
        stream.write_all(&[*byte]).unwrap();
        thread::sleep(Duration::from_millis(2));
    }
    frames::send(&mut stream, SETTINGS, 0, 0, &[]);
    let settings = frames::next(&mut stream, SETTINGS);
    // MAX_CONCURRENT_STREAMS is 250.
    let all: Vec<_> = settings.payload.chunks(6).collect();
    assert!(all.contains(&&[0, 3, 0, 0, 0, 250][..]), "{all:?}");
}

#[test]
fn a_connection_of_http2_without_streams_is_told_and_closed() {
    let sidecar = sidecar(&["--idle-timeout", SHORT, "--head-timeout", SHORT]);
    for has_stream in [false, true] {
        let mut stream = frames::open(sidecar.listen, &[]);
        if has_stream {
            frames::request(&mut stream, 1);
            frames::next(&mut stream, HEADERS);
        }
        frames::next(&mut stream, GOAWAY);
        while frames::receive(&mut stream).is_some() {}
    }
}

/// The head of an answer: status codes are literals in Huffman code. Nothing listens behind the sidecar.
const IS_431: &[u8] = b"\x48\x83\x69\x90\xff";
const IS_502: &[u8] = b"\x48\x82\x6c\x02";

#[test]
fn a_head_of_http2_beyond_its_bounds_is_431() {
    let sidecar = sidecar(&[]);
    // The client is one of the fields.
    let fields = |count: usize| b"\x00\x01b\x01c".repeat(count - 1);
    for (fields, answer) in [
        (fields(100), IS_502),
        (fields(101), IS_431),
        (frames::long_field(32_000), IS_502),
        (frames::long_field(33_000), IS_431),
    ] {
        let mut stream = frames::open(sidecar.listen, &[]);
        frames::request_with(&mut stream, 1, &fields);
        let head = frames::next(&mut stream, HEADERS).payload;
        assert!(head.starts_with(answer), "{}: {head:x?}", fields.len());
    }
}

#[test]
fn a_stream_that_is_not_read_is_reset_and_the_others_go_on() {
    let endless = upstream::raw(|mut connection| {
        connection.head();
        connection.send("HTTP/1.1 200 OK\r\n\r\n");
        while connection.send([b'x'; 1024]) {}
    });
    let flags = ["--body-timeout", SHORT, "--idle-timeout", LONG];
    let sidecar = Sidecar::start(endless, &flags);
    // Streams begin without any window.
    let mut stream = frames::open(sidecar.listen, &[0, 4, 0, 0, 0, 0]);
    frames::request(&mut stream, 1);
    assert_eq!(frames::next(&mut stream, HEADERS).stream, 1);
    assert_eq!(frames::next(&mut stream, RST_STREAM).stream, 1);

    // With some window, and then no more.
    frames::send(&mut stream, SETTINGS, 0, 0, &[0, 4, 0, 0, 4, 0]);
    frames::request(&mut stream, 3);
    for kind in [HEADERS, DATA, RST_STREAM] {
        assert_eq!(frames::next(&mut stream, kind).stream, 3);
    }
    frames::send(&mut stream, PING, 0, 0, &[7; 8]);
    let pong = frames::next(&mut stream, PING);
    assert_eq!((pong.flags, pong.payload), (1, vec![7; 8]));
}

#[test]
fn streams_that_are_reset_at_once_leave_nothing() {
    let silent = upstream::raw(|mut connection| {
        connection.head();
        connection.take(1);
    });
    let flags = ["--body-timeout", LONG, "--idle-timeout", LONG];
    let sidecar = Sidecar::start(silent, &flags);
    let mut stream = frames::open(sidecar.listen, &[]);
    frames::next(&mut stream, SETTINGS);
    let (head, cancel) = (frames::get(&[]), [0, 0, 0, 8]);
    let mut try_send =
        |kind, flags, id, payload: &[u8]| frames::try_send(&mut stream, kind, flags, id, payload);
    for id in (1..20_000).step_by(2) {
        let is_open = try_send(HEADERS, END_STREAM | END_HEADERS, id, &head)
            && try_send(RST_STREAM, 0, id, &cancel);
        // The server may end it for that.
        if !is_open {
            break;
        }
    }
    drop(stream);
    sidecar.wait_for_connections(0);
    assert_eq!(sidecar.anonymous().status, 429);
}

#[test]
fn a_flood_of_pings_without_a_reader_is_cut() {
    let sidecar = sidecar(&["--body-timeout", SHORT, "--idle-timeout", LONG]);
    let mut stream = frames::open(sidecar.listen, &[]);
    while frames::try_send(&mut stream, PING, 0, 0, &[0; 8]) {}
    sidecar.wait_for_connections(0);
}

#[test]
fn a_head_of_http2_that_is_never_complete_ends() {
    let sidecar = sidecar(&["--idle-timeout", SHORT, "--head-timeout", SHORT]);
    let mut stream = frames::open(sidecar.listen, &[]);
    // CONTINUATION is due, and does not come.
    frames::send(&mut stream, HEADERS, END_STREAM, 1, &frames::get(&[]));
    while frames::receive(&mut stream).is_some() {}
}
