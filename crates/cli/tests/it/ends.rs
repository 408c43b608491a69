use std::io::Read;

use rustix::process::{Signal, kill_process};

use crate::support::{Open, numbers, shell};

/// It has read a hundred lines, of which three were read from it. The next one would pass in an hour.
fn after_three_of_a_hundred() -> Open {
    let mut open = Open::start(["1/h", "--burst", "3"]);
    open.send(&numbers(100));
    assert_eq!(open.lines(3), ["1\n", "2\n", "3\n"]);
    open
}

#[test]
fn a_closed_pipe_is_an_error_and_what_was_not_written_is_counted() {
    let (status, err) = after_three_of_a_hundred().closed();
    assert_eq!(status, Some(141));
    let expected =
        "paceline: the reader closed the pipe: 97 lines that were read were not written\n";
    assert_eq!(err, expected);
}

#[test]
fn a_pipe_that_is_closed_when_all_that_was_read_is_written_is_no_news() {
    let mut open = Open::start(["unlimited"]);
    open.send("a\n");
    assert_eq!(open.line(), "a\n");
    assert_eq!(open.closed(), (Some(141), String::new()));
}

#[test]
fn a_pipe_that_is_closed_after_the_end_of_the_input_is_no_error() {
    let mut open = Open::start(["1/h"]);
    open.send("a\n");
    assert_eq!(open.line(), "a\n");
    assert_eq!(open.both_closed(), (Some(0), String::new()));
}

#[test]
fn a_closed_pipe_ends_it_if_it_cannot_say_so_either() {
    let mut open = Open::of(shell("exec \"$0\" 1/h 2>&1"));
    open.send(&numbers(100));
    assert_eq!(open.line(), "1\n");
    assert_eq!(open.closed(), (Some(141), String::new()));
}

#[test]
fn a_closed_standard_stream_is_an_error() {
    for (redirection, expected) in [
        (">&-", "error: standard output is closed\n"),
        ("<&-", "error: standard input is closed\n"),
    ] {
        for command in ["unlimited", "plan 1/s"] {
            let open = Open::of(shell(&format!("exec \"$0\" {command} {redirection}")));
            assert_eq!(open.ended(), (Some(1), expected.to_owned()));
        }
    }
}

#[test]
fn a_full_disk_is_an_error() {
    let full = "No space left on device (os error 28)";
    let lines = format!(
        "paceline: cannot write the output: {full}: 3 lines that were read were not written\n"
    );
    for (command, expected) in [
        ("unlimited > /dev/full", &*lines),
        ("unlimited > /dev/full 2> /dev/full", ""),
        ("plan 1/s > /dev/full", &format!("error: {full}\n")),
    ] {
        let mut open = Open::of(shell(&format!("exec \"$0\" {command}")));
        open.send("1\n2\n3\n");
        assert_eq!(open.ended(), (Some(1), expected.to_owned()), "{command}");
    }
}

#[test]
fn a_directory_is_no_input() {
    let open = Open::of(shell("exec \"$0\" 1/s < /"));
    let (status, err) = open.ended();
    assert_eq!(status, Some(1));
    assert!(
        err.starts_with("paceline: cannot read the input: Is a directory"),
        "{err}"
    );
}

#[test]
fn a_signal_ends_it_with_its_status_and_the_count() {
    for (signal, name, status) in [(Signal::INT, "SIGINT", 130), (Signal::TERM, "SIGTERM", 143)] {
        let open = after_three_of_a_hundred();
        open.signal(signal);
        let expected = format!("paceline: {name}: 97 lines that were read were not written\n");
        assert_eq!(open.ended(), (Some(status), expected));
    }
}

#[test]
fn a_line_without_a_newline_that_was_read_is_counted_too() {
    let mut open = Open::start(["1/h"]);
    open.send("a\nb\nc");
    assert_eq!(open.line(), "a\n");
    open.signal(Signal::TERM);
    let expected = "paceline: SIGTERM: 2 lines that were read were not written\n";
    assert_eq!(open.ended(), (Some(143), expected.to_owned()));
}

#[test]
fn a_line_that_is_being_written_is_written_whole_after_a_signal() {
    let mut open = Open::start(["1/h"]);
    let long = vec![b'x'; 1 << 20];
    let mut first = [0];
    std::thread::scope(|scope| {
        use std::io::Write;

        let (stdin, stdout) = (&mut open.stdin, &mut open.stdout);
        scope.spawn(|| {
            stdin.write_all(&long).unwrap();
            stdin.write_all(b"\n").unwrap();
        });
        stdout.read_exact(&mut first).unwrap();
    });
    open.signal(Signal::INT);
    let mut rest = Vec::new();
    open.stdout.read_to_end(&mut rest).unwrap();
    assert_eq!(rest.len(), long.len());
    assert!(rest.ends_with(b"\n"));
    let expected = "paceline: SIGINT: 0 lines that were read were not written\n";
    assert_eq!(open.ended(), (Some(130), expected.to_owned()));
}

#[test]
fn a_signal_ends_it_while_short_lines_wait_for_the_reader() {
    let mut open = Open::start(["unlimited"]);
    let input = numbers(1 << 16);
    let mut first = [0];
    std::thread::scope(|scope| {
        use std::io::Write;

        let (stdin, stdout) = (&mut open.stdin, &mut open.stdout);
        // It ends before it has read everything.
        scope.spawn(|| stdin.write_all(input.as_bytes()).is_err());
        stdout.read_exact(&mut first).unwrap();
        kill_process(open.pid, Signal::INT).unwrap();
    });
    let (status, _) = open.ended_unread();
    assert_eq!(status, Some(130));
}

#[test]
fn a_second_signal_ends_it_while_the_reader_stands_still() {
    let mut open = Open::start(["unlimited"]);
    let long = "x".repeat(1 << 20);
    open.send(&long);
    open.send("\n");
    let mut first = [0];
    open.stdout.read_exact(&mut first).unwrap();
    open.signal(Signal::INT);
    // The pipe is not read before it has ended. What comes with the first signal is the same one.
    while open.is_running() {
        open.signal(Signal::TERM);
        std::thread::yield_now();
    }
    let (status, err) = open.ended_unread();
    assert!(matches!(status, Some(130 | 143)), "{status:?}");
    assert_eq!(err, "");
}
