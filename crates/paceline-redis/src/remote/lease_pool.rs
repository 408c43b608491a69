use core::fmt;
use core::future::{pending, poll_fn};
use core::mem;
use core::pin::{Pin, pin};
use core::task::{Context, Poll, ready};
use core::time::Duration;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tokio::sync::{Notify, oneshot};

use paceline::config::ConfigError;
use paceline::limiter::Reporter;
use paceline::policy::Decision;
use paceline::time::Tick;
use tokio::runtime::Handle;

use super::batcher::Batcher;
use super::connection::within;
use super::error::{CallError, Event, Failure, ServerError};
use super::lease_queue::{ClassConfig, LeaseOutcome, LeaseQueue, LeaseWaiter};
use super::lease_table::LeaseId;
use super::source::{Answer, Source, Step};
use super::{AFTER_FAULT, Store};

/// The bounds of a lease's time. It is also at least this many deadlines.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
const DEADLINES: u32 = 4;

pub(crate) type LeaseAnswer = Result<Option<Lease>, ServerError>;

/// A permit in Redis for a limited time. Dropping this guard releases it.
///
/// [`RedisPermits`](crate::RedisPermits) and [`FleetUsage`](crate::FleetUsage) grant it. While the guard lives, a task renews the
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
/// server's clock jumped forward. It learns of them with the next renewal, after a third of the lease's time at the latest. Until then
/// up to twice the limit is in use, because all permits are free in Redis. On a machine that is suspended, the clock may not count the
/// time of the suspension.
///
/// ```
/// use paceline_redis::{OutagePolicy, Redis};
/// use std::time::Duration;
///
/// # async fn convert() {}
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # // Where the tests run there is a server.
/// # if std::env::var_os("REDIS_URL").is_none() { return Ok(()); }
/// let redis = Redis::open(&std::env::var("REDIS_URL")?, OutagePolicy::closed())?;
/// # // A busy machine may be late.
/// # let redis = redis.with_deadline(std::time::Duration::from_secs(2))?;
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
#[must_use = "a lease that is dropped at once limits nothing: call it `_lease`, since `let _ =` drops it too"]
pub struct Lease {
    pool: Arc<dyn Grantor>,
    class: usize,
    /// `None` if the lease is not in Redis.
    id: Option<LeaseId>,
    is_released: bool,
    /// Hears of the release.
    reporter: Reporter,
}

impl Lease {
    fn pool(&self) -> Arc<dyn Grantor> {
        Arc::clone(&self.pool)
    }

    /// Whether the lease is not in Redis: the [outage policy](crate::OutagePolicy) granted it.
    ///
    /// Such a lease has no end, is never lost, and stays local after the outage. Until it is dropped, only this process knows of
    /// it, and counts it when it asks Redis for more.
    #[must_use]
    pub const fn is_local(&self) -> bool {
        self.id.is_none()
    }

