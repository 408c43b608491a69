//! `scripts/find-capacity`, on services whose capacity is known.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use http::StatusCode;
use tokio::time::timeout;

use super::upstream::{self, reply};

/// What it prints and what it exits with. Each step is a second long.
fn find(at: &str, flags: &[&str]) -> (i32, String, String) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/find-capacity");
    let output = Command::new(script)
        .args(["--seconds", "1"])
        .args(flags)
        .arg(at)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap();
    (code, text(output.stdout), text(output.stderr))
}

/// A service that answers 6 requests at once, and 503 to a seventh. Each takes 20 ms.
fn six_at_once() -> SocketAddr {
    struct UnderWay(Arc<AtomicU32>);
    impl Drop for UnderWay {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Relaxed);
        }
    }
    let count = Arc::new(AtomicU32::new(0));
    upstream::http1(move |_| {
        let before = count.fetch_add(1, Relaxed);
        let under_way = UnderWay(Arc::clone(&count));
        async move {
            let mut reply = reply("hello");
            if before >= 6 {
                *reply.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            } else {
                let _ = timeout(Duration::from_millis(20), std::future::pending::<()>()).await;
            }
            drop(under_way);
            reply
        }
    })
}

/// The lines of the table: the connections, and whether the limit held.
fn steps(out: &str) -> Vec<(u32, String)> {
    let lines = out.lines().filter_map(|line| {
        let words = line.split_whitespace().collect::<Vec<_>>();
        let [connections, _, _, _, holds] = words.as_slice() else {
            return None;
        };
        Some((connections.parse().ok()?, (*holds).to_owned()))
    });
    lines.collect()
}

fn number_before(out: &str, words: &str) -> u32 {
    let before = out.split_once(words).unwrap_or_else(|| panic!("{out}")).0;
    before.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn it_finds_the_number_of_requests_that_a_service_bears_at_once() {
    let at = format!("http://{}/", six_at_once());
    // The latency is no limit here, however busy the machine is.
    let flags = ["--latency", "30000", "--cycle", "5", "--headroom", "50"];
    let (code, out, err) = find(&at, &flags);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    let expected = [
        (1, "yes"),
        (2, "yes"),
        (4, "yes"),
        (8, "no"),
        (6, "yes"),
        (7, "no"),
    ];
    let expected = expected.map(|(connections, holds)| (connections, holds.to_owned()));
    assert_eq!(steps(&out), expected, "{out}");

    // 6 at once and 20 ms each are 300 a second. wrk counts what ends a moment after the second, too.
    let rate = number_before(&out, " requests a second with");
    assert!((1..330).contains(&rate), "{out}");
    let flags = format!("--capacity {} --cycle 5s\n", (rate * 5 / 2).max(1));
    assert!(out.ends_with(&flags), "{out}");
}

#[test]
fn a_service_that_is_too_slow_has_no_capacity() {
    let at = format!("http://{}/", six_at_once());
    let (code, out, err) = find(&at, &["--latency", "15"]);
    assert_eq!(code, 1, "{out}");
    assert_eq!(steps(&out), [(1, "no".to_owned())]);
    assert!(err.contains("does not hold with one connection"), "{err}");
}

#[test]
fn the_search_ends_at_the_most_connections() {
    let at = format!("http://{}/", six_at_once());
    let (code, out, _) = find(&at, &["--latency", "30000", "--most", "2"]);
    assert_eq!(code, 0, "{out}");
    assert_eq!(steps(&out).len(), 2, "{out}");
    assert!(out.contains("all numbers up to 2 connections"), "{out}");
}

#[test]
fn a_wrong_argument_is_named() {
    for (at, flags, expected) in [
        (
            "http://127.0.0.1:1/",
            ["--latency", "1s"],
            "--latency has to be a whole number from 1 to 600000, and is '1s'",
        ),
        (
            "http://127.0.0.1:1/",
            ["--percentile", "100"],
            "--percentile has to be a whole number from 1 to 99, and is 100",
        ),
        (
            "http://127.0.0.1:1/",
            ["--lateny", "5"],
            "there is no option --lateny",
        ),
        (
            "127.0.0.1:1",
            ["--most", "5"],
            "has to begin with http:// or https://, and is '127.0.0.1:1'",
        ),
    ] {
        let (code, _, err) = find(at, &flags);
        assert_eq!(code, 2, "{err}");
        assert!(err.contains(expected), "{err}");
    }
    // wrk says why.
    let (code, _, err) = find(
        &format!("http://{}/", upstream::nothing()),
        &["--most", "1"],
    );
    assert_eq!(code, 1);
    assert!(err.contains("unable to connect"), "{err}");
}
