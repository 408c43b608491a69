use core::hash::Hash;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use crate::line::Ticket;
use crate::policy::{Decision, Policy};
use crate::time::{Clock, Tick};

use super::desk::After;
use super::limit::{Ask, Limit};
use super::room::{Guest, Room, RoomAfter};
use super::slots::Slots;
use super::{Mode, Shared, Stats};

/// Fewer keys are not worth tidying.
const LEAST: usize = 8;

/// So few can be gone through for each new key that finds no room.
const FEW: usize = 64;

/// One in so many keys is noted as the next to settle, each time all of them are gone through.
const NOTED: usize = 8;

/// When to ask again if there is no room, and those who have it are just about to leave.
const SOON: Duration = Duration::from_millis(1);

/// What a lock of a [`Keyed`](super::Keyed) limit guards: what is known of each key, and who waits for room.
///
/// Going through all the keys is paid for by those that come: it is done when their number has doubled, or, when there are
/// as many as there may be, once for an eighth of them that settle.
pub(super) struct Keys<K, P: Policy> {
    slots: Slots<K, P>,
    policy_of: PolicyOf<K, P>,
    max: usize,
    room: Room,
    clock: Clock,
    mode: Mode,
    /// Of all that is not in a limit of one key.
    stats: Stats,
    /// The next ones that may settle, soonest first; they may have been used since. Only needed where room is limited.
    settling: VecDeque<(Tick, K)>,
    /// With so many keys, all of them are gone through.
    tidy_at: usize,
    /// How many new keys have asked since they were.
    asked: usize,
}

/// The parameters of a key.
pub(super) type PolicyOf<K, P> = Arc<dyn Fn(&K) -> P + Send + Sync>;

/// An answer, or whom to ask.
pub(super) enum Reply<P: Policy> {
    Now(Decision),
    /// The key is new, and there may be room for it after so long.
    NoRoom(Duration),
    /// Somebody waits for the key, or has to.
    AskThere(Shared<P>),
}

