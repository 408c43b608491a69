use core::iter;
use core::mem;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::policy::Decision;
use crate::time::Tick;

use super::cache::DenialSource;
use super::config::{Fallback, LimitConfig};
use super::connection::{Connection, OnDrop, either, within};
use super::error::{CallError, Failure};
use super::policy::RedisPolicy;
use super::queue::{Answer, FlushStep, RequestQueue, WaitMode};
use super::scripts::{DECIDE, DecideCall, DecideReply, RequestId, Task, decode, encode, keys};

/// The retry time while nothing passes because Redis is down.
const RETRY_WHILE_DOWN: Duration = Duration::from_millis(100);

/// The pause after the server refused a call. It would refuse the next one too.
const AFTER_FAULT: Duration = Duration::from_secs(1);

/// The pause after a failure while the breaker is still closed.
const AFTER_FAILURE: Duration = Duration::from_millis(10);

/// One limit in Redis, as this process sees it: a queue of requests, and a task that sends them in batches.
#[derive(Debug)]
pub(super) struct Batcher<P: RedisPolicy> {
    pub(super) connection: Arc<Connection>,
    pub(super) config: Arc<LimitConfig<P>>,
    pub(super) keys: Arc<[String]>,
    queue: Mutex<RequestQueue<P>>,
    /// Whether this process may have several batchers for the key. Then none has an insurance, because each would have one.
    is_duplicate: bool,
    /// Wakes the task when the queue has changed.
    queue_changed: Notify,
}

impl<P: RedisPolicy> Batcher<P> {
    pub(super) fn new(
        connection: Arc<Connection>,
        config: Arc<LimitConfig<P>>,
        keys: Arc<[String]>,
        is_duplicate: bool,
    ) -> Self {
        Self {
            queue: Mutex::new(RequestQueue::new(config.params.len())),
            connection,
            config,
            keys,
            is_duplicate,
            queue_changed: Notify::new(),
        }
    }

    /// The same limit with other settings, and a queue of its own.
    pub(super) fn with_config(&self, config: LimitConfig<P>) -> Self {
        let (connection, keys) = (Arc::clone(&self.connection), Arc::clone(&self.keys));
        Self::new(connection, Arc::new(config), keys, self.is_duplicate)
    }

    /// Asks, or continues to wait for the answer. `position` is the caller's place in the queue.
    pub(super) fn poll_ask(
        self: &Arc<Self>,
        position: &mut Option<RequestId>,
        cost: u32,
        mode: WaitMode,
        cx: &Context<'_>,
    ) -> Poll<Answer> {
        let capacity = self.config.capacity();
        if cost == 0 || cost > capacity {
            self.leave(position);
            return Poll::Ready(Ok(match cost {
                0 => Decision::Pass,
                _ => Decision::Never { capacity },
            }));
        }
        let (answer, needs_task) = self.with_present_queue(|queue, now| {
            let answer = queue.poll(now, position, cost, mode, cx.waker());
            let needs_task = answer.is_pending() && !queue.has_task;
            (answer, needs_task)
        });
        if needs_task {
            // Looked up before the task is claimed: outside a runtime this panics, and a caller in another runtime can still claim.
            let runtime = Handle::try_current();
            let runtime = runtime.expect("a limit in Redis needs a tokio runtime to wait in");
            if self.with_queue(RequestQueue::claim_task) {
                self.spawn_task(&runtime);
            }
        }
        answer
    }

    pub(super) fn leave(self: &Arc<Self>, position: &mut Option<RequestId>) {
        let Some(id) = position.take() else { return };
        let now = self.connection.now();
        // Outside a runtime, the next caller starts the task that gives permits back.
        let runtime = Handle::try_current().ok();
        let starts = self.with_queue(|queue| {
            queue.leave(id);
            runtime.filter(|_| queue.unclaimed.available(now) > 0 && queue.claim_task())
        });
        if let Some(runtime) = starts {
            self.spawn_task(&runtime);
        }
    }

    /// Whether a new batcher for the same key could replace this one without passing more.
    pub(super) fn is_idle(&self) -> bool {
        let down_since = self.connection.health().down_since;
        self.with_queue(|queue| {
            let insured = queue.insurance.as_ref().map(|(since, _)| *since);
            queue.is_idle() && (insured.is_none() || insured != down_since)
        })
    }

