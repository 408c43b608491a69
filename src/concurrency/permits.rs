use core::convert::Infallible;
use core::fmt;
use core::future::Future;
use core::mem;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;
use std::borrow::Cow;
use std::hash::RandomState;
use std::sync::Arc;

use crate::limiter::{
    AcquireError, Event, Gate, Limiter, Method, Observer, Reporter, SharedObserver, Stats,
    poll_turn,
};
use crate::policy::Decision;
use crate::time::{OutOfRange, Resolution, or_panic};
use crate::wait::{Caller, Flow, Intent, Position, Priority, WaitQueue, Waiters};

use super::future::AcquirePermitWithin;
use super::semaphore::SemaphoreState;
use super::{Admit, Admitted};

/// A limit on how much is under way at once: permits shared by every clone, and given back by dropping them.
///
/// It can be built anywhere. Without a cool-down it needs no runtime either.
///
/// ```
/// use paceline::concurrency::Permits;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let start = tokio::time::Instant::now();
/// let permits = Permits::new(2);
///
/// let calls = (0..6).map(|_| {
///     let permits = permits.clone();
///     tokio::spawn(async move {
///         let _permit = permits.acquire().await;
///         tokio::time::sleep(Duration::from_millis(100)).await; // the call
///     })
/// });
/// for call in calls.collect::<Vec<_>>() {
///     call.await.unwrap();
/// }
/// assert_eq!(start.elapsed(), Duration::from_millis(300));
/// # }
/// ```
///
/// # The queue
///
/// First come, first served (but see [`with_newest_first`](Self::with_newest_first)), whatever the costs: a request for many
/// permits is not overtaken by requests for one. Leaving the queue costs nothing and grants nothing. To join, to pass and to leave
/// takes time that is logarithmic in the number of waiters, and about one wake-up for each permit granted, with 100,000 waiters too.
///
/// A permit is handed over when its next holder is polled. A head that was woken and is not polled is passed over after 10 ms; it
/// keeps its position and is the head again as soon as it asks. A head that waits for more permits than are free is not idle,
/// and is never passed over. A small task watches for that while a second waiter is queued, in the runtime of one of the waiters.
/// Where there is none, or one built without `enable_time` (tokio reports a panic of the task once, without further harm), a head
/// that is not polled blocks those behind it.
///
/// **Window bound**: at most [`limit`](Self::limit) permits are in use at any instant. With a
/// [cool-down](Self::with_cooldown) of W, no half-open window of W holds more than that many arrivals *at the other side*,
/// whatever the network does.
#[doc(alias("semaphore", "bulkhead", "maxConcurrent", "p-limit"))]
pub struct Permits {
    queue: Arc<WaitQueue<SemaphoreState>>,
    /// The request of this handle, if [`Admit`] has queued it.
    waiting: Option<AcquirePermit<'static>>,
    resolution: Resolution,
    priority: Priority,
    /// Whose requests these are, in [`FairPermits`](super::FairPermits), and of which class.
    flow: Flow,
}

impl Permits {
    /// Permits for `n` calls at once.
    ///
    /// # Panics
    ///
    /// If `n` is zero; see [`try_new`](Self::try_new). To begin with a pause, [`resize`](Self::resize) to zero.
    #[must_use]
    #[track_caller]
    pub fn new(n: u32) -> Self {
        or_panic(Self::try_new(n))
    }

    /// [`new`](Self::new), for a number from a configuration.
    ///
    /// ```
    /// use paceline::concurrency::Permits;
    ///
    /// let error = Permits::try_new(0).unwrap_err();
    /// assert_eq!(error.to_string(), "there must be at least 1 permit, got 0");
    /// ```
    ///
    /// # Errors
    ///
    /// If `n` is zero.
    pub fn try_new(n: u32) -> Result<Self, OutOfRange> {
        if n == 0 {
            let message = "there must be at least 1 permit, got 0";
            return Err(OutOfRange::new("n", message));
        }
        Ok(Self::of(WaitQueue::new(SemaphoreState::new(n))))
    }

    /// A handle of existing permits.
    pub(super) fn of(queue: Arc<WaitQueue<SemaphoreState>>) -> Self {
        Self {
            queue,
            waiting: None,
            resolution: Resolution::default(),
            priority: Priority::Normal,
            flow: Flow::OF_NO_KEY,
        }
    }

