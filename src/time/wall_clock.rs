use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use super::clock::{instant, since_1970};

/// The time that other machines know too, as the time since 1 January 1970 in UTC: for limits that begin on the hour or at
/// midnight.
///
/// A [`Clock`](super::Clock) measures how long something takes and never goes back. A wall clock says which day it is. It may
/// be set back or forward, and it may run slower or faster for a while.
///
/// [`AlignedWindow`](crate::policy::AlignedWindow) reads it when a window begins and when it ends, with the limit locked: a
/// reading must be quick and must not use the limit.
///
/// ```
/// use paceline::time::WallClock;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let new_year = Duration::from_secs(1_767_225_600); // 2026
/// let clock = WallClock::starting_at(new_year);
/// assert_eq!(clock.now(), new_year);
///
/// tokio::time::sleep(Duration::from_secs(3_600)).await;
/// assert_eq!(clock.now(), new_year + Duration::from_secs(3_600));
/// # }
/// ```
#[derive(Clone, Default)]
#[doc(alias("SystemTime", "UTC", "TimeMeter"))]
pub struct WallClock {
    /// `None` is the clock of the system.
    read: Option<Arc<Read>>,
}

type Read = dyn Fn() -> Duration + Send + Sync;

impl WallClock {
    /// The clock of the system. It does not follow tokio's paused clock.
    #[must_use]
    pub const fn system() -> Self {
        Self { read: None }
    }

    /// A clock of its own: `read` returns the time since 1970 in UTC, for example by the clock of a server that counts.
    ///
    /// ```
    /// use paceline::time::WallClock;
    /// use std::time::Duration;
    ///
    /// let ahead = WallClock::new(|| WallClock::system().now() + Duration::from_secs(2));
    /// assert!(ahead.now() > WallClock::system().now());
    /// ```
    #[must_use]
    pub fn new(read: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self {
            read: Some(Arc::new(read)),
        }
    }

    /// A clock that shows `since_1970` now and goes on with tokio's clock, for tests on tokio's paused clock.
    ///
    /// Create it in the runtime of the test: another runtime may have another clock.
    #[must_use]
    pub fn starting_at(since_1970: Duration) -> Self {
        let start = instant();
        Self::new(move || since_1970.saturating_add(instant().saturating_duration_since(start)))
    }

    /// The time since 1970 in UTC.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.read.as_ref().map_or_else(since_1970, |read| read())
    }
}

/// The clock of the system equals itself. Another clock equals its clones.
impl PartialEq for WallClock {
    fn eq(&self, other: &Self) -> bool {
        match (&self.read, &other.read) {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl Eq for WallClock {}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.read.is_some() { "own" } else { "system" };
        f.debug_tuple("WallClock").field(&kind).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_equals_its_clones_and_no_other() {
        let noon = || Duration::from_secs(43_200);
        let own = WallClock::new(noon);
        assert_eq!(own.now(), noon());
        assert_eq!(own, own.clone());
        assert_ne!(own, WallClock::new(noon));
        assert_ne!(own, WallClock::system());
        assert_eq!(WallClock::default(), WallClock::system());
        assert_eq!(format!("{own:?}"), "WallClock(\"own\")");
    }

    #[test]
    fn the_clock_of_the_system_shows_at_least_the_year_2024() {
        assert!(WallClock::system().now() > Duration::from_secs(1_704_067_200));
    }
}
