//! Log lines that a client can provoke.

use std::time::Duration;

use paceline::limiter::Shared;
use paceline::policy::Interval;

/// Complaints that a client could provoke are logged once a second.
#[derive(Debug)]
pub(crate) struct Complaints(Shared<Interval>);

impl Complaints {
    pub(crate) fn may_be_logged(&self) -> bool {
        self.0.try_acquire(1).is_pass()
    }
}

impl Default for Complaints {
    fn default() -> Self {
        Self(Shared::new(Interval::every(Duration::from_secs(1))))
    }
}
