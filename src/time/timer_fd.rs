use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker, ready};
use core::time::Duration;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Handle, Id};
use tokio::time::Instant;

use super::clock::{FAR_AHEAD, instant, is_real};
use super::early_wake::EarlyWake;

/// One timer of the kernel for all exact waits of a runtime.
///
/// A small task, the listener, is woken by the timer and wakes the tasks whose instant has come. It ends when the last [`Arc`]
/// is dropped, or with its runtime.
#[derive(Debug)]
pub(super) struct TimerFd {
    pub(super) home: Id,
    fd: AsyncFd<OwnedFd>,
    schedule: Mutex<Schedule>,
}

/// The runtimes in which an exact wait began, with their timers. A runtime without an I/O driver has `None`.
static RUNTIMES: Mutex<Vec<(Id, Option<Weak<TimerFd>>)>> = Mutex::new(Vec::new());

/// If there are more, the runtimes without an I/O driver are removed. At their next wait the panic is caught once more.
const MOST_RUNTIMES: usize = 64;

/// Which tasks to wake, and when.
#[derive(Debug)]
struct Schedule {
    wakers: BTreeMap<Key, Waker>,
    next_number: u64,
    /// When the kernel timer fires, if it is armed.
    fires_at: Option<Instant>,
    early_wake: EarlyWake,
    listener: Option<Waker>,
    has_stopped: bool,
}

/// The instant of a wake-up, and a number that makes it unique.
pub(super) type Key = (Instant, u64);

/// The number of an entry that is never due. An empty `BTreeMap` would free its memory and allocate again at each wait.
const NEVER: u64 = u64::MAX;

impl TimerFd {
    /// `None` outside a runtime, in one that shuts down, in one without an I/O driver, and if the process has no file descriptor
    /// left.
    ///
    /// tokio has no way to ask for an I/O driver, and panics if there is none. That panic is caught, once for each runtime. A
    /// program with `panic = "abort"` cannot catch it, so it has no such timer.
    pub(super) fn of_this_runtime() -> Option<Arc<Self>> {
        let runtime = Handle::try_current().ok()?;
        let mut runtimes = RUNTIMES.lock().unwrap_or_else(PoisonError::into_inner);
        let known = runtimes.iter().find(|(home, _)| *home == runtime.id());
        if let Some((_, fd)) = known {
            // A runtime without an I/O driver has `None`.
            let fd = fd.as_ref()?.upgrade();
            if let Some(fd) = fd.filter(|fd| !fd.has_stopped()) {
                return Some(fd);
            }
        }
        if cfg!(panic = "abort") {
            return None;
        }
        let is_full = runtimes.len() >= MOST_RUNTIMES;
        runtimes.retain(|(home, fd)| {
            let is_in_use = fd.as_ref().map_or(!is_full, |fd| fd.strong_count() > 0);
            is_in_use && *home != runtime.id()
        });
        let started = panic::catch_unwind(AssertUnwindSafe(|| Self::start(&runtime)));
        let Ok(started) = started else {
            runtimes.push((runtime.id(), None));
            return None;
        };
        let fd = started.ok().filter(|fd| !fd.has_stopped())?;
        runtimes.push((fd.home, Some(Arc::downgrade(&fd))));
        Some(fd)
    }

