use core::hash::Hash;
use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::policy::{Decision, Policy};
use crate::time::{Clock, Tick};

use super::limit::{Ask, Limit};
use super::{Mode, Shared, Stats};

/// So few keys are not worth tidying.
const FEW: usize = 64;

/// One in so many keys is noted as the next to settle, each time all of them are gone through.
const NOTED: usize = 8;

/// When to ask again if there is no room, and those who have it are just about to leave.
const SOON: Duration = Duration::from_millis(1);

/// When to ask again at the latest: who waits for room stands in no line, and nobody wakes them.
const LONG: Duration = Duration::from_secs(1);

/// What a [`Keyed`](super::Keyed) limit locks: a state for each key.
///
/// Going through all the keys is paid for by those that come: it is done when their number has doubled, or, when there are
/// as many as there may be, once for an eighth of them that settle.
pub(super) struct Keys<K, P: Policy> {
    slots: HashMap<K, Slot<P>>,
    policy_of: Arc<dyn Fn(&K) -> P + Send + Sync>,
    max: usize,
    clock: Clock,
    mode: Mode,
    /// Of all that is not in a slot's own limit.
    stats: Stats,
    /// The next ones that may settle, soonest first; they may have been used since.
    settling: VecDeque<(Tick, K)>,
    /// With so many keys, all of them are gone through.
    tidy_at: usize,
    /// How many new keys have asked since they were.
    asked: usize,
}

/// What is known of a key.
#[derive(Debug)]
enum Slot<P: Policy> {
    /// A state and nothing else.
    Light(P::State),
    /// Somebody waits, or it is paused.
    Full(Shared<P>),
    /// As `Full`, and its parameters are its own: it is never forgotten.
    Tuned(Shared<P>),
}

impl<P: Policy> Slot<P> {
    fn limit(&self) -> Option<&Shared<P>> {
        match self {
            Self::Light(_) => None,
            Self::Full(limit) | Self::Tuned(limit) => Some(limit),
        }
    }
}

/// An answer, or whom to ask.
pub(super) enum Reply<P: Policy> {
    Now(Decision),
    /// Somebody waits for the key, or has to.
    AskThere(Shared<P>),
}

