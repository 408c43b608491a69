//! The head-of-line timeout: a head that does not ask when its permits are due is passed over.
//!
//! A task that runs at all asks within microseconds, so [`TIMEOUT`] is long enough. A head that is kept and not polled
//! holds up the queue for this time at most. The timeout has two halves, and the second one begins when a task notices that the
//! first is over. So a runtime that is late as a whole passes over no head.
//!
//! While a second waiter is queued, a small task sleeps until the timeout is over, since it may be that none of the waiters is
//! polled. It is a task and not a bare timer, because a task ends without a panic when its runtime shuts down; the next
//! request starts another one.

use core::task::Waker;
use core::time::Duration;

use tokio::runtime::Handle;

use crate::time::Tick;

use super::waiter::Ticket;

const TIMEOUT: Duration = Duration::from_millis(10);

/// For how long the head of a queue may wait in another queue before it is passed over. One that is polled begins anew.
pub(super) const HOLD: Duration = Duration::from_secs(1);

/// Since when the permits of the head are due, and the task that waits for the end of the timeout.
pub(super) struct HeadTimeout {
    head: Option<Ticket>,
    /// When the permits of the head are due; [`Tick::MAX`] if that is not known.
    due: Tick,
    /// When the first half of the timeout was noticed to be over.
    noticed_at: Option<Tick>,
    is_running: bool,
    is_starting: bool,
    /// Until when the task sleeps, and its waker.
    sleeps_until: Tick,
    task: Option<Waker>,
}

impl HeadTimeout {
    pub(super) const fn new() -> Self {
        Self {
            head: None,
            due: Tick::MAX,
            noticed_at: None,
            is_running: false,
            is_starting: false,
            sleeps_until: Tick::MAX,
            task: None,
        }
    }

    /// Starts the timeout of this head for permits that are `due` then. Returns the waker of the task if it would sleep too long.
    ///
    /// If the permits of the same head were due before, its timeout continues.
    pub(super) fn expect(&mut self, head: Ticket, due: Tick, now: Tick) -> Option<Waker> {
        if self.head == Some(head) && self.due <= now && due <= now {
            return None;
        }
        self.head = Some(head);
        self.due = due;
        self.noticed_at = None;
        let sleeps_too_long = due.after(TIMEOUT / 2) < self.sleeps_until;
        self.task.take_if(|_| sleeps_too_long)
    }

    /// A second waiter is queued. Returns whether the task has to be started: none runs, and this is in a runtime.
    pub(super) fn begin(&mut self) -> bool {
        if self.is_running || Handle::try_current().is_err() {
            return false;
        }
        self.is_running = true;
        self.is_starting = true;
        true
    }

    pub(super) const fn is_running(&self) -> bool {
        self.is_running
    }

    pub(super) fn has_started(&mut self) {
        self.is_starting = false;
    }

    /// The queue is empty. Returns the waker of the task if it would never wake up, so that it can end.
    pub(super) fn dismiss(&mut self) -> Option<Waker> {
        self.task.take_if(|_| self.sleeps_until == Tick::MAX)
    }

    /// The task has ended. Returns whether it never began: a runtime that shuts down drops it at once.
    pub(super) fn end(&mut self) -> bool {
        self.is_running = false;
        self.sleeps_until = Tick::MAX;
        self.task = None;
        core::mem::take(&mut self.is_starting)
    }

    /// How long the task has to sleep; [`Duration::MAX`] until it is woken.
    pub(super) fn sleep(&mut self, now: Tick, task: &Waker) -> Duration {
        let left = self.left(now);
        self.sleeps_until = now.after(left);
        self.task = Some(task.clone());
        if self.sleeps_until == Tick::MAX {
            Duration::MAX
        } else {
            left
        }
    }

    /// How much of the timeout is left.
    pub(super) fn left(&mut self, now: Tick) -> Duration {
        let first_half = self.due.after(TIMEOUT / 2);
        if now < first_half {
            return first_half.since(now);
        }
        let second_half = self.noticed_at.get_or_insert(now).after(TIMEOUT / 2);
        second_half.since(now)
    }
}

/// The queue is gone, so the task has to end.
impl Drop for HeadTimeout {
    fn drop(&mut self) {
        self.task.take().into_iter().for_each(Waker::wake);
    }
}
