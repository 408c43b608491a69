//! A `Keyed` has sixteen shards, each a map behind its own lock (one shard with `with_max_keys`). An **idle** key is a
//! state and nothing else, and the map answers for it. An **active** key is a `Shared` limit that went on from that state:
//! a request waits, or the key is paused, or has its own parameters. Requests go to it, and the lock of the map is free.
//! When the reason is over, the key becomes idle again and hands on its counts. A key is hashed once, for its shard and in
//! it, with a random hash: otherwise clients could choose keys that all meet at one lock.
//!
//! **Eviction** needs no task: new keys sweep the next few places of their shard, and the settled keys there go. Under
//! `with_max_keys`, a full map passes over all keys and notes the eighth of them that settles first, in order, and each new key
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
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::policy::{Decision, Policy, Status, Unlimited};
use crate::time::{Clock, Tick};
use crate::wait::Intent;

use super::as_key::AsKey;
use super::key_table::{Entry, Hashed, KeyTable, SWEEP_AFTER};
use super::limit::{LimitState, Stats};
use super::shared::LimitHandle;

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

/// An answer, or the limit that gives it.
pub(super) enum Reply<P: Policy> {
    Decided(Decision),
    /// There is no room for a new key. There may be after that long.
    AtCapacity(Duration),
    /// There is no room for a new key, and its request passes. There may be room after that long.
    PassesUncounted(Duration),
    Ask(Arc<LimitHandle<P>>),
}

/// A shard, on cache lines of its own.
#[repr(align(128))]
pub(super) struct Shard<K, P: Policy>(pub(super) Mutex<KeyMap<K, P>>);

impl<K, P: Policy> Shard<K, P> {
    pub(super) fn lock(&self) -> MutexGuard<'_, KeyMap<K, P>> {
        // As in a shared limit: if a policy panics, the state is as it left it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The limits of the keys of one shard. It lives behind a lock.
///
/// Only settled keys are evicted.
pub(super) struct KeyMap<K, P: Policy> {
    pub(super) keys: KeyTable<K, P>,
    pub(super) max: usize,
    pub(super) when_full: WhenFull<Arc<LimitHandle<P>>>,
    clock: Clock,
    /// Of all requests that were not answered by a limit of one key.
    stats: Stats,
    /// Some keys that may settle next, soonest first. They may have been used since. Only needed where room is limited.
    next_to_settle: VecDeque<(Tick, K)>,
    /// How many new keys have asked since those were noted.
    asked: usize,
}

impl<K: Hash + Eq + Clone, P: Policy<State: Send> + Send + 'static> KeyMap<K, P> {
    pub(super) fn new(keys: KeyTable<K, P>) -> Self {
        Self {
            keys,
            max: usize::MAX,
            when_full: WhenFull::Wait,
            clock: Clock::new(),
            stats: Stats::default(),
            next_to_settle: VecDeque::new(),
            asked: 0,
        }
    }

    /// The same options, with no keys.
    pub(super) fn emptied(&self) -> Self {
        Self {
            max: self.max,
            when_full: self.when_full.clone(),
            ..Self::new(self.keys.emptied())
        }
    }

    pub(super) const fn is_bounded(&self) -> bool {
        self.max < usize::MAX
    }

    pub(super) fn stats(&self) -> Stats {
        let mut stats = self.stats;
        stats.add(self.keys.stats());
        if let WhenFull::Share(limit) = &self.when_full {
            stats.add(limit.stats());
        }
        stats
    }

    /// Answers at once where no limit of the key's own has to be asked.
    #[inline]
    pub(super) fn ask<Q: AsKey<K> + ?Sized>(
        &mut self,
        key: &Hashed<'_, Q>,
        intent: Intent,
        cost: u32,
    ) -> Reply<P> {
        let now = self.clock.now();
        if cost == 0 {
            self.start_clock(key, now);
            return Reply::Decided(Decision::Pass);
        }
        let decide = |policy: &P, state: &mut P::State| intent.decide(policy, state, now, cost);
        if let Some(decision) = self.keys.with_state(key, decide) {
            self.stats.count(intent, decision);
            return Reply::Decided(decision);
        }
        match self.keys.limit(key) {
            Some(limit) => Reply::Ask(Arc::clone(limit)),
            None => self.ask_new(key, intent, now, cost),
        }
    }