impl<K, P> Keys<K, P>
where
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
{
    pub(super) fn new(policy_of: PolicyOf<K, P>, max: usize) -> Self {
        Self {
            slots: Slots::new(),
            policy_of,
            max,
            room: Room::new(),
            clock: Clock::new(),
            mode: Mode::Enforce,
            stats: Stats::new(),
            settling: VecDeque::new(),
            tidy_at: LEAST,
            asked: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The way of most: the key is known, and nobody waits for it. Nothing is left to do after that.
    #[inline]
    pub(super) fn ask_known(&mut self, key: &K, ask: Ask, cost: u32) -> Option<Decision> {
        if cost == 0 || self.mode != Mode::Enforce {
            return None;
        }
        let state = self.slots.light(key)?;
        let decision = decide(&(self.policy_of)(key), state, ask, self.clock.now(), cost);
        Some(self.mode.judge(ask, decision, &mut self.stats))
    }

    /// Answers at once if nobody waits for the key.
    pub(super) fn ask_aside(
        &mut self,
        key: &K,
        ask: Ask,
        cost: u32,
        after: &mut RoomAfter,
    ) -> Reply<P> {
        let now = self.clock.now();
        let reply = self.answer(key, ask, cost, None, now);
        match reply {
            Reply::Now(decision) => self.count_refusal(ask, decision),
            Reply::NoRoom(retry_in) => self.count_refusal(ask, Decision::Wait { retry_in }),
            Reply::AskThere(_) => {}
        }
        self.call_if_room(now, after);
        reply
    }

    pub(super) fn count_refusal(&mut self, ask: Ask, decision: Decision) {
        let is_refused = ask == Ask::ToPass && !decision.is_pass();
        self.stats.refused += u64::from(is_refused);
    }

    /// Answers at once if nobody waits for the key, and need not. Whoever has to wait is sent to its line; or stands here,
    /// while there is no room for the key.
    pub(super) fn ask_in_line(
        &mut self,
        key: &K,
        ask: Ask,
        cost: u32,
        mut guest: Guest<'_>,
        after: &mut RoomAfter,
    ) -> Reply<P> {
        let now = self.clock.now();
        let reply = match self.answer(key, ask, cost, *guest.place, now) {
            Reply::NoRoom(wait) => Reply::NoRoom(self.room.stand(&mut guest, now, wait, after)),
            reply => {
                self.room.leave(guest.place, now, after);
                reply
            }
        };
        let reply = match reply {
            Reply::Now(Decision::Wait { .. }) => Reply::AskThere(self.limit_of(key, now)),
            reply => reply,
        };
        let is_never = matches!(reply, Reply::Now(Decision::Never { .. }));
        self.stats.refused += u64::from(is_never && ask == Ask::ToPass);
        self.call_if_room(now, after);
        reply
    }

    /// Somebody gave up because it took too long.
    pub(super) fn refused(&mut self) {
        self.stats.refused += 1;
    }

    /// Somebody who was sent to the key's line has left it.
    pub(super) fn left(&mut self, key: &K, after: &mut RoomAfter) {
        let now = self.clock.now();
        self.let_go(key, now);
        self.call_if_room(now, after);
    }

    /// Somebody who waited for room has given up.
    pub(super) fn left_room(&mut self, place: &mut Option<Ticket>, after: &mut RoomAfter) {
        let now = self.clock.now();
        self.room.leave(place, now, after);
    }

    /// Forgets all that have settled.
    pub(super) fn forget_settled(&mut self, after: &mut RoomAfter) {
        let now = self.clock.now();
        self.tidy(now);
        self.call_if_room(now, after);
    }

    /// The key's own limit, for what only a limit can do.
    pub(super) fn full(&mut self, key: &K) -> Shared<P> {
        let now = self.clock.now();
        self.limit_of(key, now)
    }

    /// The key's own limit, whose parameters are its own from now on.
    pub(super) fn tuned(&mut self, key: &K) -> Shared<P> {
        let limit = self.full(key);
        self.slots.tune(key);
        limit
    }

    /// Says what is left to do for each key for which somebody waits.
    pub(super) fn set_mode(&mut self, mode: Mode, after: &mut RoomAfter) -> Vec<After> {
        self.mode = mode;
        self.room.wake_all(after);
        let limits = self.slots.limits();
        limits.map(|limit| limit.set_mode_later(mode)).collect()
    }

    pub(super) fn stats(&self) -> Stats {
        let mut stats = self.stats;
        for limit in self.slots.limits() {
            stats.add(limit.stats());
        }
        stats
    }

    fn answer(
        &mut self,
        key: &K,
        ask: Ask,
        cost: u32,
        place: Option<Ticket>,
        now: Tick,
    ) -> Reply<P> {
        if cost == 0 {
            self.begin(key, now);
        }
        if cost == 0 || self.mode == Mode::Off {
            return Reply::Now(Decision::Pass);
        }
        let policy = (self.policy_of)(key);
        let answer = if let Some(state) = self.slots.light(key) {
            Ok(decide(&policy, state, ask, now, cost))
        } else if let Some(limit) = self.slots.limit(key) {
            return Reply::AskThere(limit.clone());
        } else {
            self.newcomer(key, &policy, ask, cost, place, now)
        };
        let decision = answer.unwrap_or_else(|retry_in| Decision::Wait { retry_in });
        // In the other modes than `Enforce`, whoever finds no room passes unremembered.
        match (self.mode.judge(ask, decision, &mut self.stats), answer) {
            (Decision::Wait { retry_in }, Err(_)) => Reply::NoRoom(retry_in),
            (decision, _) => Reply::Now(decision),
        }
    }

    /// Answers a key that is not known, and remembers it if that is needed; or says when there may be room for it.
    fn newcomer(
        &mut self,
        key: &K,
        policy: &P,
        ask: Ask,
        cost: u32,
        place: Option<Ticket>,
        now: Tick,
    ) -> Result<Decision, Duration> {
        let mut state = policy.fresh(now);
        let decision = decide(policy, &mut state, ask, now, cost);
        if matches!(decision, Decision::Never { .. }) {
            return Ok(decision);
        }
        self.make_room(place, now)?;
        // One who is told to wait has started the clock.
        if ask == Ask::ToPass || !decision.is_pass() {
            self.slots.remember(key, state);
        }
        Ok(decision)
    }

    /// Starts the clock of a key that is not known, if that makes a difference and there is room.
    fn begin(&mut self, key: &K, now: Tick) {
        if self.slots.contains(key) {
            return;
        }
        let policy = (self.policy_of)(key);
        let state = policy.fresh(now);
        if !policy.is_settled(&state, now) && self.make_room(None, now).is_ok() {
            self.slots.remember(key, state);
        }
    }

    /// Room for one more key; else, when the first of those that are there may have settled.
    fn make_room(&mut self, place: Option<Ticket>, now: Tick) -> Result<(), Duration> {
        self.asked += 1;
        self.forget_noted(now);
        if self.slots.len() >= self.tidy_at || self.is_full_and_unsure() {
            self.tidy(now);
        }
        let free = self.max.saturating_sub(self.slots.len());
        if free == 0 {
            let first = self.settling.front().map_or(Tick::MAX, |(tick, _)| *tick);
            return Err(first.since(now).max(SOON));
        }
        let is_let_in = self.room.is_empty() || self.room.lets_in(place, free, now);
        is_let_in.then_some(()).ok_or(SOON)
    }

    /// Whether there is no room, and to go through all the keys may help and is paid for: an eighth of them has settled, or as
    /// many have asked as there are.
    fn is_full_and_unsure(&self) -> bool {
        let is_full = self.slots.len() >= self.max;
        let is_few = self.slots.len() <= FEW;
        let first = self.settling.front().map(|(tick, _)| *tick);
        let is_known = first.is_some_and(|first| first < Tick::MAX);
        let is_paid_for = first.is_none() || self.asked >= self.slots.len();
        is_full && (is_few || (is_paid_for && !is_known))
    }

    /// Forgets those noted that have settled by now.
    fn forget_noted(&mut self, now: Tick) {
        while self.settling.front().is_some_and(|(tick, _)| *tick <= now) {
            if let Some((_, key)) = self.settling.pop_front() {
                self.let_go(&key, now);
            }
        }
    }

    /// Keeps no more of this key than is needed.
    fn let_go(&mut self, key: &K, now: Tick) {
        if let Some(counted) = self.slots.lighten(key, now) {
            self.stats.add(counted);
        }
        let policy_of = &self.policy_of;
        self.slots
            .forget_if(key, |state| policy_of(key).is_settled(state, now));
    }

    /// Forgets all that have settled, and notes which will be the next where that matters.
    fn tidy(&mut self, now: Tick) {
        let policy_of = &self.policy_of;
        let is_settled = |key: &K, state: &P::State| policy_of(key).is_settled(state, now);
        self.stats.add(self.slots.tidy(now, is_settled));
        if self.max < usize::MAX {
            let settled_at = |key: &K, state: &P::State| policy_of(key).settled_at(state);
            let mut settling = self.slots.settling(settled_at);
            settling.sort_unstable_by_key(|(settled_at, _)| *settled_at);
            settling.truncate(settling.len().div_ceil(NOTED));
            self.settling = settling.into();
        }
        self.asked = 0;
        self.tidy_at = LEAST.max(2 * self.slots.len());
        self.slots.shrink_to(self.tidy_at);
    }

    fn call_if_room(&mut self, now: Tick, after: &mut RoomAfter) {
        if !self.room.is_empty() && self.slots.len() < self.max {
            self.room.call_first(now, after);
        }
    }

    fn limit_of(&mut self, key: &K, now: Tick) -> Shared<P> {
        if let Some(limit) = self.slots.limit(key) {
            return limit.clone();
        }
        let policy = (self.policy_of)(key);
        let state = self.slots.light(key).map(|state| state.clone());
        let state = state.unwrap_or_else(|| policy.fresh(now));
        let limit = Limit::with_state(policy, self.clock.clone(), state, self.mode);
        self.slots.fill(key, limit)
    }
}

fn decide<P: Policy>(policy: &P, state: &mut P::State, ask: Ask, now: Tick, cost: u32) -> Decision {
    match ask {
        Ask::ToPass => policy.decide(state, now, cost),
        Ask::ToLook => policy.peek(state, now, cost),
    }
}
