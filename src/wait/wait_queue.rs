use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::runtime::Handle;

use crate::policy::Decision;
use crate::time::{OutOfRange, Resolution, Tick, Timer};

use super::deferred::{DeferredWakes, HeadTimer};
use super::priority::Ageing;
use super::queue::{Caller, Queue};
use super::waiter::Position;
use super::waiters::Waiters;
use super::{Flow, Intent, Resource};

/// A resource and its waiters behind a mutex, with prefetched permits that are taken without it.
pub(crate) struct WaitQueue<R: Resource> {
    front: R::Front,
    queue: Mutex<Queue<R>>,
    timer: Mutex<HeadTimer>,
    /// Spawns the task of the head-of-line timeout. It is a pointer, since only [`new`](Self::new) has the bounds of a task.
    spawn_task: fn(&Weak<Self>),
    this: Weak<Self>,
}

impl<R: Resource + Send + 'static> WaitQueue<R> {
    pub(crate) fn new(resource: R) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            front: R::Front::default(),
            queue: Mutex::new(Queue::new(resource)),
            timer: Mutex::default(),
            spawn_task,
            this: Weak::clone(this),
        })
    }
}

impl<R: Resource> WaitQueue<R> {
    /// What handles use without the lock.
    #[inline]
    pub(crate) const fn front(&self) -> &R::Front {
        &self.front
    }

    /// Takes prefetched permits without the lock, or only checks whether it could. A handle with a position has to ask.
    #[inline]
    pub(crate) fn takes_prefetched(&self, position: Position, cost: u32, intent: Intent) -> bool {
        position.is_none() && R::take_prefetched(&self.front, intent, cost)
    }

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
        let Some(mut queue) = self.lock_unless_prefetched(*position, cost, intent) else {
            return Poll::Ready(Decision::Pass);
        };
        let answer = queue.decide(*position, cost, intent);
        if queue.passes_alone(*position, cost, &answer, &self.front) {
            return Poll::Ready(Decision::Pass);
        }
        let refuses = answer.is_turn || R::REFUSES_QUEUED || position.is_none();
        let polled = match answer.decision {
            Decision::Pass if answer.is_turn => {
                Poll::Ready(queue.pass(position, caller.flow, cost, intent, answer.now))
            }
            Decision::Never { .. } if refuses => {
                queue.refuse(position, answer.now);
                Poll::Ready(answer.decision)
            }
            _ => queue.wait(position, cost, caller, &answer),
        };
        self.unlock(queue);
        polled
    }

    /// Asks without being queued. Where others wait ahead, `wait_behind` says how long that takes.
    pub(crate) fn try_acquire(
        &self,
        position: &mut Position,
        flow: Option<Flow>,
        cost: u32,
        intent: Intent,
        wait_behind: impl FnOnce(&mut R, &Waiters, u32) -> Decision,
    ) -> Decision {
        self.try_and_read(position, flow, cost, intent, wait_behind, |_| false, |_| ())
    }

    /// The same, and an answer that it `reads` is followed by `read` under the same lock, so that no other request comes between.
    #[expect(
        clippy::too_many_arguments,
        reason = "one function for requests that read and for others"
    )]
    pub(crate) fn try_and_read(
        &self,
        position: &mut Position,
        flow: Option<Flow>,
        cost: u32,
        intent: Intent,
        wait_behind: impl FnOnce(&mut R, &Waiters, u32) -> Decision,
        reads: impl Fn(Decision) -> bool,
        read: impl FnOnce(&mut R),
    ) -> Decision {
        // A prefetched permit would pass without the lock.
        let needs_lock = reads(Decision::Pass);
        let queue = if needs_lock {
            Some(self.lock())
        } else {
            self.lock_unless_prefetched(*position, cost, intent)
        };
        let Some(mut queue) = queue else {
            return Decision::Pass;
        };
        let answer = queue.decide(*position, cost, intent);
        let decision = match answer.decision {
            Decision::Pass if queue.passes_alone(*position, cost, &answer, &self.front) => {
                Decision::Pass
            }
            Decision::Pass | Decision::Wait { .. } if !answer.is_turn => {
                let queue = &mut *queue;
                wait_behind(&mut queue.resource, &queue.waiters, cost)
            }
            Decision::Pass if intent == Intent::Acquire && cost > 0 => {
                queue.pass(position, flow, cost, intent, answer.now)
            }
            decision => decision,
        };
        if intent == Intent::Acquire && !decision.is_pass() {
            queue.resource.on_refused();
        }
        if reads(decision) {
            read(&mut queue.resource);
        }
        self.unlock(queue);
        decision
    }

    /// Leaves the queue.
    #[inline]
    pub(crate) fn cancel(&self, position: &mut Position) {
        if !position.is_none() {
            self.leave(position);
        }
    }

    /// Out of line: most requests were never queued.
    #[cold]
    #[inline(never)]
    fn leave(&self, position: &mut Position) {
        self.locked(|queue| queue.cancel(position));
    }

    /// Reads or counts something that concerns no waiter.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut R, &Waiters) -> T) -> T {
        let queue = &mut *self.lock();
        work(&mut queue.resource, &queue.waiters)
    }

    /// Changes the resource, and wakes the head if that lets it pass earlier.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut R, Tick) -> T) -> T {
        self.locked(|queue| queue.update(|resource, _, now| change(resource, now)))
    }

    /// The same, which may change whose turn it is.
    pub(crate) fn update_turns<T>(&self, change: impl FnOnce(&mut R, &mut Waiters) -> T) -> T {
        self.locked(|queue| queue.update(|resource, waiters, _| change(resource, waiters)))
    }

    /// The same after permits were given back that a flow has taken.
    pub(crate) fn release<T>(
        &self,
        flow: u64,
        count: u32,
        change: impl FnOnce(&mut R, Tick) -> T,
    ) -> T {
        self.locked(|queue| {
            queue.update(|resource, waiters, now| {
                if let Some(flows) = waiters.division() {
                    flows.give_back(flow, count);
                }
                change(resource, now)
            })
        })
    }

    /// Changes the resource, and wakes every waiter.
    pub(crate) fn update_all(&self, change: impl FnOnce(&mut R, Tick)) {
        self.update(change);
        self.wake_all();
    }

    /// Serves the newest waiter first while the queue has not been empty for this time.
    pub(crate) fn serve_newest_first(&self, after: Duration) {
        self.locked(|queue| queue.waiters.serve_newest_first(after));
    }

    /// Serves requests by their class; the ageing stays as it is if none is given.
    pub(crate) fn serve_by_class(&self, ageing: Option<Duration>) -> Result<(), OutOfRange> {
        let ageing = ageing.map(Ageing::try_new).transpose()?;
        self.locked(|queue| queue.serve_by(|waiters| waiters.serve_by_class(ageing)));
        Ok(())
    }

    /// Serves the request with the earliest deadline first; that of one without is its arrival plus `usual`.
    pub(crate) fn serve_by_deadline(&self, usual: Duration) {
        self.locked(|queue| queue.serve_by(|waiters| waiters.serve_by_deadline(usual)));
    }

    /// Wakes every waiter, so that it asks again.
    pub(crate) fn wake_all(&self) {
        self.locked(Queue::wake_all);
    }

    /// Works under the lock, and wakes after unlock.
    #[inline]
    pub(super) fn locked<T>(&self, work: impl FnOnce(&mut Queue<R>) -> T) -> T {
        let mut queue = self.lock();
        let done = work(&mut queue);
        self.unlock(queue);
        done
    }

    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, Queue<R>> {
        let mut queue = self.lock_only();
        queue.resource.reclaim(&self.front);
        queue
    }

    /// `None` if the request has passed: the thread that had the lock before may have prefetched permits. To reclaim them at once
    /// would send that thread to the lock again, and the next one after it.
    #[inline]
    fn lock_unless_prefetched(
        &self,
        position: Position,
        cost: u32,
        intent: Intent,
    ) -> Option<MutexGuard<'_, Queue<R>>> {
        let mut queue = self.lock_only();
        if self.takes_prefetched(position, cost, intent) {
            return None;
        }
        queue.resource.reclaim(&self.front);
        Some(queue)
    }

    #[inline]
    fn lock_only(&self) -> MutexGuard<'_, Queue<R>> {
        // A policy must not panic. If one does, the queue is still consistent, and the state is as the policy left it.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Unlocks, and wakes afterwards.
    #[inline]
    pub(super) fn unlock(&self, queue: MutexGuard<'_, Queue<R>>) {
        if queue.deferred.is_pending() {
            self.unlock_and_wake(queue);
        }
    }

    #[inline(never)]
    fn unlock_and_wake(&self, mut queue: MutexGuard<'_, Queue<R>>) {
        let deferred: DeferredWakes = core::mem::take(&mut queue.deferred);
        drop(queue);
        deferred.run(&self.timer, || {
            (self.spawn_task)(&self.this);
            self.lock().timeout.has_started();
        });
    }
}