impl<K, P> Keys<K, P>
where
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
{
    pub(super) fn new(policy_of: Arc<dyn Fn(&K) -> P + Send + Sync>) -> Self {
        Self {
            slots: HashMap::new(),
            policy_of,
            max: usize::MAX,
            clock: Clock::new(),
            mode: Mode::Enforce,
            stats: Stats::new(),
            settling: VecDeque::new(),
            tidy_at: FEW,
            asked: 0,
        }
    }

    pub(super) fn set_max(&mut self, max: usize) {
        self.max = max;
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Answers at once if nobody waits for the key; if `cost` has to wait, whoever asks `to_wait` is sent to a line.
    pub(super) fn ask(&mut self, key: &K, ask: Ask, cost: u32, to_wait: bool) -> Reply<P> {
        let now = self.clock.now();
        if cost == 0 {
            self.begin(key, now);
        }
        if cost == 0 || self.mode == Mode::Off {
            return Reply::Now(Decision::Pass);
        }
        let policy = (self.policy_of)(key);
        let decision = match self.slots.get_mut(key) {
            Some(Slot::Full(limit) | Slot::Tuned(limit)) => return Reply::AskThere(limit.clone()),
            Some(Slot::Light(state)) => decide(&policy, state, ask, now, cost),
            None => match self.newcomer(key, &policy, ask, now, cost) {
                Ok(decision) => decision,
                Err(retry_in) => return Reply::Now(self.full_up(ask, retry_in, to_wait)),
            },
        };
        let decision = self.mode.judge(ask, decision, &mut self.stats);
        if to_wait && matches!(decision, Decision::Wait { .. }) {
            return Reply::AskThere(self.limit_of(key, now));
        }
        let is_refused = ask == Ask::ToPass && !decision.is_pass();
        self.stats.refused += u64::from(is_refused);
        Reply::Now(decision)
    }

    /// Somebody who was sent to a line has left it.
    pub(super) fn left(&mut self, key: &K) {
        let now = self.clock.now();
        if let Some(slot) = self.slots.get_mut(key) {
            lighten(slot, &mut self.stats, now);
        }
        self.forget_if_settled(key, now);
    }

    /// The key's own limit, for what only a limit can do.
    pub(super) fn full(&mut self, key: &K) -> Shared<P> {
        let now = self.clock.now();
        self.limit_of(key, now)
    }

    /// The key's own limit, whose parameters are its own from now on.
    pub(super) fn tuned(&mut self, key: &K) -> Shared<P> {
        let limit = self.full(key);
        self.slots.insert(key.clone(), Slot::Tuned(limit.clone()));
        limit
    }

    /// Says who has to be told.
    pub(super) fn set_mode(&mut self, mode: Mode) -> Vec<Shared<P>> {
        self.mode = mode;
        self.slots
            .values()
            .filter_map(Slot::limit)
            .cloned()
            .collect()
    }

    pub(super) fn stats(&self) -> Stats {
        let mut stats = self.stats;
        for limit in self.slots.values().filter_map(Slot::limit) {
            stats.add(limit.stats());
        }
        stats
    }

    /// Answers a key that is not known, and remembers it if that is needed; or says when there may be room for it.
    fn newcomer(
        &mut self,
        key: &K,
        policy: &P,
        ask: Ask,
        now: Tick,
        cost: u32,
    ) -> Result<Decision, Duration> {
        let mut state = policy.fresh(now);
        let decision = decide(policy, &mut state, ask, now, cost);
        if matches!(decision, Decision::Never { .. }) {
            return Ok(decision);
        }
        self.make_room(now)?;
        // One who is told to wait has started the clock.
        if ask == Ask::ToPass || !decision.is_pass() {
            self.slots.insert(key.clone(), Slot::Light(state));
        }
        Ok(decision)
    }

    /// Starts the clock of a key that is not known, if that makes a difference and there is room.
    fn begin(&mut self, key: &K, now: Tick) {
        if self.slots.contains_key(key) {
            return;
        }
        let policy = (self.policy_of)(key);
        let state = policy.fresh(now);
        if policy.settled_at(&state) > now && self.make_room(now).is_ok() {
            self.slots.insert(key.clone(), Slot::Light(state));
        }
    }

    /// There is no room for a new key. In the other modes than [`Mode::Enforce`] it passes unremembered.
    fn full_up(&mut self, ask: Ask, retry_in: Duration, to_wait: bool) -> Decision {
        let wait = if to_wait {
            retry_in.min(LONG)
        } else {
            retry_in
        };
        let wait = Decision::Wait { retry_in: wait };
        let decision = self.mode.judge(ask, wait, &mut self.stats);
        let is_refused = ask == Ask::ToPass && !to_wait && !decision.is_pass();
        self.stats.refused += u64::from(is_refused);
        decision
    }

    /// Room for one more key; else, when the first of those that are there may have settled.
    fn make_room(&mut self, now: Tick) -> Result<(), Duration> {
        self.asked += 1;
        self.forget_noted(now);
        let is_full = self.slots.len() >= self.max;
        let is_few = self.slots.len() <= FEW;
        // An eighth of them has settled, or as many have asked as there are.
        let is_paid_for = self.settling.is_empty() || self.asked >= self.slots.len();
        let first = self.settling.front().map(|(tick, _)| *tick);
        let is_known = first.is_some_and(|first| first < Tick::MAX);
        let is_due = is_full && (is_few || (is_paid_for && !is_known));
        if self.slots.len() >= self.tidy_at || is_due {
            self.tidy(now);
        }
        if self.slots.len() < self.max {
            return Ok(());
        }
        let first = self.settling.front().map_or(Tick::MAX, |(tick, _)| *tick);
        Err(first.since(now).max(SOON))
    }

    /// Forgets those noted that have settled by now.
    fn forget_noted(&mut self, now: Tick) {
        while self.settling.front().is_some_and(|(tick, _)| *tick <= now) {
            if let Some((_, key)) = self.settling.pop_front() {
                self.left(&key);
            }
        }
    }

    fn forget_if_settled(&mut self, key: &K, now: Tick) {
        let is_settled = match self.slots.get(key) {
            Some(Slot::Light(state)) => (self.policy_of)(key).settled_at(state) <= now,
            _ => false,
        };
        if is_settled {
            self.slots.remove(key);
        }
    }

    /// Forgets all that have settled, and notes which will be the next.
    fn tidy(&mut self, now: Tick) {
        let mut settling = Vec::new();
        let (policy_of, counted) = (&self.policy_of, &mut self.stats);
        self.slots.retain(|key, slot| {
            lighten(slot, counted, now);
            let (settled_at, is_kept) = match slot {
                Slot::Light(state) => {
                    let settled_at = policy_of(key).settled_at(state);
                    (settled_at, settled_at > now)
                }
                Slot::Full(limit) => (limit.settled_at(), true),
                Slot::Tuned(_) => (Tick::MAX, true),
            };
            if is_kept {
                settling.push((settled_at, key.clone()));
            }
            is_kept
        });
        let noted = settling.len().div_ceil(NOTED);
        settling.sort_unstable_by_key(|(settled_at, _)| *settled_at);
        settling.truncate(noted);
        self.settling = settling.into();
        self.asked = 0;
        self.tidy_at = FEW.max(2 * self.slots.len());
        self.slots.shrink_to(self.tidy_at);
    }

    fn limit_of(&mut self, key: &K, now: Tick) -> Shared<P> {
        let state = match self.slots.get(key) {
            Some(Slot::Full(limit) | Slot::Tuned(limit)) => return limit.clone(),
            Some(Slot::Light(state)) => Some(state.clone()),
            None => None,
        };
        let policy = (self.policy_of)(key);
        let state = state.unwrap_or_else(|| policy.fresh(now));
        let limit = Limit::with_state(policy, self.clock.clone(), state, self.mode);
        let limit = Shared::of(limit);
        self.slots.insert(key.clone(), Slot::Full(limit.clone()));
        limit
    }
}

fn decide<P: Policy>(policy: &P, state: &mut P::State, ask: Ask, now: Tick, cost: u32) -> Decision {
    match ask {
        Ask::ToPass => policy.decide(state, now, cost),
        Ask::ToLook => policy.peek(state, now, cost),
    }
}

/// Keeps nothing but the state of a key for which nobody waits any more, and which is not paused.
fn lighten<P>(slot: &mut Slot<P>, stats: &mut Stats, now: Tick)
where
    P: Policy + Send + 'static,
    P::State: Send,
{
    let Slot::Full(limit) = slot else { return };
    if let Some((state, counted)) = limit.if_sole_and_not_paused(now) {
        stats.add(counted);
        *slot = Slot::Light(state);
    }
}
