use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use paceline::time::{Clock, Tick};
use rustix::process::{Pid, Signal, kill_process};

pub(crate) const PACELINE: &str = env!("CARGO_BIN_EXE_paceline");

pub(crate) fn command<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(PACELINE);
    command
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// What a run has left.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) status: Option<i32>,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
    pub(crate) time: Duration,
}

impl Run {
    #[track_caller]
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.out).unwrap()
    }
}

/// Runs to the end of this input.
pub(crate) fn run(input: impl AsRef<[u8]>, args: &[&str]) -> Run {
    let mut clock = Clock::new();
    clock.now();
    let mut child = command(args).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.as_ref().to_vec();
    let feeder = thread::spawn(move || {
        // It ends early if an argument is wrong.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    Run {
        status: output.status.code(),
        out: output.stdout,
        err: String::from_utf8(output.stderr).unwrap(),
        time: clock.now().since(Tick::ZERO),
    }
}

/// A run with an input that stays open.
pub(crate) struct Open {
    child: Child,
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: BufReader<ChildStdout>,
}

impl Open {
    pub(crate) fn start<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Self {
        Self::of(command(args).spawn().unwrap())
    }

    pub(crate) fn of(mut child: Child) -> Self {
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self {
            child,
            stdin,
            stdout,
        }
    }

    pub(crate) fn send(&mut self, input: &str) {
        self.stdin.write_all(input.as_bytes()).unwrap();
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line
    }

    pub(crate) fn lines(&mut self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.line()).collect()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// The status and standard error, when it has ended. It reads the rest of the output.
    pub(crate) fn ended(mut self) -> (Option<i32>, String) {
        let mut rest = Vec::new();
        self.stdout.read_to_end(&mut rest).unwrap();
        let output = self.child.wait_with_output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), err)
    }

    /// The status and standard error, of a run with an output that is not read.
    pub(crate) fn ended_unread(mut self) -> (Option<i32>, String) {
        let status = self.child.wait().unwrap().code();
        let mut err = String::new();
        let mut stderr = self.child.stderr.take().unwrap();
        stderr.read_to_string(&mut err).unwrap();
        (status, err)
    }

    /// The status and standard error, after the reader has closed the pipe.
    pub(crate) fn closed(self) -> (Option<i32>, String) {
        let Self {
            child,
            stdin: _stdin,
            stdout,
        } = self;
        drop(stdout);
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), err)
    }
}

/// A line for each number.
pub(crate) fn numbers(count: u32) -> String {
    let lines: Vec<String> = (1..=count).map(|number| format!("{number}\n")).collect();
    lines.concat()
}
