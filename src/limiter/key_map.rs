//! A `Keyed` has sixteen shards, each a map behind its own lock (one shard with `with_max_keys`). An **idle** key is a
//! state and nothing else, and the map answers for it. An **active** key is a `Shared` limit that went on from that state:
//! a request waits, or the key is paused, or has its own parameters. Requests go to it, and the lock of the map is free.
//! When the reason is over, the key becomes idle again and hands on its counts. A key is hashed for its shard and in it,
//! with a random hash: otherwise clients could choose keys that all meet at one lock.
//!
//! **Eviction** needs no task. When the number of keys has doubled, a new key pays for a pass over all of them, and the
//! settled ones go. Under `with_max_keys`, the eighth of the rest that settles first is noted, in order, and each new key
//! evicts noted ones that have settled. All are passed over again when the notes are used up, or say nothing and as many
//! new keys have asked as there are. So a new key costs a constant on average, also in a rush of keys for which there is no
//! room.
//!
//! **Room.** A request for a new key that finds none waits until the first key may have settled, a second at most, and asks
//! again. There is no queue for room, since a full map is rare. `with_when_full` chooses an answer instead.
//!
//! Never evicted are: a key that binds, is paused, has a waiter, or has its own parameters; and any key of a policy that
//! never settles, since a fresh `with_delayed_start` interval or `with_empty_start` bucket makes its first request wait.
//! Parameters are a key's own until they equal the common ones again, or until `forget` or `reset`.

use core::hash::Hash;
use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::policy::{Decision, Policy, Status, Unlimited};
use crate::time::{Clock, Tick};
use crate::wait::Intent;

use super::as_key::AsKey;
use super::limit::{LimitState, Stats};
use super::shared::LimitHandle;

/// With fewer keys none is evicted.
const LEAST: usize = 8;

/// Up to this many keys are gone through for each new key that finds no room.
const FEW: usize = 64;

/// One in this many keys is noted as one of the next to settle, each time all of them are gone through.
const NOTED: usize = 8;

/// When to ask again if there is no room and a key is about to settle.
const SOON: Duration = Duration::from_millis(1);

/// The longest time until a waiter for room asks again: a key may be evicted earlier than expected.
pub(super) const RETRY_FOR_ROOM: Duration = Duration::from_secs(1);

/// What a [`Keyed`](super::Keyed) limit does with a request for a new key while all of
/// [`with_max_keys`](super::Keyed::with_max_keys) are in use.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum WhenFull<P> {
    /// The request waits, and asks again when the first key may have settled, after a second at the latest; `try_acquire` says
    /// when. Requests that wait for room are not served in order.
    #[default]
    Wait,
    /// The request passes, and the key is not remembered. [`Stats::held_back`] counts it.
    Pass,
    /// The request is decided by this policy, with one overflow limit for all new keys.
    Share(P),
}

/// Which parameters a key has.
pub(super) enum Policies<K, P> {
    Same(P, fn(&P) -> P),
    ByKey(Box<dyn Fn(&K) -> P + Send + Sync>),
}

/// An answer, or the limit that gives it.
pub(super) enum Reply<P: Policy> {
    Decided(Decision),
    /// There is no room for a new key. There may be after that long.
    AtCapacity(Duration),
    /// There is no room for a new key, and its request passes. There may be room after that long.
    PassesUncounted(Duration),
    Ask(Arc<LimitHandle<P>>),
}

/// What is known of one key.
pub(super) enum Entry<P: Policy> {
    /// No handle waits, so a state is enough.
    Idle(P::State),
    /// A handle waits, or the key is paused, or has parameters of its own.
    Active(Arc<LimitHandle<P>>),
}

impl<P: Policy> Entry<P> {
    /// Keeps nothing but the state, if nothing else is needed. Returns the limit, and adds up what it has counted.
    pub(super) fn make_idle(
        &mut self,
        now: Tick,
        counted: &mut Stats,
    ) -> Option<Arc<LimitHandle<P>>> {
        let Self::Active(limit) = self else {
            return None;
        };
        // The only handle is this one. No other can be made meanwhile: that takes the lock of the shard, or another handle.
        if Arc::strong_count(limit) > 1 || limit.is_cloned() {
            return None;
        }
        let state = limit.with(|limit, _| limit.if_ordinary(now))?;
        counted.add(stats_of(limit));
        match core::mem::replace(self, Self::Idle(state)) {
            Self::Active(limit) => Some(limit),
            Self::Idle(_) => None,
        }
    }
}

pub(super) fn stats_of<P: Policy>(limit: &LimitHandle<P>) -> Stats {
    limit.with(|limit, waiters| Stats {
        waiting: waiters.len(),
        ..limit.stats
    })
}