    /// The limit of the key, for a request that other limits have to pass too.
    pub(super) fn limit_of(
        &mut self,
        key: &Hashed<'_, K>,
        spare: &mut Option<Arc<LimitHandle<P>>>,
    ) -> Reply<P> {
        let now = self.clock.now();
        match self.make_room_for(key, now) {
            Ok(()) => Reply::Ask(self.activate(key, spare)),
            Err(retry_in) => self.overflow(Intent::Peek, retry_in),
        }
    }

    /// What the key has left. The key is neither created nor kept.
    pub(super) fn status<Q: AsKey<K> + ?Sized>(&mut self, key: &Hashed<'_, Q>) -> Option<Status> {
        let now = self.clock.now();
        if let Some(limit) = self.keys.limit(key) {
            return limit.with(|limit, _| limit.status());
        }
        let status = |policy: &P, state: &mut P::State| policy.status(state, now);
        if let Some(status) = self.keys.with_state(key, status) {
            return Some(status);
        }
        let policy = self.keys.policy_of(key);
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
        key: &Hashed<'_, Q>,
        spare: &mut Option<Arc<LimitHandle<P>>>,
    ) -> Arc<LimitHandle<P>> {
        if let Some(limit) = self.keys.limit(key) {
            return Arc::clone(limit);
        }
        let now = self.clock.now();
        let policy = self.keys.policy_of(key);
        let state = self.keys.with_state(key, |_, state| state.clone());
        let state = state.unwrap_or_else(|| policy.fresh(now));
        let state = LimitState::with_state(policy, self.clock.clone(), Some(state));
        let limit = match spare.take() {
            Some(spare) => {
                spare.with(|limit, _| *limit = state);
                spare
            }
            None => LimitHandle::new(state),
        };
        self.keys.insert(key, Entry::Active(Arc::clone(&limit)));
        limit
    }

    /// The limit of the key, to be lent. That of a new key without room lets nothing pass before the instant that comes with it. It is
    /// among the keys as long as it is lent, so that the key has one limit whatever happens meanwhile.
    pub(super) fn lend<Q: AsKey<K> + ?Sized>(
        &mut self,
        key: &Hashed<'_, Q>,
    ) -> (Arc<LimitHandle<P>>, Option<Tick>) {
        let now = self.clock.now();
        let no_room = self.make_room_for(key, now).err();
        let until = no_room.map(|retry_in| now.after(retry_in.min(RETRY_FOR_ROOM)));
        let limit = self.activate(key, &mut None);
        if let Some(at) = until {
            limit.with(|limit, _| limit.wait_for_room(at));
        }
        (limit, until)
    }

    /// Keeps a lent limit if it has something to remember.
    pub(super) fn take_back<Q: AsKey<K> + ?Sized>(
        &mut self,
        key: &Hashed<'_, Q>,
        limit: Arc<LimitHandle<P>>,
        waited_until: Option<Tick>,
    ) {
        if let Some(at) = waited_until {
            let has_to_be_remembered = limit.with(|limit, _| limit.has_to_be_remembered(at));
            // The map has the other reference. One more handle, or a future, may have left the closure.
            let is_in_use = limit.is_cloned() || Arc::strong_count(&limit) > 2;
            if !has_to_be_remembered && !is_in_use {
                self.stats.add(limit.stats());
                self.keys.remove_limit(key);
            }
        }
        drop(limit);
        self.release(key);
    }

