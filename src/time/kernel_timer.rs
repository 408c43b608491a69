use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::sync::Arc;

use tokio::runtime::Id;
use tokio::time::Instant;

use super::clock::{instant, is_real, this_runtime};
use super::timer_fd::{Key, TimerFd};

/// The last part of a wait is shorter than a pass through the scheduler, so it is spent in a busy loop. A wait that is as short from
/// the beginning yields once before, so that tasks that are ready do not wait for it.
const LAST_STRETCH: Duration = Duration::from_micros(5);

/// The busy loop reads the clock at most this often, in case the clock is paused meanwhile.
const MOST_READINGS: u32 = 1_000;

/// Waits to the microsecond: the kernel wakes the task a little early, and from then on the task yields until it is time.
///
/// It allocates one box, when it first has to wait.
#[derive(Debug, Default)]
pub(super) struct KernelTimer {
    wait: Option<Box<KernelWait>>,
}

#[derive(Debug)]
struct KernelWait {
    /// The timer of the runtime in which it waited last.
    fd: Arc<TimerFd>,
    wake_up: Option<WakeUp>,
    /// The length of the last wait, and how late the wake-up came. The next call of [`TimerFd::set`] reports it, so that ending a
    /// wait takes no lock.
    late: Option<(Duration, Duration)>,
}

/// The early wake-up of one wait.
#[derive(Debug)]
struct WakeUp {
    due: Instant,
    length: Duration,
    key: Key,
    /// `None` once the wake-up has come, or if it was too late to ask for one.
    waker: Option<Waker>,
}

impl KernelTimer {
    pub(super) const fn new() -> Self {
        Self { wait: None }
    }

    pub(super) fn home(&self) -> Option<Id> {
        self.wait.as_ref().map(|wait| wait.fd.home)
    }

    /// Waits for `due`, which is later than `now`. `None` if the kernel cannot time this wait: tokio's clock is paused, or there is
    /// no [`TimerFd`].
    pub(super) fn poll_until(
        &mut self,
        due: Instant,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> Option<Poll<()>> {
        let elapsed = if is_real() {
            self.poll_real(due, now, cx)
        } else {
            None
        };
        if elapsed.is_none() {
            self.wait = None;
        }
        elapsed
    }

    fn poll_real(&mut self, due: Instant, now: Instant, cx: &mut Context<'_>) -> Option<Poll<()>> {
        let wait = match &mut self.wait {
            Some(wait) => wait,
            none => none.insert(Box::new(KernelWait {
                fd: TimerFd::of_this_runtime()?,
                wake_up: None,
                late: None,
            })),
        };
        let begins = wait.wake_up.is_none();
        if !wait.is_set_for(due, now, cx) {
            wait.set(due, now, cx.waker())?;
        }
        if wait.sleeps_at(now) {
            return Some(Poll::Pending);
        }
        if !begins && due - now <= LAST_STRETCH && spin_until(due) {
            wait.wake_up = None;
            return Some(Poll::Ready(()));
        }
        cx.waker().wake_by_ref();
        Some(Poll::Pending)
    }

    /// Ends the wait. Takes no lock if the wake-up was due by `now`.
    #[inline]
    pub(super) fn end(&mut self, now: impl FnOnce() -> Instant) {
        if let Some(wait) = &mut self.wait {
            if wait.wake_up.is_some() {
                wait.end(now());
            }
        }
    }
}

impl KernelWait {
    /// Whether the wake-up is right for this poll: for this instant, and, until it comes, for this task and in this runtime. A
    /// poll outside any runtime leaves it where it is. After a wake-up the next poll sets another one for the rest, since a long
    /// wait is woken so early that the task may sleep once more.
    fn is_set_for(&self, due: Instant, now: Instant, cx: &Context<'_>) -> bool {
        let Some(wake_up) = &self.wake_up else {
            return false;
        };
        let is_right = match &wake_up.waker {
            Some(waker) => now < wake_up.key.0 && waker.will_wake(cx.waker()) && self.is_here(),
            None => wake_up.key.0 <= now,
        };
        wake_up.due == due && is_right
    }

    fn is_here(&self) -> bool {
        let here = this_runtime();
        here.is_none_or(|here| here == self.fd.home) && !self.fd.has_stopped()
    }

    fn set(&mut self, due: Instant, now: Instant, waker: &Waker) -> Option<()> {
        self.end(now);
        if !self.is_here() {
            self.fd = TimerFd::of_this_runtime()?;
        }
        let length = due - now;
        let key = self.fd.set(due, now, waker, self.late.take())?;
        self.wake_up = Some(WakeUp {
            due,
            length,
            key,
            waker: (now < key.0).then(|| waker.clone()),
        });
        Some(())
    }

    /// Whether the wake-up is still to come. At the first poll after it, notes how late it came.
    fn sleeps_at(&mut self, now: Instant) -> bool {
        let Some(wake_up) = &mut self.wake_up else {
            return false;
        };
        if now < wake_up.key.0 {
            return true;
        }
        if wake_up.waker.take().is_some() {
            self.late = Some((wake_up.length, now - wake_up.key.0));
        }
        false
    }

    fn end(&mut self, now: Instant) {
        if self.sleeps_at(now) {
            if let Some(wake_up) = &self.wake_up {
                self.fd.cancel(wake_up.key);
            }
        }
        self.wake_up = None;
    }
}

impl Drop for KernelWait {
    fn drop(&mut self) {
        if self.wake_up.is_some() {
            self.end(instant());
        }
        if let Some((length, late)) = self.late {
            self.fd.learn(length, late);
        }
    }
}

/// False if the clock does not reach `due`.
fn spin_until(due: Instant) -> bool {
    (0..MOST_READINGS).any(|_| {
        core::hint::spin_loop();
        instant() >= due
    })
}
