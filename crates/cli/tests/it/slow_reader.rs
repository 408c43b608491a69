use std::io::{BufRead, Write};
use std::thread;
use std::time::Duration;

use paceline::time::{Clock, Tick};

use crate::support::Open;

/// A line is longer than a pipe holds, so that it is written when the reader reads it.
const LONG: usize = 200_000;

#[test]
fn lines_that_a_slow_reader_has_missed_are_not_made_up_for() {
    let mut open = Open::start(["every 50ms"]);
    let input = format!("{}\n", "x".repeat(LONG)).repeat(4);
    let mut stdin = open.stdin;
    let feeder = thread::spawn(move || stdin.write_all(input.as_bytes()).unwrap());
    // Three more lines could have passed meanwhile.
    thread::sleep(Duration::from_millis(200));
    let mut clock = Clock::new();
    clock.now();
    for _ in 0..4 {
        let mut line = Vec::new();
        open.stdout.read_until(b'\n', &mut line).unwrap();
        assert_eq!(line.len(), LONG + 1);
    }
    // The first one was written when it was read, and each of the others 50 ms after the one before.
    let time = clock.now().since(Tick::ZERO);
    assert!(time >= Duration::from_millis(150), "{time:?}");
    feeder.join().unwrap();
}
