//! `scripts/find-capacity`, on services whose capacity is known.

use std::future::pending;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::support::run;
use super::upstream::{self, reply};

/// What it prints and what it exits with. Each step is a second long.
fn find(at: &str, flags: &[&str]) -> (i32, String, String) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/find-capacity");
    let mut find = Command::new(script);
    run(find.args(["--seconds", "1"]).args(flags).arg(at), b"")
}

/// The address of a service that answers 6 requests at once, and 503 to a seventh. Each takes 20 ms.
fn six_at_once() -> String {
    let places = Arc::new(Semaphore::new(6));
    let service = upstream::http(move |_| {
        let place = Arc::clone(&places).try_acquire_owned();
        async move {
            let mut reply = reply("hello");
            if place.is_err() {
                *reply.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            } else {
                let _ = timeout(Duration::from_millis(20), pending::<()>()).await;
            }
            reply
        }
    });
    format!("http://{service}/")
}

/// The lines of the table: the connections, and whether the limit held.
fn steps(out: &str) -> Vec<(u32, &str)> {
    let lines = out.lines().filter_map(|line| {
        let words = line.split_whitespace().collect::<Vec<_>>();
        let [connections, _, _, _, holds] = words[..] else {
            return None;
        };
        Some((connections.parse().ok()?, holds))
    });
    lines.collect()
}

#[test]
fn it_finds_the_number_of_requests_that_a_service_bears_at_once() {
    // The latency is no limit here, however busy the machine is.
    let flags = ["--latency", "30000", "--cycle", "5", "--headroom", "50"];
    let (code, out, err) = find(&six_at_once(), &flags);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    let expected = [
        (1, "yes"),
        (2, "yes"),
        (4, "yes"),
        (8, "no"),
        (6, "yes"),
        (7, "no"),
    ];
    assert_eq!(steps(&out), expected, "{out}");

    // 6 at once and 20 ms each are 300 a second. wrk counts what ends a moment after the second, too.
    let (before, _) = out.split_once(" requests a second with").unwrap();
    let rate: u32 = before.rsplit(' ').next().unwrap().parse().unwrap();
    assert!((1..330).contains(&rate), "{out}");
    let flags = format!("--capacity {} --cycle 5s\n", (rate * 5 / 2).max(1));
    assert!(out.ends_with(&flags), "{out}");
}

#[test]
fn a_service_that_is_too_slow_has_no_capacity() {
    let (code, out, err) = find(&six_at_once(), &["--latency", "15"]);
    assert_eq!(code, 1, "{out}");
    assert_eq!(steps(&out), [(1, "no")]);
    assert!(err.contains("does not hold with one connection"), "{err}");
}

#[test]
fn the_search_ends_at_the_most_connections() {
    let (code, out, _) = find(&six_at_once(), &["--latency", "30000", "--most", "2"]);
    assert_eq!(code, 0, "{out}");
    assert_eq!(steps(&out).len(), 2, "{out}");
    assert!(out.contains("all numbers up to 2 connections"), "{out}");
}

#[test]
fn a_wrong_argument_is_named() {
    for row in WRONG.lines() {
        let (arguments, expected) = row.split_once(" | ").unwrap();
        let arguments = arguments.split(' ').collect::<Vec<_>>();
        let (at, flags) = arguments.split_last().unwrap();
        let (code, _, err) = find(at, flags);
        assert_eq!(code, 2, "{err}");
        assert!(err.contains(expected), "{row}: {err}");
    }
    // wrk says why.
    let nothing = format!("http://{}/", upstream::nothing());
    let (code, _, err) = find(&nothing, &["--most", "1"]);
    assert_eq!(code, 1);
    assert!(err.contains("unable to connect"), "{err}");
}

/// Arguments, and what is wrong.
const WRONG: &str = "\
--latency 1s http://127.0.0.1:1/ | --latency has to be a whole number from 1 to 600000, and is '1s'
--percentile 100 http://127.0.0.1:1/ | --percentile has to be a whole number from 1 to 99, and is 100
--lateny 5 http://127.0.0.1:1/ | there is no option --lateny
--most 5 127.0.0.1:1 | has to begin with http:// or https://, and is '127.0.0.1:1'";
