//! How the process starts and ends, and what becomes of connections then.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitStatus;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::process::Signal;

use super::client::{Client, metric, scrape};
use super::frames::{self, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING};
use super::support::{PATIENCE, Sidecar, connect, head, output, upstream, wait_until};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

fn sidecar(upstream: SocketAddr, flags: &[&str]) -> Sidecar {
    let mut all = vec!["--capacity", "1000", "--cycle", "10s"];
    all.extend(flags);
    Sidecar::start(upstream, &all)
}

/// An upstream that reports a request, and answers it on demand.
struct Held {
    at: SocketAddr,
    has_request: Receiver<()>,
    answer: Sender<()>,
}

fn held() -> Held {
    let (arrived, has_request) = mpsc::channel();
    let (answer, told) = mpsc::channel();
    let told = Arc::new(Mutex::new(told));
    let at = upstream(move |mut stream| {
        head(&mut stream);
        arrived.send(()).unwrap();
        // After the test the answer has no reader.
        if told.lock().unwrap().recv().is_ok() {
            let _ = stream.write_all(OK.as_bytes());
        }
    });
    Held {
        at,
        has_request,
        answer,
    }
}

/// An upstream that answers each request at once.
fn quick() -> SocketAddr {
    upstream(|mut stream| {
        while stream.peek(&mut [0]).is_ok_and(|read| read > 0) {
            head(&mut stream);
            stream.write_all(OK.as_bytes()).unwrap();
        }
    })
}

/// An upstream that upgrades, and then sends back what it gets.
fn echo() -> SocketAddr {
    upstream(|mut stream| {
        head(&mut stream);
        let switched =
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
        stream.write_all(switched.as_bytes()).unwrap();
        let mut copy = stream.try_clone().unwrap();
        let _ = std::io::copy(&mut stream, &mut copy);
    })
}

fn upgrade(sidecar: &Sidecar) -> TcpStream {
    let mut stream = connect(sidecar.listen);
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n")
        .unwrap();
    assert!(head(&mut stream).starts_with("HTTP/1.1 101 "));
    stream
}

fn echoes(stream: &mut TcpStream) {
    let mut back = [0; 5];
    stream.write_all(b"hello").unwrap();
    stream.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"hello");
}

fn is_ready(sidecar: &Sidecar) -> u16 {
    let answer = Client::connect(sidecar.admin).send("GET", "/readyz", &[], b"");
    answer.unwrap().status
}

