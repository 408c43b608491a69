//! SIGINT and SIGTERM.

use std::io;
use std::process;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use crate::job::{End, Job};

/// What comes so soon after a signal is the same one: `timeout` sends it to the process, and then to its group.
const SAME: Duration = Duration::from_millis(200);

/// Ends the job with the first signal, and the process with the second. The signals have a thread of their own, since the main
/// one may wait for the reader.
pub(crate) fn watch(job: &Arc<Job>) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let (mut interrupt, mut terminate) = {
        let _entered = runtime.enter();
        (
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
        )
    };
    let job = Arc::clone(job);
    let mut clock = job.clock();
    thread::spawn(move || {
        runtime.block_on(async {
            let mut next = async || {
                tokio::select! {
                    _ = interrupt.recv() => ("SIGINT", 2),
                    _ = terminate.recv() => ("SIGTERM", 15),
                }
            };
            let (name, number) = next().await;
            let first = clock.now();
            // It waits for a line that is being written.
            thread::spawn(move || job.end(&End::Signal(name, number)));
            loop {
                let (_, number) = next().await;
                if clock.now().since(first) > SAME {
                    process::exit(128 + number);
                }
            }
        });
    });
    Ok(())
}
