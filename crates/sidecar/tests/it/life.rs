//! How the process starts and ends, and what becomes of connections then.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use rustix::process::Signal;

use super::client::Answer;
use super::frames::{self, DATA, GOAWAY, HEADERS, PING};
use super::support::{GET, PATIENCE, Sidecar, head, on_free_ports, output, rest, wait_until};
use super::upgrade::{echoes, switched};
use super::upstream::{self, OK, hello};

/// A drain that announces nothing, and waits for what is under way, or does not.
const PATIENT: [&str; 4] = ["--drain-announce", "0s", "--drain-finish", "1h"];
const HASTY: [&str; 4] = ["--drain-announce", "0s", "--drain-finish", "300ms"];

/// A sidecar with a service that reports a request, and answers it on demand.
struct Held {
    sidecar: Sidecar,
    has_request: Receiver<()>,
    answer: Sender<()>,
}

impl Held {
    fn start(flags: &[&str]) -> Self {
        let (arrived, has_request) = channel();
        let (answer, told) = channel();
        let told = Mutex::new(told);
        let service = upstream::raw(move |mut connection| {
            connection.head().unwrap();
            arrived.send(()).unwrap();
            // After the test the answer has no reader.
            if told.lock().unwrap().recv().is_ok() {
                connection.send(OK);
            }
        });
        Self {
            sidecar: Sidecar::start(service, flags),
            has_request,
            answer,
        }
    }

    /// Sends a request, which is under way then. `None`: the connection ended.
    fn request(&self) -> JoinHandle<Option<Answer>> {
        let mut client = self.sidecar.client();
        let id = [("x-client-id", "a")];
        let client = thread::spawn(move || client.try_send("GET", "/", &id, b"").ok());
        self.arrives();
        client
    }

    fn arrives(&self) {
        self.has_request.recv_timeout(PATIENCE).unwrap();
    }
}

fn wait_for_readiness(sidecar: &Sidecar, status: u16) {
    wait_until("readiness", || {
        sidecar.operator().send("GET", "/readyz", &[], b"").status == status
    });
}

fn wait_for_refusal(sidecar: &Sidecar) {
    wait_until("it refuses connections", || {
        let connected = TcpStream::connect(sidecar.listen);
        connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    });
}

#[test]
fn a_drain_announces_itself_before_it_refuses_connections() {
    let mut sidecar = Sidecar::start(hello(), &["--drain-announce", "1h"]);
    wait_for_readiness(&sidecar, 200);
    let mut kept = sidecar.client();
    assert_eq!(kept.get("/", "a").header("connection"), None);
    sidecar.signal(Signal::TERM);
    wait_for_readiness(&sidecar, 503);
    assert_eq!(sidecar.get("a").status, 200);
    // A kept connection ends with its next answer.
    let answer = kept.get("/", "a");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("connection"), Some("close"));
    let ended = kept.answer(false).unwrap_err();
    assert_eq!(ended.kind(), ErrorKind::UnexpectedEof);

    // The second signal does not wait for the hour.
    sidecar.signal(Signal::TERM);
    sidecar.succeeds();
}

#[test]
fn requests_under_way_are_answered_before_the_end() {
    let mut held = Held::start(&PATIENT);
    let client = held.request();
    let mut stream = frames::open(held.sidecar.listen, &[]);
    frames::request(&mut stream, 1);
    held.arrives();
    held.sidecar.signal(Signal::TERM);
    wait_for_refusal(&held.sidecar);
    goes_away(&mut stream);

    for _ in 0..2 {
        held.answer.send(()).unwrap();
    }
    let answer = client.join().unwrap().unwrap();
    assert_eq!((answer.status, answer.text()), (200, "ok".to_owned()));
    assert_eq!(answer.header("connection"), Some("close"));
    assert_eq!(frames::next(&mut stream, HEADERS).stream, 1);
    assert_eq!(frames::next(&mut stream, DATA).payload, b"ok");
    held.sidecar.succeeds();
    let log = held.sidecar.log();
    assert!(log.contains("drained"), "{log}");
    assert!(!log.contains("too slowly"), "{log}");
}

