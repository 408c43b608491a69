use core::iter;
use core::mem;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::Handle;

use crate::policy::{Decision, Policy};
use crate::time::Tick;

use super::batcher::{Answer, Batcher, Source, Step};
use super::cache::{DenialSource, KeyRecord};
use super::error::{CallError, Event};
use super::outage_policy::Fallback;
use super::queue::RequestQueue;
use super::request::{Decided, RequestId, WaitMode};
use super::{AFTER_FAULT, Ask, Reply, SOON, Store, Task, WHILE_DOWN};

/// The fixed settings of a limit, the same for all its keys.
#[derive(Clone, Debug)]
pub(crate) struct LimitConfig<P: Policy> {
    pub(crate) policy: P,
    /// The largest cost that can pass.
    pub(crate) capacity: u32,
    pub(crate) fallback: Fallback<P>,
    /// The state of an insurance in which everything is spent.
    pub(crate) spent: fn(&P, Tick) -> P::State,
    /// How many permits are taken ahead, and for how long they can be used.
    pub(crate) prefetch: Option<(u32, Duration)>,
}

/// One key of a limit, as this process sees it: a queue of requests that the connection's batcher sends.
#[derive(Debug)]
pub(crate) struct KeyQueue<P: Policy, S: Store> {
    pub(crate) batcher: Arc<Batcher<S>>,
    pub(crate) config: Arc<LimitConfig<P>>,
    pub(crate) limit: S::Limit,
    queue: Mutex<RequestQueue<P, S>>,
}

