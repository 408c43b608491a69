use core::fmt;
use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::Poll;
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use crate::time::Tick;

use super::config::{Fallback, OutagePolicy};
use super::connection::{Connection, sleep};
use super::error::{CallError, ConfigError, ServerError};
use super::lease_queue::{
    LeaseAnswers, LeaseBatch, LeaseOutcome, LeaseQueue, LeaseStep, LeaseWaiter,
};
use super::lease_table::LeaseKey;
use super::permits::Lease;
use super::scripts::{ClassLimit, LeaseId, LeaseReply, LeaseRequest};

/// The bounds of a lease's time. It is also at least this many deadlines.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
const DEADLINES: u32 = 4;

/// A pool of leases in Redis, as this process sees it: a queue, and a task that makes its round trips.
pub(super) struct LeasePool {
    pub(super) connection: Arc<Connection>,
    lease: Duration,
    classes: Vec<ClassConfig>,
    keys: Arc<[String]>,
    queue: Mutex<LeaseQueue>,
    /// Wakes the task when the queue has changed.
    queue_changed: Notify,
}

/// The fixed settings of one class of leases.
#[derive(Clone, Debug)]
pub(super) struct ClassConfig {
    pub(super) key: String,
    pub(super) limit: ClassLimit,
    /// An insurance is the number of leases that this process may hold when those of others have ended.
    pub(super) fallback: Fallback<u32>,
}

impl ClassConfig {
    pub(super) fn new(
        key: String,
        own: u32,
        total: u32,
        outage_policy: OutagePolicy,
    ) -> Result<Self, ConfigError> {
        let fallback = outage_policy.fallback(|replicas| match own.checked_div(replicas) {
            Some(share @ 1..) => Ok(share),
            _ => Err(ConfigError::new(format!(
                "{own} permits cannot be divided among {replicas} replicas: each needs at least 1"
            ))),
        })?;
        let (own, total) = (own.into(), total.into());
        Ok(Self {
            key,
            limit: ClassLimit { own, total },
            fallback,
        })
    }
}

impl LeasePool {
    pub(super) fn new(
        connection: Arc<Connection>,
        lease: Duration,
        classes: Vec<ClassConfig>,
    ) -> Result<Self, ConfigError> {
        let shortest = SHORTEST.max(connection.deadline().saturating_mul(DEADLINES));
        if lease < shortest || lease > LONGEST {
            return Err(ConfigError::new(format!(
                "a lease takes {shortest:?} to {LONGEST:?} with a deadline of {:?}, got {lease:?}",
                connection.deadline()
            )));
        }
        // A pool with several classes has no waiters.
        let most = classes.first().map_or(0, |class| class.limit.own);
        Ok(Self {
            queue: Mutex::new(LeaseQueue::new(lease, classes.len(), most)),
            keys: classes.iter().map(|class| class.key.clone()).collect(),
            connection,
            lease,
            classes,
            queue_changed: Notify::new(),
        })
    }

    /// Asks for a lease. A request that `waits` stays until there is one.
    pub(super) async fn ask(
        self: &Arc<Self>,
        class: usize,
        waits: bool,
    ) -> Result<Option<Lease>, ServerError> {
        let since = self.connection.now();
        loop {
            let (answer, answered) = oneshot::channel();
            let waiter = LeaseWaiter {
                class,
                waits,
                since,
                answer,
            };
            self.with_queue(|queue| queue.join(waiter));
            self.notify_task();
            if let Ok(answer) = answered.await {
                return answer;
            }
            // The task was dropped with its runtime.
            tokio::task::yield_now().await;
        }
    }

    /// The number of leases of each class.
    pub(super) async fn in_use(&self) -> Result<Vec<u32>, CallError> {
        let limits: Vec<_> = self.classes.iter().map(|class| class.limit).collect();
        let request = LeaseRequest {
            lasts: self.lease,
            limits: &limits,
            released: &[],
            renewed: &[],
            wanted: &[],
        };
        let reply = self.call(request, self.connection.deadline()).await;
        reply.map(|reply| reply.in_use)
    }

    /// How long the lease still lasts, and the notification in case it is lost before; `None` if it is lost.
    pub(super) fn time_left(&self, key: LeaseKey) -> Option<(Duration, Arc<Notify>)> {
        self.with_queue(|queue| {
            let now = self.connection.now();
            let (end, lost) = queue.table.end_of(now, key)?;
            Some((end.since(now), lost))
        })
    }

