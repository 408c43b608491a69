//! Requests that pass in several queues together or in none.
//!
//! The queues are locked in one order, so that two such requests never wait for each other's lock. Tickets are taken in all
//! queues under all locks, so that any two such requests stand in the same order in every queue that they share: none of
//! them waits for one that waits for it.
//!
//! A ticket alone blocks no waiter. Then the request is queued at the first limit that would not pass it, and stays the
//! *holding* head of those before: it would pass there, and waits elsewhere. The head timeout gives a holding head one
//! second instead of 10 ms, since its task is not idle. A class would give two requests different orders in two queues, so
//! a `Combined` takes no handle with one. Flows that take turns would do so, too: so every request goes to the queues with flows last,
//! and holds those before. Nor does it take a client of a `Fair`, whose permits other clients can take after
//! a look.

use core::task::Poll;

use crate::policy::Decision;

use super::queue::Caller;
use super::waiter::Position;
use super::{Flow, Intent, Priority, Resource, WaitQueue};

impl<R: Resource> WaitQueue<R> {
    /// Takes a ticket without being queued, and goes on under the lock.
    pub(crate) fn reserve_and(
        &self,
        position: &mut Position,
        flow: Option<Flow>,
        next: &mut dyn FnMut(),
    ) {
        let mut queue = self.lock();
        if position.is_none() {
            queue.resource.on_queued();
            // Classes would let two requests wait for each other.
            let now = queue.resource.now(true);
            *position = Position::Reserved(queue.ticket(now, Priority::Normal, flow));
        }
        next();
    }

    /// Asks without taking, and is queued in any case: where the request would pass it stays the head, and others wait behind it.
    pub(crate) fn poll_hold(
        &self,
        position: &mut Position,
        cost: u32,
        caller: &Caller<'_>,
    ) -> Poll<Decision> {
        let mut queue = self.lock();
        let answer = queue.decide(*position, cost, Intent::Peek);
        let polled = match answer.decision {
            Decision::Pass if answer.is_turn => {
                queue.hold(position, cost, caller, answer.now);
                Poll::Ready(Decision::Pass)
            }
            Decision::Never { .. } => {
                queue.refuse(position, answer.now);
                Poll::Ready(answer.decision)
            }
            _ => queue.wait(position, cost, caller, &answer),
        };
        self.unlock(queue);
        polled
    }

    /// Takes the permits if they pass now and `next`, under the lock, has taken all others. Wakes nobody: see
    /// [`wake_deferred`](Self::wake_deferred).
    pub(crate) fn take_if(
        &self,
        position: &mut Position,
        cost: u32,
        next: &mut dyn FnMut() -> bool,
    ) -> bool {
        let mut queue = self.lock();
        let answer = queue.decide(*position, cost, Intent::Peek);
        if !answer.is_turn || !answer.decision.is_pass() || !next() {
            return false;
        }
        // A request that passes now also passes later. A queued one takes its permits when it leaves the queue.
        let answer = queue.decide(*position, cost, Intent::Acquire);
        let _ = queue.pass(position, None, cost, Intent::Acquire, answer.now);
        true
    }

    /// Wakes what [`take_if`](Self::take_if) could not wake under the locks of other queues.
    pub(crate) fn wake_deferred(&self) {
        let queue = self.lock();
        self.unlock(queue);
    }

    /// Leaves the queue and keeps the ticket.
    pub(crate) fn step_aside(&self, position: &mut Position) {
        if matches!(position, Position::Queued(_)) {
            self.locked(|queue| queue.step_aside(position));
        }
    }

    /// A number that no other queue has, for the order of the locks.
    pub(crate) fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }
}
