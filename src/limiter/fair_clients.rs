//! The clients of a `Fair`: one lock for all of them, and a wait queue for each. The lock order is the queue, then the clients.
//! A cycle begins with the first request that finds it due, so there is no background task. What may let waiters of other
//! clients pass earlier (a refund, a new client, a change) updates their queues after the lock is released.

use core::hash::Hash;
use core::time::Duration;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::fair::report::ClientShare;
use crate::fair::{ClientTerms, OVERFLOW, Rule, RuleState};
use crate::policy::{Decision, Status};
use crate::time::{Clock, Tick};
use crate::wait::{Intent, Resource, WaitQueue, Waiters};

use super::as_key::AsKey;
use super::limit::Stats;

/// The wait queue of one client. It is locked before the clients are, never while they are.
pub(super) type ClientQueue<K, R> = WaitQueue<Account<K, R>>;

/// All clients of a [`Fair`](super::Fair) limit. They live behind one lock.
pub(super) struct FairClients<K, R: Rule> {
    pub(super) accounts: R::State,
    slots: HashMap<K, u32>,
    /// By slot.
    pub(super) clients: Vec<Client<K, R>>,
    /// The slots of those with a queue.
    queued: BTreeSet<u32>,
    pub(super) terms_of: Box<dyn Fn(&K) -> ClientTerms + Send + Sync>,
    pub(super) clock: Clock,
    pub(super) paused_until: Tick,
    pub(super) stats: Stats,
    /// Whether a cycle began, and the keys of forgotten clients are still here.
    has_to_sweep: bool,
    /// Whether a waiter may pass earlier than its timer says.
    pub(super) has_to_wake: bool,
}

/// One client, or the shared overflow client.
pub(super) struct Client<K, R: Rule> {
    /// `None` for the overflow client and for free slots.
    pub(super) key: Option<K>,
    /// While it has handles.
    queue: Option<Arc<ClientQueue<K, R>>>,
    handles: usize,
    waiting: usize,
}

/// An answer for a client; or its queue, which gives it, and which has to be [settled](Account::settle) afterwards.
pub(super) enum Reply<K, R: Rule> {
    Decided(Decision),
    Ask(Arc<ClientQueue<K, R>>),
}

impl<K, R: Rule> FairClients<K, R> {
    pub(super) fn new(share: R) -> Self {
        Self {
            accounts: R::State::new(share, Tick::ZERO),
            slots: HashMap::new(),
            clients: vec![Client::new()],
            queued: BTreeSet::new(),
            terms_of: Box::new(|_| ClientTerms::new()),
            clock: Clock::new(),
            paused_until: Tick::ZERO,
            stats: Stats::default(),
            has_to_sweep: false,
            has_to_wake: false,
        }
    }

    /// Pauses, and returns for how long: of two pauses the later end counts.
    pub(super) fn pause_for(&mut self, duration: Duration) -> Duration {
        let now = self.clock.now();
        self.paused_until = self.paused_until.max(now.after(duration));
        self.accounts.pause_until(self.paused_until);
        self.paused_until.since(now)
    }

    pub(super) fn resume(&mut self) {
        self.paused_until = Tick::ZERO;
        self.accounts.pause_until(Tick::ZERO);
        self.has_to_wake = true;
    }

    pub(super) fn paused_for(&self) -> Option<Duration> {
        // A copy: the clock of an unused limit does not start.
        let left = self.paused_until.since(self.clock.clone().now());
        (!left.is_zero()).then_some(left)
    }

    /// The queues of all clients. They are to be updated or woken when the clients are not locked any more.
    pub(super) fn queues(&mut self) -> Vec<Arc<ClientQueue<K, R>>> {
        self.has_to_wake = false;
        let clients = self.queued.iter().map(|slot| &self.clients[*slot as usize]);
        clients.filter_map(|client| client.queue.clone()).collect()
    }

    #[inline]
    fn advance(&mut self, now: Tick) {
        self.has_to_sweep |= self.accounts.advance(now);
    }