/// Waits for the announcement of the end, and says that it was seen.
fn goes_away(stream: &mut TcpStream) {
    frames::next(stream, GOAWAY);
    let ping = frames::next(stream, PING);
    frames::send(stream, PING, 1, 0, &ping.payload);
}

#[test]
fn a_request_that_does_not_finish_is_cut() {
    let mut held = Held::start(&HASTY);
    let client = held.request();
    held.sidecar.signal(Signal::TERM);
    held.sidecar.succeeds();
    assert_eq!(client.join().unwrap(), None);
    let log = held.sidecar.log();
    assert!(log.contains("drained too slowly cut=1"), "{log}");
}

#[test]
fn a_second_signal_cuts_requests() {
    let mut held = Held::start(&PATIENT);
    let client = held.request();
    held.sidecar.signal(Signal::INT);
    wait_for_refusal(&held.sidecar);
    held.sidecar.signal(Signal::INT);
    held.sidecar.succeeds();
    assert_eq!(client.join().unwrap(), None);
}

#[test]
fn idle_connections_do_not_hold_a_drain() {
    let mut sidecar = Sidecar::start(hello(), &PATIENT);
    let mut clients: Vec<_> = (0..20).map(|_| sidecar.client()).collect();
    for client in &mut clients {
        assert_eq!(client.get("/", "a").status, 200);
    }
    let mut of_http2 = frames::open(sidecar.listen, &[]);
    frames::next(&mut of_http2, frames::SETTINGS);
    sidecar.signal(Signal::TERM);
    goes_away(&mut of_http2);
    while frames::receive(&mut of_http2).is_some() {}
    sidecar.succeeds();
    for client in &mut clients {
        let ended = client.answer(false).unwrap_err();
        assert_eq!(ended.kind(), ErrorKind::UnexpectedEof);
    }
}

#[test]
fn connections_without_a_request_do_not_hold_a_drain() {
    let flags = [&PATIENT[..], &["--head-timeout", "1h"]].concat();
    let mut sidecar = Sidecar::start(hello(), &flags);
    let mut silent: Vec<_> = (0..20).map(|_| sidecar.open("")).collect();
    let mut half = ["G", "GET / HTTP/1.1\r\nho"].map(|begun| sidecar.open(begun));
    let mut prefaces = ["P", "PRI * HTTP/2.0\r\n\r\n"].map(|begun| sidecar.open(begun));
    let mut of_http2 = frames::open(sidecar.listen, &[]);
    frames::next(&mut of_http2, frames::SETTINGS);
    sidecar.wait_for_connections(25);
    sidecar.signal(Signal::TERM);
    for stream in &mut silent {
        assert_eq!(rest(stream), "");
    }
    for stream in &mut half {
        let answer = rest(stream);
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    }
    for stream in &mut prefaces {
        rest(stream);
    }
    // It does not say that it has seen the announcement.
    while frames::receive(&mut of_http2).is_some() {}
    sidecar.succeeds();
    let log = sidecar.log();
    assert!(!log.contains("too slowly"), "{log}");
}

#[test]
fn a_request_that_came_before_the_drain_is_answered() {
    let mut sidecar = Sidecar::start(hello(), &PATIENT);
    let mut streams: Vec<_> = (0..40).map(|_| sidecar.open("")).collect();
    for stream in streams.iter_mut().skip(20) {
        stream.write_all(GET.as_bytes()).unwrap();
        head(stream);
        stream.read_exact(&mut [0; 5]).unwrap();
    }
    sidecar.wait_for_connections(40);
    // The kernel takes the requests meanwhile.
    sidecar.signal(Signal::STOP);
    for stream in &mut streams {
        stream.write_all(GET.as_bytes()).unwrap();
    }
    sidecar.signal(Signal::TERM);
    sidecar.signal(Signal::CONT);
    for stream in &mut streams {
        let head = head(stream);
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    }
    sidecar.succeeds();
}