    /// How long a request of that cost is known to be denied. `None` after a fault, which the caller has to hear of.
    pub(super) fn denied(&self, cost: u32) -> Option<Duration> {
        self.with_present_queue(|queue, now| {
            let fault = queue.known_outside(now, cost, WaitMode::WaitFailFast);
            queue.denied(now, cost).filter(|_| fault.is_none())
        })
    }

    /// The answer to a `Try` request for one permit, if it needs no round trip: a denial or a fault.
    pub(super) fn known_denial(&self) -> Option<Answer> {
        self.with_present_queue(|queue, now| queue.known_outside(now, 1, WaitMode::Try))
    }

    /// More may be available now than when a request was denied.
    pub(super) fn forget_denial(&self) {
        self.with_queue(|queue| queue.denial = None);
    }

    /// Which limit of an `All` was the last to deny a request, from 0.
    pub(super) fn binding(&self) -> Option<usize> {
        self.with_queue(|queue| queue.binding)
    }

    /// Makes one call outside the queue.
    pub(super) async fn call(
        &self,
        task: Task,
        asked: &[(RequestId, u32)],
        extra: u32,
        oldest_try: Option<Tick>,
    ) -> Result<DecideReply, CallError> {
        let mut health = self.connection.health();
        if !matches!(self.config.fallback, Fallback::Insured(_)) {
            // Such a limit passes nothing or everything during an outage: its length does not matter.
            health.last_outage = 0..0;
        }
        let groups = asked.chunk_by(|(_, one), (_, other)| one == other);
        let group = |group: &[(RequestId, u32)]| {
            let count = u32::try_from(group.len()).unwrap_or(u32::MAX);
            (group[0].1, count)
        };
        let asked: Vec<_> = groups.map(group).collect();
        let stamps = self.with_queue(|queue| queue.stamps.clone());
        let calls = [DecideCall {
            task,
            keys: &self.keys,
            params: &self.config.params,
            stamps: &stamps,
            asked: &asked,
            extra,
            returns: &[],
        }];
        let arg = encode(&calls, &self.connection.new_id(), &health);
        let call = self
            .connection
            .call_packed(&DECIDE, keys(&calls), &arg, oldest_try);
        let reply = call.await?;
        let (_, mut answers) =
            decode(&reply, &calls).ok_or_else(|| CallError::malformed(&reply))?;
        let answer = answers.pop().ok_or_else(|| CallError::malformed(&reply))?;
        let answer = answer.map_err(|fault| {
            self.connection.count(|stats| {
                stats.faults += 1;
                stats.answered -= 1;
            });
            CallError::failed(Failure::Fault(fault.into()))
        })?;
        if answer.lost > 0 && task != Task::Peek {
            self.connection
                .count(|stats| stats.lost_states += answer.lost);
        }
        Ok(answer)
    }

    /// Decides by the outage policy: how many of these requests pass, and how long the next has to wait.
    pub(super) fn decide_locally(
        &self,
        costs: impl Iterator<Item = u32>,
    ) -> (usize, Option<Duration>) {
        let decided = self.decide_by_fallback(costs);
        self.connection
            .count(|stats| stats.passed_alone += decided.0 as u64);
        decided
    }

    /// Decides by the outage policy after a timeout.
    pub(super) fn decide_after_timeout(&self, cost: u32) -> Decision {
        self.connection.count(|stats| stats.timeouts += 1);
        match self.decide_locally(iter::once(cost)) {
            (0, retry_in) => Decision::Wait {
                retry_in: retry_in.unwrap_or(RETRY_WHILE_DOWN),
            },
            _ => Decision::Pass,
        }
    }

    fn decide_by_fallback(&self, costs: impl Iterator<Item = u32>) -> (usize, Option<Duration>) {
        let now = self.connection.now();
        let (policy, since) = match (&self.config.fallback, self.connection.health().down_since) {
            (Fallback::Open, _) => return (costs.count(), None),
            (Fallback::Insured(policy), Some(since)) if !self.is_duplicate => (policy, since),
            // Without an outage an insurance passes nothing.
            (Fallback::Insured(_) | Fallback::Closed, _) => return (0, Some(RETRY_WHILE_DOWN)),
        };
        self.with_queue(|queue| {
            let insurance = match queue.insurance.take() {
                Some(insurance) if insurance.0 == since => insurance,
                _ => (since, policy.spent(since)),
            };
            let (_, state) = queue.insurance.insert(insurance);
            let mut passed = 0;
            for cost in costs {
                match policy.decide(state, now, cost) {
                    Decision::Pass => passed += 1,
                    Decision::Wait { retry_in } => return (passed, Some(retry_in)),
                    // More than this process's share of the limit.
                    Decision::Never { .. } => return (passed, Some(RETRY_WHILE_DOWN)),
                }
            }
            (passed, None)
        })
    }

