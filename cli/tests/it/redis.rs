use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use crate::support::{Open, run};

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

#[test]
fn processes_share_the_limit_of_a_name() {
    let server = Server::start("share");
    let url = server.url();
    for policy in ["1/h burst 3", "3/h", "3/h fixed and 10/h smooth"] {
        let args = [policy, "--redis", &url, "--name", "shared"];
        let first = run("a\nb\n", &args);
        assert_eq!((first.status, first.text()), (Some(0), "a\nb\n"), "{first:?}");
        let mut second = Open::start(args);
        second.send("c\nd\n");
        assert_eq!(second.line(), "c\n", "{policy}");
        second.signal(Signal::TERM);
        let (status, err) = second.ended();
        assert_eq!(status, Some(143));
        let expected = "SIGTERM: 1 line that was read was not written\n";
        assert!(err.ends_with(expected), "{err}");
    }
}

#[test]
fn each_key_has_its_limit_in_redis() {
    let server = Server::start("keys");
    let url = server.url();
    let args = ["1/h", "--by-key", "column 1", "--redis", &url, "--name", "keys"];
    assert_eq!(run("ann 1\n", &args).text(), "ann 1\n");
    let mut other = Open::start(args);
    other.send("ann 2\nbob 1\n\n");
    let mut lines = other.lines(2);
    lines.sort();
    assert_eq!(lines, ["\n", "bob 1\n"]);
    other.signal(Signal::TERM);
    let (_, err) = other.ended();
    assert!(err.ends_with("1 line that was read was not written\n"), "{err}");
}

#[test]
fn without_redis_the_outage_policy_decides() {
    let nowhere = ["--redis", "unix:///nowhere/redis.sock", "--name", "n"];
    let open = run("a\nb\n", &[&["1/h"], &nowhere[..], &["--outage", "open"]].concat());
    assert_eq!((open.status, open.text()), (Some(0), "a\nb\n"), "{open:?}");

    let mut insured = vec!["2/100ms burst 2", "--outage", "insured=2"];
    insured.extend(nowhere);
    let insured = run("a\nb\n", &insured);
    assert_eq!((insured.status, insured.text()), (Some(0), "a\nb\n"), "{insured:?}");
}

#[test]
fn what_redis_cannot_keep_is_refused() {
    let redis = ["--redis", "redis://127.0.0.1:1", "--name", "n"];
    for (args, expected) in [
        (&["5000/day aligned"][..], "`5000/day aligned` has no twin in Redis: it takes rates"),
        (&["unlimited"], "`unlimited` has no twin"),
        (&["every 50ms delayed"], "`every 50ms delayed` has no twin"),
        (&["1/s and 2/min and 3/h"], "has 3 limits: with --redis there are one or two"),
        (&["200000/s"], "got 200000"),
        (&["every 1s", "--outage", "insured=2"], "cannot be divided among 2 replicas"),
        (&["1/s", "--outage", "half"], "write open, closed or insured=3"),
    ] {
        let run = run("a\n", &[args, &redis].concat());
        assert_eq!(run.status, Some(2), "{run:?}");
        assert!(run.err.contains(expected), "{}", run.err);
    }
    let no_url = run("", &["1/s", "--redis", "nothing", "--name", "n"]);
    assert_eq!(no_url.status, Some(2), "{no_url:?}");
    assert!(no_url.err.contains("is no URL of a Redis server"), "{}", no_url.err);
    assert_eq!(run("", &["1/s", "--redis", "redis://localhost"]).status, Some(2));
}
