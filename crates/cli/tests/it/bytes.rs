use std::io::Read;
use std::time::Duration;

use paceline::time::{Clock, Tick};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Open, run};

/// Bytes of all kinds: an end without a newline, NUL, and lines longer than any buffer.
fn binary() -> Vec<u8> {
    let mut bytes = vec![0; 200_000];
    bytes.extend((0..=255_u8).cycle().take(300_000));
    bytes.extend(vec![b'x'; 200_000]);
    bytes
}

#[test]
fn any_bytes_are_copied_as_they_are() {
    for input in [Vec::new(), b"a".to_vec(), b"\n".to_vec(), binary()] {
        for policy in [
            "unlimited",
            "1G/s",
            "1G/s sliding",
            "64M/s burst 5K",
            "1G/s burst 1",
        ] {
            let run = run(&input, &[policy, "--bytes"]);
            assert_eq!((run.status, &*run.err), (Some(0), ""), "{policy}");
            assert!(run.out == input, "{policy}: {} bytes", run.out.len());
        }
    }
}

#[test]
fn no_byte_of_a_rate_comes_before_its_time() {
    const PERIOD: Duration = Duration::from_millis(5);
    let mut clock = Clock::new();
    clock.now();
    let mut open = Open::start(["200/s", "--bytes"]);
    open.send(&"x".repeat(40));
    for count in 1..=40 {
        open.stdout.read_exact(&mut [0]).unwrap();
        let time = clock.now().since(Tick::ZERO);
        assert!(time >= PERIOD * count, "byte {count} after {time:?}");
    }
}

#[test]
fn bytes_pass_while_the_input_is_open() {
    let mut open = Open::start(["1/h", "--burst", "100", "--bytes"]);
    for text in ["ab", "\0c", "d"] {
        open.send(text);
        let mut seen = vec![0; text.len()];
        open.stdout.read_exact(&mut seen).unwrap();
        assert_eq!(seen, text.as_bytes());
    }
}

#[test]
fn bytes_are_counted_in_place_of_lines() {
    let mut open = Open::start(["1/h", "--burst", "5", "--bytes"]);
    open.send("a\nb\nc\nd\n");
    open.stdout.read_exact(&mut [0; 5]).unwrap();
    open.signal(Signal::TERM);
    let expected = "paceline: SIGTERM: 3 bytes that were read were not written\n";
    assert_eq!(open.ended(), (Some(143), expected.to_owned()));

    let run = run("a\nb", &["unlimited", "--bytes", "--json"]);
    let stats: Value = serde_json::from_str(&run.err).unwrap();
    assert_eq!(
        (&stats["bytes"], &stats["lines"]),
        (&Value::from(3), &Value::Null)
    );
    assert_eq!(stats["unwritten"], 0);
}
