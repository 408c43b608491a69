//! `acquire_within`, `try_acquire` and `peek` need the wait of one more request behind the queue. A copy of the state is
//! taken through the costs of all waiters, each as early as possible. For more than 64 waiters the result is kept, and
//! computed anew when as much has happened as the queue is long. What makes the queue faster throws it away. The answer is
//! never later than the truth: no request is refused that could have passed in time, and one that was let in by mistake is
//! refused at its deadline. A queue by deadline is simulated up to the place of the request, and anew for each question, since others may
//! join before that place. Waiters that come too late for their deadline leave it.

use crate::policy::Policy;
use crate::time::Tick;
use crate::wait::{Ticket, Waiters};

use super::hold::Hold;

/// A queue this short is simulated anew for each question, and so is this much of one by deadline.
pub(super) const SHORT: usize = 64;

/// When the queue will be served: the state of the limit after every queued request has passed as early as possible.
///
/// Simulating a long queue is paid for by the changes since the last time, so a question costs a constant on average, however
/// many wait. The estimate is a lower bound: queued waiters may be late, and none passes before them.
pub(super) struct QueueEstimate<S> {
    /// That of the simulated part of the queue.
    ahead: Ahead<S>,
    /// The first waiter that is not simulated yet.
    next: Ticket,
    /// [`Waiters::changes`] at the last simulation.
    changes: usize,
    /// [`Waiters::reorders`] during the simulation.
    reorders: usize,
}

/// A limit from which requests take one after another, each as early as possible.
pub(super) struct Ahead<S> {
    state: S,
    hold: Hold,
    at: Tick,
}

impl<S> Ahead<S> {
    pub(super) const fn new(state: S, hold: Hold, now: Tick) -> Self {
        Self {
            state,
            hold,
            at: now,
        }
    }

    /// When the next request passes. If that is after its deadline, it leaves.
    pub(super) fn pass<P: Policy<State = S>>(&mut self, policy: &P, cost: u32, by: Tick) -> Tick {
        let from = self.at.max(self.hold.until(cost));
        policy.foresee(&mut self.state, from);
        if by < Tick::MAX && by < self.open_at(policy, from, cost) {
            return self.at;
        }
        self.at = from;
        let wait = policy
            .decide(&mut self.state, self.at, cost)
            .retry_in()
            .unwrap_or_default();
        if !wait.is_zero() {
            self.at = self.at.after(wait);
            // Waits are exact: this passes, unless time itself ends before.
            policy.foresee(&mut self.state, self.at);
            let _ = policy.decide(&mut self.state, self.at, cost);
        }
        self.hold.take(cost);
        self.at
    }

    /// When a request could pass `from` then on.
    pub(super) fn open_at<P: Policy<State = S>>(&self, policy: &P, from: Tick, cost: u32) -> Tick {
        let from = from.max(self.at).max(self.hold.until(cost));
        let wait = policy.peek(&self.state, from, cost).retry_in();
        from.after(wait.unwrap_or_default())
    }
}

impl<S: Clone> QueueEstimate<S> {
    /// When one more request of `cost` could pass behind the queued ones, at the earliest. `None` while nothing is known of them.
    pub(super) fn open_at<P: Policy<State = S>>(
        last: &mut Option<Self>,
        policy: &P,
        state: &S,
        hold: Hold,
        now: Tick,
        cost: u32,
        waiters: &Waiters,
    ) -> Option<Tick> {
        let len = waiters.len();
        last.take_if(|last| len <= SHORT || waiters.changes().wrapping_sub(last.changes) >= len);
        let estimate = last.get_or_insert_with(|| Self {
            ahead: Ahead::new(state.clone(), hold, now),
            next: Ticket::default(),
            changes: waiters.changes(),
            reorders: waiters.reorders(),
        });
        if estimate.reorders != waiters.reorders() {
            return None;
        }
        for (_, cost, by) in waiters.costs_from(estimate.next) {
            estimate.ahead.pass(policy, cost, by);
        }
        estimate.next = waiters.next_ticket();
        Some(estimate.ahead.open_at(policy, now, cost))
    }
}
