//! The wait queue: waiters in front of a guarded resource, first come, first served.
//!
//! A [`WaitQueue`] holds a [`Resource`] (the state of a limit, the state of a semaphore) and the waiters that want permits of
//! it. Only the head of the queue asks the resource; the others wait until they are the head.
//!
//! * A head that asks itself sleeps on a timer of its own. A queued waiter that becomes the head is woken by the timer of the
//!   queue when its permits are due, so that one wake-up a grant is enough.
//! * A head that has not asked 10 ms after its permits were due is passed over, see [`head_timeout`].
//! * Wakers run foreign code when they wake and when they are dropped, and that code may use this very queue. The queue
//!   collects both in [`DeferredWakes`], which run after unlock.

mod deferred;
mod head_timeout;
mod queue;
mod waiters;

use core::fmt;
use core::task::{Poll, Waker};
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::policy::Decision;
use crate::time::{Resolution, Tick};

use deferred::{DeferredWakes, HeadTimer};
use queue::Queue;

pub(crate) use waiters::{Position, Waiters};

/// What waiters queue for: it answers one request at a time, is given the time, and knows nothing of waiters.
pub(crate) trait Resource {
    /// Permits that can be taken without the lock; `()` for none.
    type Prefetched: Default + Send + Sync;

    /// Whether a queued request that is too large is refused at once, or only when it is the head.
    const REFUSES_QUEUED: bool;

    /// Takes `cost` permits without the lock, or looks whether they are there.
    fn take_prefetched(prefetched: &Self::Prefetched, intent: Intent, cost: u32) -> bool {
        let _ = (prefetched, intent, cost);
        false
    }

    /// Called on every lock: ends the prefetch and accounts for what was taken of it.
    fn reclaim(&mut self, prefetched: &Self::Prefetched) {
        let _ = prefetched;
    }

    /// Called when a request has passed and no waiter is queued: offers permits to be taken without the lock.
    fn prefetch(&mut self, prefetched: &Self::Prefetched, now: Tick, cost: u32) {
        let _ = (prefetched, now, cost);
    }

    /// The time of one operation. A resource that does not depend on the time need not read a clock while nothing is queued.
    fn now(&mut self, is_queued: bool) -> Tick;

    /// Answers a request, and counts it if it passes and `intent` is [`Intent::Acquire`]. A wait of [`Duration::MAX`]
    /// lasts until the resource is changed.
    fn decide(&mut self, intent: Intent, now: Tick, cost: u32) -> Decision;

    /// Whether the order of the queue does not matter, since every request passes.
    fn is_unordered(&self) -> bool {
        false
    }

    /// A request was queued.
    fn on_queued(&mut self) {}

    /// A waiter was refused for ever.
    fn on_refused(&mut self) {}
}

/// Whether a request takes permits or only looks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Intent {
    Acquire,
    Peek,
}

/// What a queued handle is woken with, and how exactly.
pub(crate) struct Caller<'a> {
    pub(crate) waker: &'a Waker,
    pub(crate) resolution: Resolution,
}

/// A resource and its waiters behind a mutex, and an offer of prefetched permits in front of it.
pub(crate) struct WaitQueue<R: Resource> {
    prefetched: R::Prefetched,
    queue: Mutex<Queue<R>>,
    timer: Mutex<HeadTimer>,
}

impl<R: Resource + Send + 'static> WaitQueue<R> {
    pub(crate) fn new(resource: R) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            prefetched: R::Prefetched::default(),
            queue: Mutex::new(Queue::new(resource, head_timeout::starter(this))),
            timer: Mutex::new(HeadTimer::new()),
        })
    }
}

impl<R: Resource> WaitQueue<R> {
    /// Asks, and is queued while there is something to wait for.
    ///
    /// [`Decision::Wait`]: queued as the head; ask again then. `Pending`: queued; the waker is kept.
    #[inline]
    pub(crate) fn poll_acquire(
        &self,
        position: &mut Position,
        cost: u32,
        intent: Intent,
        caller: &Caller<'_>,
    ) -> Poll<Decision> {
        if position.is_none() && R::take_prefetched(&self.prefetched, intent, cost) {
            return Poll::Ready(Decision::Pass);
        }
        let mut queue = self.lock();
        let answer = queue.poll_acquire(position, cost, intent, caller, &self.prefetched);
        self.unlock(queue);
        answer
    }

    /// Asks without being queued. Where others wait ahead, `wait_behind` says how long that takes.
    #[inline]
    pub(crate) fn try_acquire(
        &self,
        position: &mut Position,
        cost: u32,
        intent: Intent,
        wait_behind: impl FnOnce(&mut R, &Waiters, u32) -> Decision,
    ) -> Decision {
        if position.is_none() && R::take_prefetched(&self.prefetched, intent, cost) {
            return Decision::Pass;
        }
        let mut queue = self.lock();
        let decision = queue.try_acquire(position, cost, intent, &self.prefetched);
        let decision = decision.unwrap_or_else(|| {
            let queue = &mut *queue;
            wait_behind(&mut queue.resource, &queue.waiters, cost)
        });
        if intent == Intent::Acquire && !decision.is_pass() {
            queue.resource.on_refused();
        }
        self.unlock(queue);
        decision
    }

    /// Leaves the queue.
    pub(crate) fn cancel(&self, position: &mut Position) {
        if !position.is_none() {
            let mut queue = self.lock();
            queue.cancel(position);
            self.unlock(queue);
        }
    }

    /// Reads or counts something that concerns no waiter.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut R, &Waiters) -> T) -> T {
        let queue = &mut *self.lock();
        work(&mut queue.resource, &queue.waiters)
    }

    /// Changes the resource, and wakes the head if that lets it pass earlier.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut R, Tick) -> T) -> T {
        let mut queue = self.lock();
        let done = queue.update(change);
        self.unlock(queue);
        done
    }

    /// Changes the resource, and wakes every waiter.
    pub(crate) fn update_all(&self, change: impl FnOnce(&mut R, Tick)) {
        self.update_all_later(change);
        self.wake();
    }

    /// The same, without waking: for use under other locks. [`wake`](Self::wake) has to follow when they are released.
    pub(crate) fn update_all_later(&self, change: impl FnOnce(&mut R, Tick)) {
        self.lock().update_all(change);
    }

    /// Wakes the waiters that are to be woken.
    pub(crate) fn wake(&self) {
        self.unlock(self.lock());
    }

    fn on_head_timeout(&self, task: &Waker) -> Option<Duration> {
        let mut queue = self.lock();
        let sleep = queue.on_head_timeout(task);
        self.unlock(queue);
        sleep
    }

    fn on_task_lost(&self) {
        let mut queue = self.lock();
        queue.on_task_lost();
        self.unlock(queue);
    }

    fn lock(&self) -> MutexGuard<'_, Queue<R>> {
        // A policy must not panic. If one does, its state is as it left it, and the queue is whole.
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.resource.reclaim(&self.prefetched);
        queue
    }

    /// Unlocks, and wakes afterwards.
    #[inline]
    fn unlock(&self, mut queue: MutexGuard<'_, Queue<R>>) {
        if !queue.deferred.is_empty() {
            let deferred: DeferredWakes = core::mem::take(&mut queue.deferred);
            drop(queue);
            deferred.run(&self.timer);
        }
    }
}

/// Reads under the lock and writes without it, so that a slow writer blocks no caller.
impl<R: Resource> fmt::Debug for WaitQueue<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.with(|_, waiters| waiters.len());
        f.debug_struct("WaitQueue")
            .field("waiting", &waiting)
            .finish_non_exhaustive()
    }
}
