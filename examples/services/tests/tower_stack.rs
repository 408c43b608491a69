//! Runs the example `tower_stack` with real clients. What they see is compared with what the service counts itself.
#![cfg(unix)]
#![expect(
    clippy::disallowed_types,
    reason = "the judge of a limit has a clock of its own"
)]

#[path = "serving/redis.rs"]
mod redis;
mod serving;

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use futures::future::join_all;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use redis::{Redis, until};
use serving::{Process, run};

const EXAMPLE: &str = env!("CARGO_BIN_EXE_tower_stack");
const ANN: &str = "x-api-key: key-of-ann";
const BOB: &str = "x-api-key: key-of-bob";

/// The example, which serves.
struct Service {
    _process: Process,
    site: String,
    operate: String,
}

impl Service {
    /// Its windows are an hour, so that none ends during a test, unless the options say otherwise.
    fn start(options: &[&str]) -> Self {
        let mut command = Command::new(EXAMPLE);
        command.args(["--listen", "127.0.0.1:0"]).args(options);
        for [name, hourly] in [
            ["--free", "4/h"],
            ["--paid", "100/h"],
            ["--address", "40/h"],
        ] {
            if !options.contains(&name) {
                command.args([name, hourly]);
            }
        }
        let (process, line, _) = Process::serving(&mut command);
        let (site, operate) = line.split_once(", operators: ").unwrap();
        Self {
            _process: process,
            site: site.to_owned(),
            operate: operate.to_owned(),
        }
    }

    fn data(&self) -> String {
        format!("{}/data/north", self.site)
    }

    /// The response, as it is printed.
    fn curl(&self, options: &[&str]) -> String {
        run("curl", &[&["-isS"], options].concat(), &self.data())
    }

    /// The statuses of this number of responses.
    fn statuses<const N: usize>(&self, options: &[&str]) -> [u64; N] {
        [(); N].map(|()| number(&self.curl(options), "HTTP/1.1"))
    }

    /// The status and the body.
    fn put(&self, change: &str) -> (u16, String) {
        let options = ["-sS", "-X", "PUT", "-d", change, "-w", "\n%{http_code}"];
        let printed = run("curl", &options, &self.operate);
        let (body, status) = printed.rsplit_once('\n').unwrap();
        (status.parse().unwrap(), body.to_owned())
    }

    fn report(&self) -> Value {
        serde_json::from_str(&run("curl", &["-sS"], &self.operate)).unwrap()
    }

    /// How many requests the handler has served.
    fn handled(&self) -> u64 {
        self.report()["handled"].as_u64().unwrap()
    }

    /// Returns when it has served this many more.
    fn await_served(&self, more: u64) {
        let handled = self.handled();
        until(|| self.handled() >= handled + more);
    }

    fn await_redis(&self, is_up: bool) {
        until(|| self.report()["redis_is_up"] == is_up);
    }
}

