//! Runs the `redis_fleet` example as a user does: the provider's count, the output, and that no process stays behind.
#![cfg(unix)]

#[path = "../../strict/running.rs"]
mod running;

use std::{
    fs,
    process::{Child, Command},
    thread,
    time::Duration,
};

use serde_json::Value;

use crate::running::{Run, Scratch, count};

const EXAMPLE: &str = env!("CARGO_BIN_EXE_redis_fleet");

/// The shortest possible phases: a little longer than the one or two windows that each has to contain.
const SHORT: &str = "--quota 60/600ms --way 200 --before 1 --worker-killed 1";
const DOWN: &str = "--redis-down 2.8 --back 2.2";

impl Scratch {
    fn new(test: &str) -> Self {
        Self::of("redis_fleet", test)
    }

    /// The example with the words of `args`. It puts its temporary files into this directory.
    fn fleet(&self, args: &str) -> Command {
        let args: Vec<&str> = args.split_whitespace().collect();
        let mut command = self.command(EXAMPLE, &args);
        command.env("TMPDIR", &self.0);
        command
    }

    fn run(&self, args: &str) -> Run {
        self.fleet(args).output().unwrap().into()
    }

    fn is_empty(&self) -> bool {
        fs::read_dir(&self.0).unwrap().next().is_none()
    }
}

fn of<'a>(report: &'a Value, policy: &str) -> &'a Value {
    let policies = report["policies"].as_array().unwrap();
    policies
        .iter()
        .find(|line| line["policy"] == policy)
        .unwrap()
}

/// How many requests arrived while Redis was down.
fn sent_without_redis(line: &Value) -> u64 {
    let phases = line["phases"].as_array().unwrap();
    let down = phases.iter().find(|phase| phase["phase"] == "Redis down");
    count(down.unwrap(), "sent")
}

/// Repeats the run until no request travelled longer than the margin allows. If one did, the machine was too busy, and the
/// provider's count says nothing about the limit.
fn within_the_margin(scratch: &Scratch, args: &str) -> Run {
    loop {
        let run = scratch.run(args);
        let report = run.json();
        let way = report["way_ms"].as_f64();
        let policies = report["policies"].as_array().unwrap();
        if policies
            .iter()
            .all(|line| line["longest_way_ms"].as_f64() <= way)
        {
            return run;
        }
    }
}

/// The direct children of this process.
fn children_of(parent: &Child) -> Vec<String> {
    let ids = Command::new("pgrep")
        .args(["-P", &parent.id().to_string()])
        .output()
        .unwrap();
    let ids = String::from_utf8(ids.stdout).unwrap();
    ids.lines().map(str::to_owned).collect()
}

fn signal(name: &str, process: &str) -> bool {
    let status = Command::new("kill").args([name, process]).output();
    status.unwrap().status.success()
}

/// Waits until the condition holds. If it never does, the test runner stops the test.
fn until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn closed_and_insured_keep_the_quota_and_open_does_not() {
    let scratch = Scratch::new("all");
    let run = within_the_margin(&scratch, &format!("{SHORT} {DOWN} --json"));
    let report = run.json();

    assert_eq!(run.status, Some(0), "{run:?}");
    assert_eq!(report["kept"], true);
    assert_eq!(report["workers"], 3);
    assert_eq!(report["policies"].as_array().unwrap().len(), 3);
    for line in report["policies"].as_array().unwrap() {
        let parts = count(line, "accepted") + count(line, "violations");
        assert_eq!(parts, count(line, "sent"), "{line}");
        assert!(count(line, "accepted") > 0, "{line}");
        // The server came back without its state, and some worker detected that.
        assert!(count(line, "lost_states") > 0, "{line}");
        assert_eq!(count(line, "unanswered"), 0, "{line}");
        assert_eq!(line["phases"].as_array().unwrap().len(), 4);
    }

    let (closed, insured, open) = (
        of(&report, "closed"),
        of(&report, "insured"),
        of(&report, "open"),
    );
    assert_eq!(count(closed, "violations"), 0, "{closed}");
    assert_eq!(count(insured, "violations"), 0, "{insured}");
    assert!(count(open, "violations") > 0, "{open}");
    assert_eq!(count(closed, "passed_alone"), 0);
    assert!(count(insured, "passed_alone") > 0, "{insured}");
    assert!(sent_without_redis(open) > sent_without_redis(insured));
    assert!(sent_without_redis(insured) > sent_without_redis(closed));
    // Redis was down for that long, and then the workers wait for one window of the limit.
    assert!(closed["standing_still_s"].as_f64().unwrap() > 2.8);
    assert!(insured["standing_still_s"].as_f64().unwrap() > 2.0 * 0.8);
    assert!(scratch.is_empty());
}