    fn client(&mut self, slot: u32) -> &mut Client<K, R> {
        &mut self.clients[slot as usize]
    }

    #[inline]
    fn decide(&mut self, slot: u32, intent: Intent, now: Tick, cost: u32) -> Decision {
        if cost == 0 {
            return Decision::Pass;
        }
        let decision = if intent == Intent::Acquire {
            self.accounts.decide(slot, cost, now)
        } else {
            self.accounts.peek(slot, cost, now)
        };
        self.has_to_wake |= self.accounts.lets_earlier();
        self.stats.count(intent, decision);
        decision
    }

    fn refuse(&mut self, slot: u32, cost: u32) {
        self.stats.refused += 1;
        self.accounts.refuse(slot, cost);
    }

    /// The queue of a client, if it has one. It has to be settled later.
    #[inline]
    fn use_queue(&mut self, slot: u32) -> Option<Arc<ClientQueue<K, R>>> {
        let client = self.client(slot);
        let queue = client.queue.clone()?;
        client.handles += 1;
        Some(queue)
    }
}

/// What needs the key.
impl<K: Hash + Eq + Clone, R: Rule> FairClients<K, R> {
    /// Asks for a request that does not wait, and counts it if it is refused. A decision of the account comes with its slot and time.
    #[inline]
    pub(super) fn try_ask<Q: AsKey<K> + ?Sized>(
        &mut self,
        key: &Q,
        intent: Intent,
        cost: u32,
    ) -> (Reply<K, R>, Option<(u32, Tick)>) {
        let now = self.enter();
        if cost == 0 {
            return (Reply::Decided(Decision::Pass), None);
        }
        let slot = match key.find_in(&self.slots) {
            Some((_, slot)) => *slot,
            None if intent == Intent::Peek && self.newcomer(key).is_some() => {
                let decision = self.look(key, |accounts, slot| accounts.peek(slot, cost, now));
                return (Reply::Decided(decision), None);
            }
            None => self.join(key),
        };
        if let Some(queue) = self.use_queue(slot) {
            return (Reply::Ask(queue), None);
        }
        let decision = self.decide(slot, intent, now, cost);
        if intent == Intent::Acquire && !decision.is_pass() {
            self.refuse(slot, cost);
        }
        (Reply::Decided(decision), Some((slot, now)))
    }

    /// Asks for a handle that does not wait yet. If it has to wait it gets the queue; a `spare` one saves memory being taken.
    pub(super) fn ask(
        &mut self,
        key: &K,
        intent: Intent,
        cost: u32,
        queue_of: impl FnOnce(u32, Clock) -> Arc<ClientQueue<K, R>>,
    ) -> Reply<K, R> {
        let now = self.enter();
        if cost == 0 {
            return Reply::Decided(Decision::Pass);
        }
        let slot = self.slot_of(key);
        if let Some(queue) = self.use_queue(slot) {
            return Reply::Ask(queue);
        }
        let decision = self.decide(slot, intent, now, cost);
        match decision {
            Decision::Pass => {}
            // A look too: its request is refused, and made no more.
            Decision::Never { .. } => self.refuse(slot, cost),
            Decision::Wait { .. } => {
                let queue = queue_of(slot, self.clock.clone());
                let client = self.client(slot);
                client.handles = 1;
                client.queue = Some(Arc::clone(&queue));
                self.queued.insert(slot);
                return Reply::Ask(queue);
            }
        }
        Reply::Decided(decision)
    }

    /// Counts a request that did not want to wait for so long.
    pub(super) fn count_refusal(&mut self, key: &K, cost: u32) {
        self.enter();
        let slot = self.slot_of(key);
        self.refuse(slot, cost);
    }

    /// Remembers the client, if there is room.
    pub(super) fn remember(&mut self, key: &K) {
        self.enter_unused();
        self.slot_of(key);
    }

    /// Counts permits that were used without asking.
    pub(super) fn charge(&mut self, key: &K, cost: u32) {
        let now = self.enter();
        if cost > 0 {
            let slot = self.slot_of(key);
            self.accounts.charge(slot, cost, now);
        }
    }

