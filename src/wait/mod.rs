//! The wait queue: waiters in front of a guarded resource, first come, first served.
//!
//! A [`WaitQueue`] holds a [`Resource`] (the state of a limit, the state of a semaphore) and the waiters that want permits
//! of it. Only the head of the queue asks the resource; the others wait until they are the head.
//!
//! * **Positions.** Each waiter has a ticket: the time of its arrival, which never goes back, and a number that counts up.
//!   The smallest ticket is the head. A request that was the head and only looked has a *reserved* position: it left the
//!   queue and keeps its ticket. If it has to wait again, it is queued under that ticket. The queue is a deque in order of
//!   tickets. A waiter that leaves from the middle leaves a gap; gaps are closed when they reach the front or outnumber the
//!   waiters. So joining and leaving take logarithmic time on average, and no new memory.
//! * **Asking.** Only the head takes permits. A queued head that can pass leaves the queue first and is counted by a clock
//!   reading of its own, so that little happens between this reading and its consumer. For any other request the resource
//!   only checks whether it can ever pass. A limit refuses an impossible request at once. Permits refuse it when it is the
//!   head, since their number may have grown by then.
//! * **Newest first**, an option. Once the queue has not been empty for `after`, the head is the waiter with the largest
//!   ticket, until the queue is empty. The queue's timer wakes it, since most often a newer request overtakes it before.
//!   The oldest wait until the queue is empty, so they need a deadline. No timer watches `after`: it is compared whenever
//!   the queue is asked.
//! * **Classes**, an option. A [`Priority`] moves the time in the ticket: one ageing earlier for `High`, one later for
//!   `Low`. So there is no queue for each class and no timer: new tickets grow until none is smaller than that of a waiter.
//!   Newest first does not apply then, and the estimate of a wait counts no waiter.
//! * **Deadlines**, an option. The time in the ticket is the deadline, or the time of arrival plus the usual time. Neither classes nor
//!   newest first apply then. The estimate of a wait counts those before, without those that it makes late.
//! * **Turns**, an option. Each waiter belongs to a flow, and flows take turns by weight: see [`flows`]. Then the head may also change
//!   when a waiter joins, when a waiter behind it leaves or asks for another cost, and when a reserved position takes permits. Each of
//!   these calls looks for the head afterwards.
//! * **Wake-ups.** When the head leaves, the same call asks how long the next one has to wait. If it need not wait, it is
//!   woken. Else the queue's own timer is set for it, with the waker of that waiter. So a task runs when it joins and when
//!   it passes: one wake-up a grant. `refund`, `pause_for`, `resume`, `resize` and a released permit wake the head if it
//!   may pass earlier than it sleeps. `retune` and a change of mode wake every waiter. A head that is woken too early asks
//!   and sleeps again. In a crowd the timer is set a little later, so that several pass at one wake-up: see [`slack`].
//! * **Runtimes.** A tokio timer belongs to a runtime and ends with it. A `Timer` that is polled in another runtime moves
//!   there. The queue's timer is set only from the runtime in which the head waits; a call from elsewhere wakes the head,
//!   which sleeps on a timer of its own. So the end of one runtime strands no waiter in another.
//! * **Cancellation.** Dropping a handle or a gate leaves the queue. Nothing was counted before the `Pass`, so there is
//!   nothing to undo. If it was the head, the next one is scheduled.
//! * **Head timeout.** A head that lets its turn go by for 10 ms is passed over: it becomes *overdue*, still counts as
//!   waiting, and is queued under the same ticket when it asks. See [`head_timeout`].
//! * **The lock and foreign code.** Wakers run foreign code when they wake and when they are dropped, and that code may ask
//!   this very limit. So an operation collects wake-ups, dropped wakers, tasks and timers in `DeferredWakes`, and runs them
//!   after unlock. Policies run under the lock, and their laws forbid them to panic.

mod deferred;
mod flows;
mod head_timeout;
mod in_order;
mod offer;
mod priority;
mod queue;
mod slack;
mod together;
mod wait_queue;
mod waiter;
mod waiters;

use tokio::time::Instant;

use crate::policy::{Decision, Policy};
use crate::time::Tick;

pub(crate) use flows::Flow;
pub(crate) use offer::Offer;
pub use priority::Priority;
pub(crate) use queue::Caller;
pub(crate) use wait_queue::WaitQueue;
pub(crate) use waiter::{Position, Ticket};
pub(crate) use waiters::Waiters;

/// The thing that waiters queue for. It answers one request at a time, receives the time as an argument, and knows no waiters.
pub(crate) trait Resource {
    /// What handles use without the lock: prefetched permits, or an observer.
    type Front: Default + Send + Sync;

    /// Whether a queued request that is too large is refused at once, or only when it is the head.
    const REFUSES_QUEUED: bool;

    /// Whether flows may divide its permits: see [`Waiters::divide`].
    const MAY_BE_DIVIDED: bool = false;

    /// Takes `cost` permits without the lock, or only checks whether it could.
    fn take_prefetched(prefetched: &Self::Front, intent: Intent, cost: u32) -> bool {
        let _ = (prefetched, intent, cost);
        false
    }

    /// Called on every lock, unless prefetched permits answer: ends the prefetch and counts the permits that were taken from it.
    fn reclaim(&mut self, prefetched: &Self::Front) {
        let _ = prefetched;
    }

    /// Called when a request has passed and no waiter is queued: offers permits to be taken without the lock.
    fn prefetch(&mut self, prefetched: &Self::Front, now: Tick, cost: u32) {
        let _ = (prefetched, now, cost);
    }

    /// The time of one operation. A resource that does not depend on the time need not read a clock while nothing is queued.
    fn now(&mut self, is_queued: bool) -> Tick;

    /// Answers a request, and counts it if it passes and `intent` is [`Intent::Acquire`]. A wait of
    /// [`Duration::MAX`](core::time::Duration::MAX) lasts until the resource is changed.
    fn decide(&mut self, intent: Intent, now: Tick, cost: u32) -> Decision;

    /// Until when permits that no request takes are saved up for later ones; [`Tick::ZERO`] if they are lost.
    fn saves_until(&self) -> Tick {
        Tick::ZERO
    }

    /// A deadline as a tick, and the tick by which a request of `cost` is ordered that has it.
    fn deadline(&self, _deadline: Instant, _cost: u32) -> (Tick, Tick) {
        (Tick::MAX, Tick::MAX)
    }

    /// A request was queued.
    fn on_queued(&mut self) {}

    /// A waiter was refused for ever.
    fn on_refused(&mut self) {}
}

/// Whether a request takes permits or only asks whether it could.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Intent {
    Acquire,
    Peek,
}

impl Intent {
    /// Asks a policy.
    #[inline]
    pub(crate) fn decide<P: Policy>(
        self,
        policy: &P,
        state: &mut P::State,
        now: Tick,
        cost: u32,
    ) -> Decision {
        match self {
            Self::Acquire => policy.decide(state, now, cost),
            Self::Peek => policy.peek(state, now, cost),
        }
    }
}