    /// The limit that counts a request for this key now. `None` if there is no room for the key, and no limit for such keys.
    pub(super) fn counting<Q: AsKey<K> + ?Sized>(
        &mut self,
        key: &Hashed<'_, Q>,
    ) -> Option<Arc<LimitHandle<P>>> {
        let now = self.clock.now();
        if self.make_room_for(key, now).is_ok() {
            return Some(self.activate(key, &mut None));
        }
        match &self.when_full {
            WhenFull::Share(limit) => Some(Arc::clone(limit)),
            WhenFull::Wait | WhenFull::Pass => None,
        }
    }

    /// Keeps no more of the key than is needed. Returns its limit, if that is not needed any more.
    pub(super) fn release<Q: AsKey<K> + ?Sized>(
        &mut self,
        key: &Hashed<'_, Q>,
    ) -> Option<Arc<LimitHandle<P>>> {
        let now = self.clock.now();
        self.keys.release(key, now)
    }

    /// Evicts every settled key, and notes which may settle next where room is limited.
    pub(super) fn evict_settled(&mut self) {
        let now = self.clock.now();
        self.keys.sweep_all(now);
        if self.is_bounded() {
            let mut settling = self.keys.settling();
            settling.sort_unstable_by_key(|(settled_at, _)| *settled_at);
            settling.truncate(settling.len().div_ceil(NOTED));
            self.next_to_settle = settling.into();
        }
        self.asked = 0;
    }

    pub(super) fn count_refusal(&mut self) {
        self.stats.refused += 1;
    }

    /// Starts the clock of a new key, if that makes a difference and there is room.
    fn start_clock<Q: AsKey<K> + ?Sized>(&mut self, key: &Hashed<'_, Q>, now: Tick) {
        if self.keys.find(key).is_some() {
            return;
        }
        let policy = self.keys.policy_of(key);
        let state = policy.fresh(now);
        if !policy.is_settled(&state, now) && self.make_room(now).is_ok() {
            self.keys.insert_new(key, &policy, state);
        }
    }

    /// Answers for a new key, and remembers it if that is needed; or says when there may be room for it.
    fn ask_new<Q: AsKey<K> + ?Sized>(
        &mut self,
        key: &Hashed<'_, Q>,
        intent: Intent,
        now: Tick,
        cost: u32,
    ) -> Reply<P> {
        let policy = self.keys.policy_of(key);
        let mut state = policy.fresh(now);
        let decision = intent.decide(&policy, &mut state, now, cost);
        if !matches!(decision, Decision::Never { .. }) {
            if let Err(retry_in) = self.make_room(now) {
                return self.overflow(intent, retry_in);
            }
            // A request that has to wait has started the clock.
            if intent == Intent::Acquire || !decision.is_pass() {
                self.keys.insert_new(key, &policy, state);
            }
        }
        self.stats.count(intent, decision);
        Reply::Decided(decision)
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

    /// The same, where a known key has its room.
    fn make_room_for<Q: AsKey<K> + ?Sized>(
        &mut self,
        key: &Hashed<'_, Q>,
        now: Tick,
    ) -> Result<(), Duration> {
        if self.keys.find(key).is_some() {
            return Ok(());
        }
        self.make_room(now)
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
                self.release(&self.keys.hasher.hashed(&key));
            }
        }
        if self.asked % SWEEP_AFTER == 0 {
            self.keys.sweep(now);
        }
        if self.is_full_and_unsure() {
            self.evict_settled();
        }
        if self.keys.len() < self.max {
            return Ok(());
        }
        let next = self.next_to_settle.front();
        let next = next.map_or(Tick::MAX, |(settled_at, _)| *settled_at);
        Err(next.since(now).max(SOON))
    }

    /// Whether there is no room, and going through all keys may help and is paid for: an eighth of them has settled, or as many
    /// new ones have asked as there are keys.
    fn is_full_and_unsure(&self) -> bool {
        let keys = self.keys.len();
        let is_full = keys >= self.max;
        let is_small = keys <= FEW;
        let next = self.next_to_settle.front().map(|(tick, _)| *tick);
        let is_known = next.is_some_and(|next| next < Tick::MAX);
        let is_paid_for = next.is_none() || self.asked >= keys;
        is_full && (is_small || (is_paid_for && !is_known))
    }
}