    /// Whether another holder may have this permit by now.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.id
            .is_some_and(|id| self.pool().time_left(id).is_none())
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
        let Some(id) = self.id else {
            return pending().await;
        };
        while let Some((left, lost)) = self.pool().time_left(id) {
            self.pool().wake();
            let mut lost = pin!(lost.notified());
            lost.as_mut().enable();
            // The notification may have been sent in between.
            if self.pool().time_left(id).is_some() {
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
        self.pool().release(self.id, self.class, Some(done));
        match within(self.pool.deadline(), is_done).await {
            Some(Ok(())) => Ok(()),
            _ => Err(CallError::failed(Failure::Timeout)),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.is_released {
            self.pool().release(self.id, self.class, None);
        }
        self.reporter.report(paceline::limiter::Event::released(1));
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

/// 128 random bits as text. The standard library seeds its hashers from the system's random source.
fn random_name() -> String {
    let random = || RandomState::new().hash_one(());
    // The seeds of two hashers of one thread differ by a count only. Their hashes are still as random as one seed.
    format!("{:016x}{:016x}", random(), random())
}

/// The request of one handle: its class and whether it waits, and the answer. Dropping it leaves the queue, and a lease that was
/// granted meanwhile is released.
#[derive(Debug, Default)]
pub(crate) struct LeaseRequest(
    Option<((usize, bool), oneshot::Receiver<LeaseAnswer>)>,
    Option<Reporter>,
);

impl Drop for LeaseRequest {
    fn drop(&mut self) {
        self.1.iter_mut().for_each(Reporter::gave_up);
    }
}

/// Of another handle, which has asked for nothing.
impl Clone for LeaseRequest {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// The pool that granted a lease, on any store.
trait Grantor: Send + Sync {
    /// How long the lease still lasts, and the notification in case it is lost before; `None` if it is lost.
    fn time_left(self: Arc<Self>, id: LeaseId) -> Option<(Duration, Arc<Notify>)>;

    /// The guard is gone; `None` stands for a local lease.
    fn release(
        self: Arc<Self>,
        id: Option<LeaseId>,
        class: usize,
        done: Option<oneshot::Sender<()>>,
    );

    /// The batcher looks at the queue again.
    fn wake(self: Arc<Self>);

    /// How long one call may take.
    fn deadline(&self) -> Duration;
}

/// A pool of leases on a server, as this process sees it: a queue that the connection's batcher sends.
pub(crate) struct LeasePool<S: Store> {
    batcher: Arc<Batcher<S>>,
    /// The keys of all classes, and that of the marks of waiting processes.
    keys: Arc<[String]>,
    queue: Mutex<LeaseQueue<LeaseAnswer>>,
    pub(crate) reporter: OnceLock<Reporter>,
}

impl<S: Store> LeasePool<S> {
    /// With a key for marks, requests of the first class can wait.
    pub(crate) fn new(
        batcher: &Arc<Batcher<S>>,
        lease: Duration,
        classes: Vec<ClassConfig>,
        marks_key: Option<String>,
    ) -> Result<Arc<Self>, ConfigError> {
        let connection = &batcher.connection;
        let shortest = SHORTEST.max(connection.deadline().saturating_mul(DEADLINES));
        if lease < shortest || lease > LONGEST {
            return Err(ConfigError::new(format!(
                "a lease takes {shortest:?} to {LONGEST:?} with a deadline of {:?}, got {lease:?}",
                connection.deadline()
            )));
        }
        let keys = classes.iter().map(|class| class.key.clone());
        let keys: Arc<[_]> = keys.chain(marks_key).collect();
        let queue = LeaseQueue::new(random_name(), lease, classes, Arc::clone(&keys));
        Ok(Arc::new(Self {
            batcher: Arc::clone(batcher),
            keys,
            queue: Mutex::new(queue),
            reporter: OnceLock::new(),
        }))
    }

    fn reporter(&self) -> Reporter {
        self.reporter.get().cloned().unwrap_or_default()
    }

    /// Asks for a lease. A request that `waits` stays until there is one.
    pub(crate) async fn ask(self: &Arc<Self>, class: usize, waits: bool) -> LeaseAnswer {
        let mut request = LeaseRequest::default();
        poll_fn(|cx| self.poll_ask(&mut request, class, waits, cx)).await
    }

    /// Asks for a lease, or for the answer to the same request. Another request is dropped.
    pub(crate) fn poll_ask(
        self: &Arc<Self>,
        request: &mut LeaseRequest,
        class: usize,
        waits: bool,
        cx: &mut Context<'_>,
    ) -> Poll<LeaseAnswer> {
        let mut answer = self.poll_answer(request, class, waits, cx);
        let reporter = request.1.get_or_insert_with(|| self.reporter());
        match &mut answer {
            Poll::Pending => reporter.waits(),
            Poll::Ready(Ok(Some(lease))) => {
                lease.reporter = self.reporter();
                reporter.decided(1, Decision::Pass);
            }
            Poll::Ready(refused) => {
                let retry_in = refused.as_ref().map_or(AFTER_FAULT, |_| Duration::MAX);
                reporter.decided(1, Decision::Wait { retry_in });
            }
        }
        answer
    }

    fn poll_answer(
        self: &Arc<Self>,
        request: &mut LeaseRequest,
        class: usize,
        waits: bool,
        cx: &mut Context<'_>,
    ) -> Poll<LeaseAnswer> {
        let asked = request.0.take();
        let same = asked.filter(|((asked, waited), _)| (*asked, *waited) == (class, waits));
        let asked = same.unwrap_or_else(|| ((class, waits), self.join(class, waits)));
        let (_, answered) = request.0.insert(asked);
        let answer = ready!(Pin::new(answered).poll(cx));
        request.0 = None;
        if let Ok(answer) = answer {
            return Poll::Ready(answer);
        }
        // The batcher's task was dropped with its runtime: the request is made again.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn join(self: &Arc<Self>, class: usize, waits: bool) -> oneshot::Receiver<LeaseAnswer> {
        let (answer, answered) = oneshot::channel();
        let waiter = LeaseWaiter {
            class,
            waits,
            answer,
        };
        self.with_queue(|queue| queue.join(waiter));
        Arc::clone(self).wake();
        answered
    }

    /// The number of leases of each class.
    pub(crate) async fn in_use(self: &Arc<Self>) -> Result<Vec<u32>, CallError> {
        let counted = self.with_queue(LeaseQueue::count);
        Arc::clone(self).wake();
        let in_use = self.batcher.reply(counted).await?.into_iter();
        Ok(in_use
            .map(|count| u32::try_from(count).unwrap_or(u32::MAX))
            .collect())
    }

    fn push(self: &Arc<Self>) {
        if let Some(wake) = self.with_queue(|queue| queue.stage.make_ready()) {
            self.batcher.push(Arc::clone(self) as _, wake);
        }
    }

    /// Uses the queue under its lock. Sends answers and notifications after the lock is released.
    fn with_queue<T>(self: &Arc<Self>, work: impl FnOnce(&mut LeaseQueue<LeaseAnswer>) -> T) -> T {
        // No code under this lock can leave the queue half changed.
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let done = work(&mut queue);
        let answers = mem::take(&mut queue.answers);
        let released = mem::take(&mut queue.table.released);
        let lost = mem::take(&mut queue.table.lost);
        let counted = mem::take(&mut queue.counted);
        drop(queue);
        if !lost.is_empty() {
            let count = lost.len() as u64;
            self.batcher
                .connection
                .count(|stats| stats.lost_leases += count);
            Event::LeasesLost(count).emit();
        }
        for holder in lost {
            holder.notify_waiters();
        }
        for done in released {
            // The receiver may be gone.
            let _ = done.send(());
        }
        for (counter, counted) in counted {
            let _ = counter.send(counted);
        }
        for (waiter, outcome) in answers {
            self.send_answer(waiter, outcome);
        }
        done
    }

    fn send_answer(self: &Arc<Self>, waiter: LeaseWaiter<LeaseAnswer>, outcome: LeaseOutcome) {
        let answer = match outcome {
            LeaseOutcome::Granted(id) => {
                let alone = u64::from(id.is_none());
                let connection = &self.batcher.connection;
                connection.count(|stats| stats.passed_alone += alone);
                Ok(Some(Lease {
                    pool: Arc::clone(self) as _,
                    class: waiter.class,
                    id,
                    is_released: false,
                    reporter: Reporter::NONE,
                }))
            }
            LeaseOutcome::Refused => Ok(None),
            LeaseOutcome::Failed(fault) => Err(fault),
        };
        // If the caller is gone, dropping its lease releases it.
        drop(waiter.answer.send(answer));
    }
}

impl<S: Store> Grantor for LeasePool<S> {
    fn time_left(self: Arc<Self>, id: LeaseId) -> Option<(Duration, Arc<Notify>)> {
        self.with_queue(|queue| {
            let now = self.batcher.connection.now();
            let (end, lost) = queue.table.end_of(now, id)?;
            Some((end.since(now), lost))
        })
    }

    fn release(
        self: Arc<Self>,
        id: Option<LeaseId>,
        class: usize,
        done: Option<oneshot::Sender<()>>,
    ) {
        let now = self.batcher.connection.now();
        self.with_queue(|queue| queue.release(now, id, class, done));
        self.push();
    }

    fn wake(self: Arc<Self>) {
        Handle::try_current().expect("a lease in Redis needs a tokio runtime to wait in");
        self.push();
        // A lease that was dropped outside a runtime could not start the task.
        self.batcher.start_task();
    }

    fn deadline(&self) -> Duration {
        self.batcher.connection.deadline()
    }
}

impl<S: Store> Source<S> for LeasePool<S> {
    fn next(self: Arc<Self>, now: Tick) -> Step<S> {
        let connection = &self.batcher.connection;
        let (connects, is_down) = (connection.stats().connects, connection.is_down());
        self.with_queue(|queue| queue.next_step(now, connects, is_down))
    }

    fn complete(self: Arc<Self>, _: u64, _: Tick, answer: Result<Answer<S>, CallError>) {
        let connection = &self.batcher.connection;
        let (now, down_since) = (connection.now(), connection.health().down_since);
        let numbers = answer.map(|answer| match answer {
            Answer::Leases(numbers) => numbers,
            Answer::Decided(_) => Vec::new(),
        });
        self.with_queue(|queue| queue.complete(now, numbers, down_since));
        self.push();
    }

    /// Callers ask again, and callers of `Lease::lost` start another task.
    fn task_dropped(self: Arc<Self>) {
        let now = self.batcher.connection.now();
        let (waiters, holders) = self.with_queue(|queue| queue.task_dropped(now));
        drop(waiters);
        for holder in holders {
            holder.notify_waiters();
        }
    }
}

impl<S: Store> fmt::Debug for LeasePool<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeasePool")
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}