#[test]
fn the_table_has_the_same_numbers() {
    let args = "--policy closed --seed 7 --redis-down 0.5 --back 0.5";
    let run = Scratch::new("table").run(&format!("{SHORT} {args}"));
    assert_eq!(run.status, Some(0), "{run:?}");
    assert!(
        run.out
            .starts_with("3 workers, at most 60 requests in any 600 ms; "),
        "{run:?}"
    );
    for said in [
        "│ closed ",
        "violations",
        "standing still",
        "closed: nothing is sent",
        "seed 7;",
    ] {
        assert!(run.out.contains(said), "{said}: {run:?}");
    }
    for other in ["insured", "open"] {
        assert!(!run.out.contains(other), "{other}: {run:?}");
    }
}

#[test]
fn without_a_server_the_error_names_how_to_install_one() {
    let scratch = Scratch::new("none");
    let mut none = scratch.fleet("");
    none.env("PATH", "").env_remove("REDIS_SERVER");
    let mut other = scratch.fleet("");
    other.env("REDIS_SERVER", "no-such-server");
    let install = "apt-get install redis-server";
    for (mut command, said) in [
        (
            none,
            &["no program \"redis-server\"", install, "REDIS_SERVER"][..],
        ),
        (other, &["\"no-such-server\""]),
    ] {
        let run: Run = command.output().unwrap().into();
        assert_eq!(run.status, Some(2), "{run:?}");
        for said in said {
            assert!(run.err.contains(said), "{said}: {run:?}");
        }
    }
}

#[test]
fn invalid_arguments_are_named_and_exit_with_2() {
    let scratch = Scratch::new("nonsense");
    for (args, said) in [
        ("--quota lots", "invalid value 'lots' for '--quota <RATE>'"),
        ("--quota 11/s", "at least 12 requests in a window, got 11/s"),
        ("--quota 60/50ms", "100ms to 10s here, got 60/50ms"),
        (
            "--quota 301/s",
            "at most 300 requests a second here, got 301/s",
        ),
        (
            "--way long",
            "invalid value 'long' for '--way <MILLISECONDS>'",
        ),
        (
            "--before 0",
            "invalid value '0' for '--before <SECONDS>': a phase lasts 0.1 to 60 seconds",
        ),
        ("--redis-down NaN", "invalid value 'NaN'"),
        ("--back 61", "invalid value '61'"),
        ("--policy ajar", "possible values: closed, insured, open"),
        ("--policy open,open", "--policy names open twice"),
        ("--seed -1", "'-1'"),
        ("--nonsense", "--nonsense"),
        ("work", "'work'"),
    ] {
        let run = scratch.run(args);
        assert_eq!(run.status, Some(2), "{args}: {run:?}");
        assert!(run.err.contains(said), "{said}: {run:?}");
        assert_eq!(run.out, "");
    }
}

/// Sends a signal, and checks the exit status and that all children end.
fn leaves_nothing_behind(test: &str, how: &str) -> Option<i32> {
    let scratch = Scratch::new(test);
    let mut fleet = scratch.fleet("--policy insured").spawn().unwrap();
    // A server, its keeper, and three workers.
    until(|| children_of(&fleet).len() == 5);
    let children = children_of(&fleet);
    assert!(!scratch.is_empty());

    assert!(signal(how, &fleet.id().to_string()));
    let status = fleet.wait().unwrap();
    until(|| !children.iter().any(|child| signal("-0", child)) && scratch.is_empty());
    status.code()
}

#[test]
fn an_interrupted_run_leaves_nothing_behind() {
    assert_eq!(leaves_nothing_behind("interrupted", "-INT"), Some(130));
}

#[test]
fn a_killed_run_leaves_nothing_behind() {
    assert_eq!(leaves_nothing_behind("killed", "-KILL"), None);
}
