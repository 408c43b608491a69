//! The wait queue: waiters in front of a guarded resource, first come, first served.
//!
//! A [`WaitQueue`] holds a [`Resource`] (the state of a limit, the state of a semaphore) and the waiters that want permits of
//! it. Only the head of the queue asks the resource; the others wait until they are the head.
//!
//! * A head that asks itself sleeps on a timer of its own. A queued waiter that becomes the head is woken by the timer of the
//!   queue when its permits are due, so that one wake-up a grant is enough.
//! * A head that has not asked 10 ms after its permits were due is passed over, see [`head_timeout`].
//! * Wakers run foreign code when they wake and when they are dropped, and that code may use this very queue. The queue
//!   collects both in `DeferredWakes`, which run after unlock.

mod deferred;
mod head_timeout;
mod queue;
mod resource;
mod wait_queue;
mod waiters;

pub(crate) use queue::Caller;
pub(crate) use resource::{Intent, Resource};
pub(crate) use wait_queue::WaitQueue;
pub(crate) use waiters::{Position, Waiters};