    /// Lets keys divide the permits by weight. Those in use have no key.
    pub(super) fn divide(&self) -> RandomState {
        self.queue.update_turns(|permits, waiters| {
            let flows = waiters.serve_in_turns();
            if !flows.divides() {
                flows.divide(permits.limit);
                flows.take(Flow::OF_NO_KEY, permits.in_use);
            }
            flows.hasher.clone()
        })
    }

    /// A key pays for the time for which it holds permits.
    pub(super) fn count_time(&self) {
        self.queue.update_turns(|permits, waiters| {
            waiters.serve_in_turns().count_time();
            permits.count_time();
        });
    }

    /// A handle that waits in the queue of this flow.
    pub(super) fn in_flow(&self, flow: Flow) -> Self {
        Self {
            flow,
            ..self.clone()
        }
    }

    /// Each permit comes back `cooldown` after it was released. Zero is none. To be called before there are clones, which
    /// would have it too.
    ///
    /// For a provider that counts arrivals in a window of its own. How long a request takes to get there is not known, but
    /// an arrival lies between the emission and the answer. If each permit is used for **one** request and released
    /// when the answer has come, two arrivals under the same permit are at least `cooldown` apart: so no half-open window of
    /// this length holds more than n arrivals, for any delays and wherever the window begins. To space emissions
    /// promises no such thing. `Permits::new(1)` is minimum spacing, counted from completion.
    ///
    /// ```
    /// use paceline::concurrency::Permits;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let start = tokio::time::Instant::now();
    /// let permits = Permits::new(1).with_cooldown(Duration::from_millis(100));
    ///
    /// for _ in 0..3 {
    ///     let _permit = permits.acquire().await;
    ///     tokio::time::sleep(Duration::from_millis(30)).await; // until the answer has come
    /// }
    /// assert_eq!(start.elapsed(), Duration::from_millis(30 + 100 + 30 + 100 + 30));
    /// # }
    /// ```
    ///
    /// The price is throughput: at most n requests in `cooldown` plus the time of an answer. A
    /// request whose answer never came counts as arrived by the time at which the caller gave up and dropped the permit.
    /// A request that arrives even later is not covered, nor is a second one (a retry, a redirect) under the same permit.
    ///
    /// No timer is set when a permit is released while no request waits.
    #[must_use]
    pub fn with_cooldown(self, cooldown: Duration) -> Self {
        self.queue.with(|permits, _| permits.set_cooldown(cooldown));
        self
    }

    /// Estimates how long a request waits, so that [`acquire_within`](Self::acquire_within) fails at once if it would be late. To be
    /// called before there are clones, which have it too.
    ///
    /// A request that is k-th in the queue waits about k times the time for which a permit is held, divided by the
    /// [`limit`](Self::limit). That time is the mean over the last four to eight rounds of all permits, and a cool-down comes on top. A
    /// permit that does not come back counts, too. The estimate assumes that calls take about as long as lately and end
    /// independently of each other: if they vary widely, or end all at once, it refuses some requests that would have been in
    /// time, and lets others wait in vain until their deadline. After a change of the capacity it follows within some rounds.
    ///
    /// Nothing is estimated before as many permits have come back as there are, or while the limit is zero. No request is refused
    /// while a permit is free and none waits, whatever the estimate says. [`acquire`](Self::acquire) is not affected.
    ///
    /// ```
    /// use paceline::concurrency::Permits;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let start = tokio::time::Instant::now();
    /// let permits = Permits::new(1).with_estimated_wait();
    /// let call = async |permits: Permits| {
    ///     let _permit = permits.acquire().await;
    ///     tokio::time::sleep(Duration::from_millis(100)).await;
    /// };
    /// call(permits.clone()).await;
    ///
    /// let _calls = [(); 2].map(|()| tokio::spawn(call(permits.clone())));
    /// tokio::task::yield_now().await;
    /// let refused = permits.acquire_within(Duration::from_millis(199)).await.unwrap_err();
    /// assert_eq!(start.elapsed(), Duration::from_millis(100), "at once");
    /// assert_eq!(refused.retry_in(), Some(Duration::from_millis(200)));
    ///
    /// assert!(permits.acquire_within(Duration::from_millis(250)).await.is_ok());
    /// assert_eq!(start.elapsed(), Duration::from_millis(300));
    /// # }
    /// ```
    ///
    /// With it each request and each release reads the clock.
    #[doc(alias("fail fast", "forecast", "load shedding"))]
    #[must_use]
    pub fn with_estimated_wait(self) -> Self {
        self.queue.with(|permits, _| permits.estimate_waits());
        self
    }

