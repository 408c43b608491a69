use core::task::{Context, Poll, ready};
use core::time::Duration;

use tokio::runtime::Id;
use tokio::time::Instant;

use super::clock::instant;
use super::coarse::Coarse;
use super::here::{FAR_AHEAD, this_runtime};
#[cfg(all(feature = "precise", target_os = "linux"))]
use super::{clock::is_real, precise::Precise};

/// The only sleeper: never early, and hardly ever as late as a plain `tokio::time::sleep`.
///
/// tokio's timers have a grid of one millisecond and round up, so that a plain sleep of 1 ms takes 2 ms more often than
/// not. This one asks for the grid point at or before its due instant and sleeps what is left. On tokio's paused clock a
/// timer set to a whole millisecond fires exactly then, any other at the next whole millisecond.
///
/// With feature `precise` it can be had to the microsecond: see `precise`.
///
/// It takes memory (one box) when it is first armed, and is reset in place from then on. A timer that is not armed costs
/// nothing and wakes nobody.
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
#[derive(Debug)]
pub struct Timer {
    due: Option<Instant>,
    coarse: Coarse,
    #[cfg(all(feature = "precise", target_os = "linux"))]
    precise: Option<Precise>,
}

impl Timer {
    /// A timer that is not armed. It can be built outside a runtime.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            due: None,
            coarse: Coarse::new(),
            #[cfg(all(feature = "precise", target_os = "linux"))]
            precise: None,
        }
    }

    /// The same, to the microsecond (feature `precise`): for intervals of less than ten milliseconds.
    ///
    /// On Linux a timer of the kernel wakes it a little early, and it asks for the time again and again until that has come:
    /// it is never early either, and in the median a tenth of a microsecond late, after 10 ms and more some microseconds. How much
    /// earlier follows from how late the wake-ups are on this machine: so much that of waits below 900 µs nineteen of twenty are
    /// in time, of those up to 3.6 ms three of four, up to 7.2 ms every other and of longer ones one in three; and 100 µs at most,
    /// of waits from 1.8 ms on 200 µs, up to 800 µs from 7.2 ms on. All precise timers of a runtime share one timer of the kernel,
    /// and a small task that listens to it for as long as there are any; while nobody waits, both sleep.
    ///
    /// What it costs: about as much CPU a wait as tokio's own sleep, some 25 µs where that was measured. So a stream of one item
    /// each millisecond takes 2.5 % of a core, at 100 µs it takes a quarter, and from about 50 µs down it keeps a core busy: waits
    /// that are shorter than the early wake-up are passed with asking alone. Between two questions other tasks have their turn; the
    /// last 5 µs are waited on the spot.
    ///
    /// It waits as any other timer on tokio's paused clock, on other systems than Linux, and while the process may open no more
    /// files. A wait that has begun when the clock is paused notices that when it would have been over.
    ///
    /// ```
    /// use core::future::poll_fn;
    /// use paceline::time::Timer;
    /// use std::time::{Duration, Instant};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let start = Instant::now();
    /// let mut timer = Timer::new().precise();
    ///
    /// timer.arm(Duration::from_micros(250));
    /// poll_fn(|cx| timer.poll_elapsed(cx)).await;
    /// assert!(start.elapsed() >= Duration::from_micros(250));
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// Not this, but to wait: outside a tokio runtime, or in one built without `enable_io`.
    #[cfg(feature = "precise")]
    #[must_use]
    #[cfg_attr(
        not(target_os = "linux"),
        expect(unused_mut, reason = "there is no other timer")
    )]
    pub fn precise(mut self) -> Self {
        #[cfg(all(feature = "precise", target_os = "linux"))]
        self.precise.get_or_insert_with(Precise::new);
        self
    }

    /// A timer that is not armed, and has its memory already.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, or in one built without `enable_time`.
    #[must_use]
    pub fn of_this_runtime() -> Self {
        Self::new().settled_here()
    }

    pub(crate) fn settled_here(mut self) -> Self {
        self.coarse.prepare();
        self
    }

    /// Whether it belongs to the runtime in which this is called. One that does not moves when it is armed or polled, and
    /// in the runtime that it came from nobody is woken any more.
    #[must_use]
    pub fn is_of_this_runtime(&self) -> bool {
        let home = self.home();
        home.is_some() && home == this_runtime()
    }

    /// Sets it to fire `after` from now. Whatever it was set to before is forgotten.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, or in one built without `enable_time`, when it is armed for the first time. (A precise one when
    /// it is polled.)
    pub fn arm(&mut self, after: Duration) {
        let now = instant();
        let after = after.min(FAR_AHEAD);
        self.due = Some(now + after);
        #[cfg(all(feature = "precise", target_os = "linux"))]
        if self.precise.is_some() && is_real() {
            return;
        }
        self.coarse.arm(now, after);
    }

    fn home(&self) -> Option<Id> {
        #[cfg(all(feature = "precise", target_os = "linux"))]
        if let Some(home) = self.precise.as_ref().and_then(Precise::home) {
            return Some(home);
        }
        self.coarse.home()
    }

    pub(crate) const fn is_armed(&self) -> bool {
        self.due.is_some()
    }

    /// Nobody waits for it any more, and it wakes nobody.
    pub fn disarm(&mut self) {
        if self.due.take().is_some() {
            #[cfg(all(feature = "precise", target_os = "linux"))]
            self.precise.iter_mut().for_each(Precise::forget);
            self.coarse.disarm();
        }
    }

    /// Ready once the time it was set to has come, or when it is not armed.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost while nobody polls it: it is ready at the first poll after its due instant.
    pub fn poll_elapsed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(due) = self.due else {
            return Poll::Ready(());
        };
        ready!(self.poll_until(due, cx));
        self.due = None;
        Poll::Ready(())
    }

    fn poll_until(&mut self, due: Instant, cx: &mut Context<'_>) -> Poll<()> {
        #[cfg(all(feature = "precise", target_os = "linux"))]
        if let Some(precise) = &mut self.precise {
            if let Some(answer) = precise.poll_until(due, cx) {
                return answer;
            }
        }
        self.coarse.poll_until(due, cx)
    }
}

impl Default for Timer {
    fn default() -> Self {
        Self::new()
    }
}
