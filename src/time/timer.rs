use core::task::{Context, Poll, ready};
use core::time::Duration;

use tokio::runtime::Id;
use tokio::task::coop::poll_proceed;
use tokio::time::Instant;

use super::clock::{FAR_AHEAD, instant, this_runtime};
#[cfg(all(feature = "precise", target_os = "linux"))]
use super::kernel_timer::KernelTimer;
use super::wheel_timer::WheelTimer;

/// Waits for an instant: never early, and on an idle machine a few microseconds late.
///
/// It is built in a `const`, outside a runtime too. It allocates when it first has to wait, and is reset in place from then on. A
/// timer that is not armed costs nothing and wakes no task.
///
/// On Linux the kernel times the wait; elsewhere tokio's own timers do. [`Resolution`] says when, what that costs, and how to choose.
/// On tokio's paused clock a timer that is set to a whole millisecond fires exactly then, and any other at the next whole
/// millisecond.
///
/// It takes part in tokio's cooperative scheduling: a task that polls one elapsed timer after the other yields now and then.
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
    due: Option<Instant>,
    was_polled: bool,
    resolution: Resolution,
    #[cfg(all(feature = "precise", target_os = "linux"))]
    kernel: KernelTimer,
    wheel: WheelTimer,
}

/// How exactly a [`Timer`] waits.
///
/// A timer is never early. The resolution says how late it may be.
///
/// ```
/// use core::future::poll_fn;
/// use paceline::time::{Resolution, Timer};
/// use std::time::{Duration, Instant};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// for resolution in [Resolution::Exact, Resolution::Millis] {
///     let mut timer = Timer::new().with_resolution(resolution);
///     let start = Instant::now();
///
///     timer.arm(Duration::from_micros(250));
///     poll_fn(|cx| timer.poll_elapsed(cx)).await;
///     assert!(start.elapsed() >= Duration::from_micros(250));
/// }
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Resolution {
    /// To the microsecond, by a timer of the kernel.
    ///
    /// This needs Linux, feature `precise` (a default feature), a runtime with I/O enabled, and tokio's real clock. Where one of
    /// them is missing, or the process has no file descriptor left, a timer waits as with [`Millis`](Self::Millis). A program that
    /// is built with `panic = "abort"` waits so too, because tokio panics when it is asked for an I/O driver that is not there. (Else
    /// the panic is caught. Its message appears once for each runtime without I/O, and may appear again in a program with more than
    /// 64 runtimes.)
    ///
    /// The kernel wakes the task a little early, and then the task yields again and again until its instant. The last 5 µs are a busy
    /// loop. How early follows from how late wake-ups are on this machine. The aim is that 19 of 20 waits below 900 µs are woken in
    /// time, 3 of 4 up to 3.6 ms, 1 of 2 up to 7.2 ms, and 1 of 3 beyond. The task is woken at most 100 µs early, or about a ninth of
    /// a longer wait, and may then sleep once more.
    ///
    /// All timers of a runtime share one timer of the kernel and one small task, which ends with the last of them. A wait of 1 ms
    /// costs about 25 µs of processor time, a little more than a `tokio::time::sleep`. So one emission each millisecond takes 2.5 % of
    /// a core and one each 100 µs a quarter. Intervals below about 50 µs keep a core busy. Where many timers wait, tokio's are
    /// cheaper, since they wake the thread at most once a millisecond for all: of 10,000 timers of 1 s each wait costs 8 µs, and 4 µs
    /// with `Millis`. A wake-up passes through the small task. So on a thread that another task keeps busy, it waits for one more poll
    /// of that task: beside polls of 1 ms an interval of 1 ms reached 0.83 of its rate, and 0.98 with `Millis`.
    #[default]
    Exact,
    /// To the millisecond, by tokio's own timers. It saves power where many timers wait and the exact instant does not matter.
    ///
    /// tokio's timers have a grid of one millisecond and round up, so a plain `tokio::time::sleep` of 1 ms mostly takes 2 ms. This
    /// waits until the last point of the grid before the instant first, and then for the rest.
    Millis,
}

