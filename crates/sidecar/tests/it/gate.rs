//! Requests that wait for room in the service: whose turn it is.

use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::support::{File, Sidecar, on_free_ports, rest, wait_until, with_defaults};
use super::upstream::{self, LAST_OK};

/// A sidecar, and a service that answers one request for each word that it gets.
struct Subject {
    sidecar: Sidecar,
    came: Receiver<String>,
    may_end: Sender<()>,
    streams: Vec<TcpStream>,
}

impl Subject {
    fn start(flags: &[&str]) -> Self {
        let (comes, came) = channel();
        let (may_end, ends) = channel();
        let ends = Mutex::new(ends);
        let service = upstream::raw(move |mut connection| {
            let Some(head) = connection.head() else {
                return;
            };
            let path = head.split_whitespace().nth(1).unwrap();
            let _ = comes.send(path.trim_start_matches('/').to_owned());
            if ends.lock().unwrap().recv().is_ok() {
                connection.send(LAST_OK);
            }
        });
        let upstream = format!("http://{service}");
        let flags = with_defaults(&[["--queue-timeout", "1h"]], flags);
        Self {
            sidecar: Sidecar::run(&on_free_ports(&upstream, &flags)),
            came,
            may_end,
            streams: Vec::new(),
        }
    }

    /// Sends requests of a client, and waits until the share has let all of them pass. Then they wait for room, or are in the service.
    fn send(&mut self, client: &str, count: usize) {
        for _ in 0..count {
            let id = match client {
                "nobody" => String::new(),
                client => format!("x-client-id: {client}\r\n"),
            };
            let request =
                format!("GET /{client} HTTP/1.1\r\nhost: a\r\n{id}connection: close\r\n\r\n");
            self.streams.push(self.sidecar.open(request));
        }
        let all = self.streams.len();
        wait_until("requests pass", || self.passed() == all);
    }

    /// The requests that the share has let pass.
    fn passed(&self) -> usize {
        let scrape = self.sidecar.scrape();
        let passed = scrape.lines().filter(|line| {
            line.contains("outcome=\"passed\"} ")
                || line.starts_with("paceline_anonymous_passed_total ")
        });
        let counts = passed.filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok());
        counts.sum()
    }

    /// The clients of the next requests that come to the service.
    fn comes(&self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.came.recv().unwrap()).collect()
    }

    /// The same, each after another request has ended.
    fn come_in_turn(&self, count: usize) -> String {
        let come = (0..count).map(|_| {
            self.may_end.send(()).unwrap();
            self.came.recv().unwrap()
        });
        come.collect::<Vec<_>>().join(" ")
    }

    /// The last requests end, and all are answered.
    fn ends(self, under_way: usize) {
        for _ in 0..under_way {
            self.may_end.send(()).unwrap();
        }
        for mut stream in self.streams {
            let answer = rest(&mut stream);
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        }
        assert!(self.came.try_recv().is_err());
    }
}

#[test]
fn a_client_below_its_share_waits_for_one_release() {
    let clients = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    for (flags, flood, single) in [
        (&["--concurrency", "2"][..], "ann", "bob"),
        (&["--concurrency", "2..2"], "ann", "bob"),
        (
            &["--concurrency", "2", "--sharing", "guaranteed"],
            "ann",
            "bob",
        ),
        (
            &["--concurrency", "2", "--mode", "passthrough"],
            "ann",
            "bob",
        ),
        (
            &["--concurrency", "2", "--anonymous", "pass"],
            "nobody",
            "bob",
        ),
        (
            &["--concurrency", "2", "--anonymous", "pass"],
            "ann",
            "nobody",
        ),
        (
            &["--concurrency", "2", "--anonymous", "share"],
            "ann",
            "nobody",
        ),
    ] {
        let mut subject = Subject::start(flags);
        subject.send(flood, 6);
        assert_eq!(
            subject.comes(2),
            clients(&[flood; 2]),
            "{flags:?}: all while no other waits"
        );
        subject.send(single, 1);
        let order = subject.come_in_turn(3);
        assert_eq!(
            order,
            format!("{single} {flood} {flood}"),
            "{flags:?}: one release, then the others again"
        );
        assert_eq!(subject.come_in_turn(2), format!("{flood} {flood}"));
        subject.ends(2);
    }
}

#[test]
fn clients_that_are_not_in_the_file_are_one_with_known_only() {
    let file = File::new("sidecar.toml", "[clients.known]\n");
    let flags = [
        "--concurrency",
        "1",
        "--known-only",
        "--config",
        file.path(),
    ];
    let mut subject = Subject::start(&flags);
    for made_up in ["a", "b", "c", "d", "known"] {
        subject.send(made_up, 1);
    }
    assert_eq!(subject.comes(1), ["a"]);
    assert_eq!(subject.come_in_turn(4), "b known c d");
    subject.ends(1);
}

#[test]
fn a_reload_changes_the_weights_and_the_number() {
    let file = File::new(
        "sidecar.toml",
        "concurrency = 1\n[clients.ann]\nweight = 3\n",
    );
    let mut subject = Subject::start(&["--config", file.path()]);
    let reload = |subject: &Subject, text: &str, words: &str| {
        file.write(text);
        subject.sidecar.signal(Signal::HUP);
        subject.sidecar.wait_for_log(words);
    };
    subject.send("holder", 1);
    assert_eq!(subject.comes(1), ["holder"]);
    subject.send("ann", 6);
    subject.send("bob", 2);
    let order = subject.come_in_turn(8);
    assert_eq!(order, "ann ann bob ann ann ann bob ann");
    subject.send("holder", 1);
    assert_eq!(subject.come_in_turn(1), "holder");

    let of_bob = "[clients.bob]\nweight = 3\n";
    let text = format!("concurrency = 1\n{of_bob}");
    reload(&subject, &text, "configuration reloaded: clients");
    subject.send("ann", 2);
    subject.send("bob", 6);
    let order = subject.come_in_turn(8);
    assert_eq!(order, "bob bob ann bob bob bob ann bob");

    subject.send("ann", 4);
    let text = format!("concurrency = 3\n{of_bob}");
    reload(&subject, &text, "concurrency from `1` to `3`");
    assert_eq!(subject.comes(2), ["ann"; 2], "without a release");
    assert_eq!(subject.come_in_turn(2), "ann ann");
    subject.ends(3);
}

#[test]
fn a_request_that_waits_too_long_or_leaves_takes_no_place() {
    let flags = [
        "--concurrency",
        "1",
        "--queue-timeout",
        "50ms",
        "--capacity",
        "3",
    ];
    let mut subject = Subject::start(&flags);
    subject.send("ann", 1);
    assert_eq!(subject.comes(1), ["ann"]);
    let start = Instant::now();
    for _ in 0..2 {
        // It does not count in the share.
        let refused = subject.sidecar.get("ann");
        assert_eq!(refused.status, 503);
        assert_eq!(refused.header("retry-after"), Some("1"));
    }
    assert!(start.elapsed() >= Duration::from_millis(100));
    subject.ends(1);

    let mut subject = Subject::start(&["--concurrency", "1"]);
    subject.send("ann", 2);
    subject.send("bob", 1);
    drop(subject.streams.pop());
    let cancelled = "paceline_requests_total{outcome=\"cancelled\"}";
    wait_until("it is counted", || {
        subject.sidecar.metric(cancelled) == Some(1.0)
    });
    assert_eq!(subject.comes(1), ["ann"]);
    assert_eq!(subject.come_in_turn(1), "ann");
    subject.ends(1);
}
