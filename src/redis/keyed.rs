use core::fmt;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::policy::Decision;
use crate::remote::{Batcher, KeyQueue};

use super::config::{Config, keys, tagged};
use super::connector::Connector;
use super::error::{AcquireError, ConfigError};
use super::limiter::RedisLimiter;
use super::policy::RedisPolicy;
use super::store::RedisLimit;

/// How many keys are remembered. Keys in use may be more.
const REMEMBERED: usize = 100_000;

/// Evicting checks every key, so after it this many new keys come without a place before the next eviction.
const BETWEEN_EVICTIONS: usize = REMEMBERED / 100;

/// A limit in Redis for each key: each user, host, connection.
///
/// Made by [`Redis::keyed`](super::Redis::keyed). Keys share nothing. What this process remembers of a key (its queue, and until
/// when requests are denied) is evicted when there are too many keys and the key is not in use. The state in Redis stays, and
/// expires when it has settled. A key that finds no place in memory is limited in Redis like any other, but while Redis is down
/// an [insurance](super::OutagePolicy::insured) lets nothing of it pass.
#[derive(Clone)]
pub struct Keyed<P: RedisPolicy> {
    batcher: Arc<Batcher<Connector>>,
    config: Config<P>,
    prefix: Arc<str>,
    cache: Arc<Mutex<KeyCache<P>>>,
}

#[derive(Debug)]
struct KeyCache<P: RedisPolicy> {
    queues: HashMap<String, Arc<KeyQueue<P, Connector>>>,
    /// How many more keys come without a place before the next eviction.
    evicts_after: usize,
}

impl<P: RedisPolicy> Keyed<P> {
    pub(super) fn new(batcher: Arc<Batcher<Connector>>, config: Config<P>, prefix: String) -> Self {
        Self {
            batcher,
            config,
            prefix: prefix.into(),
            cache: Arc::new(Mutex::new(KeyCache {
                queues: HashMap::new(),
                evicts_after: 0,
            })),
        }
    }

    /// The limit of that key.
    ///
    /// # Errors
    ///
    /// If the key is empty or longer than 200 bytes.
    pub fn at(&self, key: &str) -> Result<RedisLimiter<P>, ConfigError> {
        let mut cache = self.locked();
        if let Some(queue) = cache.queues.get(key) {
            return Ok(RedisLimiter::new(Arc::clone(queue)));
        }
        let (config, params) = self.config.clone();
        let keys = keys(&params, &tagged(&self.prefix, key)?);
        let has_place = cache.has_place();
        let limit = RedisLimit { keys, params };
        let queue = KeyQueue::new(Arc::clone(&self.batcher), config, limit, !has_place);
        let queue = Arc::new(queue);
        if has_place {
            cache.queues.insert(key.to_owned(), Arc::clone(&queue));
        }
        Ok(RedisLimiter::new(queue))
    }

    /// Asks whether `cost` permits of that key may pass now, and counts them if so.
    ///
    /// # Errors
    ///
    /// If the key is empty or longer than 200 bytes, or the server refuses the call.
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
        self.locked().queues.len()
    }

    fn locked(&self) -> MutexGuard<'_, KeyCache<P>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: RedisPolicy> KeyCache<P> {
    /// Evicts keys that are not in use if there are too many.
    fn has_place(&mut self) -> bool {
        if self.queues.len() < REMEMBERED {
            return true;
        }
        if self.evicts_after > 0 {
            self.evicts_after -= 1;
            return false;
        }
        self.queues
            .retain(|_, queue| Arc::strong_count(queue) > 1 || !queue.is_idle());
        self.evicts_after = BETWEEN_EVICTIONS;
        self.queues.len() < REMEMBERED
    }
}

/// Without the keys, which may be secret and many.
impl<P: RedisPolicy> fmt::Debug for Keyed<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyed")
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}
