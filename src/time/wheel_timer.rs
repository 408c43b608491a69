#![expect(
    clippy::disallowed_methods,
    reason = "apart from the kernel timer this is the only sleeper; the rest of the crate waits through it"
)]

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;

use pin_project_lite::pin_project;
use tokio::runtime::Id;
use tokio::time::{Instant, Sleep, sleep_until};

use super::clock::{FAR_AHEAD, instant, this_runtime};

/// One nanosecond less than the grid of tokio's timers.
///
/// tokio rounds a deadline up to its next millisecond. A deadline that is this much earlier is rounded to the millisecond at or
/// before the due instant instead. The rest is slept in a second step.
const GRID: Duration = Duration::from_nanos(999_999);

/// Waits on tokio's timer wheel: until the last whole millisecond before an instant, and then for the rest.
///
/// It allocates one box, when it first has to wait.
#[derive(Debug, Default)]
pub(super) struct WheelTimer {
    wait: Option<Pin<Box<WheelWait>>>,
}

pin_project! {
    #[derive(Debug)]
    struct WheelWait {
        #[pin]
        sleep: Sleep,
        due: Instant,
        // The runtime that `sleep` belongs to.
        home: Option<Id>,
    }
}

impl WheelTimer {
    pub(super) const fn new() -> Self {
        Self { wait: None }
    }

    pub(super) fn home(&self) -> Option<Id> {
        self.wait.as_ref()?.home
    }

    /// Allocates what a wait needs.
    pub(super) fn prepare(&mut self) {
        let far = instant() + FAR_AHEAD;
        self.set(far, far);
    }

    /// Waits for `due`, which is later than `now`.
    pub(super) fn poll_until(
        &mut self,
        due: Instant,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        if !self.is_set_for(due) {
            let before = due.checked_sub(GRID).unwrap_or(due);
            self.set(before.max(now), due);
        }
        while let Some(wait) = &mut self.wait {
            let mut sleep = wait.as_mut().project().sleep;
            ready!(sleep.as_mut().poll(cx));
            if instant() >= due {
                break;
            }
            sleep.reset(due);
        }
        Poll::Ready(())
    }

    /// Removes the entry from tokio's wheel. A paused clock would advance to it.
    pub(super) fn disarm(&mut self) {
        if let Some(wait) = &mut self.wait {
            if !wait.sleep.is_elapsed() && wait.home == this_runtime() {
                let far = instant() + FAR_AHEAD;
                let mut wait = wait.as_mut().project();
                wait.sleep.set(sleep_until(far));
                *wait.due = far;
            }
        }
    }

    fn is_set_for(&self, due: Instant) -> bool {
        let wait = self.wait.as_ref();
        wait.is_some_and(|wait| wait.due == due && !wait.is_elsewhere())
    }

    fn set(&mut self, deadline: Instant, due: Instant) {
        match &mut self.wait {
            Some(wait) if !wait.is_elsewhere() => {
                let wait = wait.as_mut().project();
                wait.sleep.reset(deadline);
                *wait.due = due;
            }
            wait => {
                let home = this_runtime();
                assert!(
                    home.is_some(),
                    "a limit of paceline has to wait, and there is no tokio runtime here: await it in `#[tokio::main]` or \
                     `Runtime::block_on`, or under a guard of `Handle::enter`; a thread waits with `acquire_blocking`"
                );
                *wait = Some(Box::pin(WheelWait {
                    sleep: sleep_until(deadline),
                    due,
                    home,
                }));
            }
        }
    }
}

impl WheelWait {
    /// Whether it is polled in another runtime than its own, which may have ended. A poll outside any runtime does not count.
    fn is_elsewhere(&self) -> bool {
        let here = this_runtime();
        here.is_some() && self.home != here
    }
}
