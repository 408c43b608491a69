use std::time::Duration;

use serde_json::Value;

use crate::support::{Open, numbers, run, shell};

#[test]
fn every_line_passes_as_it_is() {
    let mut input = b"one\n\n\xff\xfe no text\r\n".to_vec();
    input.extend(vec![b'x'; 1 << 20]);
    input.extend(b"\nand the last one has no newline");
    for input in [input, Vec::new()] {
        let run = run(&input, &["unlimited"]);
        assert_eq!((run.status, &*run.err), (Some(0), ""));
        assert!(run.out == input);
    }
}

#[test]
fn lines_are_spaced_as_the_policy_says() {
    let line = "123456789\n";
    for (input, args, millis) in [
        (numbers(5), &["every", "30ms"][..], 120),
        (numbers(7), &["3/60ms"], 120),
        // A line of a key costs its bytes.
        (
            line.repeat(4),
            &["10/50ms", "--bytes", "--by-key", "column 1"],
            150,
        ),
    ] {
        let run = run(&input, args);
        assert_eq!(run.text(), input);
        assert!(run.time >= Duration::from_millis(millis), "{run:?}");
    }
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
fn a_line_that_never_passes_ends_the_run_with_its_number() {
    let input = "a\n12345678901234567890\nb\n";
    let by_key = ["--bytes", "--by-key", "column 9"];
    let refused = run(input, &[&["1K/s burst 10"], &by_key[..]].concat());
    assert_eq!((refused.status, refused.text()), (Some(1), "a\n"));
    assert_eq!(
        refused.err,
        "paceline: line 2: 21 bytes never pass at once, at most 10: a `burst` that is large enough lets them pass, and so does \
         `debt` after a `burst`: 2 lines that were read were not written\n"
    );
    let passed = run(input, &[&["1K/s burst 10 debt"], &by_key[..]].concat());
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

#[test]
fn lines_end_in_nul_if_that_is_asked() {
    let input = "one\ntwo\0three\0\0four";
    let plain = run(input, &["every 20ms", "-0"]);
    assert_eq!((plain.status, plain.text()), (Some(0), input));
    assert!(plain.time >= Duration::from_millis(60), "{plain:?}");

    let args = ["unlimited", "--null", "--batch", "2", "--separate"];
    assert_eq!(run("a\0b\0c\0", &args).text(), "a\0b\0\0c\0\0");
}

#[test]
fn what_has_passed_does_not_wait_for_more() {
    let mut open = Open::start(["1/h", "--burst", "1000"]);
    open.send(&numbers(5));
    assert_eq!(open.lines(5).concat(), numbers(5));
    open.send(&numbers(2000));
    assert_eq!(open.lines(995).concat(), numbers(995));
}

#[test]
fn lines_stay_whole_if_two_write_to_one_pipe() {
    let run = |byte: &str| format!("yes {} | head -20000 | \"$0\" unlimited", byte.repeat(99));
    let mut open = Open::of(shell(&format!("({} & {}; wait)", run("a"), run("b"))));
    let lines = open.lines(40_000);
    let are_whole = lines.iter().all(|line| {
        let text = line.trim_end();
        text.len() == 99 && text.bytes().all(|byte| byte == text.as_bytes()[0])
    });
    assert!(are_whole);
}
