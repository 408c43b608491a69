use core::fmt;
use core::future::pending;
use core::mem;
use core::pin::pin;
use core::time::Duration;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use crate::time::Tick;

use crate::remote::{
    CallError, Connection, Failure, Fallback, OnDrop, OutagePolicy, ServerError, either, within,
};

use super::error::ConfigError;
use super::lease_queue::{LeaseAnswers, LeaseOutcome, LeaseQueue, LeaseStep, LeaseWaiter};
use super::lease_script::{LEASES, LeaseId, LeaseReply, lease_args};
use super::lease_table::{LeaseKey, PendingRelease};
use super::transport::Connector;

/// The bounds of a lease's time. It is also at least this many deadlines.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
const DEADLINES: u32 = 4;

type LeaseAnswer = Result<Option<Lease>, ServerError>;

/// A permit in Redis for a limited time. Dropping this guard releases it.
///
/// [`RedisPermits`](super::RedisPermits) and [`FleetUsage`](super::FleetUsage) grant it. While the guard lives, a task renews the
/// lease whenever a third of its time is over. (The task runs in the runtime of one of the callers. If that runtime ends, the
/// next caller that asks for a lease or waits for [`lost`](Self::lost) starts it again.) If the process dies, the lease expires
/// by itself, and another holder gets in. (The idea is from C. Gray and D. Cheriton, *Leases: an efficient fault-tolerant
/// mechanism for distributed file cache consistency*, SOSP 1989.)
///
/// # It can be lost
///
/// The lease is **lost** if Redis cannot be reached until its time is over, if Redis has forgotten it (it was flushed, or a
/// replica without the lease took over), or if the process was suspended for that long. Another holder may have it then.
/// [`is_lost`](Self::is_lost) says so, and [`lost`](Self::lost) waits for it. A lost lease stays lost.
///
/// **The holder has to stop when its lease is lost.** Otherwise it runs beside the next holder, and more leases are in use than
/// the limit allows. The time of a lease starts before the call that granted or renewed it was sent, so the holder knows no
/// later than Redis forgets, whatever the network does. The holder cannot notice two events at once: Redis lost its data, or the
/// server's clock jumped forward. It learns of them with the next renewal, after a third of the lease's time at the latest. On a
/// machine that is suspended, the clock may not count the time of the suspension.
///
/// ```
/// use paceline::redis::{OutagePolicy, Redis};
/// use std::time::Duration;
///
/// # async fn convert() {}
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # // Where the tests run there is a server.
/// # if std::env::var_os("REDIS_URL").is_none() { return Ok(()); }
/// let redis = Redis::open(&std::env::var("REDIS_URL")?, OutagePolicy::closed())?;
/// let permits = redis.permits("conversions", 3, Duration::from_secs(10))?;
///
/// let lease = permits.acquire().await?;
/// tokio::select! {
///     () = convert() => println!("done"),
///     () = lease.lost() => println!("stopped: another process may convert now"),
/// }
/// # assert!(redis.is_up());
/// # Ok(())
/// # }
/// ```
///
/// # Release
///
/// Dropping the guard does not wait. A task sends the release; all guards dropped meanwhile share one call. A release that fails
/// is tried twice more, which is harmless if Redis had applied it, and then the lease expires by itself. A program that ends
/// right after the drop also ends that task: [`release`](Self::release) waits until Redis has applied the release. The lease of
/// a leaked guard is renewed until the process ends.
#[must_use = "a lease that is dropped at once limits nothing"]
pub struct Lease {
    pool: Arc<LeasePool>,
    class: usize,
    /// `None` if the lease is not in Redis.
    key: Option<LeaseKey>,
    is_released: bool,
}

impl Lease {
    /// Whether the lease is not in Redis: the [outage policy](crate::redis::OutagePolicy) granted it.
    ///
    /// Such a lease has no end, is never lost, and stays local after the outage. Until it is dropped, only this process knows of
    /// it, and counts it when it asks Redis for more.
    #[must_use]
    pub const fn is_local(&self) -> bool {
        self.key.is_none()
    }

