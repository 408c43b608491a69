use core::task::{Context, Waker};
use core::time::Duration;
use std::sync::{Arc, Mutex};

use crate::time::{Precision, Tick, Timer};

use super::Asker;

/// Somebody who waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    cost: u32,
    waker: Waker,
    /// Saves one wake-up in two. Whoever is told how long to wait sleeps on a timer of their own and needs none.
    alarm: Option<Arc<Mutex<Alarm>>>,
}

impl Waiter {
    /// One who is told how long to wait.
    pub(crate) fn told(cost: u32, waker: &Waker) -> Self {
        Self {
            cost,
            waker: waker.clone(),
            alarm: None,
        }
    }

    /// One who has others before them. The alarm is of the runtime in which they wait, not of those others'.
    pub(crate) fn behind(cost: u32, asker: Asker<'_>) -> Self {
        Self {
            alarm: Some(Arc::new(Mutex::new(Alarm::new(asker.precision)))),
            ..Self::told(cost, asker.waker)
        }
    }

    /// Asks again. Gives back what that replaced.
    ///
    /// One who is told how long to wait needs no alarm any more, and one that has rung must not be taken for one that is set.
    /// One who moved to another task, maybe in another runtime, needs another.
    pub(super) fn ask_again(&mut self, is_told: bool, cost: u32, asker: Asker<'_>) -> Option<Self> {
        self.cost = cost;
        let has_alarm = self.alarm.is_some();
        let has_moved = !self.waker.will_wake(asker.waker);
        let is_spent = is_told && has_alarm;
        if !(has_moved || is_spent) {
            return None;
        }
        let renewed = if is_told || !has_alarm {
            Self::told(cost, asker.waker)
        } else {
            Self::behind(cost, asker)
        };
        Some(core::mem::replace(self, renewed))
    }

    pub(crate) const fn cost(&self) -> u32 {
        self.cost
    }

    pub(super) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// What wakes them `wait` after `now`.
    pub(crate) fn call(&self, now: Tick, wait: Duration) -> Call {
        Call {
            now,
            wait,
            waker: self.waker.clone(),
            alarm: self.alarm.clone(),
        }
    }
}

/// Somebody is to be woken when their turn has come.
#[derive(Debug)]
pub(crate) struct Call {
    now: Tick,
    wait: Duration,
    waker: Waker,
    alarm: Option<Arc<Mutex<Alarm>>>,
}

impl Call {
    /// Sets the alarm, or wakes them now if there is none or nothing to wait for. Not to be called under a lock of the
    /// limit: setting it may wake, and waking runs foreign code.
    pub(crate) fn make(self) {
        // A timer of a runtime that is ending panics, and a second panic ends the program.
        if self.wait.is_zero() || std::thread::panicking() || !self.set_alarm() {
            self.waker.wake();
        }
    }

    fn set_alarm(&self) -> bool {
        // If somebody sets the same alarm just now, it is not clear who knows more: they are woken, and ask.
        let alarm = self.alarm.as_ref().map(|alarm| alarm.try_lock());
        let Some(Ok(mut alarm)) = alarm else {
            return false;
        };
        // A timer moves to whoever sets it, and the runtime of those who wait may have ended: then they are woken as well.
        alarm.timer.is_of_this_runtime() && alarm.set(self.now, self.wait, &self.waker)
    }
}

/// What wakes somebody in line when their turn has come, although their task has not run since they became the first.
#[derive(Debug)]
struct Alarm {
    timer: Timer,
    due: Tick,
}

impl Alarm {
    /// Of the runtime in which this is called: that of the one who waits.
    fn new(precision: Precision) -> Self {
        Self {
            timer: precision.timer().settled_here(),
            due: Tick::ZERO,
        }
    }

    /// Sets it, unless it is set to an earlier instant already: calls may come in another order than they were meant, and
    /// to be woken early costs less than to be woken late. False if it cannot be set.
    fn set(&mut self, now: Tick, wait: Duration, waker: &Waker) -> bool {
        let due = now.after(wait);
        let is_set_earlier = now < self.due && self.due <= due;
        if is_set_earlier {
            return true;
        }
        self.due = due;
        self.timer.arm(wait);
        let elapsed = self.timer.poll_elapsed(&mut Context::from_waker(waker));
        elapsed.is_pending()
    }
}
