//! The demo, as a user starts it.

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Instant;

use rustix::process::Signal;

use super::client::Client;
use super::support::{PATIENCE, Process, command, output, wait_until};

struct Demo {
    process: Process,
    /// The service, the sidecar, and its live page.
    ports: Vec<SocketAddr>,
}

impl Demo {
    fn start(length: &str) -> Self {
        let process = Process::start(command(&["demo", "--for", length]));
        let mut ports = Vec::new();
        while ports.len() < 3 {
            let line = process.line();
            let words = line.split([' ', ',', '/']);
            let words = words.map(|word| word.trim_end_matches('.'));
            ports.extend(words.filter_map(|word| word.parse::<SocketAddr>().ok()));
        }
        Self { process, ports }
    }

    /// Its end, with what it printed meanwhile.
    fn end(&mut self) -> String {
        self.process.succeeds();
        let rest = self.process.rest();
        assert_eq!(self.process.log(), "", "{rest}");
        for port in &self.ports {
            wait_until("the port is closed", || TcpStream::connect(port).is_err());
        }
        rest
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // It ends its sidecar at this signal, and would not if it were killed.
        if self.process.is_running() {
            self.process.signal(Signal::TERM);
            self.process.ended();
        }
    }
}

/// A line of the table: the number of the cycle, and for each client what it asks for, its size, and what passed.
type Row = (u32, [[u32; 3]; 4]);

/// The lines of the table. A cycle in which the machine was too busy is left out.
fn rows(text: &str) -> Vec<Row> {
    let rows = text.lines().filter_map(|line| {
        let numbers = line.split_whitespace().map(str::parse);
        let numbers = numbers.collect::<Result<Vec<u32>, _>>().ok()?;
        let (clients, _) = numbers.get(1..13)?.as_chunks();
        Some((numbers[0], clients.try_into().ok()?))
    });
    rows.collect()
}

/// What the four clients ask for in a cycle, and what each has in the next one.
const PUBLISHED: [([u32; 4], [u32; 4]); 3] = [
    ([2, 15, 10, 10], [5, 15, 10, 10]),
    ([3, 15, 50, 10], [3, 11, 16, 10]),
    ([0, 15, 50, 5], [1, 12, 22, 5]),
];

#[test]
fn the_table_is_the_published_one_and_nothing_is_left() {
    let start = Instant::now();
    let mut seen = BTreeSet::new();
    // A machine that is busy leaves lines out. Then it begins again.
    while seen.len() < PUBLISHED.len() {
        assert!(start.elapsed() < 3 * PATIENCE, "only {seen:?}");
        let mut demo = Demo::start("18s");
        let page = Client::connect(demo.ports[2]).send("GET", "/", &[], b"");
        assert_eq!(page.status, 200);
        assert!(page.text().contains("<html"));
        seen.extend(published_rows(&demo.end()));
    }
}

/// What was asked for in cycles that are followed by one with the published sizes. All lines are right.
fn published_rows(text: &str) -> Vec<[u32; 4]> {
    let rows = rows(text);
    for (_, row) in &rows {
        let sizes = row.iter().map(|[_, size, _]| size);
        assert_eq!(sizes.sum::<u32>(), 40, "{text}");
    }
    if !text.contains("too busy") {
        for client in ["catalog: ", "search: "] {
            let line = text.lines().find(|line| line.starts_with(client));
            assert!(line.unwrap().contains(" passed, 0 refused."), "{text}");
        }
    }
    // A cycle is sized by what was asked in the one before.
    let pairs = rows.windows(2).filter_map(|pair| {
        let [(before, asked), (number, row)] = [pair[0], pair[1]];
        if before + 1 != number {
            return None;
        }
        for [asks, size, passed] in row {
            assert_eq!(passed, asks.min(size), "{text}");
            let is_inside = asks > 10 || passed == asks;
            assert!(is_inside, "refused inside its default: {text}");
        }
        let [before, now] = [asked, row].map(|row| row.map(|[asks, _, _]| asks));
        let (asked, sizes) = PUBLISHED.iter().find(|(asked, _)| *asked == before)?;
        if now != before {
            return None;
        }
        assert_eq!(row.map(|[_, size, _]| size), *sizes, "{text}");
        Some(*asked)
    });
    pairs.collect()
}

#[test]
fn an_interrupt_ends_it_cleanly() {
    let mut demo = Demo::start("1h");
    while !demo.process.line().starts_with("cycle ") {}
    demo.process.signal(Signal::INT);
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
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().to_string();
    let (code, _, error) = output(&["demo", "--admin", &port]);
    assert_eq!(code, 1, "{error}");
    assert!(error.contains(&port), "{error}");
    assert!(error.contains("the sidecar did not start"), "{error}");
}