    /// Serves the newest request first while the queue has not been empty for `after`, and in order of arrival again as soon as
    /// it is empty. To be called before there are clones, which have it too.
    ///
    /// Under overload every request in a queue waits too long, and a server that answers in order of arrival answers each one when
    /// its client has given up. With the newest first it answers some in time. Choose `after` longer than a
    /// burst takes, such as 100 ms; with zero the newest is always first.
    ///
    /// **Starvation.** The oldest requests wait until the queue is empty: without end if the overload lasts. So give them a
    /// deadline, with [`acquire_within`](Self::acquire_within). A request for many permits is overtaken by each newer one.
    ///
    /// ```
    /// use paceline::concurrency::Permits;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let permits = Permits::new(1).with_newest_first(Duration::from_millis(100));
    /// let held = permits.acquire().await;
    /// let oldest = tokio::spawn(permits.acquire_owned());
    /// tokio::time::sleep(Duration::from_millis(100)).await;
    /// let newest = tokio::spawn(permits.acquire_owned());
    /// tokio::task::yield_now().await;
    ///
    /// drop(held);
    /// let permit = newest.await.unwrap();
    /// assert!(!oldest.is_finished());
    /// drop(permit);
    /// assert!(oldest.await.is_ok());
    /// # }
    /// ```
    ///
    /// While the newest is first, a new request passes before all that wait, and [`try_acquire`](Self::try_acquire) too. A waiter
    /// that was woken for a permit and finds that a newer request has taken it waits again.
    #[doc(alias("LIFO", "adaptive LIFO", "CoDel"))]
    #[must_use]
    pub fn with_newest_first(self, after: Duration) -> Self {
        self.queue.serve_newest_first(after);
        self
    }

    /// The class of requests that are made through this handle and its later clones, ten seconds of waiting apart: see [`Priority`].
    /// [`with_newest_first`](Self::with_newest_first) has no effect then.
    #[must_use]
    pub fn with_priority(self, priority: Priority) -> Self {
        let kept = self.queue.serve_by_class(None);
        debug_assert!(kept.is_ok(), "the default is in range");
        Self { priority, ..self }
    }

    /// How exactly a cool-down is waited for, through this handle and its later clones; [`Resolution::Exact`] by default.
    #[must_use]
    pub fn with_resolution(self, resolution: Resolution) -> Self {
        Self { resolution, ..self }
    }

    /// Reports to `observer` what becomes of each request, when permits are released, and how many there are: see
    /// [`Shared::with_observer`](crate::limiter::Shared::with_observer). To be called once, and before there are clones, which
    /// have it too.
    ///
    /// The `retry_in` of a refused request is often [`Duration::MAX`]: it is not known when a permit will be released. A permit of
    /// [`concurrent`](crate::stream::PaceStreamExt::concurrent) is one request for each item.
    ///
    /// ```
    /// use paceline::concurrency::Permits;
    /// use paceline::limiter::Event;
    /// use std::sync::mpsc;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let (sender, events) = mpsc::channel();
    /// let permits = Permits::new(1).with_observer(move |event: Event| sender.send(event).unwrap());
    ///
    /// let permit = permits.acquire().await;
    /// assert!(permits.try_acquire().is_none());
    /// drop(permit);
    ///
    /// assert!(matches!(events.recv(), Ok(Event::Resized { limit: 1, .. })));
    /// assert!(matches!(events.recv(), Ok(Event::Passed { cost: 1, .. })));
    /// assert!(matches!(events.recv(), Ok(Event::Refused { cost: 1, .. })));
    /// assert!(matches!(events.recv(), Ok(Event::Released { count: 1, .. })));
    /// # }
    /// ```
    #[must_use]
    pub fn with_observer<O>(self, observer: O) -> Self
    where
        O: Send + Sync + 'static,
        for<'a> &'a O: Observer,
    {
        let observer = SharedObserver::new(observer);
        observer.report(Event::Resized {
            limit: self.limit(),
        });
        let _ = self.queue.front().observer.set(observer);
        self
    }

