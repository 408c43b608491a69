use std::fs::File;
use std::io::Read;
use std::process::Stdio;

use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::support::{Open, command};

/// A run with a terminal as its standard error, and the other end of it.
fn on_terminal(args: &[&str]) -> (Open, File) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let stderr = File::options()
        .read(true)
        .write(true)
        .open(name.to_str().unwrap());
    let mut command = command(args);
    command.stderr(Stdio::from(stderr.unwrap()));
    (Open::of(command.spawn().unwrap()), File::from(terminal))
}

fn read_until(terminal: &mut File, text: &str) -> String {
    let mut seen = Vec::new();
    let mut chunk = [0; 1024];
    loop {
        let length = terminal.read(&mut chunk).unwrap();
        seen.extend_from_slice(&chunk[..length]);
        let seen = String::from_utf8_lossy(&seen);
        if seen.contains(text) {
            return seen.into_owned();
        }
    }
}

#[test]
fn a_terminal_shows_the_progress() {
    let (mut open, mut terminal) = on_terminal(&["1/h"]);
    open.send("a\nb\nc\n");
    assert_eq!(open.line(), "a\n");
    read_until(&mut terminal, "0.0/s, 1 lines, 2 waiting");
    open.signal(Signal::TERM);
    read_until(&mut terminal, "2 lines that were read were not written");
}

#[test]
fn quiet_shows_none() {
    let (mut open, mut terminal) = on_terminal(&["every 300ms", "--quiet"]);
    open.send("a\nb\nc\n");
    assert_eq!(open.lines(3), ["a\n", "b\n", "c\n"]);
    open.signal(Signal::TERM);
    let seen = read_until(&mut terminal, "written");
    assert_eq!(
        seen.trim_end(),
        "paceline: SIGTERM: 0 lines that were read were not written"
    );
}
