//! What became of each request, in the counts by outcome.

use std::sync::mpsc::channel;

use super::support::{GET, Sidecar, wait_until};
use super::upstream::{self, OK};

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
        (&["--anonymous", "pass"], 0.0),
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
