use core::task::Waker;
use core::time::Duration;

use crate::time::{Precision, Tick};

use super::alarm::{Lent, Shelf};

/// How somebody waits.
pub(crate) enum Asker<'a> {
    /// Told how long: on a timer of their own.
    Told(&'a Waker),
    /// Behind others.
    Behind(Behind<'a>),
}

/// Who may have to wait behind others: whom to wake, how precisely, and with what.
pub(crate) struct Behind<'a> {
    pub(crate) waker: &'a Waker,
    pub(crate) precision: Precision,
    pub(crate) shelf: &'a mut Shelf,
}

/// Somebody who waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    cost: u32,
    waker: Waker,
    /// Saves one wake-up in two. Whoever is told how long to wait needs none.
    alarm: Option<Lent>,
}

impl Waiter {
    pub(crate) fn new(cost: u32, asker: Asker<'_>) -> Self {
        let (waker, alarm) = match asker {
            Asker::Told(waker) => (waker, None),
            Asker::Behind(asker) => {
                let alarm = Lent::take(asker.shelf, asker.precision);
                (asker.waker, Some(alarm))
            }
        };
        let waker = waker.clone();
        Self { cost, waker, alarm }
    }

    /// Asks again. Gives back what that replaced.
    ///
    /// One who is told how long to wait needs no alarm any more, and one that has rung must not be taken for one that is set.
    /// One who moved to another task, maybe in another runtime, needs another.
    pub(super) fn ask_again(&mut self, cost: u32, asker: Asker<'_>) -> Option<Self> {
        self.cost = cost;
        let has_alarm = self.alarm.is_some();
        let (waker, is_told) = match &asker {
            Asker::Told(waker) => (*waker, true),
            Asker::Behind(asker) => (asker.waker, false),
        };
        let has_moved = !self.waker.will_wake(waker);
        let is_spent = is_told && has_alarm;
        if !(has_moved || is_spent) {
            return None;
        }
        let asker = if has_alarm { asker } else { Asker::Told(waker) };
        Some(core::mem::replace(self, Self::new(cost, asker)))
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
            alarm: self.alarm.as_ref().map(Lent::share),
        }
    }
}

/// Waits no more, or in another way.
impl Drop for Waiter {
    fn drop(&mut self) {
        if let Some(alarm) = &self.alarm {
            alarm.silence();
        }
    }
}

/// Somebody is to be woken when their turn has come.
#[derive(Debug)]
pub(crate) struct Call {
    now: Tick,
    wait: Duration,
    waker: Waker,
    alarm: Option<Lent>,
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
        let alarm = self.alarm.as_ref();
        alarm.is_some_and(|alarm| alarm.set(self.now, self.wait, &self.waker))
    }
}
