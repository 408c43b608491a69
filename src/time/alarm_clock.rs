use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker, ready};
use core::time::Duration;
use std::collections::BTreeMap;
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

use super::clock::{instant, is_real};
use super::here::FAR_AHEAD;
use super::lead::{Leads, Span};

/// One timer of the kernel for all who wait precisely in one runtime.
///
/// A small task listens to it and wakes those whose instant has come. It ends when nobody has the clock any more, or with its
/// runtime; who waits on a clock that has stopped takes another.
#[derive(Debug)]
pub(super) struct AlarmClock {
    home: Id,
    fd: AsyncFd<OwnedFd>,
    book: Mutex<Book>,
}

/// The clocks there are, by their runtimes.
static CLOCKS: Mutex<Vec<(Id, Weak<AlarmClock>)>> = Mutex::new(Vec::new());

/// The runtimes that were found to have no I/O driver, the last of them at the end.
static WITHOUT_IO: Mutex<Vec<Id>> = Mutex::new(Vec::new());

/// A runtime that is forgotten is asked again.
const REMEMBERED: usize = 64;

/// When whom to wake.
#[derive(Debug)]
struct Book {
    alarms: BTreeMap<AlarmId, Waker>,
    next: u64,
    /// When the kernel will ring, if it will.
    rings_at: Option<Instant>,
    leads: Leads,
    task: Option<Waker>,
    has_stopped: bool,
}

/// The number of an alarm that never rings. With it the map is never empty, and keeps its memory.
const NEVER: u64 = u64::MAX;

/// An alarm that is set: its instant, and a number, since two may have the same.
pub(super) type AlarmId = (Instant, u64);

impl AlarmClock {
    /// The clock of this runtime. There is none outside a runtime, in one that ends, in one built without `enable_io`, or when
    /// the process has no file descriptor left.
    pub(super) fn here() -> Option<Arc<Self>> {
        let runtime = Handle::try_current().ok()?;
        let mut clocks = CLOCKS.lock().unwrap_or_else(PoisonError::into_inner);
        clocks.retain(|(_, clock)| clock.strong_count() > 0);
        let known = clocks.iter().find(|(home, _)| *home == runtime.id());
        let running = known.and_then(|(_, clock)| clock.upgrade());
        if let Some(clock) = running.filter(|clock| !clock.has_stopped()) {
            return Some(clock);
        }
        let started = Self::start(&runtime);
        let clock = started.filter(|clock| !clock.has_stopped())?;
        clocks.retain(|(home, _)| *home != clock.home);
        clocks.push((clock.home, Arc::downgrade(&clock)));
        Some(clock)
    }

