use core::hash::Hash;
use std::collections::HashMap;

use crate::policy::Policy;
use crate::time::Tick;

use super::limit::Limit;
use super::{Shared, Stats};

/// What is known of each key.
///
/// Most have a state and nothing else, so that is all they cost. They are apart from the few for which somebody waits.
pub(super) struct Slots<K, P: Policy> {
    light: HashMap<K, P::State>,
    full: HashMap<K, Full<P>>,
    /// Limits that no key needs any more, for the next one that does: a key that waits again and again takes no memory for it.
    spare: Vec<Shared<P>>,
}

/// Many keys may wait at once; few of them come and go at any time.
const SPARE: usize = 4;

/// Somebody waits for this key, or it is paused, or has parameters of its own.
struct Full<P: Policy> {
    limit: Shared<P>,
    /// Its parameters are its own: it is never forgotten.
    is_tuned: bool,
}

impl<K, P> Slots<K, P>
where
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
{
    pub(super) fn new() -> Self {
        Self {
            light: HashMap::new(),
            full: HashMap::new(),
            spare: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.light.len() + self.full.len()
    }

    pub(super) fn contains(&self, key: &K) -> bool {
        self.light.contains_key(key) || self.full.contains_key(key)
    }

    pub(super) fn light(&mut self, key: &K) -> Option<&mut P::State> {
        self.light.get_mut(key)
    }

    pub(super) fn limit(&self, key: &K) -> Option<&Shared<P>> {
        // Most of the time there is none at all, and nothing to be hashed.
        let full = Some(&self.full).filter(|full| !full.is_empty())?;
        full.get(key).map(|full| &full.limit)
    }

    pub(super) fn limits(&self) -> impl Iterator<Item = &Shared<P>> {
        self.full.values().map(|full| &full.limit)
    }

    pub(super) fn remember(&mut self, key: &K, state: P::State) {
        self.light.insert(key.clone(), state);
    }

    /// From now on the key has this limit.
    pub(super) fn fill(&mut self, key: &K, limit: Limit<P>) -> Shared<P> {
        self.light.remove(key);
        let limit = match self.spare.pop() {
            Some(spare) => spare.renewed(limit),
            None => Shared::of(limit),
        };
        let full = Full {
            limit: limit.clone(),
            is_tuned: false,
        };
        self.full.insert(key.clone(), full);
        limit
    }

    /// From now on the parameters of the key's limit are its own.
    pub(super) fn tune(&mut self, key: &K) {
        if let Some(full) = self.full.get_mut(key) {
            full.is_tuned = true;
        }
    }

    /// Keeps nothing but the state, if nobody waits any more; gives back what the limit has counted.
    pub(super) fn lighten(&mut self, key: &K, now: Tick) -> Option<Stats> {
        let (state, counted) = self.full.get(key)?.if_idle(now)?;
        let full = self.full.remove(key)?;
        if self.spare.len() < SPARE {
            self.spare.push(full.limit);
        }
        self.light.insert(key.clone(), state);
        Some(counted)
    }

    /// Forgets the key if its state `is_settled`.
    pub(super) fn forget_if(&mut self, key: &K, is_settled: impl FnOnce(&P::State) -> bool) {
        if self.light.get(key).is_some_and(is_settled) {
            self.light.remove(key);
        }
    }

    /// Forgets every key that has settled, as `is_settled` says; gives back what the limits among them have counted.
    pub(super) fn tidy(
        &mut self,
        now: Tick,
        mut is_settled: impl FnMut(&K, &P::State) -> bool,
    ) -> Stats {
        let mut counted = Stats::new();
        let light = &mut self.light;
        self.full.retain(|key, full| {
            let Some((state, seen)) = full.if_idle(now) else {
                return true;
            };
            counted.add(seen);
            light.insert(key.clone(), state);
            false
        });
        light.retain(|key, state| !is_settled(key, state));
        counted
    }

    /// When each key will settle, as `settled_at` says for those for which nobody waits.
    pub(super) fn settling(&self, settled_at: impl Fn(&K, &P::State) -> Tick) -> Vec<(Tick, K)> {
        let light = self
            .light
            .iter()
            .map(|(key, state)| (settled_at(key, state), key.clone()));
        let full = self
            .full
            .iter()
            .map(|(key, full)| (full.settled_at(), key.clone()));
        light.chain(full).collect()
    }

    /// Gives back memory that so many keys do not need.
    pub(super) fn shrink_to(&mut self, keys: usize) {
        self.light.shrink_to(keys);
        self.full.shrink_to(keys);
    }
}

impl<P> Full<P>
where
    P: Policy + Send + 'static,
    P::State: Send,
{
    /// The state, and what was counted, if the limit is not needed any more.
    fn if_idle(&self, now: Tick) -> Option<(P::State, Stats)> {
        let limit = Some(&self.limit).filter(|_| !self.is_tuned)?;
        limit.if_sole_and_not_paused(now)
    }

    fn settled_at(&self) -> Tick {
        if self.is_tuned {
            Tick::MAX
        } else {
            self.limit.settled_at()
        }
    }
}
