//! The wait queue: waiters in front of a guarded resource, first come, first served.
//!
//! A [`WaitQueue`] holds a [`Resource`] (the state of a limit, the state of a semaphore) and the waiters that want permits of
//! it. Only the head of the queue asks the resource; the others wait until they are the head.
//!
//! * A head that asks itself sleeps on a timer of its own. A queued waiter that becomes the head is woken by the timer of the
//!   queue when its permits are due, so that one wake-up a grant is enough.
//! * As an option the head is the newest waiter while the queue has not been empty for a time. A waiter that joins is then the
//!   head, and the timer of the queue is armed for it.
//! * As another option requests have a [`Priority`]: tickets are ordered by the time of arrival, to which a class below adds some.
//! * A head that has not asked 10 ms after its permits were due is passed over, see [`head_timeout`].
//! * Wakers run foreign code when they wake and when they are dropped, and that code may use this very queue. The queue
//!   collects both in `DeferredWakes`, which run after unlock.

mod deferred;
mod head_timeout;
mod priority;
mod queue;
mod together;
mod wait_queue;
mod waiters;

use crate::policy::{Decision, Policy};
use crate::time::Tick;

pub use priority::Priority;
pub(crate) use queue::Caller;
pub(crate) use wait_queue::WaitQueue;
pub(crate) use waiters::{Position, Ticket, Waiters};

/// The thing that waiters queue for. It answers one request at a time, receives the time as an argument, and knows no waiters.
pub(crate) trait Resource {
    /// What handles use without the lock: prefetched permits, or an observer.
    type Front: Default + Send + Sync;

    /// Whether a queued request that is too large is refused at once, or only when it is the head.
    const REFUSES_QUEUED: bool;

    /// Takes `cost` permits without the lock, or only checks whether it could.
    fn take_prefetched(prefetched: &Self::Front, intent: Intent, cost: u32) -> bool {
        let _ = (prefetched, intent, cost);
        false
    }

    /// Called on every lock: ends the prefetch and counts the permits that were taken from it.
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