impl<P, S> KeyQueue<P, S>
where
    P: Policy<State: Send> + Send + Sync + 'static,
    S: Store,
{
    pub(crate) fn new(
        batcher: Arc<Batcher<S>>,
        config: Arc<LimitConfig<P>>,
        limit: S::Limit,
    ) -> Self {
        Self {
            queue: Mutex::new(RequestQueue::new()),
            batcher,
            config,
            limit,
        }
    }

    /// Takes the place of a queue of the same key that has other parameters. An insurance moves here, with everything spent.
    pub(crate) fn replacing(mut self, old: &Arc<Self>) -> Self {
        let now = self.now();
        let (known, insurance) = old.with_queue(|queue| {
            queue.is_duplicate = true;
            // Without the denial, which was for the old parameters.
            (queue.known.clone(), queue.insurance.take())
        });
        let config = Arc::clone(&self.config);
        let queue = self.queue_mut();
        queue.known = KeyRecord {
            scarcest: None,
            ..known
        };
        if let (Fallback::Insured(policy), Some((since, _))) = (&config.fallback, insurance) {
            queue.insurance = Some((since, (config.spent)(policy, now)));
        }
        self
    }

    pub(super) fn queue_mut(&mut self) -> &mut RequestQueue<P, S> {
        self.queue.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same limit with other settings, and a queue of its own.
    pub(crate) fn with_config(self: &Arc<Self>, config: LimitConfig<P>) -> Self {
        let (batcher, limit) = (Arc::clone(&self.batcher), self.limit.clone());
        let mut other = Self::new(batcher, Arc::new(config), limit);
        other.queue_mut().is_duplicate = self.with_queue(|queue| queue.is_duplicate);
        other
    }

    fn now(&self) -> Tick {
        self.batcher.connection.now()
    }

    /// Asks, or continues to wait for the answer. `position` is the caller's place in the queue.
    ///
    /// Panics outside a runtime if the answer takes a call.
    pub(crate) fn poll_ask(
        self: &Arc<Self>,
        position: &mut Option<RequestId>,
        cost: u32,
        mode: WaitMode,
        cx: &Context<'_>,
    ) -> Poll<Decided> {
        let capacity = self.config.capacity;
        if cost == 0 || cost > capacity {
            self.leave(position);
            return Poll::Ready(Ok(match cost {
                0 => Decision::Pass,
                _ => Decision::Never { capacity },
            }));
        }
        let answer =
            self.with_present_queue(|queue, now| queue.poll(now, position, cost, mode, cx.waker()));
        if answer.is_pending() {
            let runtime = Handle::try_current();
            let runtime = runtime.expect("a limit in Redis needs a tokio runtime to wait in");
            // A request from outside a runtime could not start the task.
            self.batcher.start_task(&runtime);
        }
        answer
    }

    pub(crate) fn leave(self: &Arc<Self>, position: &mut Option<RequestId>) {
        if let Some(id) = position.take() {
            self.with_queue(|queue| queue.leave(id));
        }
    }

    /// What to remember of the key, if the caller has the only reference and nothing else would be lost with the queue.
    pub(crate) fn idle_record(
        self: &Arc<Self>,
        down_since: Option<Tick>,
    ) -> Option<KeyRecord<S::Memory>> {
        if Arc::strong_count(self) > 1 {
            return None;
        }
        let now = self.now();
        self.with_queue(|queue| queue.is_idle(now, down_since).then(|| queue.record()))
    }

    /// How long a request of that cost is known to be denied. `None` after a fault, which the caller has to hear of.
    pub(crate) fn denied(self: &Arc<Self>, cost: u32) -> Option<Duration> {
        self.with_present_queue(|queue, now| {
            let fault = queue.known_outside(now, cost, WaitMode::WaitFailFast);
            queue.denied(now, cost).filter(|_| fault.is_none())
        })
    }

    pub(super) fn question(&self, task: Task, memory: S::Memory) -> Ask<S> {
        Ask {
            task,
            limit: self.limit.clone(),
            memory,
            is_insured: matches!(self.config.fallback, Fallback::Insured(_)),
            asked: Vec::new(),
            extra: 0,
            returns: Vec::new(),
        }
    }

    /// Takes what a reply says of the key's state.
    pub(super) fn answered(self: &Arc<Self>, task: Task, reply: &Reply<S>) {
        self.count_lost(task, reply);
        if task != Task::Peek {
            self.with_queue(|queue| queue.remember(reply));
        }
    }

    /// When a reply to a call that was `sent` at that time counts as come: within the deadline, also if it is read later.
    pub(super) fn came(&self, sent: Tick) -> Tick {
        let deadline = self.batcher.connection.deadline();
        self.now().min(sent.after(deadline))
    }

    fn count_lost(&self, task: Task, reply: &Reply<S>) {
        if reply.lost > 0 && task != Task::Peek {
            let lost = reply.lost;
            self.batcher
                .connection
                .count(|stats| stats.lost_states += lost);
            Event::StatesLost(lost).emit();
        }
    }

    /// Decides by the outage policy: how many of these requests pass, and how long the next has to wait.
    pub(crate) fn decide_locally(
        self: &Arc<Self>,
        costs: impl Iterator<Item = u32>,
    ) -> (usize, Duration) {
        let connection = &self.batcher.connection;
        let now = connection.now();
        let decided = match (&self.config.fallback, connection.health().down_since) {
            (Fallback::Open, _) => (costs.count(), WHILE_DOWN),
            (Fallback::Insured(policy), Some(since)) => self.with_queue(|queue| {
                if queue.is_duplicate {
                    return (0, WHILE_DOWN);
                }
                let insurance = queue.insurance.take().filter(|(of, _)| *of == since);
                let insurance =
                    insurance.unwrap_or_else(|| (since, (self.config.spent)(policy, since)));
                let (_, state) = queue.insurance.insert(insurance);
                let mut passed = 0;
                for cost in costs {
                    match policy.decide(state, now, cost) {
                        Decision::Pass => passed += 1,
                        Decision::Wait { retry_in } => return (passed, retry_in),
                        // More than this process's share of the limit.
                        Decision::Never { .. } => break,
                    }
                }
                (passed, WHILE_DOWN)
            }),
            // Without an outage an insurance passes nothing.
            (Fallback::Insured(_) | Fallback::Closed, _) => (0, WHILE_DOWN),
        };
        connection.count(|stats| stats.passed_alone += decided.0 as u64);
        decided
    }

    /// Decides for a caller whose deadline has passed, and which leaves the queue. If its request was not sent and the server answers
    /// other requests, this one waited for its turn in this process, which is no outage.
    pub(crate) fn decide_after_timeout(
        self: &Arc<Self>,
        position: &mut Option<RequestId>,
        since: Tick,
        cost: u32,
    ) -> Decision {
        let connection = &self.batcher.connection;
        let was_sent = self.with_queue(|queue| position.is_some_and(|id| queue.is_in_flight(id)));
        self.leave(position);
        if !was_sent && connection.health().has_answered_since(since) {
            return Decision::Wait { retry_in: SOON };
        }
        connection.count(|stats| stats.timeouts += 1);
        match self.decide_locally(iter::once(cost)) {
            (0, retry_in) => Decision::Wait { retry_in },
            _ => Decision::Pass,
        }
    }

    /// There is no reply: the server refused, or is slow or gone.
    fn failed(self: &Arc<Self>, asked: &[(RequestId, u32)], error: &CallError) {
        let now = self.now();
        if let Some(fault) = error.server_error() {
            return self.with_queue(|queue| {
                queue.deny(asked, &Err(fault.clone()));
                queue.cache_denial(now, AFTER_FAULT, 0, DenialSource::Fault(fault));
            });
        }
        let (passed, retry_in) = self.decide_locally(asked.iter().map(|(_, cost)| *cost));
        let (passed, denied) = asked.split_at(passed);
        self.with_queue(|queue| {
            queue.grant(now, None, passed);
            if let Some((_, cost)) = denied.first() {
                queue.deny(denied, &Ok(Decision::Wait { retry_in }));
                queue.cache_denial(now, retry_in, *cost, DenialSource::Fallback);
            }
        });
    }

    /// Uses the queue without what the outage policy decided, if the server is up again.
    pub(crate) fn with_present_queue<T>(
        self: &Arc<Self>,
        work: impl FnOnce(&mut RequestQueue<P, S>, Tick) -> T,
    ) -> T {
        let now = self.now();
        let is_up = self.batcher.connection.is_up();
        self.with_queue(|queue| {
            if is_up {
                queue.reconnected();
            }
            work(queue, now)
        })
    }

    /// Uses the queue under its lock. After the lock is released, runs wakers, and pushes the queue to the batcher if it has
    /// changed.
    pub(crate) fn with_queue<T>(
        self: &Arc<Self>,
        work: impl FnOnce(&mut RequestQueue<P, S>) -> T,
    ) -> T {
        let (done, wakes, dropped, wake) = {
            // Policies do not panic, and no other code under this lock can leave the queue half changed.
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            let done = work(&mut queue);
            let is_changed = mem::take(&mut queue.is_changed);
            let wake = is_changed.then(|| queue.stage.make_ready()).flatten();
            let wakes = mem::take(&mut queue.wakes);
            (done, wakes, mem::take(&mut queue.dropped), wake)
        };
        drop(dropped);
        wakes.into_iter().for_each(Waker::wake);
        if let Some(wake) = wake {
            self.batcher.push(Arc::clone(self) as _, wake);
        }
        done
    }
}

impl<P, S> Source<S> for KeyQueue<P, S>
where
    P: Policy<State: Send> + Send + Sync + 'static,
    S: Store,
{
    fn next(self: Arc<Self>, now: Tick) -> Step<S> {
        let is_down = self.batcher.connection.is_down();
        let (prefetch, _) = self.config.prefetch.unwrap_or_default();
        let question = self.question(Task::Ask, S::Memory::default());
        self.with_present_queue(|queue, _| queue.next_step(now, is_down, prefetch, question))
    }

    fn complete(self: Arc<Self>, call: u64, sent: Tick, answer: Result<Answer<S>, CallError>) {
        let asked = self.with_queue(|queue| queue.take_call(call));
        match answer {
            Ok(Answer::Leases(_)) => {}
            Ok(Answer::Decided(reply)) => {
                self.count_lost(Task::Ask, &reply);
                let came = self.came(sent);
                let (_, lasts) = self.config.prefetch.unwrap_or_default();
                self.with_queue(|queue| queue.apply_reply(sent, came, &asked, &reply, lasts));
            }
            Err(error) => self.failed(&asked, &error),
        }
    }

    /// The permits are returned, unless the outage policy may have passed as many in their place.
    fn came_late(self: Arc<Self>, reply: &Reply<S>) {
        self.answered(Task::Ask, reply);
        if reply.spent == 0 || !matches!(self.config.fallback, Fallback::Closed) {
            return;
        }
        let void = self.now();
        self.with_queue(|queue| {
            queue.unclaimed.add(reply.spent, void, reply.counted_at);
            // Otherwise with the next question, so that the pause after the failure stays.
            queue.is_changed = queue.requests.is_empty();
        });
    }

    fn task_dropped(self: Arc<Self>) {
        self.with_queue(RequestQueue::task_dropped);
    }
}
