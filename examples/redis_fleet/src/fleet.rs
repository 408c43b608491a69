//! The workers' processes.

use std::{
    env,
    io::{Read, Write},
    process::{Child, Command, Stdio},
};

use tokio::task::spawn_blocking;

use crate::worker::{Account, Task};

/// How many workers share the limit.
pub(crate) const WORKERS: u32 = 3;

/// A running worker. Dropping this kills it.
#[derive(Debug)]
pub(crate) struct Worker {
    number: u32,
    process: Child,
}

impl Worker {
    /// This program in another role.
    pub(crate) fn start(task: &Task) -> Result<Self, String> {
        let program = env::current_exe();
        let process = program.and_then(|program| {
            Command::new(program)
                .args(task.words())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
        });
        let number = task.number;
        Ok(Self {
            number,
            process: process.map_err(|error| format!("cannot start worker {number}: {error}"))?,
        })
    }

    pub(crate) const fn number(&self) -> u32 {
        self.number
    }

    /// Makes the worker send.
    pub(crate) fn go(&mut self) -> Result<(), String> {
        let number = self.number;
        let written = match &mut self.process.stdin {
            Some(stdin) => stdin.write_all(b"!"),
            None => Ok(()),
        };
        written.map_err(|error| format!("worker {number} does not listen: {error}"))
    }

    /// Kills the worker without warning. Its permits are lost.
    pub(crate) fn kill(mut self) -> Result<(), String> {
        let number = self.number;
        let killed = self.process.kill();
        killed.map_err(|error| format!("cannot kill worker {number}: {error}"))
    }

    /// Stops the worker, and waits for its report.
    pub(crate) async fn stop(mut self) -> Result<Account, String> {
        let said = spawn_blocking(move || {
            drop(self.process.stdin.take());
            let mut said = String::new();
            let out = self.process.stdout.take();
            let read = out.map(|mut out| out.read_to_string(&mut said));
            (self.number, read, self.process.wait(), said)
        });
        let (number, read, ended, said) = said
            .await
            .map_err(|error| format!("nobody waits for a worker: {error}"))?;
        let wrong = |what: String| format!("worker {number}: {what}");
        if let Some(Err(error)) = read {
            return Err(wrong(error.to_string()));
        }
        let ended = ended.map_err(|error| wrong(error.to_string()))?;
        if !ended.success() {
            return Err(wrong(ended.to_string()));
        }
        serde_json::from_str(&said).map_err(|error| wrong(format!("it said {said:?}: {error}")))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Both do nothing if the worker has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