#[test]
fn connections_that_wait_to_be_accepted_are_served() {
    let flags = [&PATIENT[..], &["--cores", "2"]].concat();
    let mut sidecar = Sidecar::start(hello(), &flags);
    // The kernel accepts connections for it meanwhile.
    sidecar.signal(Signal::STOP);
    let mut streams: Vec<_> = (0..50).map(|_| sidecar.open(GET)).collect();
    sidecar.signal(Signal::TERM);
    sidecar.signal(Signal::CONT);
    for stream in &mut streams {
        let head = head(stream);
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    }
    sidecar.succeeds();
}

#[test]
fn an_upgraded_connection_goes_on_until_both_ends_close() {
    let mut sidecar = Sidecar::start(upstream::echo(), &PATIENT);
    let mut stream = switched(&sidecar);
    echoes(&mut stream);
    assert_eq!(sidecar.metric("paceline_connections"), Some(1.0));
    sidecar.signal(Signal::TERM);
    wait_for_refusal(&sidecar);
    for _ in 0..10 {
        echoes(&mut stream);
    }
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    sidecar.succeeds();
    let log = sidecar.log();
    assert!(!log.contains("too slowly"), "{log}");
}

#[test]
fn an_upgraded_connection_that_does_not_close_is_cut() {
    let mut sidecar = Sidecar::start(upstream::echo(), &HASTY);
    let mut stream = switched(&sidecar);
    echoes(&mut stream);
    sidecar.signal(Signal::TERM);
    sidecar.succeeds();
    assert!(!stream.read(&mut [0]).is_ok_and(|read| read > 0));
    let log = sidecar.log();
    assert!(log.contains("drained too slowly cut=1"), "{log}");
}

/// The sidecar cannot listen there, for this reason.
fn cannot_listen(flags: &[&str], at: SocketAddr, reason: &str) {
    let (code, out, err) = output(&on_free_ports("http://127.0.0.1:1", flags));
    assert_eq!((code, &*out), (1, ""), "{err}");
    let expected = format!("cannot listen on {at}: {reason}");
    assert!(err.contains(&expected), "{err}");
}

#[test]
fn a_port_in_use_is_named() {
    for cores in ["1", "2"] {
        let sidecar = Sidecar::start(hello(), &["--cores", cores]);
        for (flag, at) in [("--listen", sidecar.listen), ("--admin", sidecar.admin)] {
            let flags = [flag, &at.to_string(), "--cores", cores];
            cannot_listen(&flags, at, "Address already in use");
        }
    }
}

#[test]
fn an_address_of_another_machine_is_named() {
    let other = "192.0.2.1:9000";
    let reason = "Cannot assign requested address";
    cannot_listen(&["--listen", other], other.parse().unwrap(), reason);
}

#[test]
fn the_limit_of_open_files_is_raised() {
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "ulimit -S -n 64 && exec \"$0\" \"$@\""])
        .arg(env!("CARGO_BIN_EXE_paceline-sidecar"))
        .args(on_free_ports("http://127.0.0.1:1", &[]));
    let sidecar = Sidecar::of(limited);
    let limits = fs::read_to_string(format!("/proc/{}/limits", sidecar.pid())).unwrap();
    let mut lines = limits.lines();
    let files = lines.find(|line| line.starts_with("Max open files"));
    let files: Vec<_> = files.unwrap().split_whitespace().collect();
    assert_eq!(files[3], files[4], "{limits}");
    assert_ne!(files[3], "64");
}

#[test]
fn threads_share_a_free_port() {
    let sidecar = Sidecar::start(hello(), &["--cores", "3"]);
    let mut clients: Vec<_> = (0..60).map(|_| sidecar.client()).collect();
    for client in &mut clients {
        assert_eq!(client.get("/", "a").status, 200);
    }
    assert_eq!(sidecar.metric("paceline_connections"), Some(60.0));
}
