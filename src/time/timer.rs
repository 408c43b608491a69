#![expect(
    clippy::disallowed_methods,
    reason = "this is the only sleeper; everybody else waits through it"
)]

use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::time::{Instant, Sleep, sleep_until};

use super::clock::instant;

/// One nanosecond less than the grid of tokio's timers.
///
/// tokio rounds a deadline *up* to its next millisecond. Asking this much earlier makes it the millisecond at or before
/// the deadline instead; what is left is slept in a second step.
const LEAD: Duration = Duration::from_nanos(999_999);

/// The longest sleep there is: thirty years. Nobody sees the difference, and `Instant` has no room for `Duration::MAX`.
const FAR_AHEAD: Duration = Duration::from_secs(30 * 365 * 86_400);

/// The only sleeper: never early, and hardly ever as late as a plain `tokio::time::sleep`.
///
/// tokio's timers have a grid of one millisecond and round up, so that a plain sleep of 1 ms takes 2 ms more often than
/// not. This one asks for the grid point at or before its due instant and sleeps what is left. On tokio's paused clock a
/// timer set to a whole millisecond fires exactly then, any other at the next whole millisecond.
///
/// It takes memory (one box) when it is first armed, and is reset in place from then on. A timer that is not armed costs
/// nothing and wakes nobody.
///
/// ```
/// use core::future::poll_fn;
/// use paceline::time::Timer;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let start = tokio::time::Instant::now();
/// let mut timer = Timer::new();
/// poll_fn(|cx| timer.poll_elapsed(cx)).await; // not armed: nothing to wait for
///
/// timer.arm(Duration::from_millis(250));
/// poll_fn(|cx| timer.poll_elapsed(cx)).await;
/// assert_eq!(start.elapsed(), Duration::from_millis(250));
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Timer {
    sleep: Option<Pin<Box<Sleep>>>,
    /// The runtime that `sleep` belongs to.
    home: Option<Id>,
    due: Option<Instant>,
}

impl Timer {
    /// A timer that is not armed. It can be built outside a runtime.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            sleep: None,
            home: None,
            due: None,
        }
    }

    /// A timer that is not armed, and has its memory already.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, or in one built without `enable_time`.
    #[must_use]
    pub fn of_this_runtime() -> Self {
        let mut timer = Self::new();
        timer.sleep_until(instant() + FAR_AHEAD);
        timer
    }

    /// Whether it belongs to the runtime in which this is called. One that does not moves when it is armed or polled, and
    /// in the runtime that it came from nobody is woken any more.
    #[must_use]
    pub fn is_of_this_runtime(&self) -> bool {
        self.home.is_some() && self.home == this_runtime()
    }

    /// Sets it to fire `after` from now. Whatever it was set to before is forgotten.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, or in one built without `enable_time`, when it is armed for the first time.
    pub fn arm(&mut self, after: Duration) {
        let now = instant();
        let after = after.min(FAR_AHEAD);
        self.sleep_until(now + after.saturating_sub(LEAD));
        self.due = Some(now + after);
    }

    /// Nobody waits for it any more, and it wakes nobody.
    pub fn disarm(&mut self) {
        let was_armed = self.due.take().is_some();
        match &mut self.sleep {
            // In place, and out of tokio's wheel: there it would move a paused clock that has nothing else to wait for.
            Some(sleep) if was_armed && self.home == this_runtime() => {
                sleep.set(sleep_until(instant() + FAR_AHEAD));
            }
            _ => {}
        }
    }

    /// Ready once the time it was set to has come, or when it is not armed.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost while nobody polls it: it is ready at the first poll after its due instant.
    pub fn poll_elapsed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(due) = self.due else {
            return Poll::Ready(());
        };
        if self.is_elsewhere() {
            self.sleep_until(due);
        }
        while instant() < due {
            let Some(sleep) = &mut self.sleep else { break };
            ready!(sleep.as_mut().poll(cx));
            // That was the grid point before the due instant, or it is over now and the next round sees it.
            sleep.as_mut().reset(due);
        }
        self.due = None;
        Poll::Ready(())
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

pub(crate) fn this_runtime() -> Option<Id> {
    Handle::try_current().ok().map(|handle| handle.id())
}
