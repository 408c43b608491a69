//! Runs the example `shed_by_class` under the load of `wrk`, and under its own.
#![cfg(unix)]

mod serving;

use std::io::Read;
use std::process::Command;

use serde_json::{Value, json};

use serving::{Process, run};

const EXAMPLE: &str = env!("CARGO_BIN_EXE_shed_by_class");

/// What the table says of one class.
#[derive(Clone, Copy, Debug)]
struct Row {
    answered: u64,
    admitted: u64,
    shed: u64,
    refused: u64,
}

impl Row {
    const fn asked(self) -> u64 {
        self.admitted + self.shed
    }
}

/// Test traffic, reads, writes and critical requests.
fn rows(printed: &str) -> [Row; 4] {
    ["test traffic", "reads", "writes", "critical"].map(|name| {
        let row = printed.lines().find_map(|line| line.strip_prefix(name));
        let numbers = row.unwrap_or_else(|| panic!("no row of {name}: {printed}"));
        let numbers = numbers.split_whitespace().map(|n| n.parse().unwrap());
        let [answered, admitted, shed, refused] = numbers.collect::<Vec<_>>()[..] else {
            panic!("{printed}")
        };
        Row {
            answered,
            admitted,
            shed,
            refused,
        }
    })
}

/// A sample holds for three periods. On a busy machine it may come late.
const PERIOD: [&str; 2] = ["--period", "500ms"];

/// Runs the example to its end.
fn table(options: &[&str]) -> [Row; 4] {
    let mut command = Command::new(EXAMPLE);
    let output = command.args(PERIOD).args(options).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    rows(&String::from_utf8(output.stdout).unwrap())
}

/// The least important is shed first: of test traffic no smaller share than of reads, and of them than of writes.
fn assert_order(rows: &[Row; 4]) {
    let [test, reads, writes, critical] = rows;
    assert!(test.shed > 0, "{rows:?}");
    for (less, more) in [(test, reads), (reads, writes)] {
        assert!(
            less.shed * more.asked() >= more.shed * less.asked(),
            "{rows:?}"
        );
    }
    assert_eq!((critical.shed, critical.refused), (0, 0), "{rows:?}");
    assert!(critical.admitted > 0, "{rows:?}");
}

#[test]
fn under_wrk_test_traffic_is_shed_first_and_critical_requests_never() {
    let rows = table(&[]);
    assert_order(&rows);
    assert!(rows[0].refused > 0, "{rows:?}");
    for row in rows {
        assert!(row.answered > 0, "{rows:?}");
        // What is under way when wrk ends is counted by the service alone.
        assert!(row.answered <= row.asked(), "{rows:?}");
        assert!(row.refused <= row.shed, "{rows:?}");
    }
    // The clients see the same order.
    for pair in rows.windows(2) {
        let [less, more] = [pair[0], pair[1]];
        assert!(
            less.refused * more.answered >= more.refused * less.answered,
            "{rows:?}"
        );
    }
}

#[test]
fn its_own_client_needs_no_wrk_and_sees_each_answer() {
    let mut command = Command::new(EXAMPLE);
    command.args(PERIOD).args(["--client", "own"]);
    let output = command.env("PATH", "").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let rows = rows(&String::from_utf8(output.stdout).unwrap());
    assert_order(&rows);
    for row in rows {
        assert_eq!(row.answered, row.asked(), "{rows:?}");
        assert_eq!(row.refused, row.shed, "{rows:?}");
    }
}

#[test]
fn without_wrk_it_names_the_package() {
    let output = Command::new(EXAMPLE).env("PATH", "").output().unwrap();
    assert!(!output.status.success());
    let error = String::from_utf8(output.stderr).unwrap();
    let expected = "the load needs wrk (package wrk of Debian); or use --client own";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn in_shadow_mode_no_request_is_refused_and_what_would_be_is_counted() {
    let rows = table(&["--mode", "shadow"]);
    assert_order(&rows);
    for row in rows {
        assert!(row.answered > 0 && row.refused == 0, "{rows:?}");
    }
}

#[test]
fn while_the_switch_is_off_the_shedder_is_not_asked() {
    let rows = table(&["--mode", "off", "--client", "own", "--seconds", "1"]);
    for row in rows {
        assert!(row.answered > 0, "{rows:?}");
        assert_eq!((row.asked(), row.refused), (0, 0), "{rows:?}");
    }
}

#[test]
fn options_that_cannot_be_are_named() {
    for (options, named) in [
        (["--delay", "0s"], "the delay must be at least 1 ns, got 0"),
        (["--ramp", "0ms"], "the ramp must be at least 1 ns, got 0"),
        (["--period", "soon"], "write it as in 200ms or 4s"),
        (["--share", "101%"], "`101%` is not a share"),
    ] {
        let output = Command::new(EXAMPLE).args(options).output().unwrap();
        assert!(!output.status.success());
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn it_serves_until_it_is_interrupted_and_reports_by_class() {
    let mut command = Command::new(EXAMPLE);
    command.args(["--listen", "127.0.0.1:0"]);
    let (mut service, site, mut output) = Process::serving(&mut command);
    let curl = |options: &[&str], path| {
        let options = [&["-sS"], options].concat();
        run("curl", &options, &format!("{site}{path}"))
    };
    let test = ["-H", "x-test: 1"];
    for (options, path) in [
        (&[][..], "/orders"),
        (&["-X", "POST"], "/orders"),
        (&["-X", "POST"], "/orders"),
        (&test, "/orders"),
        (&test, "/orders"),
        (&test, "/orders"),
        (&test, "/payments"),
    ] {
        assert_eq!(curl(options, path), "done\n");
    }
    let stats: Value = serde_json::from_str(&curl(&[], "/stats")).unwrap();
    assert_eq!(stats["mode"], "active");
    assert_eq!(stats["would_be_shed"], 0);
    let class =
        |(name, admitted)| json!({"name": name, "admitted": admitted, "shed": 0, "share": 0.0});
    let classes = [
        ("test traffic", 3),
        ("reads", 1),
        ("writes", 2),
        ("critical", 1),
    ];
    assert_eq!(stats["classes"], Value::Array(classes.map(class).to_vec()));
    assert!(stats["amount"].as_f64().unwrap() <= 0.0, "{stats}");

    let id = service.0.id().to_string();
    let told = Command::new("kill").args(["-INT", &id]).status().unwrap();
    assert!(told.success());
    assert!(service.0.wait().unwrap().success());
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
}
