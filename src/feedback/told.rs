//! What is said of one limit; of two answers the more careful one is kept.

use core::cmp::Reverse;
use core::time::Duration;

use super::wait::When;

#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) family: &'static str,
    pub(super) name: String,
    /// Whether it counts requests, and not tokens or bytes.
    pub(super) is_of_requests: bool,
    quota: Option<u64>,
    window: Option<Duration>,
    remaining: Option<u64>,
    pub(super) reset: Latest,
}

impl Told {
    pub(super) fn new(family: &'static str, name: &str, is_of_requests: bool) -> Self {
        Self {
            family,
            name: name.to_owned(),
            is_of_requests,
            quota: None,
            window: None,
            remaining: None,
            reset: Latest::default(),
        }
    }

    pub(super) fn quota(&self) -> Option<u64> {
        self.quota
    }

    pub(super) fn remaining(&self) -> Option<u64> {
        self.remaining
    }

    /// How long a window is, if nothing remains of it.
    pub(super) fn exhausted_window(&self) -> Option<Duration> {
        self.window.filter(|_| self.is_exhausted())
    }

    /// When it is whole again, if nothing remains.
    pub(super) fn exhausted_for(&self, now: Duration) -> Option<Duration> {
        self.reset.from(now).filter(|_| self.is_exhausted())
    }

    /// The least one is used up first.
    pub(super) fn used_up(&self, now: Duration) -> impl Ord + use<> {
        (
            self.remaining.unwrap_or(u64::MAX),
            Reverse(self.reset.from(now)),
        )
    }

    pub(super) fn hear_quota(&mut self, quota: u64) {
        self.quota = Some(self.quota.map_or(quota, |known| known.min(quota)));
    }

    pub(super) fn hear_remaining(&mut self, remaining: u64) {
        self.remaining = Some(
            self.remaining
                .map_or(remaining, |known| known.min(remaining)),
        );
    }

    pub(super) fn hear_window(&mut self, window: Duration) {
        self.window = self.window.max(Some(window));
    }

    fn is_exhausted(&self) -> bool {
        self.remaining == Some(0)
    }
}

/// The latest of some instants, before it is known what time it is there.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Latest {
    after: Option<Duration>,
    at: Option<Duration>,
}

impl Latest {
    pub(super) fn hear(&mut self, when: When) {
        match when {
            When::In(after) => self.after = self.after.max(Some(after)),
            When::At(at) => self.at = self.at.max(Some(at)),
        }
    }

    /// How long it is until then. What is over is no wait.
    pub(super) fn from(&self, now: Duration) -> Option<Duration> {
        self.after.max(self.at.map(|at| at.saturating_sub(now)))
    }
}