    /// Waits for a permit, behind every request that came before.
    ///
    /// The future borrows the permits; the [`Permit`] does not. One that outlives them is [`acquire_owned`](Self::acquire_owned).
    ///
    /// ```
    /// use paceline::concurrency::Permits;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let permits = Permits::new(1);
    ///
    /// let permit = permits.acquire().await;
    /// assert_eq!(permits.in_use(), 1);
    /// drop(permit);
    /// assert_eq!(permits.in_use(), 0);
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If it has to wait for a cool-down outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the queue; nothing was taken, and the next goes when it can.
    #[inline]
    pub fn acquire(&self) -> AcquirePermit<'_> {
        AcquirePermit {
            permits: self.acquire_many(1),
        }
    }

    /// [`acquire`](Self::acquire) with a handle of its own: the future can be sent to a task or kept in a field. It fails, panics and is
    /// cancelled in the same way.
    ///
    /// ```
    /// use paceline::concurrency::Permits;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let permits = Permits::new(1);
    /// let waiting = tokio::spawn(permits.acquire_owned());
    /// assert_eq!(waiting.await.unwrap().count(), 1);
    /// # }
    /// ```
    pub fn acquire_owned(&self) -> AcquirePermit<'static> {
        AcquirePermit {
            permits: self.request(Cow::Owned(Arc::clone(&self.queue)), 1),
        }
    }

    /// Waits for `cost` permits at once, behind every request that came before. None are held while it waits for the others.
    ///
    /// ```
    /// use paceline::concurrency::Permits;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let permits = Permits::new(3);
    ///
    /// let both = permits.acquire_many(2).await.unwrap();
    /// assert_eq!(both.count(), 2);
    ///
    /// let never = permits.acquire_many(4).await.unwrap_err();
    /// assert_eq!(never.to_string(), "a cost of 4 can never pass a limit of 3 at once");
    /// # }
    /// ```
    ///
    /// Zero permits are had at once, before every waiter.
    ///
    /// # Errors
    ///
    /// If the limit is smaller: at once, when it asks for the first time; and, if the limit has become smaller since, when
    /// its turn comes. It could wait for the limit to grow, but that may never happen, and every request behind would
    /// wait with it. What the limit does in between does not matter, and a limit of zero refuses no request: it is a pause, and
    /// does not say how many there will be after it.
    ///
    /// # Panics
    ///
    /// If it has to wait for a cool-down outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the queue; nothing was taken, and the next goes when it can.
    #[inline]
    pub fn acquire_many(&self, cost: u32) -> AcquirePermits<'_> {
        self.request(Cow::Borrowed(&self.queue), cost)
    }

    #[inline]
    fn observer(&self) -> Option<&SharedObserver> {
        self.queue.front().observer.get()
    }

    #[inline]
    fn request<'a>(
        &self,
        queue: Cow<'a, Arc<WaitQueue<SemaphoreState>>>,
        cost: u32,
    ) -> AcquirePermits<'a> {
        AcquirePermits {
            gate: Some(Gate::new(PermitQueue {
                queue,
                position: Position::None,
                resolution: self.resolution,
                priority: self.priority,
                flow: self.flow,
                reporter: Reporter::of(self.observer()),
            })),
            count: cost,
        }
    }

    /// Waits for a permit, if it can be had `within` this time.
    ///
    /// It fails when the time is over, and at once if the next permit is known to cool down for longer, or if the wait is
    /// [estimated](Self::with_estimated_wait) to be longer. What happens later is noticed at the deadline. The time begins at the
    /// first poll. A future that is polled late takes a permit that is free by then. Zero means: now or not at all.
    ///
    /// ```
    /// use paceline::concurrency::Permits;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let start = tokio::time::Instant::now();
    /// let permits = Permits::new(1);
    /// let permit = permits.acquire_within(Duration::ZERO).await.unwrap();
    ///
    /// let refused = permits.acquire_within(Duration::from_millis(50)).await.unwrap_err();
    /// assert!(refused.is_too_late());
    /// assert_eq!(start.elapsed(), Duration::from_millis(50));
    ///
    /// drop(permit);
    /// assert!(permits.acquire_within(Duration::ZERO).await.is_ok());
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`is_too_late`](crate::limiter::AcquireError::is_too_late), with a [`retry_in`](crate::limiter::AcquireError::retry_in) if the
    /// wait is known (a cool-down) or [estimated](Self::with_estimated_wait).
    ///
    /// # Panics
    ///
    /// If it has to wait outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the queue; nothing was taken.
    #[doc(alias("timeout", "maxWait"))]
    pub fn acquire_within(&self, within: Duration) -> AcquirePermitWithin<Self> {
        AcquirePermitWithin::new(self.clone(), within, self.resolution, Self::expected_wait)
    }

    /// A permit, if one is free and no request waits for it. It never overtakes a waiter.
    ///
    /// ```
    /// use paceline::concurrency::Permits;
    ///
    /// let permits = Permits::new(1);
    ///
    /// let permit = permits.try_acquire();
    /// assert!(permit.is_some());
    /// assert!(permits.try_acquire().is_none());
    /// drop(permit);
    /// assert!(permits.try_acquire().is_some());
    /// ```
    #[must_use = "a permit that is dropped at once limits nothing"]
    pub fn try_acquire(&self) -> Option<Permit> {
        self.try_acquire_many(1)
    }

    /// That many permits, if they are free and no request waits. It never overtakes a waiter, except for a cost of zero.
    ///
    /// ```
    /// use paceline::concurrency::Permits;
    ///
    /// let permits = Permits::new(3);
    ///
    /// let two = permits.try_acquire_many(2);
    /// assert!(two.is_some());
    /// assert!(permits.try_acquire_many(2).is_none());
    /// ```
    #[must_use = "a permit that is dropped at once limits nothing"]
    pub fn try_acquire_many(&self, cost: u32) -> Option<Permit> {
        let report = |decision| {
            if let Some(observer) = self.observer() {
                observer.report_try(cost, decision, None);
            }
        };
        let permit = try_take(&self.queue, &mut Position::None, self.flow, cost, report);
        permit.inspect_err(|_| count_refusal(&self.queue)).ok()
    }

    /// As [`try_acquire`](Self::try_acquire), and says why not. A caller that goes on waiting is not counted as refused.
    pub(crate) fn try_one(&self) -> Result<Permit, Missed> {
        let report = |decision: Decision| {
            if let Some(observer) = self.observer().filter(|_| decision.is_pass()) {
                observer.report_try(1, decision, None);
            }
        };
        try_take(&self.queue, &mut Position::None, self.flow, 1, report)
    }

    /// Changes the number of permits. It takes effect at once, for queued requests too.
    ///
    /// While there are zero permits, nothing passes. A limit below what is in use takes effect as permits
    /// come back: none is taken from its holder.
    ///
    /// ```
    /// use paceline::concurrency::Permits;
    ///
    /// let permits = Permits::new(2);
    /// let (one, two) = (permits.try_acquire(), permits.try_acquire());
    ///
    /// permits.resize(1);
    /// assert_eq!((permits.in_use(), permits.limit()), (2, 1));
    /// drop(one);
    /// assert!(permits.try_acquire().is_none());
    /// drop(two);
    /// assert!(permits.try_acquire().is_some());
    /// ```
    ///
    /// With a cool-down, the bound of a window is the limit at the time at which the last of its requests passed.
    pub fn resize(&self, n: u32) {
        self.queue.update_turns(|permits, waiters| {
            permits.limit = n;
            if let Some(flows) = waiters.division() {
                flows.divide(n);
            }
        });
        self.resized(n);
    }

    /// Changes the number of permits to what `limit` makes of the number in use. It runs under the lock of the queue.
    pub(super) fn resize_with(&self, limit: impl FnOnce(u32) -> u32) {
        let (before, now) = self.queue.update_turns(|permits, waiters| {
            let limit = limit(permits.in_use);
            if let Some(flows) = waiters.division() {
                flows.divide(limit);
            }
            (mem::replace(&mut permits.limit, limit), limit)
        });
        if before != now {
            self.resized(now);
        }
    }

    fn resized(&self, limit: u32) {
        if let Some(observer) = self.observer() {
            observer.report(Event::Resized { limit });
        }
    }

    /// How many are in use, without those that cool down.
    #[must_use]
    pub fn in_use(&self) -> u32 {
        self.queue.with(|permits, _| permits.in_use)
    }

    /// How many there are.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.queue.with(|permits, _| permits.limit)
    }

    /// What they have done so far, in requests, and how many requests wait.
    ///
    /// A stream that [runs futures](crate::stream::PaceStreamExt::concurrent) is not refused a permit, and counts as
    /// [`held_back`](Stats::held_back) when it is queued.
    ///
    /// ```
    /// use paceline::concurrency::Permits;
    ///
    /// let permits = Permits::new(1);
    /// let permit = permits.try_acquire();
    /// assert!(permits.try_acquire().is_none());
    ///
    /// let stats = permits.stats();
    /// assert_eq!((stats.passed, stats.refused, stats.waiting), (1, 1, 0));
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.queue.with(|permits, waiters| Stats {
            waiting: waiters.len(),
            ..permits.stats
        })
    }

    /// How long a request for a permit waits, as far as that is known or estimated; zero if not.
    pub(super) fn expected_wait(&self) -> Duration {
        self.queue.with(SemaphoreState::wait_behind)
    }
}

