//! Runs the `language_model` example as a user does, and checks what its providers have counted.

use std::{
    process::{Command, Output},
    sync::LazyLock,
};

use serde_json::Value;

/// One run for all tests. The names of its lines are those of the help.
static RUNS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let output = run(&["--json", "--calls", "120"]);
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let runs = report["runs"].as_array().unwrap();
    for line in runs {
        let sum = count(line, "answered") + count(line, "refused");
        assert_eq!(count(line, "arrivals"), sum, "{line}");
    }
    runs.clone()
});

const WITH_A_LIMIT: [&str; 3] = ["upper bound", "from the answer", "typical"];

fn run(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_language_model"));
    command.args(args).output().unwrap()
}

fn named(name: &str) -> &'static Value {
    RUNS.iter().find(|line| line["name"] == name).unwrap()
}

fn count(line: &Value, field: &str) -> u64 {
    line[field]
        .as_u64()
        .unwrap_or_else(|| panic!("{field} in {line}"))
}

#[test]
fn with_a_limit_every_call_is_answered_and_no_window_holds_more_than_the_budget() {
    for line in WITH_A_LIMIT.map(named) {
        assert_eq!(count(line, "answered"), 120, "{line}");
        assert_eq!(count(line, "violations"), 0, "{line}");
        assert_eq!(count(line, "refused"), 0, "{line}");
    }
}

#[test]
fn the_same_prompts_cost_the_same_whatever_is_reserved() {
    let [first, rest @ ..] = WITH_A_LIMIT.map(|name| count(named(name), "tokens"));
    assert!(first > 120);
    assert_eq!(rest, [first, first]);
}

#[test]
fn after_a_refusal_no_call_is_sent_before_its_wait_is_over() {
    let line = named("shared account");
    assert_eq!(count(line, "answered"), 60, "{line}");
    assert_eq!(count(line, "too_early"), 0, "{line}");
    // Another process exhausts the budget twice, each time at the very instant at which a request arrives.
    assert!(count(line, "refused") >= 2, "{line}");
    assert!(count(line, "others_tokens") > 0, "{line}");
}

#[test]
fn without_a_limit_calls_are_refused() {
    let line = named("no limit");
    assert!(count(line, "violations") > 0, "{line}");
    assert!(count(line, "refused") > 0, "{line}");
}

#[test]
fn a_number_of_tasks_that_leaves_no_tokens_is_refused() {
    let output = run(&["--tasks", "33"]);
    assert_eq!(output.status.code(), Some(2));
    let reason = String::from_utf8(output.stderr).unwrap();
    assert!(reason.contains("33 is not in 1..=32"), "{reason}");
}