    /// Gives back permits that passed in this cycle, or at that instant.
    pub(super) fn refund(&mut self, key: &K, cost: u32, spent_at: Option<Instant>) {
        let now = self.enter();
        // One that is not known may have found no room.
        let slot = self.slots.get(key).copied().unwrap_or(OVERFLOW);
        let spent_at = spent_at.map(|instant| self.clock.tick_of(instant));
        self.accounts.refund(slot, cost, spent_at, now);
        self.has_to_wake = true;
    }

    /// Asks for the terms of these clients again.
    pub(super) fn renew_terms(&mut self, slots: &[u32]) {
        self.enter();
        for slot in slots {
            if let Some(key) = &self.clients[*slot as usize].key {
                self.accounts.set_terms(*slot, (self.terms_of)(key));
            }
        }
    }

    pub(super) fn retune(&mut self, share: R) {
        let now = self.enter();
        self.accounts.retune(share, now);
    }

    /// Goes to the present cycle.
    #[inline]
    pub(super) fn enter(&mut self) -> Tick {
        let now = self.clock.now();
        self.enter_at(now);
        now
    }

    /// The same, but the clock of an unused limit does not start.
    fn enter_unused(&mut self) -> Tick {
        let now = self.clock.clone().now();
        self.enter_at(now);
        now
    }

    #[inline]
    pub(super) fn enter_at(&mut self, now: Tick) {
        self.advance(now);
        if self.has_to_sweep {
            self.sweep();
        }
    }

    /// Removes the keys of forgotten clients.
    #[cold]
    fn sweep(&mut self) {
        self.has_to_sweep = false;
        self.has_to_wake |= self.accounts.lets_earlier();
        for slot in self.accounts.forgotten() {
            if let Some(key) = self.client(slot).key.take() {
                self.slots.remove(&key);
            }
        }
        if self.slots.capacity() > FEW.max(4 * self.slots.len()) {
            self.slots.shrink_to(2 * self.slots.len());
        }
    }

    fn slot_of(&mut self, key: &K) -> u32 {
        match self.slots.get(key) {
            Some(slot) => *slot,
            None => self.join(key),
        }
    }

    /// Remembers a new client, or counts it into the overflow client.
    #[cold]
    fn join<Q: AsKey<K> + ?Sized>(&mut self, key: &Q) -> u32 {
        let Some((key, terms)) = self.newcomer(key) else {
            return OVERFLOW;
        };
        // Whole numbers are rounded in another way, so that a size may become larger by one.
        self.has_to_wake = true;
        let slot = self.accounts.join(terms);
        if slot != OVERFLOW {
            if slot as usize == self.clients.len() {
                self.clients.push(Client::new());
            }
            self.client(slot).key = Some(key.clone());
            self.slots.insert(key, slot);
        }
        slot
    }

    /// The key and the terms of a client that is not known; `None` if it is counted into the overflow client.
    fn newcomer<Q: AsKey<K> + ?Sized>(&self, key: &Q) -> Option<(K, ClientTerms)> {
        let key = key.to_key();
        let terms = (self.terms_of)(&key);
        let has_room = terms.has_own_share() || !self.accounts.is_full();
        has_room.then_some((key, terms))
    }

    /// Reads the account of a client, or the account of a new client.
    pub(super) fn look<Q: AsKey<K> + ?Sized, T>(
        &self,
        key: &Q,
        look: impl FnOnce(&R::State, u32) -> T,
    ) -> T {
        if let Some((_, slot)) = key.find_in(&self.slots) {
            return look(&self.accounts, *slot);
        }
        let Some((_, terms)) = self.newcomer(key) else {
            return look(&self.accounts, OVERFLOW);
        };
        let mut accounts = self.accounts.excerpt();
        let slot = accounts.join(terms);
        look(&accounts, slot)
    }

    pub(super) fn slots(&mut self) -> Vec<u32> {
        self.enter();
        self.accounts.slots().collect()
    }