/// A handle of the same permits, which is not queued.
impl Clone for Permits {
    fn clone(&self) -> Self {
        Self {
            queue: Arc::clone(&self.queue),
            waiting: None,
            resolution: self.resolution,
            priority: self.priority,
            flow: self.flow,
        }
    }
}

impl Admit for Permits {
    type Guard = Permit;
    type Error = Infallible;

    fn poll_admit(&mut self, (): (), cx: &mut Context<'_>) -> Admitted<Permit> {
        let waiting = if let Some(waiting) = &mut self.waiting {
            waiting
        } else {
            ready!(poll_turn(cx));
            // Most often a permit is free, and a future that asks for it is dearer than the permit.
            let (queue, intent) = (&self.queue, Intent::Acquire);
            if self.observer().is_none() && queue.takes_prefetched(Position::None, 1, intent) {
                let permit = Permit::new(Arc::clone(queue), self.flow, 1);
                return Poll::Ready(Ok(Some(permit)));
            }
            let acquire = self.acquire_owned();
            self.waiting.insert(acquire)
        };
        let permit = ready!(Pin::new(waiting).poll(cx));
        self.waiting = None;
        Poll::Ready(Ok(Some(permit)))
    }

    fn poll_try_admit(&mut self, (): (), _cx: &mut Context<'_>) -> Admitted<Permit> {
        let permit = match self.waiting.take() {
            Some(waiting) => waiting.leave(),
            None => self.try_acquire(),
        };
        Poll::Ready(Ok(permit))
    }

