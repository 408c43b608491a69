#![expect(
    clippy::disallowed_methods,
    reason = "this is the only sleeper; everybody else waits through it"
)]

use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;

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
    due: Option<Instant>,
}

impl Timer {
    /// A timer that is not armed. It can be built outside a runtime.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            sleep: None,
            due: None,
        }
    }

    /// A timer that is not armed and lives in the runtime of whoever calls this, even if it is armed from another one.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, or in one built without `enable_time`.
    #[must_use]
    pub fn of_this_runtime() -> Self {
        Self {
            sleep: Some(Box::pin(sleep_until(instant() + FAR_AHEAD))),
            due: None,
        }
    }

    /// Sets it to fire `after` from now. Whatever it was set to before is forgotten.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, or in one built without `enable_time`, when it is armed for the first time.
    pub fn arm(&mut self, after: Duration) {
        let now = instant();
        let after = after.min(FAR_AHEAD);
        let ask_for = now + after.saturating_sub(LEAD);
        match &mut self.sleep {
            Some(sleep) => sleep.as_mut().reset(ask_for),
            None => self.sleep = Some(Box::pin(sleep_until(ask_for))),
        }
        self.due = Some(now + after);
    }

    /// Nobody waits for it any more.
    pub fn disarm(&mut self) {
        self.due = None;
    }

    /// Ready once the time it was set to has come, or when it is not armed.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost while nobody polls it: it is ready at the first poll after its due instant.
    pub fn poll_elapsed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let (Some(due), Some(sleep)) = (self.due, &mut self.sleep) {
            while instant() < due {
                ready!(sleep.as_mut().poll(cx));
                // That was the grid point before the due instant, or it is over now and the next round sees it.
                sleep.as_mut().reset(due);
            }
            self.disarm();
        }
        Poll::Ready(())
    }
}
