use core::convert::Infallible;
use core::fmt;
use core::hash::Hash;
use core::task::{Context, Poll};
use core::time::Duration;
use std::sync::Arc;

use crate::policy::{Decision, Status};
use crate::time::Resolution;
use crate::wait::{Caller, Intent, Position};

use super::acquire::AcquireWithin;
use super::fair::{Fair, try_queue};
use super::fair_clients::{FairQueue, Reply};
use super::reporter::Watch;
use super::{Answer, Limiter, Method};

/// The share of one client, for an adapter. Made by [`Fair::at`]. A clone queues for the same client.
pub struct FairAt<K>
where
    K: Hash + Eq + Clone + Send + 'static,
{
    fair: Fair<K>,
    key: K,
    /// While it waits.
    queue: Option<Arc<FairQueue<K>>>,
    position: Position,
    /// Memory for the next time that it waits.
    spare: Option<Arc<FairQueue<K>>>,
    watch: Watch,
}

impl<K> FairAt<K>
where
    K: Hash + Eq + Clone + Send + 'static,
{
    pub(super) const fn new(fair: Fair<K>, key: K, watch: Watch) -> Self {
        Self {
            fair,
            key,
            queue: None,
            position: Position::None,
            spare: None,
            watch,
        }
    }

    pub(super) const fn fair(&self) -> &Fair<K> {
        &self.fair
    }

    pub(super) const fn key(&self) -> &K {
        &self.key
    }

    /// Waits for `cost` permits, if they can be had `within` this time: see [`Fair::acquire_within`].
    pub fn acquire_within(&self, cost: u32, within: Duration) -> AcquireWithin<Self> {
        self.fair.acquire_within(self.key.clone(), cost, within)
    }

    /// Asks for `cost` permits without waiting: see [`Fair::try_acquire`].
    pub fn try_acquire(&self, cost: u32) -> Decision {
        self.fair.try_acquire(&self.key, cost)
    }

    fn poll_ask(
        &mut self,
        intent: Intent,
        cost: u32,
        shadowed: &mut Option<Decision>,
        cx: &mut Context<'_>,
    ) -> Answer {
        let queue = match &self.queue {
            Some(queue) => queue,
            None => match self
                .fair
                .ask(&self.key, intent, cost, shadowed, &mut self.spare)
            {
                Reply::Decided(decision) => return Poll::Ready(Ok(decision)),
                Reply::Ask(queue) => self.queue.insert(queue),
            },
        };
        let caller = Caller::new(cx, self.fair.resolution());
        let position = &mut self.position;
        let answer = queue.poll_acquire(position, cost, intent, &caller, shadowed);
        let is_refused = matches!(answer, Poll::Ready(Decision::Never { .. }));
        self.settle(if is_refused { cost } else { 0 });
        answer.map(Ok)
    }

    fn try_ask(&mut self, cost: u32, shadowed: &mut Option<Decision>) -> Answer {
        let intent = Intent::Acquire;
        let Some(queue) = self.queue.as_ref().filter(|_| cost > 0) else {
            let decision = self.fair.try_decide(&self.key, intent, cost, shadowed);
            return Poll::Ready(Ok(decision));
        };
        let decision = try_queue(queue, &mut self.position, intent, cost, shadowed);
        self.settle(if decision.is_pass() { 0 } else { cost });
        Poll::Ready(Ok(decision))
    }

    /// Says what waits, and counts what was `refused`. A handle that waits no more gives the queue back.
    fn settle(&mut self, refused: u32) {
        // A handle that waits is queued, and a look that has passed reserves the position.
        let leaves = self.position.is_none();
        if let Some(queue) = &self.queue {
            let last = self.fair.settle(queue, refused, leaves);
            if leaves {
                self.queue = None;
                self.spare = last.or(self.spare.take());
            }
        }
    }

    /// Leaves the queue.
    fn leave(&mut self) {
        if let Some(queue) = &self.queue {
            queue.cancel(&mut self.position);
            self.settle(0);
        }
    }

    /// Leaves the queue, since it would take too long.
    pub(super) fn refuse_late(&mut self, cost: u32, known: Option<Decision>) -> Decision {
        self.leave();
        self.fair.count_refusal(&self.key, cost);
        let estimate = known.unwrap_or_else(|| self.fair.peek(&self.key, cost));
        self.watch.too_late(cost, estimate);
        estimate
    }
}

impl<K> Limiter for FairAt<K>
where
    K: Hash + Eq + Clone + Send + 'static,
{
    type Error = Infallible;

    fn poll_decide(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer {
        let shadowed = &mut None;
        let answer = self.poll_ask(Intent::Acquire, cost, shadowed, cx);
        self.watch
            .answered(Method::Decide, cost, &answer, *shadowed);
        answer
    }

    fn poll_try(&mut self, cost: u32, _cx: &mut Context<'_>) -> Answer {
        let shadowed = &mut None;
        let answer = self.try_ask(cost, shadowed);
        self.watch.answered(Method::Try, cost, &answer, *shadowed);
        answer
    }

    fn poll_open(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer {
        let answer = self.poll_ask(Intent::Peek, cost, &mut None, cx);
        self.watch.answered(Method::Open, cost, &answer, None);
        answer
    }

    fn give_up(&mut self) {
        self.leave();
        self.watch.gave_up();
    }

    fn shadowed(&self) -> Option<Decision> {
        self.watch.shadowed()
    }

    fn status(&self) -> Option<Status> {
        self.fair.status(&self.key)
    }

    fn least_wait(&self, cost: u32) -> Duration {
        let decision = self.fair.peek(&self.key, cost);
        decision.retry_in().unwrap_or_default()
    }

    fn resolution(&self) -> Resolution {
        self.fair.resolution()
    }
}

impl<K> Clone for FairAt<K>
where
    K: Hash + Eq + Clone + Send + 'static,
{
    fn clone(&self) -> Self {
        self.fair.at(self.key.clone())
    }
}

/// Leaves the queue.
impl<K> Drop for FairAt<K>
where
    K: Hash + Eq + Clone + Send + 'static,
{
    fn drop(&mut self) {
        self.give_up();
    }
}

/// Does not print the key: it may be secret.
impl<K> fmt::Debug for FairAt<K>
where
    K: Hash + Eq + Clone + Send + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FairAt")
            .field("is_waiting", &self.queue.is_some())
            .finish_non_exhaustive()
    }
}