/// The number behind `before`, or zero.
fn number(printed: &str, before: &str) -> u64 {
    let behind = printed.split_once(before).map_or("", |(_, behind)| behind);
    let behind = behind.trim_start();
    let digits = behind.split(|c: char| !c.is_ascii_digit()).next();
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// A response without its date. The time until the window of an hour ends is W: 3,600 seconds or a little less.
fn masked(response: &str) -> String {
    let wait = number(response, ";t=");
    assert!(wait == 0 || (3_000..=3_600).contains(&wait), "{response}");
    let mut masked = response.replace("\r\n", "\n");
    for before in ["retry-after: ", ";t=", "retry in "] {
        masked = masked.replace(&format!("{before}{wait}"), &format!("{before}W"));
    }
    let lines = masked
        .split('\n')
        .filter(|line| !line.starts_with("date: "));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn without_options_it_is_its_own_client_and_ends_with_0() {
    let output = Command::new(EXAMPLE).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let mut rows = printed.lines().map(|row| row.split_whitespace());
    let expected = "free tier 4 0 2".split(' ');
    assert!(rows.any(|row| row.eq(expected.clone())), "{printed}");
    let nonsense = "`101%` is not a share: write 0% to 100%";
    assert!(printed.contains(nonsense), "{printed}");
}

#[test]
fn options_that_cannot_be_are_named() {
    for (options, named) in [
        (
            &["--admin", "0.0.0.0:0"][..],
            "--admin 0.0.0.0:0 is not an address of loopback",
        ),
        (&["--free", "fast"], "fast"),
        (&["--redis", "unix:///none", "--paid", "200000/s"], "200000"),
    ] {
        let output = Command::new(EXAMPLE).args(options).output().unwrap();
        assert!(!output.status.success());
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn curl_sees_these_bytes() {
    let service = Service::start(&[]);
    for left in [3, 2, 1, 0] {
        let expected = format!(
            r#"HTTP/1.1 200 OK
content-type: text/plain; charset=utf-8
ratelimit-policy: "calls";q=4;w=3600
ratelimit: "calls";r={left};t=W
content-length: 26

all of north for free ann
"#
        );
        assert_eq!(masked(&service.curl(&["-H", ANN])), expected);
    }
    let refused = r#"HTTP/1.1 429 Too Many Requests
ratelimit-policy: "calls";q=4;w=3600
ratelimit: "calls";r=0;t=W
retry-after: W
content-type: application/problem+json
content-length: 203

"#;
    let problem = concat!(
        r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","#,
        r#""title":"Quota Exceeded","status":429,"#,
        r#""detail":"rate limit exceeded (4 per 3600s), retry in W s","violated-policies":["calls"]}"#,
    );
    let response = service.curl(&["-H", ANN]);
    assert_eq!(masked(&response), [refused, problem].concat());
    let (_, body) = response.split_once("\r\n\r\n").unwrap();
    assert_eq!(body.len(), 203);
    // The headers of a GET, and no body.
    assert_eq!(masked(&service.curl(&["-I", "-H", ANN])), refused);
    assert_eq!(service.handled(), 4);
}

#[test]
fn a_key_that_cannot_be_used_is_400_and_a_key_of_no_account_401() {
    let service = Service::start(&["--address", "2/h"]);
    let bad = r#"HTTP/1.1 400 Bad Request
content-type: application/problem+json
content-length: 92

{"title":"Bad Request","status":400,"detail":"the key in header `x-api-key` cannot be used"}"#;
    for key in ["x-api-key;", "x-api-key: schl\u{fc}ssel"] {
        assert_eq!(masked(&service.curl(&["-H", key])), bad);
    }
    // A guess counts for the address, so that it cannot be repeated for long.
    let guess = ["-H", "x-api-key: a-guess"];
    assert_eq!(service.statuses(&guess), [401, 401, 429]);
    assert_eq!(service.handled(), 0);
}

#[cfg(target_os = "linux")]
#[test]
fn callers_without_a_key_are_limited_by_address() {
    let service = Service::start(&["--address", "2/h"]);
    for address in ["127.0.0.1", "127.0.0.2"] {
        let from = ["--interface", address];
        assert_eq!(service.statuses(&from), [200, 200, 429], "{address}");
    }
    assert_eq!(service.statuses(&["-H", ANN]), [200]);
    let status = format!("{}/status", service.site);
    assert_eq!(run("curl", &["-sS"], &status), "up\n");
}

#[test]
fn an_operator_changes_the_limit_and_nonsense_changes_nothing() {
    let service = Service::start(&[]);
    let ann = ["-H", ANN];
    assert_eq!(service.statuses(&ann), [200, 200, 200, 200, 429]);
    for (change, expected) in [
        (r#"{"mode": "shadow"}"#, 200),
        (r#"{"mode": "active"}"#, 429),
        (r#"{"share": "0%"}"#, 200),
        (r#"{"share": "100%"}"#, 429),
        (r#"{"mode": "off"}"#, 200),
        (r#"{"mode": "active", "share": "0.25%"}"#, 200),
    ] {
        assert_eq!(service.put(change).0, 200, "{change}");
        assert_eq!(service.statuses(&ann), [expected], "{change}");
    }
    let report = json!({
        "mode": "active",
        "share": "0.25%",
        "shadowed": 3,
        "would_refuse": 3,
        "handled": 8,
        "redis_is_up": null,
    });
    assert_eq!(service.report(), report);

    for (change, named) in [
        (r#"{"share": "101%"}"#, "`101%` is not a share"),
        (r#"{"mode": "fast"}"#, "`fast` is not a mode"),
        (r#"{"mode": "off", "share": "-1%"}"#, "`-1%` is not a share"),
        (r#"{"mood": "off"}"#, "unknown field `mood`"),
        ("off", "expected value at line 1 column 1"),
    ] {
        let (status, message) = service.put(change);
        assert_eq!(status, 400, "{change}");
        assert!(message.contains(named), "{message}");
    }
    assert_eq!(service.report(), report);
}

#[test]
fn h2load_is_served_as_often_as_the_limit_allows() {
    let service = Service::start(&[]);
    let options = ["-n", "2000", "-c", "8", "-m", "16", "-H", BOB];
    let printed = run("h2load", &options, &service.data());
    assert!(printed.contains("Application protocol: h2c"), "{printed}");
    let statuses = "status codes: 100 2xx, 0 3xx, 1900 4xx, 0 5xx";
    assert!(printed.contains(statuses), "{printed}");
    assert_eq!(service.handled(), 100);
}

/// A second of load by `wrk`: how many answers it has seen, and how many of them were refusals.
fn wrk(service: &Service) -> (u64, u64) {
    let options = ["-t2", "-c16", "-d1s", "--timeout", "60s", "-H", BOB];
    let printed = run("wrk", &options, &service.data());
    assert!(!printed.contains("Socket errors"), "{printed}");
    let (requests, _) = printed.split_once(" requests in").unwrap();
    let requests = requests.rsplit('\n').next().unwrap().trim();
    let refused = number(&printed, "Non-2xx or 3xx responses:");
    (requests.parse().unwrap(), refused)
}

#[test]
fn no_window_serves_wrk_once_too_often() {
    let start = Instant::now();
    let service = Service::start(&["--paid", "2/50ms"]);
    let mut refused = 0;
    while refused == 0 || service.handled() < 100 {
        refused += wrk(&service).1;
    }
    let handled = service.handled();
    let windows = start.elapsed().as_millis() / 50 + 1;
    assert!(
        u128::from(handled) <= 2 * windows,
        "{handled} in {windows} windows"
    );
}

/// What has happened to Redis so far.
const STARTED: u8 = 0;
const KILLED: u8 = 1;
const STARTED_AGAIN: u8 = 2;
const END: u8 = 3;

/// Sends one request after another. The statuses of those that began, and were answered, while Redis was killed.
async fn statuses_while_killed(url: String, stage: Arc<AtomicU8>) -> Vec<u16> {
    let client = reqwest::Client::new();
    let stage = || stage.load(Ordering::SeqCst);
    let mut statuses = Vec::new();
    loop {
        let began = stage();
        let request = client.get(&url).header("x-api-key", "key-of-bob");
        let status = request.send().await.unwrap().status().as_u16();
        assert!([200, 429, 503].contains(&status), "{status}");
        match (began, stage()) {
            (KILLED, KILLED) => statuses.push(status),
            (_, END) => return statuses,
            _ => {}
        }
    }
}

/// Kills Redis under load, and starts it again when `is_seen`.
fn statuses_without_redis(outage: &str, is_seen: impl Fn(&Service)) -> Vec<u16> {
    let mut redis = Redis::start(outage);
    // The limit does not bind. After a loss of its state it stands still for a window.
    let limit = ["--paid", "100000/100ms", "--deadline", "2000"];
    let store = ["--redis", &redis.url(), "--outage", outage];
    let service = Service::start(&[store, limit].concat());

    let clients = Runtime::new().unwrap();
    let stage = Arc::new(AtomicU8::new(STARTED));
    let load = || statuses_while_killed(service.data(), Arc::clone(&stage));
    let loads: Vec<_> = (0..16).map(|_| clients.spawn(load())).collect();
    service.await_redis(true);
    service.await_served(200);

    redis.kill();
    stage.store(KILLED, Ordering::SeqCst);
    service.await_redis(false);
    is_seen(&service);

    stage.store(STARTED_AGAIN, Ordering::SeqCst);
    redis.start_again();
    service.await_redis(true);
    service.await_served(200);
    assert_eq!(service.report()["redis_is_up"], true);

    stage.store(END, Ordering::SeqCst);
    let statuses = clients.block_on(join_all(loads)).into_iter();
    statuses.flat_map(Result::unwrap).collect()
}

#[test]
fn while_an_open_limit_has_no_redis_every_request_passes() {
    let statuses = statuses_without_redis("open", |service| service.await_served(200));
    assert!(statuses.len() >= 100, "{statuses:?}");
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
}

#[test]
fn while_a_closed_limit_has_no_redis_no_request_passes() {
    let refused = |service: &Service| assert_eq!(service.statuses(&["-H", BOB]), [503, 503]);
    let statuses = statuses_without_redis("closed", refused);
    assert!(!statuses.is_empty());
    assert!(statuses.iter().all(|status| *status == 503), "{statuses:?}");
}
