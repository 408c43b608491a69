use core::task::{Context, Waker};
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use tokio::runtime::Id;

use crate::time::{Resolution, Timer, this_runtime};

/// The part of an operation that runs after unlock.
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
    /// The number of this setting of the timer. Settings may arrive at the timer in another order; the largest number wins.
    pub(super) generation: u64,
}

impl DeferredWakes {
    #[inline]
    pub(super) const fn is_pending(&self) -> bool {
        self.is_pending
    }

    /// There is one slot. A waker that was in it already is woken instead, which does no harm.
    pub(super) fn drop_later(&mut self, waker: Waker) {
        self.is_pending = true;
        self.wakes.extend(self.dropped.replace(waker));
    }

    pub(super) fn wake(&mut self, wakers: impl IntoIterator<Item = Waker>) {
        self.wakes.extend(wakers);
        self.is_pending |= !self.wakes.is_empty();
    }

    /// Starts the task of the head-of-line timeout.
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
        // A timer panics if its runtime shuts down, and a second panic aborts the program.
        let is_now = self.wait.is_zero() || std::thread::panicking();
        if is_now || !self.is_armed(timer) {
            self.waker.wake();
        }
    }

    /// Arms the timer. If it cannot be armed, the head has to be woken now; it then sleeps on a timer of its own.
    ///
    /// The timer belongs to the runtime that arms it, so it wakes only heads of this runtime. Its mutex is locked with
    /// `try_lock` alone: to arm and to disarm it drops wakers, and that code may lock it again.
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
        // A runtime without timers panics, and so does one that shuts down. The head meets that panic itself, on a timer of
        // its own. The caller of this function has nothing to do with it.
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

/// A timer that is being armed in this instant stays armed and causes a spurious wake-up, which does no harm.
fn disarm(timer: &Mutex<HeadTimer>, generation: u64) {
    if let Ok(mut timer) = timer.try_lock() {
        if timer.generation <= generation {
            timer.generation = generation;
            timer.timer.disarm();
        }
    }
}