fn refuses_connections(sidecar: &Sidecar) -> bool {
    let connected = TcpStream::connect(sidecar.listen);
    connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

fn is_success(status: ExitStatus) {
    assert_eq!(status.code(), Some(0), "{status}");
}

#[test]
fn a_drain_announces_itself_before_it_refuses_connections() {
    let mut sidecar = sidecar(quick(), &["--drain-announce", "1h"]);
    wait_until("it is ready", || is_ready(&sidecar) == 200);
    sidecar.send(Signal::TERM);
    wait_until("it is not ready", || is_ready(&sidecar) == 503);
    assert_eq!(Client::connect(sidecar.listen).get("/", "a").status, 200);

    // The second signal does not wait for the hour.
    sidecar.send(Signal::TERM);
    is_success(sidecar.ended());
}

#[test]
fn a_kept_connection_ends_with_its_next_answer_while_the_end_is_announced() {
    let sidecar = sidecar(quick(), &["--drain-announce", "1h"]);
    let mut client = Client::connect(sidecar.listen);
    assert_eq!(client.get("/", "a").header("connection"), None);
    sidecar.send(Signal::TERM);
    wait_until("it is not ready", || is_ready(&sidecar) == 503);
    let answer = client.get("/", "a");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("connection"), Some("close"));
    let ended = client.answer(false).unwrap_err();
    assert_eq!(ended.kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn a_request_under_way_is_answered_before_the_end() {
    let held = held();
    let flags = ["--drain-announce", "0s", "--drain-finish", "1h"];
    let mut sidecar = sidecar(held.at, &flags);
    let at = sidecar.listen;
    let client = thread::spawn(move || Client::connect(at).get("/", "a"));
    held.has_request.recv_timeout(PATIENCE).unwrap();
    sidecar.send(Signal::TERM);
    wait_until("it refuses connections", || refuses_connections(&sidecar));

    held.answer.send(()).unwrap();
    let answer = client.join().unwrap();
    assert_eq!((answer.status, answer.text()), (200, "ok".to_owned()));
    assert_eq!(answer.header("connection"), Some("close"));
    is_success(sidecar.ended());
    assert!(sidecar.log().contains("drained"), "{}", sidecar.log());
}

#[test]
fn a_request_that_does_not_finish_is_cut() {
    let held = held();
    let flags = ["--drain-announce", "0s", "--drain-finish", "300ms"];
    let mut sidecar = sidecar(held.at, &flags);
    let at = sidecar.listen;
    let client = thread::spawn(move || {
        let mut client = Client::connect(at);
        client.send("GET", "/", &[("x-client-id", "a")], b"")
    });
    held.has_request.recv_timeout(PATIENCE).unwrap();
    sidecar.send(Signal::TERM);
    is_success(sidecar.ended());
    assert!(client.join().unwrap().is_err());
    let log = sidecar.log();
    assert!(log.contains("drained too slowly cut=1"), "{log}");
}

#[test]
fn a_second_signal_cuts_requests() {
    let held = held();
    let flags = ["--drain-announce", "0s", "--drain-finish", "1h"];
    let mut sidecar = sidecar(held.at, &flags);
    let at = sidecar.listen;
    let client = thread::spawn(move || {
        let mut client = Client::connect(at);
        client.send("GET", "/", &[("x-client-id", "a")], b"")
    });
    held.has_request.recv_timeout(PATIENCE).unwrap();
    sidecar.send(Signal::INT);
    wait_until("it refuses connections", || refuses_connections(&sidecar));
    sidecar.send(Signal::INT);
    is_success(sidecar.ended());
    assert!(client.join().unwrap().is_err());
}

#[test]
fn idle_connections_do_not_hold_a_drain() {
    let flags = ["--drain-announce", "0s", "--drain-finish", "1h"];
    let mut sidecar = sidecar(quick(), &flags);
    let mut clients: Vec<_> = (0..20).map(|_| Client::connect(sidecar.listen)).collect();
    for client in &mut clients {
        assert_eq!(client.get("/", "a").status, 200);
    }
    sidecar.send(Signal::TERM);
    is_success(sidecar.ended());
    for client in &mut clients {
        let ended = client.answer(false).unwrap_err();
        assert_eq!(ended.kind(), ErrorKind::UnexpectedEof);
    }
}

#[test]
fn a_stream_of_http2_is_answered_before_the_end() {
    let held = held();
    let flags = ["--drain-announce", "0s", "--drain-finish", "1h"];
    let mut sidecar = sidecar(held.at, &flags);
    let mut stream = frames::open(sidecar.listen, &[]);
    frames::send(
        &mut stream,
        HEADERS,
        END_STREAM | END_HEADERS,
        1,
        &frames::get(&[]),
    );
    held.has_request.recv_timeout(PATIENCE).unwrap();
    sidecar.send(Signal::TERM);
    frames::next(&mut stream, GOAWAY);
    // A ping says that the client has seen it.
    let ping = frames::next(&mut stream, PING);
    frames::send(&mut stream, PING, 1, 0, &ping.payload);

    held.answer.send(()).unwrap();
    assert_eq!(frames::next(&mut stream, HEADERS).stream, 1);
    assert_eq!(frames::next(&mut stream, DATA).payload, b"ok");
    is_success(sidecar.ended());
    assert!(!sidecar.log().contains("too slowly"), "{}", sidecar.log());
}

#[test]
fn an_idle_connection_of_http2_does_not_hold_a_drain() {
    let flags = ["--drain-announce", "0s", "--drain-finish", "1h"];
    let mut sidecar = sidecar(quick(), &flags);
    let mut stream = frames::open(sidecar.listen, &[]);
    frames::next(&mut stream, frames::SETTINGS);
    sidecar.send(Signal::TERM);
    frames::next(&mut stream, GOAWAY);
    let ping = frames::next(&mut stream, PING);
    frames::send(&mut stream, PING, 1, 0, &ping.payload);
    while frames::receive(&mut stream).is_some() {}
    is_success(sidecar.ended());
}

#[test]
fn connections_that_wait_to_be_accepted_are_served() {
    let flags = [
        "--drain-announce",
        "0s",
        "--drain-finish",
        "1h",
        "--cores",
        "2",
    ];
    let mut sidecar = sidecar(quick(), &flags);
    // The kernel accepts connections for it meanwhile.
    sidecar.send(Signal::STOP);
    let mut streams: Vec<_> = (0..50)
        .map(|_| {
            let mut stream = connect(sidecar.listen);
            let request = b"GET / HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\n\r\n";
            stream.write_all(request).unwrap();
            stream
        })
        .collect();
    sidecar.send(Signal::TERM);
    sidecar.send(Signal::CONT);
    for stream in &mut streams {
        let head = head(stream);
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    }
    is_success(sidecar.ended());
}

#[test]
fn an_upgraded_connection_goes_on_until_both_ends_close() {
    let flags = ["--drain-announce", "0s", "--drain-finish", "1h"];
    let mut sidecar = sidecar(echo(), &flags);
    let mut stream = upgrade(&sidecar);
    echoes(&mut stream);
    assert_eq!(
        metric(&scrape(sidecar.admin), "paceline_connections"),
        Some(1.0)
    );
    sidecar.send(Signal::TERM);
    wait_until("it refuses connections", || refuses_connections(&sidecar));
    for _ in 0..10 {
        echoes(&mut stream);
    }
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    is_success(sidecar.ended());
    assert!(!sidecar.log().contains("too slowly"), "{}", sidecar.log());
}

#[test]
fn an_upgraded_connection_that_does_not_close_is_cut() {
    let flags = ["--drain-announce", "0s", "--drain-finish", "300ms"];
    let mut sidecar = sidecar(echo(), &flags);
    let mut stream = upgrade(&sidecar);
    echoes(&mut stream);
    sidecar.send(Signal::TERM);
    is_success(sidecar.ended());
    assert!(!stream.read(&mut [0]).is_ok_and(|read| read > 0));
    let log = sidecar.log();
    assert!(log.contains("drained too slowly cut=1"), "{log}");
}

#[test]
fn an_upgraded_connection_has_no_limit_of_requests() {
    let flags = [
        "--head-timeout",
        "100ms",
        "--idle-timeout",
        "100ms",
        "--body-timeout",
        "100ms",
    ];
    let sidecar = sidecar(echo(), &flags);
    let mut stream = upgrade(&sidecar);
    thread::sleep(std::time::Duration::from_secs(1));
    echoes(&mut stream);
}

#[test]
fn a_port_in_use_is_named() {
    let upstream = format!("http://{}", quick());
    for cores in ["1", "2"] {
        let sidecar = sidecar(quick(), &["--cores", cores]);
        let taken = [
            ("--listen", sidecar.listen, "--admin"),
            ("--admin", sidecar.admin, "--listen"),
        ];
        for (flag, at, other) in taken {
            let address = at.to_string();
            let (code, out, err) = output(&[
                flag,
                &address,
                other,
                "127.0.0.1:0",
                "--upstream",
                &upstream,
                "--capacity",
                "1",
                "--cycle",
                "1s",
                "--cores",
                cores,
            ]);
            assert_eq!((code, &*out), (1, ""), "{err}");
            let expected = format!("cannot listen on {address}: Address already in use");
            assert!(err.contains(&expected), "{err}");
        }
    }
}

#[test]
fn an_address_of_another_machine_is_named() {
    let (code, _, err) = output(&[
        "--listen",
        "192.0.2.1:9000",
        "--admin",
        "127.0.0.1:0",
        "--upstream",
        "http://127.0.0.1:1",
        "--capacity",
        "1",
        "--cycle",
        "1s",
    ]);
    assert_eq!(code, 1);
    let expected = "cannot listen on 192.0.2.1:9000: Cannot assign requested address";
    assert!(err.contains(expected), "{err}");
}

#[test]
fn the_limit_of_open_files_is_raised() {
    let limited = "ulimit -S -n 64 && exec \"$0\" \"$@\"";
    let mut child = std::process::Command::new("sh")
        .args(["-c", limited, env!("CARGO_BIN_EXE_paceline-sidecar")])
        .args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
        .args(["--upstream", "http://127.0.0.1:1", "--capacity", "1"])
        .args(["--cycle", "1s"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // It is ready, or has ended.
    let read = child.stdout.take().unwrap().read(&mut [0]).unwrap();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(read, 1);
    let files = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let files: Vec<_> = files.unwrap().split_whitespace().collect();
    assert_eq!(files[3], files[4], "{limits}");
    assert_ne!(files[3], "64");
}

#[test]
fn threads_share_a_free_port() {
    let sidecar = sidecar(quick(), &["--cores", "3"]);
    let mut clients: Vec<_> = (0..60).map(|_| Client::connect(sidecar.listen)).collect();
    for client in &mut clients {
        assert_eq!(client.get("/", "a").status, 200);
    }
    assert_eq!(
        metric(&scrape(sidecar.admin), "paceline_connections"),
        Some(60.0)
    );
}

#[test]
fn a_reload_changes_the_bound_of_connections() {
    let file = std::env::temp_dir().join(format!("paceline-bounds-{}.toml", std::process::id()));
    std::fs::write(&file, "max-connections = 1").unwrap();
    let sidecar = sidecar(quick(), &["--config", file.to_str().unwrap()]);
    let mut first = Client::connect(sidecar.listen);
    assert_eq!(first.get("/", "a").status, 200);
    let another = || {
        let mut client = Client::connect(sidecar.listen);
        client.send("GET", "/", &[("x-client-id", "a")], b"")
    };
    assert!(another().is_err());
    std::fs::write(&file, "max-connections = 2").unwrap();
    sidecar.send(Signal::HUP);
    wait_until("there is room", || another().is_ok());
    std::fs::remove_file(file).unwrap();
}

#[test]
fn a_hangup_reloads_and_loses_no_connection() {
    let file = std::env::temp_dir().join(format!("paceline-life-{}.toml", std::process::id()));
    std::fs::write(&file, "mode = \"enforce\"").unwrap();
    let sidecar = sidecar(quick(), &["--config", file.to_str().unwrap()]);
    let mut client = Client::connect(sidecar.listen);
    assert_eq!(client.send("GET", "/", &[], b"").unwrap().status, 429);

    std::fs::write(&file, "anonymous = \"pass\"").unwrap();
    sidecar.send(Signal::HUP);
    wait_until("it is reloaded", || {
        sidecar.log().contains("configuration reloaded")
    });
    assert_eq!(client.send("GET", "/", &[], b"").unwrap().status, 200);
    std::fs::remove_file(file).unwrap();
}