    /// # Panics
    ///
    /// In a runtime without an I/O driver.
    fn start(runtime: &Handle) -> io::Result<Arc<Self>> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        #[expect(
            deprecated,
            reason = "its successor is unsafe, for descriptors that may be closed meanwhile; an `OwnedFd` is not"
        )]
        let fd = AsyncFd::with_interest(fd, Interest::READABLE)?;
        let never = (instant() + FAR_AHEAD, NEVER);
        let timer = Arc::new(Self {
            home: runtime.id(),
            fd,
            schedule: Mutex::new(Schedule {
                wakers: BTreeMap::from([(never, Waker::noop().clone())]),
                next_number: 0,
                fires_at: None,
                early_wake: EarlyWake::new(),
                listener: None,
                has_stopped: false,
            }),
        });
        runtime.spawn(Listener {
            timer: Arc::downgrade(&timer),
            due: Vec::new(),
        });
        Ok(timer)
    }

    /// Whether its runtime has ended. After that it wakes no task.
    pub(super) fn has_stopped(&self) -> bool {
        self.schedule().has_stopped
    }

    /// Sets a wake-up of `waker` a little before `due`. The key that is returned has its instant; without one that is after `now`
    /// there is no wake-up. `None` if this timer has stopped.
    ///
    /// `late` is the length of the wait before this one, and how late its wake-up came.
    pub(super) fn set(
        &self,
        due: Instant,
        now: Instant,
        waker: &Waker,
        late: Option<(Duration, Duration)>,
    ) -> Option<Key> {
        let mut schedule = self.schedule();
        if schedule.has_stopped {
            return None;
        }
        if let Some((length, late)) = late {
            schedule.early_wake.learn(length, late);
        }
        let early = schedule.early_wake.before(due - now).min(due - now);
        let key = (due - early, schedule.next_number);
        if now < key.0 {
            schedule.next_number += 1;
            schedule.wakers.insert(key, waker.clone());
            self.rearm(&mut schedule, now);
        }
        Some(key)
    }

    pub(super) fn cancel(&self, key: Key) {
        let cancelled = self.schedule().wakers.remove(&key);
        // To drop a waker may run foreign code, so it is dropped after unlock.
        drop(cancelled);
    }

    pub(super) fn learn(&self, length: Duration, late: Duration) {
        // One estimate less does no harm, so this does not wait for the lock.
        if let Ok(mut schedule) = self.schedule.try_lock() {
            schedule.early_wake.learn(length, late);
        }
    }

    /// Sets the kernel timer to fire for the first entry.
    fn rearm(&self, schedule: &mut Schedule, now: Instant) {
        let Some((first, number)) = schedule.wakers.keys().next().copied() else {
            return;
        };
        if number == NEVER || schedule.fires_at.is_some_and(|fires_at| fires_at <= first) {
            return;
        }
        schedule.fires_at = Some(first);
        let wait = first.saturating_duration_since(now);
        // Zero would stop the timer. A wait is at most 30 years, so it is a `Timespec`.
        let wait = wait.max(Duration::from_nanos(1)).try_into();
        let value = Itimerspec {
            it_interval: Timespec::default(),
            it_value: wait.unwrap_or_default(),
        };
        // The time is valid, and so is the descriptor.
        let _ = timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &value);
    }

    /// Wakes the tasks that are due, after the kernel timer has fired. `due` is empty; its memory is reused.
    fn fire(&self, due: &mut Vec<Waker>) {
        let (now, is_real) = (instant(), is_real());
        let mut schedule = self.schedule();
        schedule.fires_at = None;
        while let Some(first) = schedule.wakers.first_entry() {
            let (at, number) = *first.key();
            // If tokio's clock was paused meanwhile, all tasks are woken, and wait on tokio's timers.
            if number == NEVER || (is_real && at > now) {
                break;
            }
            due.push(first.remove());
        }
        self.rearm(&mut schedule, now);
        drop(schedule);
        due.drain(..).for_each(Waker::wake);
    }

    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes the listener, which ends.
impl Drop for TimerFd {
    fn drop(&mut self) {
        let listener = self.schedule().listener.take();
        listener.into_iter().for_each(Waker::wake);
    }
}

/// The task that listens to a timer.
struct Listener {
    timer: Weak<TimerFd>,
    due: Vec<Waker>,
}

impl Future for Listener {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(timer) = self.timer.upgrade() else {
            return Poll::Ready(());
        };
        timer.schedule().listener = Some(cx.waker().clone());
        loop {
            let Ok(mut fired) = ready!(timer.fd.poll_read_ready(cx)) else {
                return Poll::Ready(());
            };
            // A timer is read for its count of expirations. To set it clears that count too.
            fired.clear_ready();
            timer.fire(&mut self.due);
        }
    }
}

/// Runs when the runtime ends. Tasks that were waiting are woken, and find the timer of the runtime that polls them.
impl Drop for Listener {
    fn drop(&mut self) {
        let Some(timer) = self.timer.upgrade() else {
            return;
        };
        let mut schedule = timer.schedule();
        schedule.has_stopped = true;
        let waiting = core::mem::take(&mut schedule.wakers);
        drop(schedule);
        waiting.into_values().for_each(Waker::wake);
    }
}
