use core::fmt;

use metrics::{Counter, Histogram, SharedString, counter, histogram};

use super::{Event, Observer};

/// An observer that counts in the [`metrics`](https://docs.rs/metrics) facade. Feature `metrics`.
///
/// | metric | labels | |
/// |---|---|---|
/// | `paceline_requests_total` | `limit`, `outcome`: `passed`, `refused`, `too_costly`, `gave_up` | counter |
/// | `paceline_permits_total` | `limit` | counter: the costs of what passed |
/// | `paceline_wait_seconds` | `limit` | histogram: how long the requests that passed were queued |
///
/// The recorder has to be installed before it is built.
///
/// ```
/// use paceline::limiter::{Metrics, Observed, PolicyExt};
/// use paceline::policy::Interval;
/// use std::time::Duration;
///
/// let limit = Interval::every(Duration::from_millis(50)).shared();
/// let limit = Observed::new(limit, Metrics::new("sms"));
/// # let _ = limit;
/// ```
#[derive(Clone)]
pub struct Metrics {
    passed: Counter,
    refused: Counter,
    too_costly: Counter,
    gave_up: Counter,
    permits: Counter,
    wait: Histogram,
}

impl Metrics {
    /// Counts for the limit of this name.
    pub fn new(limit: impl Into<SharedString>) -> Self {
        let limit = limit.into();
        let requests = |outcome: &'static str| {
            let limit = limit.clone();
            counter!("paceline_requests_total", "limit" => limit, "outcome" => outcome)
        };
        Self {
            passed: requests("passed"),
            refused: requests("refused"),
            too_costly: requests("too_costly"),
            gave_up: requests("gave_up"),
            permits: counter!("paceline_permits_total", "limit" => limit.clone()),
            wait: histogram!("paceline_wait_seconds", "limit" => limit.clone()),
        }
    }
}

impl Observer for Metrics {
    fn observe(&mut self, event: Event) {
        match event {
            Event::Passed { cost, waited } => {
                self.passed.increment(1);
                self.permits.increment(u64::from(cost));
                self.wait.record(waited);
            }
            Event::Refused { .. } => self.refused.increment(1),
            Event::TooCostly { .. } => self.too_costly.increment(1),
            Event::GaveUp { .. } => self.gave_up.increment(1),
        }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}