    /// Whether another holder may have this permit by now.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.key
            .is_some_and(|key| self.pool.time_left(key).is_none())
    }

    /// Waits until the lease is lost: for ever if it never is.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing; the next call has the same result.
    pub async fn lost(&self) {
        let Some(key) = self.key else {
            return pending().await;
        };
        while let Some((left, lost)) = self.pool.time_left(key) {
            self.pool.notify_task();
            let mut lost = pin!(lost.notified());
            lost.as_mut().enable();
            // The notification may have been sent in between.
            if self.pool.time_left(key).is_some() {
                let _ = within(left, lost).await;
            }
        }
    }

    /// Releases the lease, and waits until Redis has applied it, up to the deadline.
    ///
    /// # Errors
    ///
    /// If Redis did not answer in time. The lease is released all the same, or expires by itself.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// The lease is released even if the future is dropped, or never polled.
    pub async fn release(mut self) -> Result<(), CallError> {
        self.is_released = true;
        let (done, is_done) = oneshot::channel();
        self.pool.release(self.key, self.class, Some(done));
        match within(self.pool.connection.deadline(), is_done).await {
            Some(Ok(())) => Ok(()),
            _ => Err(CallError::failed(Failure::Timeout)),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.is_released {
            self.pool.release(self.key, self.class, None);
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("is_local", &self.is_local())
            .field("is_lost", &self.is_lost())
            .finish_non_exhaustive()
    }
}

/// A pool of leases in Redis, as this process sees it: a queue, and a task that makes its round trips.
pub(super) struct LeasePool {
    pub(super) connection: Arc<Connection<Connector>>,
    lease: Duration,
    classes: Vec<ClassConfig>,
    keys: Arc<[String]>,
    queue: Mutex<LeaseQueue<LeaseAnswer>>,
    /// Wakes the task when the queue has changed.
    queue_changed: Notify,
}

/// The fixed settings of one class of leases.
#[derive(Clone, Debug)]
pub(super) struct ClassConfig {
    pub(super) key: String,
    /// A lease is granted while there are fewer leases of its class than this.
    pub(super) own: u64,
    /// A lease is granted while there are fewer leases of all classes than this.
    pub(super) total: u64,
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
        Ok(Self {
            key,
            own: own.into(),
            total: total.into(),
            fallback,
        })
    }
}