    fn give_up(&mut self) {
        self.waiting = None;
    }
}

fn try_take(
    queue: &Arc<WaitQueue<SemaphoreState>>,
    position: &mut Position,
    flow: Flow,
    count: u32,
    report: impl FnOnce(Decision),
) -> Result<Permit, Missed> {
    let mut missed = Missed::NoneFree;
    let wait_behind = |_: &mut SemaphoreState, _: &Waiters, _: u32| {
        missed = Missed::OthersWait;
        Decision::Wait {
            retry_in: Duration::MAX,
        }
    };
    let decision = if queue.takes_prefetched(*position, count, Intent::Acquire) {
        Decision::Pass
    } else {
        queue.try_acquire(position, Some(flow), count, Intent::Acquire, wait_behind)
    };
    // An observer that panics keeps no permit.
    let permit = decision
        .is_pass()
        .then(|| Permit::new(Arc::clone(queue), flow, count));
    report(decision);
    permit.ok_or(missed)
}

fn count_refusal(queue: &WaitQueue<SemaphoreState>) {
    queue.with(|permits, _| permits.stats.refused += 1);
}

/// Why there is no permit now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Missed {
    OthersWait,
    NoneFree,
}

/// Reads what it prints before it writes, so that a slow writer blocks no caller.
impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (limit, in_use, waiting) = self
            .queue
            .with(|permits, waiters| (permits.limit, permits.in_use, waiters.len()));
        f.debug_struct("Permits")
            .field("limit", &limit)
            .field("in_use", &in_use)
            .field("waiting", &waiting)
            .finish_non_exhaustive()
    }
}

/// One permit or several of [`Permits`]: dropping it gives them back.
///
/// It can be dropped anywhere: in another task or thread, outside a runtime, while a panic unwinds. If there is a
/// cool-down, that is when it begins.
#[must_use = "a permit that is dropped at once limits nothing: call it `_permit`, since `let _ =` drops it too"]
pub struct Permit {
    queue: Arc<WaitQueue<SemaphoreState>>,
    count: u32,
    /// Whose it is, where keys divide the permits.
    flow: u64,
}

impl Permit {
    #[inline]
    const fn new(queue: Arc<WaitQueue<SemaphoreState>>, flow: Flow, count: u32) -> Self {
        let flow = flow.id();
        Self { queue, count, flow }
    }