/// The keys of one shard. It lives behind a lock.
///
/// Only settled keys are evicted. Going through all keys is paid for by new ones: it is done when their number has doubled, or,
/// where it is limited, once for an eighth of them that settle.
pub(super) struct KeyMap<K, P: Policy> {
    entries: HashMap<K, Entry<P>>,
    policies: Arc<Policies<K, P>>,
    pub(super) max: usize,
    pub(super) when_full: WhenFull<Arc<LimitHandle<P>>>,
    clock: Clock,
    /// Of all requests that were not answered by a limit of one key.
    stats: Stats,
    /// Some keys that may settle next, soonest first. They may have been used since. Only needed where room is limited.
    next_to_settle: VecDeque<(Tick, K)>,
    /// At this many keys the settled ones are evicted.
    evict_at: usize,
    /// How many new keys have asked since.
    asked: usize,
}

impl<K: Hash + Eq + Clone, P: Policy<State: Send> + Send + 'static> KeyMap<K, P> {
    pub(super) fn new(policies: Arc<Policies<K, P>>) -> Self {
        Self {
            entries: HashMap::new(),
            policies,
            max: usize::MAX,
            when_full: WhenFull::Wait,
            clock: Clock::new(),
            stats: Stats::new(),
            next_to_settle: VecDeque::new(),
            evict_at: LEAST,
            asked: 0,
        }
    }

    /// The same options, with no keys.
    pub(super) fn emptied(&self) -> Self {
        Self {
            max: self.max,
            when_full: self.when_full.clone(),
            ..Self::new(Arc::clone(&self.policies))
        }
    }

    pub(super) const fn is_bounded(&self) -> bool {
        self.max < usize::MAX
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn stats(&self) -> Stats {
        let mut stats = self.stats;
        self.limits().for_each(|limit| stats.add(stats_of(limit)));
        stats
    }

    /// Answers at once where no limit of the key's own has to be asked.
    pub(super) fn ask<Q: AsKey<K> + ?Sized>(
        &mut self,
        key: &Q,
        intent: Intent,
        cost: u32,
    ) -> Reply<P> {
        let now = self.clock.now();
        if cost == 0 {
            self.start_clock(key, now);
            return Reply::Decided(Decision::Pass);
        }
        let policy = self.policy_of(key);
        let decision = match key.find_in_mut(&mut self.entries) {
            Some(Entry::Active(limit)) => return Reply::Ask(Arc::clone(limit)),
            Some(Entry::Idle(state)) => intent.decide(&policy, state, now, cost),
            None => match self.decide_new(key, &policy, intent, now, cost) {
                Ok(decision) => decision,
                Err(retry_in) => return self.overflow(intent, retry_in),
            },
        };
        self.stats.count(intent, decision);
        Reply::Decided(decision)
    }

    /// The limit of the key, for a request that other limits have to pass too.
    pub(super) fn limit_of(
        &mut self,
        key: &K,
        spare: &mut Option<Arc<LimitHandle<P>>>,
    ) -> Reply<P> {
        let now = self.clock.now();
        if key.find_in(&self.entries).is_none() {
            if let Err(retry_in) = self.make_room(now) {
                return self.overflow(Intent::Peek, retry_in);
            }
        }
        Reply::Ask(self.activate(key, spare))
    }

    /// What the key has left. The key is neither created nor kept.
    pub(super) fn status<Q: AsKey<K> + ?Sized>(&mut self, key: &Q) -> Option<Status> {
        let now = self.clock.now();
        let policy = self.policy_of(key);
        match key.find_in(&self.entries) {
            Some((_, Entry::Active(limit))) => return limit.with(|limit, _| limit.status()),
            Some((_, Entry::Idle(state))) => return Some(policy.status(state, now)),
            None => {}
        }
        let mut status = policy.status(&policy.fresh(now), now);
        if let Err(retry_in) = self.make_room(now) {
            match &self.when_full {
                WhenFull::Share(limit) => return limit.with(|limit, _| limit.status()),
                WhenFull::Pass => return Some(Unlimited.status(&(), now)),
                WhenFull::Wait => status.remaining = 0,
            }
            status.reset_in = status.reset_in.max(retry_in);
        }
        Some(status)
    }

    /// The limit of the key, for what a state alone cannot do. A `spare` one saves memory being taken.
    pub(super) fn activate<Q: AsKey<K> + ?Sized>(
        &mut self,
        key: &Q,
        spare: &mut Option<Arc<LimitHandle<P>>>,
    ) -> Arc<LimitHandle<P>> {
        let now = self.clock.now();
        let policy = self.policy_of(key);
        let state = match key.find_in(&self.entries) {
            Some((_, Entry::Active(limit))) => return Arc::clone(limit),
            Some((_, Entry::Idle(state))) => state.clone(),
            None => policy.fresh(now),
        };
        let state = LimitState::with_state(policy, self.clock.clone(), Some(state));
        let limit = match spare.take() {
            Some(spare) => {
                spare.with(|limit, _| *limit = state);
                spare
            }
            None => LimitHandle::new(state),
        };
        self.insert(key, Entry::Active(Arc::clone(&limit)));
        limit
    }

    /// The limit of the key, to be lent. That of a new key without room lets nothing pass before the instant that comes with it. It is
    /// among the keys as long as it is lent, so that the key has one limit whatever happens meanwhile.
    pub(super) fn lend<Q: AsKey<K> + ?Sized>(
        &mut self,
        key: &Q,
    ) -> (Arc<LimitHandle<P>>, Option<Tick>) {
        let now = self.clock.now();
        if key.find_in(&self.entries).is_none() {
            if let Err(retry_in) = self.make_room(now) {
                let (policy, at) = (self.policy_of(key), now.after(retry_in.min(RETRY_FOR_ROOM)));
                let state = policy.fresh(now);
                let state = LimitState::with_state(policy, self.clock.clone(), Some(state));
                let limit = LimitHandle::new(state.wait_for_room(at));
                self.insert(key, Entry::Active(Arc::clone(&limit)));
                return (limit, Some(at));
            }
        }
        (self.activate(key, &mut None), None)
    }

    /// Keeps a lent limit if it has something to remember.
    pub(super) fn take_back<Q: AsKey<K> + ?Sized>(
        &mut self,
        key: &Q,
        limit: Arc<LimitHandle<P>>,
        waited_until: Option<Tick>,
    ) {
        if let Some(at) = waited_until {
            let has_to_be_remembered = limit.with(|limit, _| limit.has_to_be_remembered(at));
            // The map has the other reference. One more handle, or a future, may have left the closure.
            let is_in_use = limit.is_cloned() || Arc::strong_count(&limit) > 2;
            if !has_to_be_remembered && !is_in_use {
                self.stats.add(stats_of(&limit));
                key.remove_from(&mut self.entries);
            }
        }
        drop(limit);
        self.release(key);
    }

    /// The limit that counts a request for this key now. `None` if there is no room for the key, and no limit for such keys.
    pub(super) fn counting<Q: AsKey<K> + ?Sized>(
        &mut self,
        key: &Q,
    ) -> Option<Arc<LimitHandle<P>>> {
        let now = self.clock.now();
        if key.find_in(&self.entries).is_some() || self.make_room(now).is_ok() {
            return Some(self.activate(key, &mut None));
        }
        match &self.when_full {
            WhenFull::Share(limit) => Some(Arc::clone(limit)),
            WhenFull::Wait | WhenFull::Pass => None,
        }
    }

    /// Keeps no more of the key than is needed. Returns its limit, if that is not needed any more.
    pub(super) fn release<Q: AsKey<K> + ?Sized>(&mut self, key: &Q) -> Option<Arc<LimitHandle<P>>> {
        let now = self.clock.now();
        let entry = key.find_in_mut(&mut self.entries)?;
        let limit = entry.make_idle(now, &mut self.stats);
        if let Entry::Idle(state) = entry {
            let state = state.clone();
            if self.policy_of(key).is_settled(&state, now) {
                key.remove_from(&mut self.entries);
            }
        }
        limit
    }

    /// Evicts every settled key, and notes which may settle next where room is limited.
    pub(super) fn evict_settled(&mut self) {
        let now = self.clock.now();
        let (policies, counted) = (&self.policies, &mut self.stats);
        self.entries.retain(|key, entry| {
            entry.make_idle(now, counted);
            match entry {
                Entry::Idle(state) => !policies.of(key).is_settled(state, now),
                Entry::Active(_) => true,
            }
        });
        if self.is_bounded() {
            let settled_at = |(key, entry): (&K, &Entry<P>)| {
                let tick = match entry {
                    Entry::Idle(state) => policies.of(key).settled_at(state),
                    Entry::Active(limit) => limit.with(|limit, _| limit.settled_at()),
                };
                (tick, key.clone())
            };
            let mut settling: Vec<_> = self.entries.iter().map(settled_at).collect();
            settling.sort_unstable_by_key(|(settled_at, _)| *settled_at);
            settling.truncate(settling.len().div_ceil(NOTED));
            self.next_to_settle = settling.into();
        }
        self.asked = 0;
        self.evict_at = LEAST.max(2 * self.entries.len());
        self.entries.shrink_to(self.evict_at);
    }

    pub(super) fn count_refusal(&mut self) {
        self.stats.refused += 1;
    }

    fn limits(&self) -> impl Iterator<Item = &Arc<LimitHandle<P>>> {
        let active = self.entries.values().filter_map(|entry| match entry {
            Entry::Active(limit) => Some(limit),
            Entry::Idle(_) => None,
        });
        let shared = match &self.when_full {
            WhenFull::Share(limit) => Some(limit),
            WhenFull::Wait | WhenFull::Pass => None,
        };
        active.chain(shared)
    }

    pub(super) fn policy_of<Q: AsKey<K> + ?Sized>(&self, key: &Q) -> P {
        match &*self.policies {
            Policies::Same(policy, clone) => clone(policy),
            Policies::ByKey(policy_of) => match key.find_in(&self.entries) {
                Some((key, _)) => policy_of(key),
                None => policy_of(&key.to_key()),
            },
        }
    }

    fn insert<Q: AsKey<K> + ?Sized>(&mut self, key: &Q, entry: Entry<P>) {
        match key.find_in_mut(&mut self.entries) {
            Some(known) => *known = entry,
            None => drop(self.entries.insert(key.to_key(), entry)),
        }
    }

    /// Starts the clock of a new key, if that makes a difference and there is room.
    fn start_clock<Q: AsKey<K> + ?Sized>(&mut self, key: &Q, now: Tick) {
        if key.find_in(&self.entries).is_some() {
            return;
        }
        let policy = self.policy_of(key);
        let state = policy.fresh(now);
        if !policy.is_settled(&state, now) && self.make_room(now).is_ok() {
            self.insert(key, Entry::Idle(state));
        }
    }

    /// Answers for a new key, and remembers it if that is needed; or says when there may be room for it.
    fn decide_new<Q: AsKey<K> + ?Sized>(
        &mut self,
        key: &Q,
        policy: &P,
        intent: Intent,
        now: Tick,
        cost: u32,
    ) -> Result<Decision, Duration> {
        let mut state = policy.fresh(now);
        let decision = intent.decide(policy, &mut state, now, cost);
        if matches!(decision, Decision::Never { .. }) {
            return Ok(decision);
        }
        self.make_room(now)?;
        // A request that has to wait has started the clock.
        if intent == Intent::Acquire || !decision.is_pass() {
            self.insert(key, Entry::Idle(state));
        }
        Ok(decision)
    }

    fn overflow(&mut self, intent: Intent, retry_in: Duration) -> Reply<P> {
        match &self.when_full {
            WhenFull::Share(limit) => Reply::Ask(Arc::clone(limit)),
            WhenFull::Wait => Reply::AtCapacity(retry_in),
            WhenFull::Pass => {
                self.stats.count(intent, Decision::Pass);
                self.stats.held_back += u64::from(intent == Intent::Acquire);
                Reply::PassesUncounted(retry_in)
            }
        }
    }

    /// Room for one more key, or else when there may be some.
    fn make_room(&mut self, now: Tick) -> Result<(), Duration> {
        self.asked += 1;
        while self
            .next_to_settle
            .front()
            .is_some_and(|(at, _)| *at <= now)
        {
            if let Some((_, key)) = self.next_to_settle.pop_front() {
                self.release(&key);
            }
        }
        if self.entries.len() >= self.evict_at || self.is_full_and_unsure() {
            self.evict_settled();
        }
        if self.entries.len() < self.max {
            return Ok(());
        }
        let next = self.next_to_settle.front();
        let next = next.map_or(Tick::MAX, |(settled_at, _)| *settled_at);
        Err(next.since(now).max(SOON))
    }

    /// Whether there is no room, and going through all keys may help and is paid for: an eighth of them has settled, or as many
    /// new ones have asked as there are keys.
    fn is_full_and_unsure(&self) -> bool {
        let is_full = self.entries.len() >= self.max;
        let is_small = self.entries.len() <= FEW;
        let next = self.next_to_settle.front().map(|(tick, _)| *tick);
        let is_known = next.is_some_and(|next| next < Tick::MAX);
        let is_paid_for = next.is_none() || self.asked >= self.entries.len();
        is_full && (is_small || (is_paid_for && !is_known))
    }
}

impl<K, P> Policies<K, P> {
    fn of(&self, key: &K) -> P {
        match self {
            Self::Same(policy, clone) => clone(policy),
            Self::ByKey(policy_of) => policy_of(key),
        }
    }
}

/// Locks a shard.
pub(super) fn lock<K, P: Policy>(shard: &Mutex<KeyMap<K, P>>) -> MutexGuard<'_, KeyMap<K, P>> {
    // As in a shared limit: if a policy panics, the state is as it left it.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
