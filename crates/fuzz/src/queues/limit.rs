use std::convert::Infallible;
use std::time::Duration;

use paceline::limiter::future::AcquireWithin;
use paceline::limiter::{Keyed, KeyedAt, Limiter, Limits, PolicyExt, Shared, Stats, Switched};
use paceline::policy::Decision;

use crate::dice::Tunable;

/// A limit with a queue for each key.
pub(super) trait Limit<P: Tunable>: Clone + Sized + 'static {
    const KEYS: usize;

    /// The limit of one key.
    type At: Limiter<Error = Infallible> + Clone + Unpin + 'static;

    /// With room for at most `max` keys.
    fn new(policy: P, max: Option<usize>) -> Self;

    fn handle(&self, key: usize) -> Self::At;

    fn switched_at(switched: &Switched<Self>, key: usize) -> Switched<Self::At>;

    fn acquire_within(&self, key: usize, cost: u32, within: Duration) -> AcquireWithin<Self::At>;

    fn try_acquire(&self, key: usize, cost: u32) -> Decision;

    fn peek(&self, key: usize, cost: u32) -> Decision;

    fn with(&self, key: usize, change: impl FnOnce(&Shared<P>));

    fn stats(&self) -> Stats;

    /// How many keys there are.
    fn len(&self) -> usize;
}

impl<P: Tunable> Limit<P> for Shared<P> {
    const KEYS: usize = 1;

    type At = Self;

    fn new(policy: P, _: Option<usize>) -> Self {
        policy.shared()
    }

    fn handle(&self, _: usize) -> Self {
        self.clone()
    }

    fn switched_at(switched: &Switched<Self>, _: usize) -> Switched<Self> {
        switched.clone()
    }

    fn acquire_within(&self, _: usize, cost: u32, within: Duration) -> AcquireWithin<Self> {
        self.acquire_within(cost, within)
    }

    fn try_acquire(&self, _: usize, cost: u32) -> Decision {
        self.try_acquire(cost)
    }

    fn peek(&self, _: usize, cost: u32) -> Decision {
        self.peek(cost)
    }

    fn with(&self, _: usize, change: impl FnOnce(&Self)) {
        change(self);
    }

    fn stats(&self) -> Stats {
        self.stats()
    }

    fn len(&self) -> usize {
        1
    }
}

impl<P: Tunable> Limit<P> for Keyed<usize, P> {
    const KEYS: usize = 6;

    type At = KeyedAt<usize, P>;

    fn new(policy: P, max: Option<usize>) -> Self {
        match max {
            Some(max) => policy.keyed().with_max_keys(max),
            None => policy.keyed(),
        }
    }

    fn handle(&self, key: usize) -> Self::At {
        self.at(key)
    }

    fn switched_at(switched: &Switched<Self>, key: usize) -> Switched<Self::At> {
        let Ok(limit) = switched.at(key);
        limit
    }

    fn acquire_within(&self, key: usize, cost: u32, within: Duration) -> AcquireWithin<Self::At> {
        self.acquire_within(key, cost, within)
    }

    fn try_acquire(&self, key: usize, cost: u32) -> Decision {
        self.try_acquire(&key, cost)
    }

    fn peek(&self, key: usize, cost: u32) -> Decision {
        self.peek(&key, cost)
    }

    fn with(&self, key: usize, change: impl FnOnce(&Shared<P>)) {
        self.with(&key, change);
    }

    fn stats(&self) -> Stats {
        self.stats()
    }

    fn len(&self) -> usize {
        self.len()
    }
}
