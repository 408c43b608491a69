//! Leaping over instants, and measuring them, on tokio's clock.
//!
//! On a paused clock, waiting moves the time to each timer in turn, so nothing is ever late. Real programs *are* late:
//! a task was busy, a machine slept. [`jump`] is how a test makes that happen.

#![expect(
    clippy::disallowed_methods,
    reason = "the one file of the testkit that reads and waits on tokio's clock"
)]

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    runtime::{Builder, Runtime},
    time::{Instant, Sleep},
};

/// Leaps `by` at once: every timer due in between fires late, all in the instant of the landing.
///
/// This is [`tokio::time::advance`]: it moves the clock in one step, then yields once, so that the runtime's timers
/// look at it. Tasks woken by the leap have not necessarily run when it returns, and a timer that is polled right after
/// may be pending once more before it is woken, in the same instant. The clock has to be paused.
pub async fn jump(by: Duration) {
    tokio::time::advance(by).await;
}

/// A runtime of one thread on a paused clock.
///
/// # Panics
///
/// When the system gives it no file descriptor.
#[must_use]
pub fn paused_runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build();
    runtime.expect("a runtime")
}

/// A number of milliseconds.
#[must_use]
pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Measures how much of tokio's time has passed since its start.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    started: Instant,
}

impl Stopwatch {
    /// Starts to measure now.
    #[must_use]
    pub fn start() -> Self {
        Self { started: now() }
    }

    /// The time since the start; on a paused clock it is exact.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// The same in whole milliseconds, which is how tokio's timers count.
    #[must_use]
    pub fn elapsed_ms(&self) -> u128 {
        self.elapsed().as_millis()
    }

    /// When it was started.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }
}

/// The present, on tokio's clock.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Waits until `at`, which tokio rounds up to its next millisecond.
pub(crate) fn sleep_until(at: Instant) -> Sleep {
    tokio::time::sleep_until(at)
}

/// Waits for `long`.
pub(crate) fn sleep(long: Duration) -> Sleep {
    tokio::time::sleep(long)
}

/// A wait for an instant, inside a poll.
#[derive(Debug)]
pub(crate) struct Until {
    at: Instant,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Until {
    pub(crate) fn at(at: Instant) -> Self {
        Self { at, sleep: None }
    }

    pub(crate) fn after(gap: Duration) -> Self {
        Self::at(now() + gap)
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if now() >= self.at {
            return Poll::Ready(());
        }
        let sleep = self
            .sleep
            .get_or_insert_with(|| Box::pin(sleep_until(self.at)));
        sleep.as_mut().poll(cx)
    }
}
