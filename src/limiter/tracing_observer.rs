use tracing::debug;

use super::{Event, Observer};

/// An observer that writes [`tracing`](https://docs.rs/tracing) events. Feature `tracing`.
///
/// They are of level `DEBUG` and target `paceline`, with the fields `limit`, `cost`, `waited`, `retry_in` and `capacity` where
/// they apply; durations as they are printed (`1.5s`).
///
/// ```
/// use paceline::limiter::{Observed, PolicyExt, TracingObserver};
/// use paceline::policy::Interval;
/// use std::time::Duration;
///
/// let limit = Interval::every(Duration::from_millis(50)).shared();
/// let limit = Observed::new(limit, TracingObserver::new("sms"));
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
        let limit = self.limit;
        match event {
            Event::Passed { cost, waited } => {
                debug!(target: "paceline", limit, cost, ?waited, "passed");
            }
            Event::Refused { cost, retry_in } => {
                debug!(target: "paceline", limit, cost, ?retry_in, "refused");
            }
            Event::TooCostly { cost, capacity } => {
                debug!(target: "paceline", limit, cost, capacity, "too costly");
            }
            Event::GaveUp { waited } => debug!(target: "paceline", limit, ?waited, "gave up"),
        }
    }
}
