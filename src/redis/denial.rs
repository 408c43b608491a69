use core::time::Duration;

use crate::time::Tick;

use super::error::ServerError;

/// What costs no less than this one need not be asked for before then.
#[derive(Clone, Debug)]
pub(super) struct Denial {
    pub(super) until: Tick,
    pub(super) cost: u32,
    pub(super) by: By,
}

/// Who denied it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum By {
    Redis,
    /// The insurance, or since Redis is down.
    Alone,
    /// The server refuses to answer.
    Fault(ServerError),
}

impl Denial {
    /// How long nothing of that cost can pass.
    pub(super) fn wait(&self, now: Tick, cost: u32) -> Option<Duration> {
        (now < self.until && self.cost <= cost).then(|| self.until.since(now))
    }

    /// What the server said, for as long as it is not asked again.
    pub(super) fn fault(&self, now: Tick) -> Option<&ServerError> {
        match &self.by {
            By::Fault(fault) if now < self.until => Some(fault),
            By::Fault(_) | By::Redis | By::Alone => None,
        }
    }
}
