#![expect(
    clippy::disallowed_methods,
    reason = "with the timer of the kernel this is the only sleeper; everybody else waits through it"
)]

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;

use tokio::runtime::Id;
use tokio::time::{Instant, Sleep, sleep_until};

use super::clock::instant;
use super::here::{FAR_AHEAD, this_runtime};

/// One nanosecond less than the grid of tokio's timers.
///
/// tokio rounds a deadline *up* to its next millisecond. Asking this much earlier makes it the millisecond at or before
/// the deadline instead; what is left is slept in a second step.
const LEAD: Duration = Duration::from_nanos(999_999);

/// Sleeps on tokio's timers: wakes at the grid point at or before an instant, and sleeps the rest.
#[derive(Debug)]
pub(super) struct Coarse {
    sleep: Option<Pin<Box<Sleep>>>,
    /// The runtime that `sleep` belongs to.
    home: Option<Id>,
}

impl Coarse {
    pub(super) const fn new() -> Self {
        Self {
            sleep: None,
            home: None,
        }
    }

    pub(super) const fn home(&self) -> Option<Id> {
        self.home
    }

    /// Sleeps until the grid point at or before `after` from now.
    pub(super) fn arm(&mut self, now: Instant, after: Duration) {
        self.sleep_until(now + after.saturating_sub(LEAD));
    }

    /// Takes its memory, and sleeps for as long as anybody could.
    pub(super) fn prepare(&mut self) {
        self.sleep_until(instant() + FAR_AHEAD);
    }

    /// Wakes nobody any more.
    pub(super) fn disarm(&mut self) {
        match &mut self.sleep {
            // In place, and out of tokio's wheel: there it would move a paused clock that has nothing else to wait for.
            Some(sleep) if self.home == this_runtime() => {
                sleep.set(sleep_until(instant() + FAR_AHEAD));
            }
            _ => {}
        }
    }

    pub(super) fn poll_until(&mut self, due: Instant, cx: &mut Context<'_>) -> Poll<()> {
        if instant() >= due {
            return Poll::Ready(());
        }
        if self.is_elsewhere() || !self.wakes_by(due) {
            self.sleep_until(due.checked_sub(LEAD).unwrap_or(due));
        }
        while instant() < due {
            let Some(sleep) = &mut self.sleep else { break };
            ready!(sleep.as_mut().poll(cx));
            // That was the grid point before the due instant, or it is over now and the next round sees it.
            sleep.as_mut().reset(due);
        }
        Poll::Ready(())
    }

    /// Not if it was not armed: what waits precisely, and all at once cannot, goes on here.
    fn wakes_by(&self, due: Instant) -> bool {
        let sleep = self.sleep.as_ref();
        sleep.is_some_and(|sleep| sleep.deadline() <= due)
    }

    /// Whether it is polled in another runtime than it belongs to, which may have ended.
    fn is_elsewhere(&self) -> bool {
        let here = this_runtime();
        here.is_some() && self.home != here
    }

    fn sleep_until(&mut self, instant: Instant) {
        if self.is_elsewhere() {
            self.sleep = None;
        }
        if let Some(sleep) = &mut self.sleep {
            sleep.as_mut().reset(instant);
        } else {
            self.sleep = Some(Box::pin(sleep_until(instant)));
            self.home = this_runtime();
        }
    }
}
