use core::fmt;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::error::{AcquireError, ConfigError};
use super::keeper::Keeper;
use super::key::tagged;
use super::limit::Limit;
use super::plan::Plan;
use super::remote::RedisLimiter;
use super::twin::RedisPolicy;
use crate::policy::Decision;

/// So many keys are remembered at most, unless they are in use.
const REMEMBERED: usize = 100_000;

/// A limit in Redis for each key: each user, host, connection.
///
/// Made by [`Redis::keyed`](super::Redis::keyed). Keys share nothing. What this process remembers of a key (who waits, until
/// when nothing can pass) is forgotten when nobody uses it and there are too many; what is in Redis is not touched by that, and
/// goes by itself when it has settled. A key that finds no room here is limited in Redis like any other; but while Redis is down
/// an [insurance](super::OutagePolicy::insured) lets nothing of it pass.
pub struct Keyed<P: RedisPolicy> {
    keeper: Arc<Keeper>,
    plan: Arc<Plan<P>>,
    prefix: Arc<str>,
    limits: Arc<Mutex<Limits<P>>>,
}

#[derive(Debug)]
struct Limits<P: RedisPolicy> {
    known: HashMap<String, Arc<Limit<P>>>,
    /// So many more come without room before it is looked for again.
    looks_after: usize,
}

/// To look for room is to look at all of them.
const BETWEEN_LOOKS: usize = REMEMBERED / 100;

impl<P: RedisPolicy> Keyed<P> {
    pub(super) fn new(keeper: Arc<Keeper>, plan: Arc<Plan<P>>, prefix: String) -> Self {
        Self {
            keeper,
            plan,
            prefix: prefix.into(),
            limits: Arc::new(Mutex::new(Limits {
                known: HashMap::new(),
                looks_after: 0,
            })),
        }
    }

    /// The limit of that key.
    ///
    /// # Errors
    ///
    /// If the key is empty or longer than 200 bytes.
    pub fn at(&self, key: &str) -> Result<RedisLimiter<P>, ConfigError> {
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(limit) = limits.known.get(key) {
            return Ok(RedisLimiter::new(Arc::clone(limit)));
        }
        let name = tagged(&self.prefix, key)?;
        let limit = Limit::new(Arc::clone(&self.keeper), Arc::clone(&self.plan), &name);
        if !limits.has_room() {
            return Ok(RedisLimiter::new(Arc::new(limit.one_of_many())));
        }
        let limit = Arc::new(limit);
        limits.known.insert(key.to_owned(), Arc::clone(&limit));
        Ok(RedisLimiter::new(limit))
    }

    /// Asks whether `cost` permits of that key may pass now, and counts them if so.
    ///
    /// # Errors
    ///
    /// If the key is empty or longer than 200 bytes, or the server refuses to answer.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub async fn try_acquire(&self, key: &str, cost: u32) -> Result<Decision, AcquireError> {
        Ok(self.at(key)?.try_acquire(cost).await?)
    }

    /// How many keys this process remembers.
    #[must_use]
    pub fn remembered(&self) -> usize {
        self.limits
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .known
            .len()
    }
}

impl<P: RedisPolicy> Limits<P> {
    /// Forgets those that nobody uses, where there are too many.
    fn has_room(&mut self) -> bool {
        if self.known.len() < REMEMBERED {
            return true;
        }
        if self.looks_after > 0 {
            self.looks_after -= 1;
            return false;
        }
        self.known
            .retain(|_, limit| Arc::strong_count(limit) > 1 || !limit.is_idle());
        self.looks_after = BETWEEN_LOOKS;
        self.known.len() < REMEMBERED
    }
}

impl<P: RedisPolicy> Clone for Keyed<P> {
    fn clone(&self) -> Self {
        Self {
            keeper: Arc::clone(&self.keeper),
            plan: Arc::clone(&self.plan),
            prefix: Arc::clone(&self.prefix),
            limits: Arc::clone(&self.limits),
        }
    }
}

/// Without the keys: they may be secret, and they may be many.
impl<P: RedisPolicy> fmt::Debug for Keyed<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyed")
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}