    /// The guard is gone; `None` stands for a local lease.
    pub(super) fn release(
        self: &Arc<Self>,
        key: Option<LeaseKey>,
        class: usize,
        done: Option<oneshot::Sender<()>>,
    ) {
        let done = self.with_queue(|queue| {
            let Some(key) = key else {
                queue.release_local(class);
                return done;
            };
            let now = self.connection.now();
            queue.release(now, key, class, done)
        });
        if let Some(done) = done {
            // The receiver may be gone.
            let _ = done.send(());
        }
        match Handle::try_current() {
            Ok(runtime) => self.notify_task_in(&runtime),
            // The next caller in a runtime starts the task, if there is none.
            Err(_) => self.queue_changed.notify_one(),
        }
    }

    /// Wakes the task, or starts it.
    pub(super) fn notify_task(self: &Arc<Self>) {
        let runtime = Handle::try_current();
        let runtime = runtime.expect("a lease in Redis needs a tokio runtime to wait in");
        self.notify_task_in(&runtime);
    }

    fn notify_task_in(self: &Arc<Self>, runtime: &Handle) {
        if !self.with_queue(LeaseQueue::claim_task) {
            return self.queue_changed.notify_one();
        }
        let task = LeaseTask {
            pool: Arc::clone(self),
            connects: self.connection.stats().connects,
            has_ended: false,
        };
        drop(runtime.spawn(task.run()));
    }

    async fn call(
        &self,
        request: LeaseRequest<'_>,
        deadline: Duration,
    ) -> Result<LeaseReply, CallError> {
        let call = request.call(&self.keys);
        let numbers = self.connection.call(&call, deadline).await?;
        let reply = request.read(&numbers);
        reply.ok_or_else(|| CallError::malformed(&numbers))
    }

    fn send_answers(self: &Arc<Self>, answers: LeaseAnswers) {
        for (waiter, outcome) in answers {
            let lease = |key| Lease::new(Arc::clone(self), waiter.class, key);
            let answer = match outcome {
                LeaseOutcome::Granted(key) => Ok(Some(lease(Some(key)))),
                LeaseOutcome::Local => Ok(Some(lease(None))),
                LeaseOutcome::Refused => Ok(None),
                LeaseOutcome::Fault(why) => Err(why),
            };
            // If the caller is gone, dropping its lease releases it.
            drop(waiter.answer.send(answer));
        }
    }

    /// Uses the queue under its lock, and notifies the holders of lost leases after the lock is released.
    fn with_queue<T>(&self, work: impl FnOnce(&mut LeaseQueue) -> T) -> T {
        let mut queue = self.locked();
        let done = work(&mut queue);
        let lost = queue.table.take_lost();
        drop(queue);
        if !lost.is_empty() {
            let count = lost.len() as u64;
            self.connection.count(|stats| stats.lost_leases += count);
        }
        for holder in lost {
            holder.notify_waiters();
        }
        done
    }

    fn locked(&self) -> MutexGuard<'_, LeaseQueue> {
        // No code under this lock can leave the queue half changed.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for LeasePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeasePool")
            .field("keys", &self.keys)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

/// Makes the round trips of a pool while leases are requested, held or to be released. There is one round trip at a time;
/// whatever comes up meanwhile goes on the next.
struct LeaseTask {
    pool: Arc<LeasePool>,
    /// How many connections had been made at the last check.
    connects: u64,
    has_ended: bool,
}

impl LeaseTask {
    async fn run(mut self) {
        loop {
            self.check_connection();
            let connection = &self.pool.connection;
            let (now, is_down) = (connection.now(), connection.is_down());
            match self.pool.with_queue(|queue| queue.next_step(now, is_down)) {
                LeaseStep::Flush(batch) => self.flush(batch).await,
                LeaseStep::Sleep(time) => self.sleep(time).await,
                LeaseStep::End => {
                    self.has_ended = true;
                    return;
                }
            }
        }
    }

    /// The server behind a new connection may know nothing.
    fn check_connection(&mut self) {
        let connects = self.pool.connection.stats().connects;
        if connects > self.connects {
            let is_first = self.connects == 0;
            self.connects = connects;
            let now = self.pool.connection.now();
            self.pool
                .with_queue(|queue| queue.reconnected(now, is_first));
        }
    }

