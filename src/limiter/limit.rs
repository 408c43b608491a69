use core::panic::AssertUnwindSafe;
use core::time::Duration;
use std::panic::catch_unwind;

use tokio::time::Instant;

use crate::policy::{Decision, Policy, Status};
use crate::time::{Clock, Tick};
use crate::wait::{Intent, Offer, Position, Resource, Ticket, Waiters};

use super::estimate::{Ahead, QueueEstimate, SHORT};
use super::hold::Hold;
use super::prefetch::Prefetch;

/// What a limit has done so far, in requests, whatever they cost. Requests of cost 0 are not counted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Requests that passed, at once or after waiting.
    pub passed: u64,
    /// Requests that were refused: by `try_acquire`, `enforce` or `shed`, because it was too late for `acquire_within`, or
    /// because they cost more than can ever pass.
    pub refused: u64,
    /// Requests that were queued, and those of keys without room that passed by [`WhenFull::Pass`](super::WhenFull::Pass).
    pub held_back: u64,
    /// Requests that are queued now.
    pub waiting: usize,
}

impl Stats {
    /// Counts a request that has passed; a look is none.
    #[inline]
    pub(super) fn count(&mut self, intent: Intent, decision: Decision) {
        let is_counted = intent == Intent::Acquire && decision.is_pass();
        self.passed += u64::from(is_counted);
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.refused += other.refused;
        self.held_back += other.held_back;
        self.waiting += other.waiting;
    }
}

/// A policy with its state, its clock and what holds it: what handles of a shared limit queue for.
pub(super) struct LimitState<P: Policy> {
    pub(super) policy: P,
    clock: Clock,
    state: Option<P::State>,
    pub(super) hold: Hold,
    /// Of a key: whether its parameters may differ from those of a key that has none of its own.
    pub(super) is_tuned: bool,
    prefetch: Prefetch,
    estimate: Option<QueueEstimate<P::State>>,
    pub(super) stats: Stats,
}

impl<P: Policy> LimitState<P> {
    pub(super) fn new(policy: P) -> Self {
        Self::with_state(policy, Clock::new(), None)
    }

    /// A limit that goes on from a state.
    pub(super) fn with_state(policy: P, clock: Clock, state: Option<P::State>) -> Self {
        Self {
            policy,
            clock,
            state,
            hold: Hold::NONE,
            is_tuned: false,
            prefetch: Prefetch::new(),
            estimate: None,
            stats: Stats::default(),
        }
    }

    /// The state, if that is all there is to the limit: no hold, and no parameters of its own.
    pub(super) fn if_ordinary(&mut self, now: Tick) -> Option<P::State> {
        // If the policy has panicked, asking it again may be a second panic, which ends the program.
        if !self.prefetch.is_committed() && std::thread::panicking() {
            return None;
        }
        if self.is_tuned || now < self.hold.ends_at() {
            return None;
        }
        self.now(false);
        self.state.clone()
    }

    /// Lets nothing pass before `at`, when there may be room for the key.
    pub(super) const fn wait_for_room(&mut self, at: Tick) {
        self.hold = Hold::until_room(at);
    }

    /// Whether the limit has to be remembered: it is paused, has parameters of its own or a number of permits left, or something has
    /// passed. Then it does not wait for room any more.
    pub(super) fn has_to_be_remembered(&mut self, at: Tick) -> bool {
        let mut hold = self.hold;
        hold.lift(Hold::until_room(at));
        let has_to_be_remembered =
            self.is_tuned || self.stats.passed > 0 || self.clock.now() < hold.ends_at();
        if has_to_be_remembered {
            self.hold = hold;
        }
        has_to_be_remembered
    }

    /// From when on a fresh limit would answer alike, if nothing is asked before.
    pub(super) fn settled_at(&self) -> Tick {
        if self.is_tuned {
            return Tick::MAX;
        }
        let settled_at = self
            .state
            .as_ref()
            .map(|state| self.policy.settled_at(state));
        settled_at.unwrap_or(Tick::ZERO).max(self.hold.ends_at())
    }

    pub(super) fn refund(&mut self, now: Tick, cost: u32) {
        if let Some(state) = &mut self.state {
            self.policy.refund(state, now, cost);
        }
    }