    fn spawn_task(self: &Arc<Self>, runtime: &Handle) {
        let batcher = Arc::clone(self);
        // A caller in another runtime starts the next task.
        let on_drop = OnDrop::new(move || batcher.with_queue(RequestQueue::task_dropped));
        drop(runtime.spawn(Arc::clone(self).run(on_drop)));
    }

    /// The task that sends the requests of the queue until the queue is empty. There is one round trip at a time; requests made
    /// meanwhile go on the next.
    async fn run(self: Arc<Self>, on_drop: OnDrop<impl FnOnce()>) {
        loop {
            let now = self.connection.now();
            match self.with_queue(|queue| queue.next_step(now)) {
                FlushStep::Ask { asked, oldest_try } => self.ask(now, &asked, oldest_try).await,
                FlushStep::GiveBack {
                    permits,
                    oldest_try,
                } => {
                    // If the call fails, fewer permits pass.
                    let _ = self.call(Task::GiveBack, &[], permits, oldest_try).await;
                }
                FlushStep::Sleep { time, by_fallback } => self.sleep(time, by_fallback).await,
                FlushStep::End => return on_drop.disarm(),
            }
        }
    }

    async fn ask(&self, sent: Tick, asked: &[(RequestId, u32)], oldest_try: Option<Tick>) {
        let (permits, lasts) = self.config.prefetch.unwrap_or_default();
        let prefetched = self.with_queue(|queue| queue.prefetched.available(sent));
        let extra = permits.saturating_sub(prefetched);
        let result = self.call(Task::Ask, asked, extra, oldest_try).await;
        let now = self.connection.now();
        let error = match result {
            Ok(reply) => {
                let came = now.min(sent.after(self.connection.deadline()));
                return self
                    .with_queue(|queue| queue.apply_reply(sent, came, asked, &reply, lasts));
            }
            Err(error) => error,
        };
        if let Some(fault) = error.server_error() {
            return self.with_queue(|queue| {
                queue.deny(asked, &Err(fault.clone()));
                queue.cache_denial(now, AFTER_FAULT, 0, DenialSource::Fault(fault));
            });
        }
        // Redis is slow or gone.
        let (passed, retry_in) = self.decide_locally(asked.iter().map(|(_, cost)| *cost));
        let (passed, denied) = asked.split_at(passed);
        self.with_queue(|queue| {
            queue.grant(now, false, passed);
            if let (Some((_, cost)), Some(retry_in)) = (denied.first(), retry_in) {
                queue.deny(denied, &Ok(Decision::Wait { retry_in }));
                queue.cache_denial(now, retry_in, *cost, DenialSource::Fallback);
            }
        });
    }

    /// Sleeps until the time is over or the queue has changed. If the outage policy denied, also until Redis can be asked again.
    async fn sleep(&self, time: Duration, by_fallback: bool) {
        let waits_for_redis = by_fallback && self.connection.is_down();
        let time = if by_fallback && !waits_for_redis {
            time.min(AFTER_FAILURE)
        } else {
            time
        };
        let changed = self.queue_changed.notified();
        if waits_for_redis {
            within(time, either(changed, self.connection.not_down())).await;
        } else {
            within(time, changed).await;
        }
        if !self.connection.is_down() {
            self.with_queue(RequestQueue::reconnected);
        }
    }

    /// Uses the queue without what the outage policy decided, if Redis is up again.
    fn with_present_queue<T>(&self, work: impl FnOnce(&mut RequestQueue<P>, Tick) -> T) -> T {
        let now = self.connection.now();
        let is_up = self.connection.is_up();
        self.with_queue(|queue| {
            if is_up {
                queue.reconnected();
            }
            work(queue, now)
        })
    }

    /// Uses the queue under its lock, and runs wakers after the lock is released.
    fn with_queue<T>(&self, work: impl FnOnce(&mut RequestQueue<P>) -> T) -> T {
        // Policies do not panic, and no other code under this lock can leave the queue half changed.
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let done = work(&mut queue);
        let wakes = mem::take(&mut queue.wakes);
        let is_changed = mem::take(&mut queue.is_changed);
        drop(queue);
        wakes.into_iter().for_each(Waker::wake);
        if is_changed {
            self.queue_changed.notify_one();
        }
        done
    }
}
