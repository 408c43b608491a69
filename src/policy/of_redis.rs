//! What a twin in Redis has to know of a policy, and nobody else.

use super::sliding_counter::Kind;
use super::{Interval, SlidingCounter, TokenBucket};

impl TokenBucket {
    pub(crate) const fn starts_empty(&self) -> bool {
        self.starts_empty
    }

    pub(crate) const fn may_owe(&self) -> bool {
        self.may_owe
    }
}

impl Interval {
    pub(crate) const fn is_delayed(&self) -> bool {
        self.delayed
    }
}

impl SlidingCounter {
    /// How many; `None` for the smooth one.
    pub(crate) const fn buckets(&self) -> Option<u32> {
        match self.kind {
            Kind::Strict { buckets } => Some(buckets),
            Kind::Smooth => None,
        }
    }
}