    /// How many it is.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.count > 0 {
            let release = |permits: &mut SemaphoreState, now| permits.release(now, self.count);
            let is_released = self.queue.front().release(self.count);
            if !is_released && self.queue.release(self.flow, self.count, release) {
                let keeper = self.queue.with(|permits, _| permits.keeper.clone());
                if let Some(keeper) = keeper {
                    keeper.keep_while_cooling(Arc::clone(&self.queue));
                }
            }
            if let Some(observer) = self.queue.front().observer.get() {
                observer.report(Event::Released { count: self.count });
            }
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

/// Future of [`Permits::acquire`] and [`Permits::acquire_owned`].
#[derive(Debug)]
#[must_use = "futures do nothing unless you `.await` or poll them"]
pub struct AcquirePermit<'a> {
    permits: AcquirePermits<'a>,
}

impl AcquirePermit<'_> {
    /// Leaves the queue, with a permit if it is the turn of this request and one is free.
    pub(super) fn leave(mut self) -> Option<Permit> {
        let handle = self.permits.gate().limiter_mut();
        let (position, reporter) = (&mut handle.position, &mut handle.reporter);
        let report = |decision| reporter.decided(1, decision);
        let permit = try_take(&handle.queue, position, handle.flow, 1, report);
        permit.inspect_err(|_| count_refusal(&handle.queue)).ok()
    }
}

impl Future for AcquirePermit<'_> {
    type Output = Permit;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Permit> {
        let permit = ready!(Pin::new(&mut self.permits).poll(cx));
        Poll::Ready(permit.expect("one is never too many: a limit of zero refuses no request"))
    }
}

/// Future of [`Permits::acquire_many`].
#[derive(Debug)]
#[must_use = "futures do nothing unless you `.await` or poll them"]
pub struct AcquirePermits<'a> {
    /// Gone when it is done.
    gate: Option<Gate<PermitQueue<'a>>>,
    count: u32,
}

impl<'a> AcquirePermits<'a> {
    fn gate(&mut self) -> &mut Gate<PermitQueue<'a>> {
        self.gate.as_mut().expect("polled after it was ready")
    }
}

impl Future for AcquirePermits<'_> {
    type Output = Result<Permit, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let count = self.count;
        let passed = ready!(self.gate().poll_pass(count, cx));
        let PermitQueue { queue, flow, .. } = self.gate().limiter();
        let (queue, flow) = (Arc::clone(queue), *flow);
        self.gate = None;
        Poll::Ready(match passed {
            Ok(()) => Ok(Permit::new(queue, flow, count)),
            Err(refused) => {
                count_refusal(&queue);
                Err(refused)
            }
        })
    }
}

/// A handle that queues for permits.
#[derive(Debug)]
struct PermitQueue<'a> {
    /// Lent, or with a count of its own.
    queue: Cow<'a, Arc<WaitQueue<SemaphoreState>>>,
    position: Position,
    resolution: Resolution,
    priority: Priority,
    flow: Flow,
    reporter: Reporter,
}

impl PermitQueue<'_> {
    /// The permits are given back if the observer panics. Else the future has them.
    #[cold]
    fn report(&mut self, cost: u32, answer: &Poll<Result<Decision, Infallible>>) {
        let has_passed = matches!(answer, Poll::Ready(Ok(Decision::Pass)));
        let mut permit = has_passed.then(|| Permit::new(Arc::clone(&self.queue), self.flow, cost));
        self.reporter.answered(Method::Decide, cost, answer, None);
        if let Some(permit) = &mut permit {
            permit.count = 0;
        }
    }
}

impl Limiter for PermitQueue<'_> {
    type Error = Infallible;

    #[inline]
    fn poll_decide(
        &mut self,
        cost: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Decision, Infallible>> {
        let (queue, position, intent) = (&self.queue, &mut self.position, Intent::Acquire);
        let answer = if queue.takes_prefetched(*position, cost, intent) {
            Poll::Ready(Ok(Decision::Pass))
        } else {
            let caller = Caller::new(cx, Some(self.resolution), self.priority, Some(self.flow));
            queue.poll_acquire(position, cost, intent, &caller).map(Ok)
        };
        if self.reporter.observer().is_some() {
            self.report(cost, &answer);
        }
        answer
    }

    #[inline]
    fn give_up(&mut self) {
        self.queue.cancel(&mut self.position);
        self.reporter.gave_up();
    }

    fn resolution(&self) -> Resolution {
        self.resolution
    }
}