/// Reads under the lock and writes without it, so that a slow writer blocks no caller.
impl<R: Resource> fmt::Debug for WaitQueue<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.with(|_, waiters| waiters.len());
        write!(f, "WaitQueue {{ waiting: {waiting} }}")
    }
}

/// Without a runtime the task is dropped at once.
fn spawn_task<R: Resource + Send + 'static>(queue: &Weak<WaitQueue<R>>) {
    let task = TimeoutTask {
        queue: Weak::clone(queue),
        timer: Timer::new().with_resolution(Resolution::Millis),
        is_lost: true,
    };
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(task);
    }
}

/// The task of the head-of-line timeout. It ends when no second waiter is queued, when the queue is gone, or with its runtime.
struct TimeoutTask<R: Resource> {
    queue: Weak<WaitQueue<R>>,
    timer: Timer,
    /// Whether another one is needed if this one is dropped.
    is_lost: bool,
}

impl<R: Resource> Future for TimeoutTask<R> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let queue = self.queue.upgrade();
            let on_timeout = |queue: &mut Queue<R>| queue.on_head_timeout(cx.waker());
            let Some(sleep) = queue.and_then(|queue| queue.locked(on_timeout)) else {
                self.is_lost = false;
                return Poll::Ready(());
            };
            if sleep == Duration::MAX {
                // No timer: it would move a paused clock.
                self.timer.disarm();
                return Poll::Pending;
            }
            self.timer.arm(sleep);
            // In a runtime without timers this panics, and so would another task.
            self.is_lost = false;
            let elapsed = self.timer.poll_elapsed(cx);
            self.is_lost = true;
            ready!(elapsed);
        }
    }
}

/// Also runs if the task could not be started, or if its runtime has ended.
impl<R: Resource> Drop for TimeoutTask<R> {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.upgrade().filter(|_| self.is_lost) {
            queue.locked(Queue::on_task_lost);
        }
    }
}
