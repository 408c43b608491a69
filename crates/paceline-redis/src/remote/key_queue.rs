use core::iter;
use core::mem;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::sync::{Arc, Mutex, PoisonError};

use paceline::policy::Decision;
use paceline::time::Tick;
use tokio::runtime::Handle;

use super::batcher::Batcher;
use super::cache::{CachedDenial, DenialSource, KeyRecord};
use super::error::{CallError, Event, ServerError};
use super::outage_policy::Fallback;
use super::overrides::Change;
use super::queue::RequestQueue;
use super::request::{Asked, Decided, RequestId, WaitMode};
use super::source::{Answer, Source, Stage, Step};
use super::{AFTER_FAULT, LimitConfig, RemotePolicy, Reply, Return, SOON, Store, Task, WHILE_DOWN};

/// One key of a limit, as this process sees it: a queue of requests that the connection's batcher sends.
#[derive(Debug)]
pub(crate) struct KeyQueue<P: RemotePolicy, S: Store> {
    pub(crate) batcher: Arc<Batcher<S>>,
    /// The settings the limit was made with. The queue has the ones in force.
    pub(crate) config: Arc<LimitConfig<P, S>>,
    pub(crate) limit: S::Limit,
    queue: Mutex<RequestQueue<P, S>>,
}

impl<P: RemotePolicy, S: Store> KeyQueue<P, S> {
    pub(crate) fn new(
        batcher: Arc<Batcher<S>>,
        config: Arc<LimitConfig<P, S>>,
        limit: S::Limit,
    ) -> Self {
        let overrides = batcher.overrides.subscribe();
        let queue = RequestQueue::new(Arc::clone(&config), limit.clone(), overrides);
        Self {
            queue: Mutex::new(queue),
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
        let queue = self.queue_mut();
        queue.known = KeyRecord {
            scarcest: None,
            ..known
        };
        queue.insurance = insurance;
        queue.spend_insurance(now);
        self
    }

    pub(super) fn queue_mut(&mut self) -> &mut RequestQueue<P, S> {
        self.queue.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same limit with other settings, and a queue of its own.
    pub(crate) fn with_config(self: &Arc<Self>, config: LimitConfig<P, S>) -> Self {
        let (batcher, limit) = (Arc::clone(&self.batcher), self.limit.clone());
        let mut other = Self::new(batcher, Arc::new(config), limit);
        other.queue_mut().is_duplicate = self.with_queue(|queue| queue.is_duplicate);
        other
    }

    fn now(&self) -> Tick {
        self.batcher.connection.now()
    }

    /// Asks, or continues to wait for the answer. `position` is the caller's place in the queue. If the request passes,
    /// `counted_at` becomes the server's time at which it was counted, if it was.
    ///
    /// Panics outside a runtime if the answer takes a call.
    pub(crate) fn poll_ask(
        self: &Arc<Self>,
        position: &mut Option<RequestId>,
        cost: u32,
        mode: WaitMode,
        cx: &Context<'_>,
        counted_at: &mut Option<u64>,
    ) -> Poll<Asked> {
        if cost == 0 {
            self.leave(position);
            return Poll::Ready(Ok(Decision::Pass));
        }
        let (answer, was_pushed) = self.with_present_queue(|queue, now| {
            let answer = queue.poll(now, position, cost, mode, cx.waker(), counted_at);
            (answer, queue.stage == Stage::Ready)
        });
        if answer.is_pending() {
            Handle::try_current().expect("a limit in Redis needs a tokio runtime to wait in");
            if was_pushed {
                // Perhaps outside a runtime, where no task could be started.
                self.batcher.start_task();
            }
        }
        answer
    }

    /// How many requests wait for an answer.
    pub(crate) fn waiting(self: &Arc<Self>) -> usize {
        self.with_queue(|queue| queue.requests.len())
    }

    /// How long the limit is still paused, as far as this process knows.
    pub(crate) fn pause(self: &Arc<Self>) -> Option<Duration> {
        let now = self.now();
        self.with_queue(|queue| queue.pause(now))
    }

    /// Changes the limit, here at once and in all processes soon.
    pub(crate) async fn change(&self, change: &Change<S::Params>) -> Result<(), CallError> {
        let name = S::override_name(&self.limit);
        self.batcher.change(&name, change).await
    }

    /// Whether a request waits only because the server does not decide: it did not answer the last call, or refused it.
    pub(crate) fn is_undecided(self: &Arc<Self>) -> bool {
        let now = self.now();
        let is_down = self.batcher.connection.health().down_since.is_some();
        self.with_queue(|queue| match queue.denial {
            // A call is under way, or about to be.
            None => is_down && queue.pause(now).is_none(),
            Some(_) => queue.is_undecided(now),
        })
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
        self.with_queue(|queue| {
            let mut record = queue.is_idle(now, down_since).then(|| queue.record())?;
            if S::params(&queue.limit) != S::params(&self.limit) {
                // The parameters may be others when the key is used again.
                record.denied_until = Tick::ZERO;
            }
            Some(record)
        })
    }

    /// How long a request of that cost is known to be denied. `None` after a fault, which the caller has to hear of.
    pub(crate) fn denied(self: &Arc<Self>, cost: u32) -> Option<Duration> {
        self.with_present_queue(|queue, now| {
            let fault = queue.known_outside(now, cost, WaitMode::WaitFailFast);
            queue.denied(now, cost).filter(|_| fault.is_none())
        })
    }

    /// Takes what a reply says of the key's state, and what else there is in it.
    pub(super) fn answered(
        self: &Arc<Self>,
        reply: &Reply<S>,
        work: impl FnOnce(&mut RequestQueue<P, S>),
    ) {
        self.with_queue(|queue| {
            queue.remember(reply);
            work(queue);
        });
        let lost = reply.lost;
        if lost > 0 {
            let connection = &self.batcher.connection;
            connection.count(|stats| stats.lost_states += lost);
            Event::StatesLost(lost).emit();
        }
    }

    /// When the reply to a call that was `sent` at that time is taken to have arrived: within the deadline, also if it is read later.
    fn answered_at(&self, sent: Tick) -> Tick {
        let deadline = self.batcher.connection.deadline();
        self.now().min(sent.after(deadline))
    }

    /// Keeps permits that no caller takes: for other requests, or to return them.
    pub(super) fn keep_unclaimed(self: &Arc<Self>, sent: Tick, reply: &Reply<S>) {
        let answered_at = self.answered_at(sent);
        self.with_queue(|queue| queue.keep_unclaimed(answered_at, reply));
    }

    /// Decides by the outage policy: how many of these requests pass, how long the next has to wait, and why.
    pub(crate) fn decide_locally(
        self: &Arc<Self>,
        costs: impl Iterator<Item = u32>,
    ) -> (usize, Duration, DenialSource) {
        let undecided = |passed| (passed, WHILE_DOWN, DenialSource::Outage);
        let connection = &self.batcher.connection;
        let now = connection.now();
        let (config, pause) =
            self.with_queue(|queue| (Arc::clone(&queue.config), queue.pause(now)));
        if let Some(pause) = pause {
            return (0, pause, DenialSource::Fallback);
        }
        let decided = match (&config.fallback, connection.health().down_since) {
            (Fallback::Open, _) => undecided(costs.count()),
            (Fallback::Insured(policy), Some(since)) => self.with_queue(|queue| {
                if queue.is_duplicate {
                    return undecided(0);
                }
                let insurance = queue.insurance.take().filter(|(of, _)| *of == since);
                let insurance = insurance.unwrap_or_else(|| (since, (config.spent)(policy, since)));
                let (_, state) = queue.insurance.insert(insurance);
                let mut passed = 0;
                for cost in costs {
                    match policy.decide(state, now, cost) {
                        Decision::Pass => passed += 1,
                        Decision::Wait { retry_in } => {
                            return (passed, retry_in, DenialSource::Fallback);
                        }
                        // More than this process's share of the limit.
                        Decision::Never { .. } => break,
                    }
                }
                undecided(passed)
            }),
            // Without an outage an insurance passes nothing.
            (Fallback::Insured(_) | Fallback::Closed, _) => undecided(0),
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
    ) -> Decided {
        let connection = &self.batcher.connection;
        let was_sent = self.with_queue(|queue| position.is_some_and(|id| queue.is_in_flight(id)));
        self.leave(position);
        if !was_sent && connection.health().has_answered_since(since) {
            return Ok(Decision::Wait { retry_in: SOON });
        }
        if let Some(fault) = self.to_return(connection.refusal()) {
            return Err(fault);
        }
        connection.count(|stats| stats.timeouts += 1);
        Ok(match self.decide_locally(iter::once(cost)) {
            (0, retry_in, _) => Decision::Wait { retry_in },
            _ => Decision::Pass,
        })
    }

    /// The fault of a call, unless requests pass in spite of it.
    pub(crate) fn to_return(&self, fault: Option<ServerError>) -> Option<ServerError> {
        fault.filter(|_| !self.config.outage_policy.passes_faults)
    }

    /// Counts permits that were used already. Without an answer an insurance counts them.
    pub(crate) async fn charge(self: &Arc<Self>, cost: u32) -> Result<(), CallError> {
        if cost == 0 {
            return Ok(());
        }
        let charged = self.call(Task::Charge, vec![], cost, vec![]).await;
        if charged.is_err() {
            let now = self.now();
            self.with_queue(|queue| queue.charge_insurance(now, cost));
        }
        charged.map(drop)
    }

    /// There is no reply: the server refused, or is slow or gone.
    fn failed(self: &Arc<Self>, call: RequestId, error: &CallError) {
        let now = self.now();
        let asked = self.with_queue(|queue| queue.take_call(call));
        if let Some(fault) = self.to_return(error.server_error()) {
            let fault = DenialSource::Fault(fault);
            return self.with_queue(|queue| queue.deny(now, AFTER_FAULT, &asked, fault));
        }
        let (passed, retry_in, source) = self.decide_locally(asked.iter().map(|(_, cost)| *cost));
        let (passed, denied) = asked.split_at(passed);
        self.with_queue(|queue| {
            queue.grant(now, None, passed);
            queue.deny(now, retry_in, denied, source);
        });
    }

    /// Uses the queue without what the outage policy decided, if the server is up again. Has the overrides read if they are due,
    /// because what follows may take no call, which would read them.
    pub(crate) fn with_present_queue<T>(
        self: &Arc<Self>,
        work: impl FnOnce(&mut RequestQueue<P, S>, Tick) -> T,
    ) -> T {
        let now = self.now();
        let connection = &self.batcher.connection;
        let (done, is_read_due) = self.with_queue(|queue| {
            queue
                .denial
                .take_if(|denial| denial.is_of_outage() && connection.is_up());
            (work(queue, now), queue.read_at <= now)
        });
        if is_read_due {
            self.batcher.read_overrides();
        }
        done
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
            queue.refresh(&self.config, &self.limit, || self.now());
            let done = work(&mut queue);
            let is_due = queue.is_changed && queue.has_work();
            queue.is_changed &= !is_due;
            let wake = is_due.then(|| queue.stage.make_ready()).flatten();
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

impl<P: RemotePolicy, S: Store> Source<S> for KeyQueue<P, S> {
    fn next(self: Arc<Self>, now: Tick) -> Step<S> {
        let is_down = || self.batcher.connection.is_down();
        self.with_present_queue(|queue, _| queue.next_step(now, is_down))
    }

    fn complete(self: Arc<Self>, call: u64, sent: Tick, answer: Result<Answer<S>, CallError>) {
        match answer {
            Ok(Answer::Leases(_)) => {}
            Ok(Answer::Decided(reply)) => {
                let answered_at = self.answered_at(sent);
                self.answered(&reply, |queue| {
                    queue.apply_reply(call, sent, answered_at, &reply);
                });
            }
            Err(error) => self.failed(call, &error),
        }
    }

    /// The permits are returned, unless the outage policy may have passed as many in their place.
    fn answered_late(self: Arc<Self>, reply: &Reply<S>) {
        let void = self.now();
        self.answered(reply, |queue| {
            if reply.spent == 0 || !matches!(self.config.fallback, Fallback::Closed) {
                return;
            }
            let permits = Return {
                cost: reply.spent,
                requests: reply.passed + u32::from(reply.extra > 0),
                counted_at: reply.counted_at,
            };
            queue.unclaimed.add(permits, void);
            // A waiter that these permits have made wait does so no longer. The pause after the failure stays.
            let denial = queue.denial.as_ref();
            let is_pausing = denial.is_some_and(CachedDenial::is_of_outage);
            queue.is_changed |= !is_pausing || queue.requests.is_empty();
        });
    }

    fn task_dropped(self: Arc<Self>) {
        self.with_queue(RequestQueue::task_dropped);
    }
}
