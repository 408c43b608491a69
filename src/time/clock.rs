#![expect(
    clippy::disallowed_methods,
    reason = "this is the door to the clock that everybody else goes through"
)]

use tokio::time::Instant;

use super::Tick;

/// The only reader of time: tokio's clock, as [`Tick`]s since its first reading.
///
/// It can be built anywhere, outside a runtime and in a `static` too, and does not look at the time before it is asked.
/// Under tokio's paused clock it stands still with it.
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
    /// A clock that has not been looked at yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { epoch: None }
    }

    /// What time it is. The first reading is [`Tick::ZERO`].
    ///
    /// Readings never go back while the clock stays in one runtime.
    #[inline]
    pub fn now(&mut self) -> Tick {
        let now = Instant::now();
        let epoch = *self.epoch.get_or_insert(now);
        Tick::ZERO.after(now.saturating_duration_since(epoch))
    }
}

/// What tokio's clock says, for [`Timer`](super::Timer), which must speak tokio's language.
pub(super) fn instant() -> Instant {
    Instant::now()
}

/// Whether tokio's clock is the real one: a paused one, or one that ever was, stands still or lags behind.
#[expect(
    clippy::disallowed_types,
    reason = "there is no other way to see that tokio's clock is paused"
)]
pub(crate) fn is_real() -> bool {
    let before = std::time::Instant::now();
    let now = Instant::now().into_std();
    before <= now && now <= std::time::Instant::now()
}