impl LeasePool {
    pub(super) fn new(
        connection: Arc<Connection<Connector>>,
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
        let most = classes.first().map_or(0, |class| class.own);
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
    pub(super) async fn ask(self: &Arc<Self>, class: usize, waits: bool) -> LeaseAnswer {
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
        let reply = self.call(&[], &[], &[], None).await;
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
        let now = self.connection.now();
        let done = self.with_queue(|queue| queue.release(now, key, class, done));
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
        let connects = self.connection.stats().connects;
        let pool = Arc::clone(self);
        let on_drop = OnDrop::new(move || pool.task_dropped());
        drop(runtime.spawn(Arc::clone(self).run(connects, on_drop)));
    }

    /// A runtime that shuts down dropped the task.
    fn task_dropped(&self) {
        let (waiters, holders) = self.with_queue(LeaseQueue::task_dropped);
        // Callers ask again, and callers of `Lease::lost` start another task.
        drop(waiters);
        for holder in holders {
            holder.notify_waiters();
        }
    }

    /// The task that makes the round trips while leases are requested, held or to be released. There is one round trip at a time;
    /// whatever comes up meanwhile goes on the next. `connects` is how many connections have been made.
    async fn run(self: Arc<Self>, mut connects: u64, on_drop: OnDrop<impl FnOnce()>) {
        loop {
            let now = self.connection.now();
            let before = mem::replace(&mut connects, self.connection.stats().connects);
            if connects > before {
                // The server behind a new connection may know nothing.
                self.with_queue(|queue| queue.reconnected(now, before == 0));
            }
            let is_down = self.connection.is_down();
            match self.with_queue(|queue| queue.next_step(now, is_down)) {
                LeaseStep::Flush {
                    waiters,
                    refused,
                    renewals,
                    releases,
                } => {
                    for waiter in refused {
                        let _ = waiter.answer.send(Ok(None));
                    }
                    self.flush(waiters, &renewals, releases).await;
                }
                LeaseStep::Sleep(time) => {
                    let changed = self.queue_changed.notified();
                    let connected = self.connection.connected_more_often_than(connects);
                    within(time, either(changed, connected)).await;
                }
                LeaseStep::End => return on_drop.disarm(),
            }
        }
    }

    async fn flush(
        self: &Arc<Self>,
        waiters: Vec<LeaseWaiter<LeaseAnswer>>,
        renewals: &[(LeaseKey, LeaseId)],
        releases: Vec<PendingRelease>,
    ) {
        let id = |waiter: &LeaseWaiter<_>| LeaseId {
            class: waiter.class,
            member: self.connection.new_id().into(),
        };
        let wanted: Vec<_> = waiters.iter().map(id).collect();
        let to_release: Vec<_> = releases.iter().map(|release| release.id.clone()).collect();
        let to_renew: Vec<_> = renewals.iter().map(|(_, id)| id.clone()).collect();
        let tries = waiters.iter().filter(|waiter| !waiter.waits);
        let oldest_try = tries.map(|waiter| waiter.since).min();
        let sent = self.connection.now();
        let result = self.call(&to_release, &to_renew, &wanted, oldest_try).await;
        let now = self.connection.now();
        let error = match result {
            Ok(reply) => {
                for done in releases.into_iter().filter_map(|release| release.done) {
                    let _ = done.send(());
                }
                let answers = self.with_queue(|queue| {
                    queue.apply_reply(now, sent, waiters, wanted, renewals, &reply)
                });
                return self.send_answers(answers);
            }
            Err(error) => error,
        };
        if let Some(fault) = error.server_error() {
            self.with_queue(|queue| queue.refused(now, releases));
            for waiter in waiters {
                let _ = waiter.answer.send(Err(fault.clone()));
            }
            return;
        }
        self.with_queue(|queue| {
            if error.is_skipped() {
                queue.table.put_back(releases, 0);
            } else {
                queue.failed(now, wanted, releases);
            }
        });
        self.decide_locally(waiters);
    }

    /// Redis is slow or gone: the outage policy decides.
    fn decide_locally(self: &Arc<Self>, waiters: Vec<LeaseWaiter<LeaseAnswer>>) {
        let now = self.connection.now();
        let down_since = self.connection.health().down_since;
        // Before that, other processes may still hold all leases.
        let have_others_ended = down_since.is_some_and(|since| since.after(self.lease) <= now);
        let most = |class: usize| match self.classes[class].fallback {
            Fallback::Open => u32::MAX,
            Fallback::Insured(share) if have_others_ended => share,
            Fallback::Insured(_) | Fallback::Closed => 0,
        };
        let answers = self.with_queue(|queue| queue.decide_locally(now, waiters, most));
        let outcomes = answers.iter().map(|(_, outcome)| outcome);
        let local = outcomes.filter(|outcome| matches!(outcome, LeaseOutcome::Local));
        let passed = local.count() as u64;
        self.connection.count(|stats| stats.passed_alone += passed);
        self.send_answers(answers);
    }

    fn send_answers(self: &Arc<Self>, answers: LeaseAnswers<LeaseAnswer>) {
        for (waiter, outcome) in answers {
            let key = match outcome {
                LeaseOutcome::Granted(key) => Some(Some(key)),
                LeaseOutcome::Local => Some(None),
                LeaseOutcome::Refused => None,
            };
            let lease = key.map(|key| Lease {
                pool: Arc::clone(self),
                class: waiter.class,
                key,
                is_released: false,
            });
            // If the caller is gone, dropping its lease releases it.
            drop(waiter.answer.send(Ok(lease)));
        }
    }

    async fn call(
        &self,
        released: &[LeaseId],
        renewed: &[LeaseId],
        wanted: &[LeaseId],
        oldest_try: Option<Tick>,
    ) -> Result<LeaseReply, CallError> {
        let limits = self.classes.iter().map(|class| (class.own, class.total));
        let limits = self.with_queue(|queue| queue.limits(limits));
        let args = lease_args(self.lease, &limits, released, renewed, wanted);
        let _ = oldest_try;
        let keys = Arc::clone(&self.keys);
        let call = self.connection.call(|opened| async move {
            let numbers: Vec<i64> = opened.run_script(&LEASES, &keys, &args).await?;
            let time = numbers.first().copied().unwrap_or(0);
            Ok((u64::try_from(time).unwrap_or(0), numbers))
        });
        let numbers = call.await?;
        LeaseReply::read(&numbers, limits.len(), renewed.len(), wanted.len()).ok_or_else(|| {
            CallError::failed(Failure::Fault(format!("an answer of {numbers:?}").into()))
        })
    }

    /// Uses the queue under its lock, and notifies the holders of lost leases after the lock is released.
    fn with_queue<T>(&self, work: impl FnOnce(&mut LeaseQueue<LeaseAnswer>) -> T) -> T {
        // No code under this lock can leave the queue half changed.
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
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
}

impl fmt::Debug for LeasePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeasePool")
            .field("keys", &self.keys)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}
