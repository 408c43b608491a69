use tracing::{debug, info};

use super::{Event, Observer};

/// An observer that writes [`tracing`](https://docs.rs/tracing) events. Feature `tracing`.
///
/// The target is `paceline`. Request outcomes: `DEBUG`. Changes of the limit (a pause, other parameters): `INFO`. The fields are
/// `limit`, `cost`, `waited`, `retry_in`, `capacity`, `duration`, `count` and `permits` where they apply; durations as they are
/// printed (`1.5s`).
///
/// ```
/// use paceline::limiter::{PolicyExt, TracingObserver};
/// use paceline::policy::Interval;
/// use std::time::Duration;
///
/// let limit = Interval::every(Duration::from_millis(50)).shared();
/// let limit = limit.with_observer(TracingObserver::new("sms"));
/// # let _ = limit;
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TracingObserver {
    limit: &'static str,
}

impl TracingObserver {
    /// Writes of the limit of this name.
    #[must_use]
    pub const fn new(limit: &'static str) -> Self {
        Self { limit }
    }
}

impl Observer for TracingObserver {
    fn observe(&mut self, event: Event) {
        Observer::observe(&mut &*self, event);
    }
}

/// For a limit that carries its observer.
impl Observer for &TracingObserver {
    fn observe(&mut self, event: Event) {
        let limit = self.limit;
        match event {
            Event::Passed { cost, waited } => {
                debug!(target: "paceline", limit, cost, ?waited, "passed");
            }
            Event::Shadowed { cost, retry_in, .. } => {
                debug!(target: "paceline", limit, cost, retry_in = retry_in.map(tracing::field::debug), "passed in shadow mode");
            }
            Event::Refused { cost, retry_in } => {
                debug!(target: "paceline", limit, cost, ?retry_in, "refused");
            }
            Event::TooCostly { cost, capacity } => {
                debug!(target: "paceline", limit, cost, capacity, "too costly");
            }
            Event::GaveUp { waited } => debug!(target: "paceline", limit, ?waited, "gave up"),
            Event::Paused { duration } => info!(target: "paceline", limit, ?duration, "paused"),
            Event::FeedbackApplied { pause } => {
                info!(target: "paceline", limit, duration = ?pause, "paused by feedback");
            }
            Event::Resumed => info!(target: "paceline", limit, "resumed"),
            Event::Retuned => info!(target: "paceline", limit, "retuned"),
            Event::Released { count } => debug!(target: "paceline", limit, count, "released"),
            Event::Resized { limit: permits } => {
                info!(target: "paceline", limit, permits, "resized");
            }
        }
    }
}
