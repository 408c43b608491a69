//! What became of each request, in the counts by outcome.

use std::io::{Read, Write};
use std::sync::mpsc::channel;

use rustix::process::Signal;

use super::frames::{self, END_HEADERS, HEADERS, RST_STREAM};
use super::support::{GET, Sidecar, head, wait_until};
use super::upstream::{self, OK, hello};

/// The sum of the requests over all outcomes.
fn outcomes(sidecar: &Sidecar) -> u64 {
    let scrape = sidecar.scrape();
    let lines = scrape.lines();
    let counts = lines.filter_map(|line| {
        let rest = line.strip_prefix("paceline_requests_total{outcome=")?;
        rest.split_once(' ')?.1.parse::<u64>().ok()
    });
    counts.sum()
}

/// Requests above the share, without an id, with a wrong one, with two hosts, and with a service that fails.
#[test]
fn the_outcomes_add_up_to_the_requests_in_each_mode() {
    let service = upstream::raw(|mut connection| {
        while let Some(head) = connection.head() {
            if head.starts_with("GET /broken") {
                return;
            }
            connection.send(OK);
        }
    });
    let long = "x".repeat(65);
    let ids = [
        &[][..],
        &[("x-client-id", "")],
        &[("x-client-id", long.as_str())],
        &[("x-client-id", "a"), ("x-client-id", "b")],
    ];
    for (flags, without_id) in [
        (&["--mode", "enforce"][..], 0.0),
        (&["--mode", "passthrough"], 5.0),
        (&["--mode", "off"], 0.0),
        (&["--enforced", "0%"], 5.0),
        (&["--anonymous", "pass"], 2.0),
        (&["--anonymous", "share"], 0.0),
        (&["--concurrency", "1"], 0.0),
        (&["--known-only"], 0.0),
    ] {
        let flags = [&["--capacity", "4", "--cycle", "10m"], flags].concat();
        let sidecar = Sidecar::start(service, &flags);
        sidecar.client().statuses("a", 5);
        for fields in ids {
            sidecar.client().send("GET", "/", fields, b"");
        }
        sidecar.client().send("GET", "/broken", &[], b"");
        sidecar.client().get("/broken", "b");
        sidecar.exchange("GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\nconnection: close\r\n\r\n");
        assert_eq!(outcomes(&sidecar), 12, "{flags:?}: {}", sidecar.scrape());
        let passed = sidecar.metric("paceline_anonymous_passed_total");
        assert_eq!(passed, Some(without_id), "{flags:?}");
    }
}

#[test]
fn a_request_that_its_client_leaves_is_cancelled() {
    let (came, comes) = channel();
    let service = upstream::raw(move |mut connection| {
        let _ = connection.head();
        let _ = came.send(());
        let _ = connection.head();
    });
    let sidecar = Sidecar::start(service, &["--capacity", "4"]);
    let request = sidecar.open(GET);
    comes.recv().unwrap();
    drop(request);
    let series = "paceline_requests_total{outcome=\"cancelled\"}";
    wait_until("it is counted", || sidecar.metric(series) == Some(1.0));
    assert_eq!(outcomes(&sidecar), 1);
}

#[test]
fn a_request_whose_client_leaves_with_its_head_is_counted_once() {
    let sidecar = Sidecar::start(hello(), &[]);
    let mut streams: Vec<_> = (0..20).map(|_| sidecar.open(GET)).collect();
    for stream in &mut streams {
        head(stream);
        stream.read_exact(&mut [0; 5]).unwrap();
    }
    // The kernel has the heads and the ends when they are read.
    sidecar.signal(Signal::STOP);
    for mut stream in streams {
        stream.write_all(GET.as_bytes()).unwrap();
    }
    sidecar.signal(Signal::CONT);
    sidecar.wait_for_connections(0);
    assert_eq!(outcomes(&sidecar), 40, "{}", sidecar.scrape());
}

/// The count of answers goes up with the head, and counts never fall.
#[test]
fn a_response_that_breaks_off_or_stops_is_answered_and_broken() {
    let cut = upstream::raw(|mut connection| {
        connection.head().unwrap();
        connection.send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfive5");
    });
    let quiet = upstream::raw(|mut connection| {
        connection.head().unwrap();
        connection.send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfive5");
        connection.rest();
    });
    let reset = upstream::frames(|stream, _| {
        upstream::requests(stream, 1).unwrap();
        frames::send(stream, HEADERS, END_HEADERS, 1, &[0x88]);
        frames::send(stream, RST_STREAM, 0, 1, &[0, 0, 0, 2]);
        upstream::requests(stream, 1);
    });
    let flags = ["--body-timeout", "200ms"];
    for (what, sidecar) in [
        ("cut", Sidecar::start(cut, &flags)),
        ("quiet", Sidecar::start(quiet, &flags)),
        ("reset", Sidecar::h2c(reset, &flags)),
    ] {
        assert!(!sidecar.exchange(GET).ends_with("0\r\n\r\n"), "{what}");
        let broken = sidecar.metric("paceline_responses_broken_total");
        assert_eq!(broken, Some(1.0), "{what}");
        assert_eq!(outcomes(&sidecar), 1, "{what}");
        let answered = sidecar.metric("paceline_requests_total{outcome=\"answered\"}");
        assert_eq!(answered, Some(1.0), "{what}");
    }
}

/// Each new client that finds nothing ends the cycle.
#[test]
fn at_level_debug_each_cycle_is_logged_with_its_sums() {
    let flags = ["--capacity", "4", "--early-cycles", "9", "--log", "debug"];
    let sidecar = Sidecar::start(hello(), &flags);
    let mut client = sidecar.client();
    client.statuses("a", 6);
    client.statuses("b", 3);
    client.statuses("a", 2);
    client.statuses("c", 1);
    sidecar.wait_for_log("cycle=1 ");
    let log = sidecar.log();
    let ends = log
        .lines()
        .filter_map(|line| line.split_once("a cycle ended "));
    let ends: Vec<_> = ends.map(|(_, sums)| sums).collect();
    assert_eq!(
        ends,
        [
            "cycle=0 clients=0 lent=0 borrowed=0 passed=4 refused=2",
            "cycle=1 clients=2 lent=0 borrowed=0 passed=4 refused=1",
        ]
    );
}