/// Two due instants closer than this are the same wait, computed from different readings of the clock.
const SAME: Duration = Duration::from_micros(1);

impl Timer {
    /// A timer that is not armed. It can be built outside a runtime.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            due: None,
            was_polled: false,
            resolution: Resolution::Exact,
            #[cfg(all(feature = "precise", target_os = "linux"))]
            kernel: KernelTimer::new(),
            wheel: WheelTimer::new(),
        }
    }

    /// The same timer with another resolution.
    #[must_use]
    pub const fn with_resolution(mut self, resolution: Resolution) -> Self {
        self.resolution = resolution;
        self
    }

    /// A timer that is not armed, and has allocated what it needs on tokio's timers.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, or in one built without `enable_time`.
    #[must_use]
    pub fn of_this_runtime() -> Self {
        let mut timer = Self::new();
        timer.wheel.prepare();
        timer
    }

    /// Whether it belongs to the runtime in which this is called. One that does not moves when it is polled, and no longer wakes
    /// any task of the runtime that it came from.
    #[must_use]
    pub fn is_of_this_runtime(&self) -> bool {
        let home = self.home();
        home.is_some() && home == this_runtime()
    }

    /// Sets it to fire `after` from now, whatever it was set to before.
    pub fn arm(&mut self, after: Duration) {
        self.rearm(after);
    }

    /// The same. Returns whether it fires at another instant than before: a waiter asks its limit whenever it is polled, and arms
    /// its timer anew with what is left of the same wait.
    pub(crate) fn rearm(&mut self, after: Duration) -> bool {
        let due = instant() + after.min(FAR_AHEAD);
        let set = self.due;
        let is_same = set.is_some_and(|set| set.max(due) - set.min(due) < SAME);
        if !is_same {
            self.due = Some(due);
            self.was_polled = false;
        }
        !is_same
    }

    /// Stops it: it wakes no task any more.
    pub fn disarm(&mut self) {
        if self.due.take().is_some() {
            #[cfg(all(feature = "precise", target_os = "linux"))]
            self.kernel.end(instant);
            self.wheel.disarm();
        }
    }

    /// Ready once the time it was set to has come, or when it is not armed.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the caller stops polling: the timer is ready at the first poll after its due instant.
    ///
    /// # Panics
    ///
    /// If it has to wait outside a tokio runtime, or in one built without `enable_time`.
    pub fn poll_elapsed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(due) = self.due else {
            return Poll::Ready(());
        };
        // A wait that is over at its first poll costs some of the task's budget, or a loop of such waits would never yield.
        // The other polls ask for no budget. A stream that is always ready may have used it up, and the timer could starve.
        let is_first_poll = !core::mem::replace(&mut self.was_polled, true);
        let budget = if is_first_poll {
            Some(ready!(poll_proceed(cx)))
        } else {
            None
        };
        ready!(self.poll_until(due, cx));
        if let Some(budget) = budget {
            budget.made_progress();
        }
        self.due = None;
        Poll::Ready(())
    }

    fn poll_until(&mut self, due: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let now = instant();
        if now >= due {
            #[cfg(all(feature = "precise", target_os = "linux"))]
            self.kernel.end(|| now);
            return Poll::Ready(());
        }
        #[cfg(all(feature = "precise", target_os = "linux"))]
        if self.resolution == Resolution::Exact {
            if let Some(elapsed) = self.kernel.poll_until(due, now, cx) {
                return elapsed;
            }
        }
        self.wheel.poll_until(due, now, cx)
    }

    fn home(&self) -> Option<Id> {
        #[cfg(all(feature = "precise", target_os = "linux"))]
        if let Some(home) = self.kernel.home() {
            return Some(home);
        }
        self.wheel.home()
    }
}
