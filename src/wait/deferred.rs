use core::task::{Context, Waker};
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use tokio::runtime::Id;

use crate::time::{Resolution, Timer, this_runtime};

/// What an operation leaves to be done after unlock.
#[derive(Default)]
pub(super) struct DeferredWakes {
    /// Whether there is anything: one flag is cheaper to read on every unlock.
    is_pending: bool,
    dropped: Option<Waker>,
    wakes: Vec<Waker>,
    starts_task: bool,
    head: Option<HeadWake>,
    disarm: Option<u64>,
}

/// When and where to wake the head.
pub(super) struct HeadWake {
    /// Zero: at once.
    pub(super) wait: Duration,
    pub(super) waker: Waker,
    /// The runtime in which the head waits, if the timer of the queue may wake it there.
    pub(super) home: Option<(Id, Resolution)>,
    /// Counts the settings of the timer, which may arrive there in another order.
    pub(super) generation: u64,
}

impl DeferredWakes {
    #[inline]
    pub(super) const fn is_pending(&self) -> bool {
        self.is_pending
    }

    /// A spurious wake-up does no harm, so a waker that finds the slot taken is woken and dropped.
    pub(super) fn drop_later(&mut self, waker: Waker) {
        self.is_pending = true;
        self.wakes.extend(self.dropped.replace(waker));
    }

    pub(super) fn wake(&mut self, wakers: impl IntoIterator<Item = Waker>) {
        self.wakes.extend(wakers);
        self.is_pending |= !self.wakes.is_empty();
    }

    /// The task of the head-of-line timeout.
    pub(super) fn start_task(&mut self) {
        self.is_pending = true;
        self.starts_task = true;
    }

    pub(super) fn wake_head(&mut self, head: HeadWake) {
        self.is_pending = true;
        self.disarm = None;
        let replaced = self.head.replace(head);
        self.wakes.extend(replaced.map(|head| head.waker));
    }

    pub(super) fn disarm(&mut self, generation: u64) {
        self.is_pending = true;
        self.disarm = Some(generation);
    }

    pub(super) fn run(self, timer: &Mutex<HeadTimer>, start_task: impl FnOnce()) {
        drop(self.dropped);
        if let Some(generation) = self.disarm {
            disarm(timer, generation);
        }
        self.wakes.into_iter().for_each(Waker::wake);
        if self.starts_task {
            start_task();
        }
        if let Some(head) = self.head {
            head.run(timer);
        }
    }
}

/// The timer that wakes a queued waiter when it has become the head and its permits are due.
#[derive(Default)]
pub(super) struct HeadTimer {
    timer: Timer,
    resolution: Resolution,
    generation: u64,
}

impl HeadWake {
    fn run(self, timer: &Mutex<HeadTimer>) {
        // A timer of a runtime that shuts down panics, and a second panic ends the program.
        let is_now = self.wait.is_zero() || std::thread::panicking();
        if is_now || !self.is_armed(timer) {
            self.waker.wake();
        }
    }

    /// Arms the timer, or says that the head has to be woken now: then it asks, and sleeps on a timer of its own.
    ///
    /// The timer belongs to the runtime that arms it, so it wakes only heads of this runtime. Its mutex is only ever tried,
    /// since arming and disarming drop wakers, which may come here again.
    fn is_armed(&self, timer: &Mutex<HeadTimer>) -> bool {
        let Some((home, resolution)) = self.home else {
            return false;
        };
        let Ok(mut timer) = timer.try_lock() else {
            return false;
        };
        if timer.generation > self.generation {
            return true;
        }
        if this_runtime() != Some(home) {
            return false;
        }
        timer.generation = self.generation;
        if timer.resolution != resolution {
            timer.resolution = resolution;
            timer.timer = Timer::new().with_resolution(resolution);
        }
        let mut cx = Context::from_waker(&self.waker);
        // Without timers, or while it shuts down, a runtime panics. That concerns the head, and not the caller that is here.
        let arm = || {
            timer.timer.arm(self.wait);
            timer.timer.poll_elapsed(&mut cx).is_pending()
        };
        let armed = catch_unwind(AssertUnwindSafe(arm));
        armed.unwrap_or_else(|_| {
            timer.timer = Timer::new().with_resolution(resolution);
            false
        })
    }
}

/// If it is being armed right now, it fires for nothing, which does no harm.
fn disarm(timer: &Mutex<HeadTimer>, generation: u64) {
    if let Ok(mut timer) = timer.try_lock() {
        if timer.generation <= generation {
            timer.generation = generation;
            timer.timer.disarm();
        }
    }
}
