//! The keys of one shard, in two tables: each key is in one of them. Most keys are a state that fits into a **word**, and nothing
//! else. The **others** have a limit, or a state that does not fit. A key moves when its state stops fitting or it gets a limit,
//! and moves back when the limit is released or the sweep comes by.
//!
//! A state comes out of its word as it went in, so a key decides the same in both tables.

use core::hash::{BuildHasher, Hash, Hasher};
use std::hash::RandomState;
use std::sync::Arc;

use hashbrown::HashTable;

use crate::policy::Policy;
use crate::time::Tick;

use super::as_key::AsKey;
use super::limit::Stats;
use super::shared::LimitHandle;

/// After this many new keys a few places are swept, in a row, so that the processor fetches them together.
pub(super) const SWEEP_AFTER: usize = 16;

/// The places of words that are swept at a time, and half as many of the others, whose states may be anywhere in memory. More places
/// than new keys: otherwise the tables could grow for ever.
const SWEPT: usize = 4 * SWEEP_AFTER;

/// Which parameters a key has.
pub(super) enum Policies<K, P> {
    Same(P, fn(&P) -> P),
    ByKey(Box<dyn Fn(&K) -> P + Send + Sync>),
}

impl<K, P> Policies<K, P> {
    #[inline]
    fn with<T>(&self, key: &K, work: impl FnOnce(&P) -> T) -> T {
        match self {
            Self::Same(policy, _) => work(policy),
            Self::ByKey(policy_of) => work(&policy_of(key)),
        }
    }
}

/// What hashes the keys.
#[derive(Clone)]
pub(super) enum KeyHasher {
    Random(RandomState),
    /// Behind a pointer, so that it is in no type that a user writes. It is called with what feeds a hasher.
    Own(Arc<HashWith>),
}

type HashWith = dyn Fn(&dyn Fn(&mut dyn Hasher)) -> u64 + Send + Sync;

impl KeyHasher {
    pub(super) fn own(hasher: impl BuildHasher + Send + Sync + 'static) -> Self {
        Self::Own(Arc::new(move |feed| {
            let mut hasher = hasher.build_hasher();
            feed(&mut hasher);
            hasher.finish()
        }))
    }

    pub(super) fn hashed<'a, Q: Hash + ?Sized>(&self, key: &'a Q) -> Hashed<'a, Q> {
        let hash = self.hash(key);
        Hashed { key, hash }
    }

    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        match self {
            Self::Random(hasher) => hasher.hash_one(key),
            Self::Own(hash_with) => hash_with(&|mut hasher| key.hash(&mut hasher)),
        }
    }
}

/// A key, or a borrowed form of it, with its hash.
pub(super) struct Hashed<'a, Q: ?Sized> {
    key: &'a Q,
    pub(super) hash: u64,
}

/// Whether an entry of a table is that of this key.
fn entry_of<K, V, Q: AsKey<K> + ?Sized>(key: &Hashed<'_, Q>) -> impl Fn(&(K, V)) -> bool {
    |(other, _)| key.key.is(other)
}

/// What is known of a key that is not a word.
pub(super) enum Entry<P: Policy> {
    /// No handle waits, so a state is enough.
    Idle(P::State),
    /// A handle waits, or the key is paused, or has parameters of its own.
    Active(Arc<LimitHandle<P>>),
}

impl<P: Policy> Entry<P> {
    /// Keeps nothing but the state, if nothing else is needed. Returns the limit, and adds up what it has counted.
    fn make_idle(&mut self, now: Tick, counted: &mut Stats) -> Option<Arc<LimitHandle<P>>> {
        let limit = match self {
            // The only handle is this one. No other can be made meanwhile: that takes the lock of the shard, or another handle.
            Self::Active(limit) if Arc::strong_count(limit) == 1 && !limit.is_cloned() => limit,
            _ => return None,
        };
        let state = limit.with(|limit, _| limit.if_ordinary(now))?;
        counted.add(limit.stats());
        let limit = Arc::clone(limit);
        *self = Self::Idle(state);
        Some(limit)
    }
}

/// The keys of one shard, and what is known of each.
pub(super) struct KeyTable<K, P: Policy> {
    words: HashTable<(K, u64)>,
    others: HashTable<(K, Entry<P>)>,
    pub(super) hasher: KeyHasher,
    policies: Arc<Policies<K, P>>,
    /// What limits have counted that were not needed any more.
    counted: Stats,
    /// The place of the words that is swept next.
    cursor: usize,
}

