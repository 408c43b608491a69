use core::task::{Context, Waker};
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::time::{Precision, Tick, Timer};

/// Where a handle keeps its alarm for the next time that it waits behind others.
pub(crate) type Shelf = Option<Arc<Mutex<Alarm>>>;

/// What wakes somebody in line when their turn has come, although their task has not run since they became the first.
#[derive(Debug)]
pub(crate) struct Alarm {
    timer: Timer,
    due: Tick,
    /// Counts those who used it: what is still under way for an earlier one is not heard.
    user: u64,
}

/// An alarm, lent to one who waits.
#[derive(Debug)]
pub(super) struct Lent {
    alarm: Arc<Mutex<Alarm>>,
    user: u64,
}

impl Lent {
    /// From the shelf, or a new one that is put there. It is of the runtime in which this is called: that of the one who
    /// waits.
    pub(super) fn take(shelf: &mut Shelf, precision: Precision) -> Self {
        let used = shelf.as_ref().and_then(Self::again);
        used.unwrap_or_else(|| {
            let alarm = Arc::new(Mutex::new(Alarm {
                timer: precision.timer().settled_here(),
                due: Tick::ZERO,
                user: 0,
            }));
            *shelf = Some(Arc::clone(&alarm));
            Self { alarm, user: 0 }
        })
    }

    /// None if it belongs elsewhere, or is still set, or is just being set, for the one before.
    fn again(alarm: &Arc<Mutex<Alarm>>) -> Option<Self> {
        let mut silent = alarm.try_lock().ok()?;
        if silent.due > Tick::ZERO || !silent.timer.is_of_this_runtime() {
            return None;
        }
        silent.user += 1;
        Some(Self {
            alarm: Arc::clone(alarm),
            user: silent.user,
        })
    }

    /// For one who sets it.
    pub(super) fn share(&self) -> Self {
        Self {
            alarm: Arc::clone(&self.alarm),
            user: self.user,
        }
    }

    /// Sets it to wake `waker`. False if it cannot be set: then whoever it is for should be woken now.
    pub(super) fn set(&self, now: Tick, wait: Duration, waker: &Waker) -> bool {
        // If somebody sets the same alarm just now, it is not clear who knows more. A timer moves to whoever sets it, and the
        // runtime of those who wait may have ended.
        self.locked().is_some_and(|mut alarm| {
            alarm.timer.is_of_this_runtime() && alarm.set(now, wait, waker)
        })
    }

    /// It is not needed any more.
    pub(super) fn silence(&self) {
        if let Some(mut alarm) = self.locked() {
            alarm.silence();
        }
    }

    fn locked(&self) -> Option<MutexGuard<'_, Alarm>> {
        let alarm = self.alarm.try_lock().ok();
        alarm.filter(|alarm| alarm.user == self.user)
    }
}

impl Alarm {
    /// Sets it, unless it is set to an earlier instant already: calls may come in another order than they were meant, and
    /// to be woken early costs less than to be woken late.
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

    /// For nobody any more.
    fn silence(&mut self) {
        self.due = Tick::ZERO;
        self.timer.disarm();
    }
}
