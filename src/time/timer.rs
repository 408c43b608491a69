use core::task::{Context, Poll, ready};
use core::time::Duration;

use tokio::runtime::Id;
use tokio::time::Instant;

use super::Resolution;
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
/// With feature `precise`, which is a default feature, it waits to the microsecond where it can: see [`Resolution`].
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
    resolution: Resolution,
    coarse: Coarse,
    #[cfg(all(feature = "precise", target_os = "linux"))]
    precise: Precise,
}

impl Timer {
    /// A timer that is not armed. It can be built outside a runtime.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            due: None,
            resolution: Resolution::Exact,
            coarse: Coarse::new(),
            #[cfg(all(feature = "precise", target_os = "linux"))]
            precise: Precise::new(),
        }
    }

    /// The same timer with another resolution.
    #[must_use]
    pub const fn with_resolution(mut self, resolution: Resolution) -> Self {
        self.resolution = resolution;
        self
    }

    /// Every timer is precise. Until the adapters' own methods of this name are gone.
    #[doc(hidden)]
    #[must_use]
    pub const fn precise(self) -> Self {
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
    /// Outside a tokio runtime, or in one built without `enable_time`, when it is armed for the first time.
    pub fn arm(&mut self, after: Duration) {
        let now = instant();
        let after = after.min(FAR_AHEAD);
        self.due = Some(now + after);
        #[cfg(all(feature = "precise", target_os = "linux"))]
        if self.resolution == Resolution::Exact && is_real() {
            return;
        }
        self.coarse.arm(now, after);
    }

    fn home(&self) -> Option<Id> {
        #[cfg(all(feature = "precise", target_os = "linux"))]
        if let Some(home) = self.precise.home() {
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
            self.precise.forget();
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
        if self.resolution == Resolution::Exact {
            if let Some(answer) = self.precise.poll_until(due, cx) {
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
