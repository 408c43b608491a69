//! A million emissions, one a second, on tokio's paused clock: how long a test of eleven days takes.

use std::env;
use std::io;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;

use crate::contenders::{PACED, Paced, Tape};
use crate::figures::{Figure, Notes};
use crate::measure::{Extent, timed, with_commas};

use super::pacing::caught;

const SECOND: Duration = Duration::from_secs(1);

/// A contender on a clock of its own would take as long as it says. It runs in a process, which can be ended.
const PATIENCE: Duration = Duration::from_secs(15);

pub(super) fn measure(extent: Extent) -> Vec<Figure> {
    let mut notes = Notes::new("virtual");
    let count = extent.pick(1_000_000, 1_000);
    let patience = extent.pick(PATIENCE, Duration::from_millis(500));
    for contender in PACED {
        let seconds = in_a_process(contender, count, patience);
        let case = format!("{} emissions", with_commas(&count.to_string()));
        notes.add("seconds on the wall", contender.name, &case, seconds);
    }
    notes.figures
}

fn in_a_process(contender: &Paced, count: usize, patience: Duration) -> Result<f64, String> {
    let start = || -> io::Result<_> {
        Command::new(env::current_exe()?)
            .args(["alone-virtual", contender.name, &count.to_string()])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
    };
    let mut child = start().map_err(|error| error.to_string())?;
    let deadline = Instant::now() + patience;
    loop {
        match child.try_wait() {
            Ok(Some(_)) => break,
            Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(20)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("not done after {patience:?}"));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    let output = child
        .wait_with_output()
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().map_err(|_| {
        let said = String::from_utf8_lossy(&output.stderr);
        format!("fails: {}", said.lines().last().unwrap_or_default())
    })
}

/// What such a process does: it says how many seconds it took.
pub(crate) fn alone(name: &str, count: usize) -> io::Result<()> {
    let contender = PACED.iter().find(|paced| paced.name == name);
    let contender =
        contender.ok_or_else(|| io::Error::other(format!("no such contender: `{name}`")))?;
    let runtime = Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()?;
    let (took, tape) = caught(|| {
        timed(|| {
            let tape = Tape::new(count, Duration::MAX);
            runtime.block_on(async { (contender.run)(SECOND, tape).await })
        })
    })
    .map_err(io::Error::other)?;
    assert_eq!(tape.stamps.len(), count);
    println!("{}", took.as_secs_f64());
    Ok(())
}
