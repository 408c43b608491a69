use std::time::Duration;

use serde_json::Value;

use crate::support::{Open, numbers, run};

#[test]
fn every_line_passes_as_it_is() {
    let mut input = b"one\n\n\xff\xfe no text\r\n".to_vec();
    input.extend(vec![b'x'; 1 << 20]);
    input.extend(b"\nand the last one has no newline");
    let run = run(&input, &["unlimited"]);
    assert_eq!((run.status, &*run.err), (Some(0), ""));
    assert!(run.out == input);
}

#[test]
fn no_input_is_no_output() {
    let run = run("", &["30/s"]);
    assert_eq!((run.status, &*run.out, &*run.err), (Some(0), &b""[..], ""));
}

#[test]
fn lines_are_spaced_as_the_policy_says() {
    let run = run(numbers(5), &["every", "30ms"]);
    assert_eq!(run.text(), numbers(5));
    assert!(run.time >= Duration::from_millis(120), "{run:?}");
}

#[test]
fn a_rate_alone_passes_no_more_in_any_such_time() {
    let run = run(numbers(7), &["3/60ms"]);
    assert_eq!(run.text(), numbers(7));
    assert!(run.time >= Duration::from_millis(120), "{run:?}");
}

#[test]
fn a_burst_passes_while_the_input_is_open() {
    let mut open = Open::start(["1/h", "--burst", "3"]);
    open.send("a\n");
    assert_eq!(open.line(), "a\n");
    open.send("b\nc\n");
    assert_eq!(open.lines(2), ["b\n", "c\n"]);
}

#[test]
fn a_line_costs_its_bytes() {
    let line = "123456789\n";
    let run = run(line.repeat(4), &["10/50ms", "--bytes"]);
    assert_eq!(run.text(), line.repeat(4));
    assert!(run.time >= Duration::from_millis(150), "{run:?}");
}

#[test]
fn a_line_that_never_passes_ends_the_run_with_its_number() {
    let input = "a\n12345678901234567890\nb\n";
    let refused = run(input, &["1K/s", "--bytes", "--burst", "10"]);
    assert_eq!((refused.status, refused.text()), (Some(1), "a\n"));
    assert_eq!(
        refused.err,
        "paceline: line 2: 21 bytes never pass at once, at most 10: a `burst` that is large enough lets them pass, and so does \
         `debt` after a `burst`: 2 lines that were read were not written\n"
    );
    let passed = run(input, &["1K/s burst 10 debt", "--bytes"]);
    assert_eq!((passed.status, passed.text()), (Some(0), input));
}

#[test]
fn statistics_are_one_line_of_json() {
    let run = run("a\nb\nc", &["every 20ms", "--json"]);
    assert_eq!(run.text(), "a\nb\nc");
    assert_eq!(run.err.matches('\n').count(), 1);
    let stats: Value = serde_json::from_str(&run.err).unwrap();
    assert_eq!(stats["lines"], 3);
    assert_eq!(stats["bytes"], 5);
    assert_eq!(stats["unwritten"], 0);
    let (seconds, waited) = (stats["seconds"].as_f64(), stats["waited"].as_f64());
    assert!(seconds >= Some(0.04) && waited > Some(0.0), "{stats}");
    let rate = stats["rate"].as_f64();
    assert!(rate > Some(0.0) && rate <= Some(75.0), "{stats}");
}