impl<K: Hash + Eq, P: Policy> KeyTable<K, P> {
    pub(super) fn new(policies: Arc<Policies<K, P>>, hasher: KeyHasher) -> Self {
        Self {
            words: HashTable::new(),
            others: HashTable::new(),
            hasher,
            policies,
            counted: Stats::default(),
            cursor: 0,
        }
    }

    /// The same policies, with no keys.
    pub(super) fn emptied(&self) -> Self {
        Self::new(Arc::clone(&self.policies), self.hasher.clone())
    }

    pub(super) fn len(&self) -> usize {
        self.words.len() + self.others.len()
    }

    /// The key itself, if it is known.
    pub(super) fn find<Q: AsKey<K> + ?Sized>(&self, key: &Hashed<'_, Q>) -> Option<&K> {
        match self.words.find(key.hash, entry_of(key)) {
            Some((known, _)) => Some(known),
            None => self
                .others
                .find(key.hash, entry_of(key))
                .map(|(known, _)| known),
        }
    }

    /// The policy of a key, known or not.
    pub(super) fn policy_of<Q: AsKey<K> + ?Sized>(&self, key: &Hashed<'_, Q>) -> P {
        match &*self.policies {
            Policies::Same(policy, clone) => clone(policy),
            Policies::ByKey(policy_of) => match self.find(key) {
                Some(known) => policy_of(known),
                None => policy_of(&key.key.to_key()),
            },
        }
    }

    /// Works on the state of a known key that has no limit.
    #[inline]
    pub(super) fn with_state<Q: AsKey<K> + ?Sized, T>(
        &mut self,
        key: &Hashed<'_, Q>,
        work: impl FnOnce(&P, &mut P::State) -> T,
    ) -> Option<T> {
        if let Some((known, word)) = self.words.find_mut(key.hash, entry_of(key)) {
            let (done, wide) = self.policies.with(known, |policy| {
                let mut state = policy.of_word(*word);
                let done = work(policy, &mut state);
                let fits = policy.to_word(&state).map(|new| *word = new).is_some();
                (done, (!fits).then_some(state))
            });
            if let Some(state) = wide {
                self.insert(key, Entry::Idle(state));
            }
            return Some(done);
        }
        let other = self.others.find_mut(key.hash, entry_of(key));
        match other? {
            (known, Entry::Idle(state)) => {
                Some(self.policies.with(known, |policy| work(policy, state)))
            }
            (_, Entry::Active(_)) => None,
        }
    }

    /// The limit of a key that has one.
    pub(super) fn limit<Q: AsKey<K> + ?Sized>(
        &self,
        key: &Hashed<'_, Q>,
    ) -> Option<&Arc<LimitHandle<P>>> {
        match self.others.find(key.hash, entry_of(key))? {
            (_, Entry::Active(limit)) => Some(limit),
            (_, Entry::Idle(_)) => None,
        }
    }

    /// What the limits of all keys have counted, and those that are gone.
    pub(super) fn stats(&self) -> Stats {
        let mut stats = self.counted;
        for (_, entry) in &self.others {
            if let Entry::Active(limit) = entry {
                stats.add(limit.stats());
            }
        }
        stats
    }

    /// Remembers the state of a key that is not known yet.
    pub(super) fn insert_new<Q: AsKey<K> + ?Sized>(
        &mut self,
        key: &Hashed<'_, Q>,
        policy: &P,
        state: P::State,
    ) {
        match policy.to_word(&state) {
            Some(word) => self.insert_word(key.hash, key.key.to_key(), word),
            None => self.insert(key, Entry::Idle(state)),
        }
    }

    fn insert_word(&mut self, hash: u64, key: K, word: u64) {
        let (hasher, word) = (&self.hasher, (key, word));
        self.words
            .insert_unique(hash, word, |(key, _)| hasher.hash(key));
    }

