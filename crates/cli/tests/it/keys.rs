use std::io::Write;
use std::os::fd::AsFd;
use std::thread;

use rustix::process::Signal;

use crate::support::{Open, run};

#[test]
fn a_key_does_not_hold_up_another() {
    let mut open = Open::start(["1/h", "--by-key", "column 2"]);
    open.send("1 ann\n2 ann\n3 bob\n4\n5 eve x\n");
    let mut lines = open.lines(4);
    lines.sort();
    assert_eq!(lines, ["1 ann\n", "3 bob\n", "4\n", "5 eve x\n"]);
    open.signal(Signal::TERM);
    let expected = "paceline: SIGTERM: 1 line that was read was not written\n";
    assert_eq!(open.ended(), (Some(143), expected.to_owned()));
}

#[test]
fn lines_of_one_key_stay_in_order() {
    let line = |number: u32| format!("{},{number}\n", ["ann", "bob", "eve"][number as usize % 3]);
    let input: String = (0..60).map(line).collect();
    let run = run(&input, &["every 1ms", "--by-key", "field 1 ,"]);
    let lines_of = |text: &str, key: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.starts_with(key));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(run.text().len(), input.len());
    for key in ["ann", "bob", "eve"] {
        assert_eq!(lines_of(run.text(), key), lines_of(&input, key));
    }
}

#[test]
fn reading_pauses_while_enough_lines_wait() {
    const LINE: usize = 100;
    let mut open = Open::start(["1/h", "--by-key", "column 1", "--max-waiting", "10"]);
    let input = format!("{:99}\n", "ann").repeat(20_000);
    let mut stdin = std::fs::File::from(open.stdin.as_fd().try_clone_to_owned().unwrap());
    let feeder = thread::spawn(move || {
        // It ends before it has read everything.
        let _ = stdin.write_all(input.as_bytes());
    });
    assert_eq!(open.line().len(), LINE);
    open.signal(Signal::TERM);
    let (status, err) = open.ended();
    assert_eq!(status, Some(143));
    let count = err.split(' ').nth(2).unwrap();
    let count: usize = count.parse().unwrap();
    // Those that wait, and three chunks.
    assert!(count <= 11 + 3 * 8 * 1024 / LINE + 3, "{err}");
    feeder.join().unwrap();
}