    /// What these clients have, but for those that were forgotten meanwhile.
    pub(super) fn shares(&mut self, slots: &[u32]) -> Vec<ClientShare<K>> {
        self.enter();
        let share_of = |slot: &u32| {
            let mut share = self.accounts.client(*slot);
            share.key.clone_from(&self.clients[*slot as usize].key);
            (*slot == OVERFLOW || share.key.is_some()).then_some(share)
        };
        slots.iter().filter_map(share_of).collect()
    }

    pub(super) fn len(&mut self) -> usize {
        self.enter();
        self.accounts.slots().len()
    }

    pub(super) fn status<Q: AsKey<K> + ?Sized>(&mut self, key: &Q) -> Status {
        let now = self.enter_unused();
        let status = self.look(key, |accounts, slot| accounts.status(slot, now));
        self.paused(status, now)
    }

    /// What a client has left right after a decision.
    pub(super) fn status_at(&self, slot: u32, now: Tick) -> Status {
        self.paused(self.accounts.status(slot, now), now)
    }

    fn paused(&self, status: Status, now: Tick) -> Status {
        if now < self.paused_until {
            return status.paused_for(self.paused_until.since(now));
        }
        status
    }
}

/// With a smaller map none of its memory is given back.
const FEW: usize = 64;

impl<K, R: Rule> Client<K, R> {
    const fn new() -> Self {
        Self {
            key: None,
            queue: None,
            handles: 0,
            waiting: 0,
        }
    }
}

/// The account of one client, for which its requests queue.
pub(super) struct Account<K, R: Rule> {
    pub(super) clients: Arc<Mutex<FairClients<K, R>>>,
    pub(super) clock: Clock,
    pub(super) slot: u32,
}

impl<K, R: Rule> Account<K, R> {
    /// When a request behind these waiters may pass, at the earliest.
    pub(super) fn wait_behind(&mut self, waiters: &Waiters, cost: u32) -> Decision {
        let (now, behind) = (self.clock.now(), waiters.cost());
        let clients = lock(&self.clients);
        let open_at = clients.accounts.open_behind(self.slot, behind, cost, now);
        Decision::Wait {
            retry_in: open_at.since(now).max(Duration::from_nanos(1)),
        }
    }

    /// Takes the requests that wait, and counts the `refused` ones. A handle that `leaves` gets the queue, if it was the last handle.
    pub(super) fn settle(
        &mut self,
        waiters: &Waiters,
        refused: u32,
        leaves: bool,
    ) -> Option<Arc<ClientQueue<K, R>>> {
        let clients = &mut *lock(&self.clients);
        if refused > 0 {
            clients.refuse(self.slot, refused);
        }
        let client = &mut clients.clients[self.slot as usize];
        client.handles -= usize::from(leaves);
        // A client is not forgotten while it has a handle that has looked and waits no more.
        let least = u64::from(client.handles > 0);
        clients
            .accounts
            .set_waiting(self.slot, waiters.cost().max(least));
        clients.stats.waiting += waiters.len();
        clients.stats.waiting -= core::mem::replace(&mut client.waiting, waiters.len());
        if client.handles > 0 {
            return None;
        }
        clients.queued.remove(&self.slot);
        client.queue.take()
    }
}

impl<K, R: Rule> Resource for Account<K, R> {
    type Front = ();

    const REFUSES_QUEUED: bool = true;

    fn now(&mut self, _is_queued: bool) -> Tick {
        self.clock.now()
    }

    fn decide(&mut self, intent: Intent, now: Tick, cost: u32) -> Decision {
        let mut clients = lock(&self.clients);
        clients.advance(now);
        clients.decide(self.slot, intent, now, cost)
    }

    fn on_queued(&mut self) {
        lock(&self.clients).stats.held_back += 1;
    }
}

/// Locks all clients.
#[inline]
pub(super) fn lock<K, R: Rule>(
    clients: &Mutex<FairClients<K, R>>,
) -> MutexGuard<'_, FairClients<K, R>> {
    // If the function of the terms panics, the clients are as they were.
    clients.lock().unwrap_or_else(PoisonError::into_inner)
}
