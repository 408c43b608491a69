//! Programs that serve for a test, and clients of the system that it runs.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

/// A process that ends with its handle.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let child = command.spawn();
        Self(child.unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    /// A program that prints where it serves: this line, and the rest of its output.
    pub(crate) fn serving(command: &mut Command) -> (Self, String, BufReader<ChildStdout>) {
        let mut process = Self::spawn(command.stdout(Stdio::piped()));
        let mut output = BufReader::new(process.0.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        (process, line.trim().to_owned(), output)
    }

    /// Returns when it is gone.
    pub(crate) fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What a client prints.
pub(crate) fn run(program: &str, options: &[&str], url: &str) -> String {
    let mut command = Command::new(program);
    let output = command.args(options).arg(url).output();
    let output =
        output.unwrap_or_else(|error| panic!("{program}: {error}; scripts/test installs it"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}