    async fn flush(&self, batch: LeaseBatch) {
        let LeaseBatch {
            waiters,
            refused,
            renewals,
            releases,
        } = batch;
        let pool = &self.pool;
        pool.send_answers(with_outcome(refused, || LeaseOutcome::Refused));
        let id = |waiter: &LeaseWaiter| LeaseId {
            class: waiter.class,
            member: pool.connection.new_id().into(),
        };
        let ids: Vec<_> = waiters.iter().map(id).collect();
        let released: Vec<_> = releases.iter().map(|release| release.id.clone()).collect();
        let renewed: Vec<_> = renewals.iter().map(|(_, id)| id.clone()).collect();
        let limits = pool.classes.iter().map(|class| class.limit);
        let limits = pool.locked().limits(limits);
        let request = LeaseRequest {
            lasts: pool.lease,
            limits: &limits,
            released: &released,
            renewed: &renewed,
            wanted: &ids,
        };
        let sent = pool.connection.now();
        let result = self.send(request, &waiters, sent).await;
        let now = pool.connection.now();
        let answers = match result {
            Ok(reply) => {
                for done in releases.into_iter().filter_map(|release| release.done) {
                    let _ = done.send(());
                }
                pool.with_queue(|queue| {
                    queue.apply_reply(now, sent, waiters, ids, &renewals, &reply)
                })
            }
            Err(error) => {
                if let Some(fault) = error.server_error() {
                    pool.with_queue(|queue| queue.refused(now, releases));
                    with_outcome(waiters, || LeaseOutcome::Fault(fault.clone()))
                } else {
                    pool.with_queue(|queue| {
                        if error.is_skipped() {
                            queue.table.put_back(releases, 0);
                        } else {
                            queue.failed(now, ids, releases);
                        }
                    });
                    self.decide_locally(waiters)
                }
            }
        };
        pool.send_answers(answers);
    }

    /// Makes the call. A request that does not wait has a deadline, which starts when it is made.
    async fn send(
        &self,
        request: LeaseRequest<'_>,
        waiters: &[LeaseWaiter],
        now: Tick,
    ) -> Result<LeaseReply, CallError> {
        let connection = &self.pool.connection;
        let tries = waiters.iter().filter(|waiter| !waiter.waits);
        let oldest_try = tries.map(|waiter| waiter.since).min();
        let waited = oldest_try.map_or(Duration::ZERO, |since| now.since(since));
        let left = connection.deadline().saturating_sub(waited);
        if left.is_zero() {
            connection.count(|stats| stats.timeouts += 1);
            return Err(CallError::CIRCUIT_OPEN);
        }
        self.pool.call(request, left).await
    }

    /// Redis is slow or gone: the outage policy decides.
    fn decide_locally(&self, waiters: Vec<LeaseWaiter>) -> LeaseAnswers {
        let pool = &self.pool;
        let now = pool.connection.now();
        let outage = pool.connection.health().outage;
        // Before that, other processes may still hold all leases.
        let have_others_ended = outage.is_some_and(|outage| outage.since.after(pool.lease) <= now);
        let most = |class: usize| match pool.classes[class].fallback {
            Fallback::Open => u32::MAX,
            Fallback::Insured(share) if have_others_ended => share,
            Fallback::Insured(_) | Fallback::Closed => 0,
        };
        let answers = pool.with_queue(|queue| queue.decide_locally(now, waiters, most));
        let is_local =
            |(_, outcome): &&(LeaseWaiter, LeaseOutcome)| matches!(outcome, LeaseOutcome::Local);
        let passed = answers.iter().filter(is_local).count() as u64;
        pool.connection.count(|stats| stats.passed_alone += passed);
        answers
    }

    /// Sleeps until the time is over, the queue has changed, or there is a new connection.
    async fn sleep(&self, time: Duration) {
        let connection = &self.pool.connection;
        let mut changed = pin!(self.pool.queue_changed.notified());
        let mut connected = pin!(connection.connected_more_often_than(self.connects));
        let mut slept = pin!(sleep(time));
        poll_fn(|cx| {
            if changed.as_mut().poll(cx).is_ready() || connected.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            slept.as_mut().poll(cx)
        })
        .await;
    }
}

fn with_outcome(waiters: Vec<LeaseWaiter>, outcome: impl Fn() -> LeaseOutcome) -> LeaseAnswers {
    let answer = |waiter| (waiter, outcome());
    waiters.into_iter().map(answer).collect()
}

/// A runtime that shuts down drops the task.
impl Drop for LeaseTask {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let (waiters, holders) = self.pool.with_queue(LeaseQueue::task_dropped);
        // Callers ask again, and callers of `Lease::lost` start another task.
        drop(waiters);
        for holder in holders {
            holder.notify_waiters();
        }
    }
}