    /// Gives a key, known or not, what does not fit into a word.
    pub(super) fn insert<Q: AsKey<K> + ?Sized>(&mut self, key: &Hashed<'_, Q>, entry: Entry<P>) {
        if let Some((_, known)) = self.others.find_mut(key.hash, entry_of(key)) {
            *known = entry;
            return;
        }
        let word = self.words.find_entry(key.hash, entry_of(key));
        let own = word.map_or_else(|_| key.key.to_key(), |word| word.remove().0.0);
        let hasher = &self.hasher;
        self.others
            .insert_unique(key.hash, (own, entry), |(key, _)| hasher.hash(key));
    }

    pub(super) fn remove_limit<Q: AsKey<K> + ?Sized>(&mut self, key: &Hashed<'_, Q>) {
        if let Ok(other) = self.others.find_entry(key.hash, entry_of(key)) {
            other.remove();
        }
    }

    /// Keeps no more of the key than is needed. Returns its limit, if that is not needed any more.
    pub(super) fn release<Q: AsKey<K> + ?Sized>(
        &mut self,
        key: &Hashed<'_, Q>,
        now: Tick,
    ) -> Option<Arc<LimitHandle<P>>> {
        if let Some(place) = self.others.find_bucket_index(key.hash, entry_of(key)) {
            return self.tidy_other(place, now);
        }
        let word = self.words.find_bucket_index(key.hash, entry_of(key));
        self.tidy_word(word?, now);
        None
    }

    /// Evicts the keys in the next few places that have settled.
    pub(super) fn sweep(&mut self, now: Tick) {
        for _ in 0..SWEPT / 2 {
            self.tidy_other(self.cursor / 2, now);
            self.tidy_word(self.cursor, now);
            self.tidy_word(self.cursor + 1, now);
            self.cursor += 2;
        }
        if self.cursor >= self.words.num_buckets().max(2 * self.others.num_buckets()) {
            self.cursor = 0;
            self.shrink();
        }
    }

    /// Evicts all keys that have settled, and gives back their memory.
    pub(super) fn sweep_all(&mut self, now: Tick) {
        for place in 0..self.others.num_buckets() {
            self.tidy_other(place, now);
        }
        for place in 0..self.words.num_buckets() {
            self.tidy_word(place, now);
        }
        self.shrink();
    }

    fn tidy_word(&mut self, place: usize, now: Tick) {
        let Ok(known) = self.words.get_bucket_entry(place) else {
            return;
        };
        let (key, word) = known.get();
        let is_settled = |policy: &P| policy.is_settled(&policy.of_word(*word), now);
        if self.policies.with(key, is_settled) {
            known.remove();
        }
    }

    fn tidy_other(&mut self, place: usize, now: Tick) -> Option<Arc<LimitHandle<P>>> {
        let mut known = self.others.get_bucket_entry(place).ok()?;
        let (key, entry) = known.get_mut();
        let limit = entry.make_idle(now, &mut self.counted);
        let Entry::Idle(state) = entry else {
            return None;
        };
        let (is_settled, word) = self.policies.with(key, |policy| {
            (policy.is_settled(state, now), policy.to_word(state))
        });
        if is_settled {
            known.remove();
        } else if let Some(word) = word {
            let ((key, _), _) = known.remove();
            self.insert_word(self.hasher.hash(&key), key, word);
        }
        limit
    }

    /// Gives half of the memory back, or more, if the keys fit into the rest with some to spare.
    fn shrink(&mut self) {
        let (hasher, room) = (&self.hasher, |keys: usize| keys + keys / 8);
        let (words, others) = (room(self.words.len()), room(self.others.len()));
        self.words.shrink_to(words, |(key, _)| hasher.hash(key));
        self.others.shrink_to(others, |(key, _)| hasher.hash(key));
    }

    /// Each key, and when it settles.
    pub(super) fn settling(&self) -> Vec<(Tick, K)>
    where
        K: Clone,
    {
        let words = self.words.iter().map(|(key, word)| {
            let settled_at = |policy: &P| policy.settled_at(&policy.of_word(*word));
            (self.policies.with(key, settled_at), key.clone())
        });
        let others = self.others.iter().map(|(key, entry)| {
            let settled_at = match entry {
                Entry::Idle(state) => self.policies.with(key, |policy| policy.settled_at(state)),
                Entry::Active(limit) => limit.with(|limit, _| limit.settled_at()),
            };
            (settled_at, key.clone())
        });
        words.chain(others).collect()
    }
}
