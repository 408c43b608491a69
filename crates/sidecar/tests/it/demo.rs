//! The demo, as a user starts it.

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::client::Client;
use super::support::{PATIENCE, command, output};

struct Demo {
    child: Child,
    lines: BufReader<ChildStdout>,
    /// The service, the sidecar, and its live page.
    ports: Vec<SocketAddr>,
}

impl Demo {
    fn start(length: &str) -> Self {
        let mut child = command(&["demo", "--for", length])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut demo = Self {
            child,
            lines,
            ports: Vec::new(),
        };
        while demo.ports.len() < 3 {
            let line = demo.line();
            let words = line.split([' ', ',', '/']);
            let addresses = words.filter_map(|word| {
                word.trim_end_matches(['.', '\n'])
                    .parse::<SocketAddr>()
                    .ok()
            });
            demo.ports.extend(addresses);
        }
        demo
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let read = self.lines.read_line(&mut line).unwrap();
        if read == 0 {
            let mut error = String::new();
            let _ = self.child.stderr.take().unwrap().read_to_string(&mut error);
            panic!("it ended: {error}");
        }
        line
    }

    /// Its end, with what it printed meanwhile.
    fn end(&mut self) -> String {
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        let mut error = String::new();
        let stderr = self.child.stderr.as_mut().unwrap();
        stderr.read_to_string(&mut error).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{rest}{error}");
        assert_eq!(error, "", "{rest}");
        for port in &self.ports {
            assert!(is_closed(*port), "{port} is open");
        }
        rest
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // It ends its sidecar at this signal, and would not if it were killed.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

fn is_closed(port: SocketAddr) -> bool {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if TcpStream::connect(port).is_err() {
            return true;
        }
        thread::sleep(Duration::from_millis(10));
    }
    false
}

/// A line of the table: for each client what it asks for, its size, and what passed.
fn rows(text: &str) -> Vec<[[u32; 3]; 4]> {
    let rows = text.lines().filter_map(|line| {
        let numbers = line.split_whitespace().map(str::parse);
        let numbers = numbers.collect::<Result<Vec<u32>, _>>().ok()?;
        let clients = numbers.get(1..13)?.chunks(3);
        let clients = clients.map(|client| client.try_into().unwrap());
        clients.collect::<Vec<[u32; 3]>>().try_into().ok()
    });
    rows.collect()
}

#[test]
fn the_table_is_the_published_one_and_nothing_is_left() {
    let mut demo = Demo::start("18s");
    let page = Client::connect(demo.ports[2]).send("GET", "/", &[], b"");
    let page = page.unwrap();
    assert_eq!(page.status, 200);
    assert!(page.text().contains("<html"));

    let text = demo.end();
    // A machine that is busy leaves lines out.
    let rows = rows(&text);
    assert!(!rows.is_empty(), "{text}");
    for row in &rows {
        let sizes = row.iter().map(|[_, size, _]| size);
        assert_eq!(sizes.sum::<u32>(), 40, "{text}");
        for [asks, size, passed] in row {
            assert_eq!(passed, asks.min(size), "{text}");
            assert!(
                *asks > 10 || passed == asks,
                "refused inside its default: {text}"
            );
        }
    }
    let published = [
        ([2, 15, 10, 10], [5, 15, 10, 10]),
        ([3, 15, 50, 10], [3, 11, 16, 10]),
        ([0, 15, 50, 5], [1, 12, 22, 5]),
    ];
    let asks = |row: [[u32; 3]; 4]| row.map(|[asks, _, _]| asks);
    for pair in rows.windows(2) {
        // A cycle is sized by what was asked in the one before.
        let sizes = published
            .iter()
            .find(|(asked, _)| *asked == asks(pair[0]) && asks(pair[0]) == asks(pair[1]));
        if let Some((_, expected)) = sizes {
            assert_eq!(pair[1].map(|[_, size, _]| size), *expected, "{text}");
        }
    }
    for client in ["catalog", "search"] {
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("{client}: ")));
        assert!(line.unwrap().contains(" passed, 0 refused."), "{text}");
    }
}

#[test]
fn an_interrupt_ends_it_cleanly() {
    let mut demo = Demo::start("1h");
    while !demo.line().starts_with("cycle ") {}
    kill_process(Pid::from_child(&demo.child), Signal::INT).unwrap();
    assert!(demo.end().ends_with("interrupted\n"));
}

#[test]
fn a_length_out_of_range_is_refused() {
    for (length, expected) in [
        ("9s", "must be 10s to 1h, got 9s"),
        ("1", "`1` is not a duration"),
    ] {
        let (code, _, error) = output(&["demo", "--for", length]);
        assert_eq!(code, 2);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_port_in_use_is_named_and_nothing_is_left() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().to_string();
    let (code, _, error) = output(&["demo", "--admin", &port]);
    assert_eq!(code, 1, "{error}");
    assert!(error.contains(&port), "{error}");
    assert!(error.contains("the sidecar did not start"), "{error}");
}