    /// Gives back permits that were spent at that instant.
    pub(super) fn refund_from(&mut self, now: Tick, spent_at: Instant, cost: u32) {
        let spent_at = self.clock.tick_of(spent_at);
        if let Some(state) = &mut self.state {
            self.policy.refund_from(state, now, spent_at, cost);
        }
    }

    /// Counts permits that were used without asking.
    pub(super) fn charge(&mut self, now: Tick, cost: u32) {
        if let Some(state) = &mut self.state {
            self.policy.charge(state, now, cost);
            self.hold.charge(cost);
        }
    }

    pub(super) fn retune(&mut self, now: Tick, policy: P) {
        let old = core::mem::replace(&mut self.policy, policy);
        self.is_tuned = true;
        self.hold.count_requests(self.policy.is_per_request());
        if let Some(state) = &mut self.state {
            self.policy.retune(&old, state, now);
        }
    }

    /// Begins anew.
    pub(super) fn reset(&mut self, now: Tick) {
        self.state = Some(self.policy.fresh(now));
        self.resume();
    }

    /// No more than `remaining` permits pass before `reset_in` is over.
    pub(super) fn set_remaining(&mut self, now: Tick, remaining: u32, reset_in: Duration) {
        self.hold.set_remaining(now, remaining, reset_in);
        self.hold.count_requests(self.policy.is_per_request());
    }

    pub(super) fn resume(&mut self) {
        self.hold = Hold::NONE;
    }

    /// What the policy and the hold leave. The clock of an unused limit does not start.
    pub(super) fn status(&mut self) -> Option<Status> {
        if self.state.is_none() {
            let fresh = self.policy.fresh(Tick::ZERO);
            return Some(self.policy.status(&fresh, Tick::ZERO));
        }
        let now = self.now(true);
        let status = self.policy.status(self.state.as_ref()?, now);
        Some(self.hold.status(status, now))
    }

    /// How long no request passes, whatever the policy has.
    pub(super) fn paused_for(&self) -> Option<Duration> {
        // A copy: the clock of an unused limit does not start.
        let left = self.hold.until(1).since(self.clock.clone().now());
        (!left.is_zero()).then_some(left)
    }

    /// How long a request of this cost has to wait behind all that are queued, at the least. From the time at which the newest
    /// is served first it is behind none. In a queue by deadline it is behind those that are before it and can make theirs.
    pub(super) fn wait_behind(
        &mut self,
        waiters: &Waiters,
        cost: u32,
        deadline: Option<Instant>,
    ) -> Decision {
        let now = self.now(true);
        let alone = now.after(self.peek(now, cost).retry_in().unwrap_or_default());
        let by = deadline.map(|deadline| self.deadline(deadline, cost).1);
        let state = self.state.get_or_insert_with(|| self.policy.fresh(now));
        let open_at = if let Some(order) = waiters.order_by_deadline(now, by) {
            let mut ahead = Ahead::new(state.clone(), self.hold, now);
            let queued = waiters.costs_from(Ticket::default()).take(SHORT);
            for (_, cost, deadline) in queued.take_while(|(ticket, ..)| ticket.order <= order) {
                ahead.pass(&self.policy, cost, deadline);
            }
            ahead.open_at(&self.policy, now, cost)
        } else {
            let (estimate, policy, hold) = (&mut self.estimate, &self.policy, self.hold);
            let open_at = QueueEstimate::open_at(estimate, policy, state, hold, now, cost, waiters);
            open_at.unwrap_or(alone)
        };
        let open_at = open_at.min(waiters.newest_first_at().max(alone));
        Decision::Wait {
            retry_in: open_at.since(now).max(Duration::from_nanos(1)),
        }
    }

