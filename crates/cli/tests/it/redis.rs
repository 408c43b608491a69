use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use paceline::time::{Clock, Tick};

use crate::support::run;

/// A server of this test.
struct Server {
    process: Child,
    dir: PathBuf,
}

impl Server {
    fn start(test: &str) -> Self {
        let dir = env::temp_dir().join(format!("paceline-cli-{test}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let program = env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
        let process = Command::new(program)
            .args(["--port", "0", "--unixsocket", "redis.sock", "--save", ""])
            .current_dir(&dir)
            .stdout(Stdio::null())
            .spawn();
        let process = process.expect("scripts/test installs redis-server");
        Self { process, dir }
    }

    fn url(&self) -> String {
        format!("unix://{}/redis.sock", self.dir.display())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Runs one process after another. A permit that is lost on a busy machine only makes them later.
fn time_of(inputs: &[&str], args: &[&str]) -> Duration {
    let mut clock = Clock::new();
    clock.now();
    for input in inputs {
        let run = run(input, args);
        assert_eq!(run.status, Some(0), "{run:?}");
        assert_eq!(run.text().len(), input.len());
    }
    clock.now().since(Tick::ZERO)
}

#[test]
fn processes_share_the_limit_of_a_name() {
    let server = Server::start("share");
    let url = server.url();
    for policy in [
        "1/600ms burst 2",
        "2/600ms",
        "2/600ms fixed and 1000/h smooth and 5000/day sliding 24 buckets",
    ] {
        let args = [policy, "--redis", &url, "--name", "shared"];
        let time = time_of(&["a\nb\n", "c\n"], &args);
        assert!(time >= Duration::from_millis(600), "{policy}: {time:?}");
    }
}

#[test]
fn processes_share_the_bandwidth_of_a_name() {
    let server = Server::start("bytes");
    let url = server.url();
    // 250 bytes pass at once.
    let args = ["1K/s", "--bytes", "--redis", &url, "--name", "shared"];
    let time = time_of(&["x".repeat(400).as_str(), &"x".repeat(400)], &args);
    assert!(time >= Duration::from_millis(500), "{time:?}");
}

#[test]
fn each_key_has_its_limit_in_redis() {
    let server = Server::start("keys");
    let url = server.url();
    let args = [
        "1/600ms", "--by-key", "column 1", "--redis", &url, "--name", "keys",
    ];
    let time = time_of(&["ann 1\n", "ann 2\nbob 1\n\n"], &args);
    assert!(time >= Duration::from_millis(600), "{time:?}");
}

#[test]
fn without_redis_the_outage_policy_decides() {
    let nowhere = ["--redis", "unix:///nowhere/redis.sock", "--name", "n"];
    for (policy, outage) in [("1/h", "open"), ("2/100ms burst 2", "insured=2")] {
        let args = [&[policy, "--outage", outage], &nowhere[..]].concat();
        let run = run("a\nb\n", &args);
        assert_eq!((run.status, run.text()), (Some(0), "a\nb\n"), "{run:?}");
    }
}

#[test]
fn what_redis_cannot_keep_is_refused() {
    let (redis, named) = ("--redis redis://127.0.0.1:1 --name n", "--name n");
    for (policy, options, expected) in [
        (
            "5000/day aligned",
            redis,
            "`5000/day aligned` cannot be kept in Redis: `aligned` is for",
        ),
        ("unlimited", redis, "1 to 32 limits, got 0 in `unlimited`"),
        ("every 50ms delayed", redis, "lets the first pass at once"),
        ("200000/s", redis, "got 200000"),
        (
            "every 1s --outage insured=2",
            redis,
            "cannot be divided among 2 replicas",
        ),
        (
            "1/s --outage half",
            redis,
            "write open, closed or insured=3",
        ),
        ("1/s --redis nothing", named, "is no URL of a Redis server"),
        ("1/s --redis redis://localhost", "", "--name"),
        ("1M/s sliding --bytes", redis, "got 1048576"),
    ] {
        let args = policy.split(' ').chain(options.split_whitespace());
        let run = run("a\n", &args.collect::<Vec<_>>());
        assert_eq!(run.status, Some(2), "{run:?}");
        assert!(run.err.contains(expected), "{}", run.err);
    }
}
