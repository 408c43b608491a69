use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use paceline::time::{Clock, Tick};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process};

pub(crate) const PACELINE: &str = env!("CARGO_BIN_EXE_paceline");

pub(crate) fn command<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    with_pipes(PACELINE, args)
}

fn with_pipes<S: AsRef<OsStr>>(program: &str, args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(program);
    command
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A line of a shell, in which `"$0"` is the command.
pub(crate) fn shell(line: &str) -> Child {
    with_pipes("sh", ["-c", line, PACELINE]).spawn().unwrap()
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
    pub(crate) pid: Pid,
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
            pid: Pid::from_child(&child),
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

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid, signal).unwrap();
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
        drop(self.stdout);
        let output = self.child.wait_with_output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), err)
    }

    /// The status and standard error, if the input has ended and then the reader has closed the pipe, and it sees both at once.
    pub(crate) fn both_closed(self) -> (Option<i32>, String) {
        let input = File::open(format!("/proc/{}/fd/0", self.child.id())).unwrap();
        self.signal(Signal::STOP);
        drop(self.stdin);
        // A process that another test starts has its own copies of all pipes at first, and may close them in another order.
        poll(&mut [PollFd::new(&input, PollFlags::empty())], None).unwrap();
        drop(self.stdout);
        kill_process(self.pid, Signal::CONT).unwrap();
        let output = self.child.wait_with_output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), err)
    }
}

/// A line for each number.
pub(crate) fn numbers(count: u32) -> String {
    let lines: Vec<String> = (1..=count).map(|number| format!("{number}\n")).collect();
    lines.concat()
}
