#![expect(
    clippy::disallowed_methods,
    reason = "the rest of the crate reads the clock through this file"
)]

use core::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::time::Instant;

use super::Tick;

/// The only reader of time: tokio's clock, as [`Tick`]s since its first reading.
///
/// It can be built outside a runtime and in a `static`, and reads the time only in [`now`](Self::now). While tokio's clock is
/// paused, its readings are equal.
///
/// ```
/// use paceline::time::{Clock, Tick};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let mut clock = Clock::new();
/// assert_eq!(clock.now(), Tick::ZERO);
///
/// tokio::time::sleep(Duration::from_millis(3)).await;
/// assert_eq!(clock.now(), Tick::from_nanos(3_000_000));
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Clock {
    epoch: Option<Instant>,
}

impl Clock {
    /// A clock that has not been read yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { epoch: None }
    }

    /// The current time. The first reading is [`Tick::ZERO`].
    ///
    /// Readings never go back while the clock stays in one runtime.
    #[inline]
    pub fn now(&mut self) -> Tick {
        let now = instant();
        let epoch = *self.epoch.get_or_insert(now);
        Tick::ZERO.after(now.saturating_duration_since(epoch))
    }

    /// The instant of a tick, once the clock has started; at most 100 years after that.
    pub(crate) fn instant_of(&self, tick: Tick) -> Instant {
        let since = tick
            .since(Tick::ZERO)
            .min(Duration::from_secs(100 * 365 * 86_400));
        self.epoch.unwrap_or_else(instant) + since
    }

    /// An earlier reading of tokio's clock as a tick; [`Tick::ZERO`] if it was before the first reading of this clock.
    pub(crate) fn tick_of(&self, instant: Instant) -> Tick {
        let since = self
            .epoch
            .map(|epoch| instant.saturating_duration_since(epoch));
        Tick::ZERO.after(since.unwrap_or_default())
    }
}

/// The time since 1970, for what other machines know too: dates, and times in metrics. It may go back.
#[expect(
    clippy::disallowed_types,
    reason = "a clock of this process means nothing elsewhere"
)]
pub(crate) fn since_1970() -> Duration {
    use std::time::SystemTime;

    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default()
}

/// The longest wait: thirty years. `Instant` has no room for `Duration::MAX`.
pub(crate) const FAR_AHEAD: Duration = Duration::from_secs(30 * 365 * 86_400);

/// Fails where `Instant::now` would: in a constant while the program is compiled, and otherwise with words that say what to do.
#[track_caller]
pub(crate) const fn require_clock() {
    #[cfg(all(target_family = "wasm", target_os = "unknown"))]
    panic!(
        "the limits of paceline need a clock, and wasm32-unknown-unknown has none: give times of your own to a `Policy`, \
         or build for wasm32-wasip1"
    );
}

/// A reading of tokio's clock as tokio's type, for timers and for what callers hold.
#[inline]
pub(crate) fn instant() -> Instant {
    require_clock();
    Instant::now()
}

/// Whether tokio's clock shows the real time. It does not while it is paused, nor after it was paused, since it lags then.
#[expect(
    clippy::disallowed_types,
    reason = "there is no other way to see that tokio's clock is paused"
)]
pub(crate) fn is_real() -> bool {
    let before = std::time::Instant::now();
    let now = Instant::now().into_std();
    before <= now && now <= std::time::Instant::now()
}

/// The runtime in which this is called, if there is one.
pub(crate) fn this_runtime() -> Option<Id> {
    Handle::try_current().ok().map(|handle| handle.id())
}