    fn start(runtime: &Handle) -> Option<Arc<Self>> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags).ok()?;
        let clock = Arc::new(Self {
            home: runtime.id(),
            fd: listened_to(fd, runtime.id())?,
            book: Mutex::new(Book {
                alarms: BTreeMap::from([((instant() + FAR_AHEAD, NEVER), Waker::noop().clone())]),
                next: 0,
                rings_at: None,
                leads: Leads::new(),
                task: None,
                has_stopped: false,
            }),
        });
        runtime.spawn(Listener {
            clock: Arc::downgrade(&clock),
            due: Vec::new(),
        });
        Some(clock)
    }

    pub(super) fn home(&self) -> Id {
        self.home
    }

    /// Whether its runtime has ended, and nobody is woken any more.
    pub(super) fn has_stopped(&self) -> bool {
        self.book().has_stopped
    }

    /// How much earlier than its instant to be woken.
    pub(super) fn lead(&self, span: Span) -> Duration {
        self.book().leads.get(span)
    }

    /// Wakes `waker` at this instant, or a little later; `None` if it has stopped.
    pub(super) fn set(&self, rings_at: Instant, waker: Waker) -> Option<AlarmId> {
        let mut book = self.book();
        if book.has_stopped {
            return None;
        }
        let id = (rings_at, book.next);
        book.next += 1;
        book.alarms.insert(id, waker);
        self.wind(&mut book);
        Some(id)
    }

    /// Nobody waits for this one any more. Whoever says so after it should have rung was woken so much later.
    pub(super) fn cancel(&self, id: AlarmId, span: Span, now: Instant) {
        let mut book = self.book();
        let dropped = book.alarms.remove(&id);
        if id.0 <= now {
            book.leads.learn(span, now - id.0);
        }
        drop(book);
        drop(dropped);
    }

    /// Sees to it that the kernel rings for the first alarm.
    fn wind(&self, book: &mut Book) {
        let Some((first, number)) = book.alarms.keys().next().copied() else {
            return;
        };
        if number == NEVER {
            return;
        }
        if book.rings_at.is_some_and(|rings_at| rings_at <= first) {
            return;
        }
        book.rings_at = Some(first);
        let wait = first.saturating_duration_since(instant());
        // Zero would stop it.
        let it_value = timespec(wait.max(Duration::from_nanos(1)));
        let it_interval = timespec(Duration::ZERO);
        let value = Itimerspec {
            it_interval,
            it_value,
        };
        // The time is valid, and so is the descriptor.
        let _ = timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &value);
    }

    /// The kernel has rung.
    fn ring(&self, due: &mut Vec<Waker>) {
        let (now, is_real) = (instant(), is_real());
        let mut book = self.book();
        book.rings_at = None;
        while let Some(first) = book.alarms.first_entry() {
            let (rings_at, number) = *first.key();
            // On a clock that was paused meanwhile the kernel rings for nobody. They wait for it in another way.
            if number == NEVER || (is_real && rings_at > now) {
                break;
            }
            due.push(first.remove());
        }
        self.wind(&mut book);
        drop(book);
        due.drain(..).for_each(Waker::wake);
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task has nothing to listen to any more.
impl Drop for AlarmClock {
    fn drop(&mut self) {
        let task = self.book().task.take();
        task.into_iter().for_each(Waker::wake);
    }
}

/// `None` in a runtime without an I/O driver.
///
/// tokio has no way to ask for the driver: it panics where there is none. So the panic is caught, once a runtime. A program
/// that aborts on panic cannot do that, and waits by tokio's timers.
fn listened_to(fd: OwnedFd, runtime: Id) -> Option<AsyncFd<OwnedFd>> {
    let mut without_io = WITHOUT_IO.lock().unwrap_or_else(PoisonError::into_inner);
    if cfg!(panic = "abort") || without_io.contains(&runtime) {
        return None;
    }
    #[expect(
        deprecated,
        reason = "its successor is unsafe, for descriptors that may be closed meanwhile; an `OwnedFd` is not"
    )]
    let listened_to = move || AsyncFd::with_interest(fd, Interest::READABLE);
    let Ok(listened_to) = panic::catch_unwind(AssertUnwindSafe(listened_to)) else {
        let forgotten = without_io.len().saturating_sub(REMEMBERED - 1);
        without_io.drain(..forgotten);
        without_io.push(runtime);
        return None;
    };
    listened_to.ok()
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: duration.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// The task that listens to a clock.
struct Listener {
    clock: Weak<AlarmClock>,
    /// Whom to wake, in memory that is used again.
    due: Vec<Waker>,
}

impl Future for Listener {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(clock) = self.clock.upgrade() else {
            return Poll::Ready(());
        };
        clock.book().task = Some(cx.waker().clone());
        loop {
            let Ok(mut rung) = ready!(clock.fd.poll_read_ready(cx)) else {
                return Poll::Ready(());
            };
            // What it would say when read, how often it has rung, is of no use. Setting it anew clears that.
            rung.clear_ready();
            clock.ring(&mut self.due);
        }
    }
}

/// Its runtime has ended. Whoever waits finds another clock.
impl Drop for Listener {
    fn drop(&mut self) {
        let Some(clock) = self.clock.upgrade() else {
            return;
        };
        let mut book = clock.book();
        book.has_stopped = true;
        let waiting = core::mem::take(&mut book.alarms);
        drop(book);
        waiting.into_values().for_each(Waker::wake);
    }
}
