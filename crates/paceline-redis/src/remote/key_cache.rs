use core::hash::BuildHasher;
use std::collections::{HashMap, VecDeque};
use std::hash::RandomState;
use std::sync::Arc;

use paceline::time::Tick;

use super::cache::KeyRecord;
use super::health::ServerHealth;
use super::key_queue::KeyQueue;
use super::{RemotePolicy, Store};

/// This many queues stay complete even if their keys are not in use.
const COMPLETE: usize = 1_024;

/// Each new key looks at this many queues at most, and stops sooner when [`IN_USE`] of them are in use.
const LOOKS: usize = 128;

const IN_USE: usize = 2;

/// An eviction frees at least one place in this many, if that many keys are not in use.
const FREED: usize = 8;

/// If nothing could be evicted, one new key in this many places comes without a place before the next eviction.
const BETWEEN_EVICTIONS: usize = 100;

/// What this process knows of the keys of a limit. It lives behind a lock.
///
/// A key in use has a [`KeyQueue`]: it has handles, requests, a call under way, an insurance of the present outage, or a refusal
/// that was decided here. Of any other key only a [`KeyRecord`] stays. The cache holds one reference to each queue. A queue that
/// has no other is not in use, and stays so while the cache is locked, because a handle is made from another handle or by the
/// cache.
pub(crate) struct KeyCache<P: RemotePolicy, S: Store> {
    queues: HashMap<[u64; 2], Arc<KeyQueue<P, S>>>,
    /// The keys of the queues, in the order in which they are looked at. Some may be gone.
    round: VecDeque<[u64; 2]>,
    idle: HashMap<[u64; 2], KeyRecord<S::Memory>>,
    pub(crate) max: usize,
    /// How many more new keys get no place before the next eviction.
    evicts_after: usize,
    hashers: [RandomState; 2],
}

impl<P: RemotePolicy, S: Store> KeyCache<P, S> {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            queues: HashMap::new(),
            round: VecDeque::new(),
            idle: HashMap::new(),
            max,
            evicts_after: 0,
            hashers: [RandomState::new(), RandomState::new()],
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.queues.len() + self.idle.len()
    }

    /// The queue of the key, if it is in use or is complete.
    pub(crate) fn get(&self, key: &str) -> Option<Arc<KeyQueue<P, S>>> {
        self.queues.get(&self.fingerprint(key)).map(Arc::clone)
    }

    /// Adds a queue that was made for the key. If the key has another, the new one takes its place.
    ///
    /// A denial that is known of an idle key counts if `keeps_denial`.
    pub(crate) fn insert(
        &mut self,
        key: &str,
        mut queue: KeyQueue<P, S>,
        keeps_denial: bool,
    ) -> Arc<KeyQueue<P, S>> {
        let fingerprint = self.fingerprint(key);
        let connection = Arc::clone(&queue.batcher.connection);
        let (health, now) = (connection.health(), connection.now());
        self.look_around(health.down_since);
        if let Some(old) = self.queues.get(&fingerprint) {
            let queue = Arc::new(queue.replacing(old));
            self.queues.insert(fingerprint, Arc::clone(&queue));
            return queue;
        }
        if let Some(mut idle) = self.idle.remove(&fingerprint) {
            if !keeps_denial {
                idle.denied_until = Tick::ZERO;
                idle.scarcest = None;
            }
            queue.queue_mut().resume(idle);
        } else if !self.has_place(&health, now) {
            // It has no insurance, because this process may make another queue for the key.
            queue.queue_mut().is_duplicate = true;
            return Arc::new(queue);
        }
        let queue = Arc::new(queue);
        self.queues.insert(fingerprint, Arc::clone(&queue));
        self.round.push_back(fingerprint);
        queue
    }

    /// Forgets a key that is not in use.
    pub(crate) fn forget(&mut self, key: &str) {
        let fingerprint = self.fingerprint(key);
        if let Some(queue) = self.queues.get(&fingerprint) {
            let down_since = queue.batcher.connection.health().down_since;
            if queue.idle_record(down_since).is_some() {
                self.queues.remove(&fingerprint);
            }
        }
        self.idle.remove(&fingerprint);
    }

    /// Forgets every key that is not in use and has settled.
    pub(crate) fn forget_settled(&mut self, health: &ServerHealth, now: Tick) {
        self.evict_settled(health, now);
        self.queues.shrink_to_fit();
        self.round.shrink_to_fit();
        self.idle.shrink_to_fit();
    }

    /// 128 bits of a hash with a secret of this process. Of a billion keys, two have the same with a probability of 10⁻²¹, and
    /// a client cannot choose such keys.
    fn fingerprint(&self, key: &str) -> [u64; 2] {
        self.hashers.each_ref().map(|hasher| hasher.hash_one(key))
    }

    /// Looks at the next few queues, and removes those that are not in use. Each new key does a part of this work.
    fn look_around(&mut self, down_since: Option<Tick>) {
        let mut in_use = 0;
        for _ in 0..LOOKS {
            if self.round.len() <= COMPLETE || in_use == IN_USE {
                return;
            }
            in_use += usize::from(self.look_at_next(down_since));
        }
    }

    /// Whether the next key is in use. If not, only its record stays.
    fn look_at_next(&mut self, down_since: Option<Tick>) -> bool {
        let Some(fingerprint) = self.round.pop_front() else {
            return false;
        };
        let Some(queue) = self.queues.get(&fingerprint) else {
            return false;
        };
        let Some(idle) = queue.idle_record(down_since) else {
            self.round.push_back(fingerprint);
            return true;
        };
        self.queues.remove(&fingerprint);
        // Without an answer of the server there is nothing to remember.
        if idle.memory_from > 0 {
            self.idle.insert(fingerprint, idle);
        }
        false
    }

    /// Whether there is room for one more key. Evicts keys that are not in use if there are too many.
    fn has_place(&mut self, health: &ServerHealth, now: Tick) -> bool {
        if self.len() < self.max {
            return true;
        }
        if self.evicts_after > 0 {
            self.evicts_after -= 1;
            return false;
        }
        self.evict_settled(health, now);
        self.evict_oldest(self.max - self.max.div_ceil(FREED));
        let has_place = self.len() < self.max;
        if !has_place {
            self.evicts_after = self.max / BETWEEN_EVICTIONS;
        }
        has_place
    }

    fn evict_settled(&mut self, health: &ServerHealth, now: Tick) {
        for _ in 0..self.round.len() {
            self.look_at_next(health.down_since);
        }
        if let Some(time) = health.server_time(now) {
            self.idle.retain(|_, key| S::settles_at(&key.memory) > time);
        }
    }

    /// Evicts the keys that the server answered for the longest time ago, until there are at most `most` keys.
    fn evict_oldest(&mut self, most: usize) {
        let excess = self.len().saturating_sub(most);
        let mut ages: Vec<u64> = self.idle.values().map(|key| key.memory_from).collect();
        let last = excess.min(ages.len()).checked_sub(1);
        if let Some(last) = last {
            let last = *ages.select_nth_unstable(last).1;
            self.idle.retain(|_, key| key.memory_from > last);
        }
    }
}