    /// When the next `count` requests of a handle pass, of cost 1 each: the first at its position, the others behind all that are
    /// queued. None is known where others may come before, and where these may.
    pub(super) fn foresee(
        &mut self,
        waiters: &Waiters,
        position: Position,
        count: usize,
    ) -> Vec<Instant> {
        let is_in_order = waiters.newest_first_at() == Tick::MAX && !waiters.is_by_deadline();
        if !is_in_order || self.hold.is_guess {
            return Vec::new();
        }
        let now = self.now(true);
        let state = self.state.get_or_insert_with(|| self.policy.fresh(now));
        if count == 1 && waiters.is_first(position) {
            // The state of a log is long. The next permit needs no copy of it.
            let wait = self.peek(now, 1).retry_in().unwrap_or_default();
            return vec![self.clock.instant_of(now.after(wait))];
        }
        let mut ahead = Ahead::new(state.clone(), self.hold, now);
        let mut passes = Vec::with_capacity(count);
        for (ticket, cost, deadline) in waiters.costs_from(Ticket::default()) {
            let passes_at = ahead.pass(&self.policy, cost, deadline);
            if position == Position::Queued(ticket) {
                passes.push(self.clock.instant_of(passes_at));
            }
        }
        while passes.len() < count {
            let passes_at = ahead.pass(&self.policy, 1, Tick::MAX);
            passes.push(self.clock.instant_of(passes_at));
        }
        passes
    }

    /// What the policy and the hold say. Nothing is counted.
    fn peek(&self, now: Tick, cost: u32) -> Decision {
        let Some(state) = &self.state else {
            return Decision::Pass;
        };
        // A pause makes every request wait, but does not hide what can never pass.
        let held = Decision::from(self.hold.until(cost), now);
        self.policy.peek(state, now, cost).strictest(held)
    }
}

/// The status after a decision. The decision stands even if the policy panics here. Out of line: most answers read no status.
#[inline(never)]
pub(super) fn left_after(status: impl FnOnce() -> Option<Status>) -> Option<Status> {
    catch_unwind(AssertUnwindSafe(status)).ok().flatten()
}

impl<P: Policy> Resource for LimitState<P> {
    type Front = Offer;

    const REFUSES_QUEUED: bool = true;

    #[inline]
    fn take_prefetched(offer: &Offer, intent: Intent, cost: u32) -> bool {
        offer.take(intent, cost)
    }

    #[inline]
    fn reclaim(&mut self, offer: &Offer) {
        self.stats.passed += u64::from(self.prefetch.reclaim(offer));
    }

    #[inline]
    fn prefetch(&mut self, offer: &Offer, now: Tick, cost: u32) {
        // Cost 0 passes while the limit is paused, too. What a provider has left is counted by each request.
        if cost > 0 && now >= self.hold.ends_at() {
            if let Some(state) = &self.state {
                self.prefetch.reserve(&self.policy, state, now, cost);
                self.prefetch.offer_to(offer);
            }
        }
    }

    /// The state begins with the first reading.
    #[inline]
    fn now(&mut self, _is_queued: bool) -> Tick {
        let now = self.clock.now();
        let state = self.state.get_or_insert_with(|| self.policy.fresh(now));
        self.prefetch.commit(&self.policy, state, now);
        now
    }

    fn decide(&mut self, intent: Intent, now: Tick, cost: u32) -> Decision {
        if cost == 0 {
            return Decision::Pass;
        }
        let decision = match &mut self.state {
            Some(state) if intent == Intent::Acquire && now >= self.hold.until(cost) => {
                let decision = self.policy.decide(state, now, cost);
                if decision.is_pass() {
                    self.hold.take(cost);
                }
                decision
            }
            _ => self.peek(now, cost),
        };
        self.stats.count(intent, decision);
        decision
    }

    fn saves_until(&self) -> Tick {
        let state = self.state.as_ref();
        state.map_or(Tick::ZERO, |state| self.policy.saves_until(state))
    }

    fn deadline(&self, deadline: Instant, cost: u32) -> (Tick, Tick) {
        let deadline = self.clock.tick_of(deadline);
        // Where one permit passes at a time, each further permit of a request keeps the requests after it waiting.
        let quota = self.policy.quota().filter(|quota| quota.permits == 1);
        let spacing = quota.filter(|_| !self.policy.is_per_request());
        let spacing = spacing.map_or(Duration::ZERO, |quota| quota.window);
        let by = deadline.after_times(spacing, cost.saturating_sub(1));
        (deadline, by)
    }

    fn on_queued(&mut self) {
        self.stats.held_back += 1;
    }

    fn on_refused(&mut self) {
        self.stats.refused += 1;
    }
}
