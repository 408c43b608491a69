use core::convert::Infallible;
use core::fmt;
use core::ops::Deref;
use core::task::{Context, Poll};
use core::time::Duration;
use std::sync::Arc;

use tokio::time::Instant;

use crate::feedback::Feedback;
use crate::policy::{Decision, Policy, Status};
use crate::time::{Resolution, or_panic};
use crate::wait::{Caller, Flow, Intent, Position, Priority, WaitQueue};

use super::acquire::{Acquire, AcquireOne, AcquireWithin, retry_in};
use super::future::Obeying;
use super::limit::{LimitState, left_after};
use super::reporter::{Reporter, SharedObserver};
use super::settle::{ReserveWithin, Settle};
use super::{Answer, Event, Limiter, Method, Obey, Observer, Stats};

/// A limit, with a count of references for each handle, and no two counts on one cache line: tasks that acquire at once, each
/// through its handle, would slow each other down at a count that they share.
pub(super) struct LimitHandle<P: Policy> {
    limit: Arc<WaitQueue<LimitState<P>>>,
    /// Room until the next count. An alignment would do too, but memory that is aligned takes longer to get and to give back.
    _apart: [u64; 13],
}

impl<P: Policy> LimitHandle<P> {
    /// Whether there are handles of the limit that do not share this count.
    pub(super) fn is_cloned(&self) -> bool {
        Arc::strong_count(&self.limit) > 1
    }

    pub(super) fn stats(&self) -> Stats {
        self.limit.with(|limit, waiters| Stats {
            waiting: waiters.len(),
            ..limit.stats
        })
    }

    fn of(limit: Arc<WaitQueue<LimitState<P>>>) -> Arc<Self> {
        Arc::new(Self {
            limit,
            _apart: [0; 13],
        })
    }
}

impl<P: Policy<State: Send> + Send + 'static> LimitHandle<P> {
    pub(super) fn new(limit: LimitState<P>) -> Arc<Self> {
        Self::of(WaitQueue::new(limit))
    }
}

impl<P: Policy> Deref for LimitHandle<P> {
    type Target = WaitQueue<LimitState<P>>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.limit
    }
}

/// One limit for many tasks and adapters: every clone asks the same one, first come, first served.
///
/// Made by [`PolicyExt::shared`](super::PolicyExt::shared), anywhere: its clock starts when it is first asked. Give a
/// clone to each adapter; ask by hand with [`acquire`](Self::acquire) and [`try_acquire`](Self::try_acquire).
///
/// ```
/// use paceline::limiter::PolicyExt;
/// use paceline::policy::Interval;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let start = tokio::time::Instant::now();
/// let limit = Interval::every(Duration::from_millis(100)).shared();
///
/// let tasks = (0..4).map(|_| {
///     let limit = limit.clone();
///     tokio::spawn(async move { limit.acquire_one().await })
/// });
/// for task in tasks.collect::<Vec<_>>() {
///     task.await.unwrap();
/// }
/// assert_eq!(start.elapsed(), Duration::from_millis(300));
/// # }
/// ```
///
/// # The queue
///
/// It is in order of arrival (but see [`by_deadline`](Self::by_deadline), [`with_priority`](Self::with_priority) and
/// [`with_newest_first`](Self::with_newest_first)), whatever the costs: a request for many permits at its head is not overtaken by small
/// ones. A request that can never pass is refused at once, wherever it is
/// queued. Leaving the queue costs nothing and grants nothing.
/// To join, to pass and to leave takes time that is logarithmic in the number of waiters, with 100,000 of them too. Each waiter is woken about
/// once, when its permits are due: an exact timer wakes it a little early, and it yields until that instant has come.
///
/// **A crowd.** Where 16 requests or more wait at a [`TokenBucket`](crate::policy::TokenBucket), several pass at one wake-up, which
/// takes less processor time. The first of them is woken later than its permits are due: by half of the time from then until the
/// bucket would be full, and by 0.5 ms at most. The rate stays the same, and no request passes early.
/// [`with_resolution(Resolution::Exact)`](Self::with_resolution) switches this off. It is off where no timer is exact, on tokio's
/// paused clock, for a bucket with a burst of 1, and for all other policies.
///
/// **Head-of-line timeout.** A stream or task whose permits are due and that is not polled, because its owner is busy elsewhere,
/// does not block the others: when it has let its turn go by for 10 ms, the next waiter may pass before it. It keeps its
/// position, and is the head again as soon as it asks. (A task that runs at all asks within microseconds of its turn. Where the
/// whole runtime is late, no head is passed over for that.)
///
/// # Prefetch
///
/// Where the policy allows it, a few permits are approved ahead of time and pass without a reading of the clock and without the
/// lock: as many as in an [`Owned`](super::Owned) limit, and only while no waiter is queued that would be overtaken. They count
/// as spent at the next reading, so that never more passes than the policy says. On tokio's paused clock nothing is prefetched;
/// what is left of an earlier prefetch when the clock is paused can still pass. In two runtimes at once, one of which has a
/// paused clock that is ahead, prefetched permits may be counted by the earlier clock.
///
/// **Window bound**: that of its policy, over all clones together.
#[doc(alias("RateLimiter", "DirectRateLimiter"))]
pub struct Shared<P: Policy> {
    pub(super) queue: Arc<LimitHandle<P>>,
    pub(super) position: Position,
    /// `None` for exact waits, except in a crowd.
    pub(super) resolution: Option<Resolution>,
    pub(super) priority: Priority,
    /// Whose requests these are, in a [`FairQueue`](super::FairQueue).
    pub(super) flow: Option<Flow>,
    /// Of the handle of a request with a deadline.
    deadline: Option<Instant>,
    pub(super) reporter: Reporter,
}

impl<P: Policy<State: Send> + Send + 'static> Shared<P> {
    /// A limit that has not been used yet.
    #[must_use]
    pub fn new(policy: P) -> Self {
        Self::of(LimitHandle::new(LimitState::new(policy)))
    }
}

impl<P: Policy> Shared<P> {
    /// A handle of an existing limit.
    pub(super) fn of(queue: Arc<LimitHandle<P>>) -> Self {
        Self {
            queue,
            position: Position::None,
            resolution: None,
            priority: Priority::Normal,
            flow: None,
            deadline: None,
            reporter: Reporter::NONE,
        }
    }

    /// How exactly requests wait that are made through this handle and its later clones, adapters included.
    ///
    /// The default is [`Resolution::Exact`], except in a crowd: see [the queue](Self#the-queue). It is right unless a program has very
    /// many waits or runs on a battery.
    ///
    /// ```
    /// use paceline::limiter::PolicyExt;
    /// use paceline::policy::Interval;
    /// use paceline::time::Resolution;
    /// use std::time::{Duration, Instant};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let start = Instant::now();
    /// let limit = Interval::every(Duration::from_millis(2)).shared();
    /// let limit = limit.with_resolution(Resolution::Millis);
    ///
    /// for _ in 0..3 {
    ///     limit.acquire_one().await;
    /// }
    /// assert!(start.elapsed() >= Duration::from_millis(4));
    /// # }
    /// ```
    #[must_use]
    pub fn with_resolution(mut self, resolution: Resolution) -> Self {
        self.resolution = Some(resolution);
        self
    }

    /// Reports to `observer` what becomes of each request made through this handle and its later clones, and what is done to the
    /// limit through them: calls by hand, futures and adapters alike. To be called before it is cloned. Of two observers the
    /// second one counts.
    ///
    /// A closure `Fn(Event)` is an observer (with the type of its argument written out), and so are
    /// `Metrics` and `TracingObserver`; see [`Observer`] for others. It is called when no lock of the limit is
    /// held, so it may use the limit.
    ///
    /// ```
    /// use paceline::limiter::{Event, PolicyExt};
    /// use paceline::policy::Interval;
    /// use std::sync::mpsc;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let (sender, events) = mpsc::channel();
    /// let limit = Interval::every(Duration::from_millis(100)).shared();
    /// let limit = limit.with_observer(move |event: Event| sender.send(event).unwrap());
    ///
    /// limit.acquire(1).await.unwrap();
    /// assert!(!limit.try_acquire(1).is_pass());
    /// limit.pause_for(Duration::from_secs(2));
    ///
    /// assert!(matches!(events.recv(), Ok(Event::Passed { cost: 1, .. })));
    /// assert!(matches!(events.recv(), Ok(Event::Refused { cost: 1, .. })));
    /// assert!(matches!(events.recv(), Ok(Event::Paused { .. })));
    /// # }
    /// ```
    ///
    /// A closure that changes what it owns would need a lock, and is refused:
    ///
    /// ```compile_fail
    /// # use paceline::limiter::{Event, PolicyExt};
    /// # use paceline::policy::Unlimited;
    /// let mut count = 0;
    /// let limit = Unlimited.shared().with_observer(move |_: Event| count += 1);
    /// ```
    #[must_use]
    pub fn with_observer<O>(mut self, observer: O) -> Self
    where
        O: Send + Sync + 'static,
        for<'a> &'a O: Observer,
    {
        self.reporter = Reporter::of(Some(&SharedObserver::new(observer)));
        self
    }

    /// Serves the newest request first while the queue has not been empty for `after`, and in order of arrival again as soon as
    /// it is empty. To be called before there are clones, which have it too.
    ///
    /// Under overload every request in a queue waits too long, and a server that answers in order of arrival answers each one when
    /// its client has given up. With the newest first it answers some in time. Choose `after` longer than a
    /// burst takes, such as 100 ms; with zero the newest is always first. A pause makes a queue, too.
    ///
    /// **Starvation.** The oldest requests wait until the queue is empty: without end if the overload lasts. So give them a
    /// deadline, with [`acquire_within`](Self::acquire_within). A request for many permits is overtaken by each newer one.
    ///
    /// ```
    /// use paceline::limiter::PolicyExt;
    /// use paceline::policy::Interval;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let ms = Duration::from_millis;
    /// let limit = Interval::every(ms(100)).shared().with_newest_first(ms(150));
    /// limit.acquire_one().await;
    ///
    /// let waiters = [(); 3].map(|()| tokio::spawn(limit.acquire_owned(1)));
    /// tokio::time::sleep(ms(150)).await;
    /// assert_eq!(waiters.each_ref().map(|waiter| waiter.is_finished()), [true, false, false]);
    /// tokio::time::sleep(ms(100)).await;
    /// assert_eq!(waiters.each_ref().map(|waiter| waiter.is_finished()), [true, false, true]);
    /// # }
    /// ```
    ///
    /// While the newest is first, a new request passes before all that wait, and [`try_acquire`](Self::try_acquire) too. So
    /// [`peek`](Self::peek) and `acquire_within` count none of them, and newer requests can make a request late that was in time
    /// when it came. A waiter that was woken for a permit and finds that a newer request has taken it waits again. In a queue
    /// [by deadline](Self::by_deadline), or with [classes](Self::with_priority), it has no effect.
    #[doc(alias("LIFO", "adaptive LIFO", "CoDel"))]
    #[must_use]
    pub fn with_newest_first(self, after: Duration) -> Self {
        self.queue.serve_newest_first(after);
        self
    }

    /// The class of requests that are made through this handle and its later clones, adapters included: see [`Priority`].
    ///
    /// It orders the requests of the whole limit, unless they are ordered [by deadline](Self::by_deadline).
    /// [`with_newest_first`](Self::with_newest_first) has no effect then, and
    /// [`peek`](Self::peek) and [`acquire_within`](Self::acquire_within) count none of the requests that wait, since a new one may pass
    /// before them. [`try_acquire`](Self::try_acquire) overtakes no request of any class. A
    /// [`Combined`](super::Combined) takes no handle with a class other than [`Normal`](Priority::Normal).
    #[must_use]
    pub fn with_priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        let kept = self.queue.serve_by_class(None);
        debug_assert!(kept.is_ok(), "the default is in range");
        self
    }

    /// How much waiting a class above is worth, for all handles: 10 s by default, and a year at most. With zero all classes are equal.
    ///
    /// Requests that wait already keep their place.
    ///
    /// # Panics
    ///
    /// If it is more than a year.
    #[must_use]
    #[track_caller]
    #[doc(alias("aging", "starvation"))]
    pub fn with_ageing(self, ageing: Duration) -> Self {
        or_panic(self.queue.serve_by_class(Some(ageing)));
        self
    }

    /// Serves the request with the earliest deadline first: see [`acquire_by`](Self::acquire_by). To be called before there are clones,
    /// which have it too; requests that wait already stay first. Limits by key have no such order.
    ///
    /// [`acquire_within`](Self::acquire_within) and [`reserve_within`](super::Settle::reserve_within) only end their wait: they are
    /// ordered as requests without a deadline. To be ordered use `acquire_by(cost, Instant::now() + within)`.
    ///
    /// A request without a deadline, such as that of an adapter, is ordered as if its deadline were its arrival plus `usual`. It never
    /// fails for that. So requests with deadlines cannot starve it: it waits for those that have a deadline before that instant, and for no
    /// others. Equal deadlines are served in order of arrival. A request of cost c keeps the others waiting *after* it where one permit passes at
    /// a time, as in an [`Interval`](crate::policy::Interval). So there its deadline counts as c − 1 intervals later.
    ///
    /// ```
    /// use paceline::prelude::*;
    /// use tokio::time::Instant;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let ms = Duration::from_millis;
    /// let limit = Interval::every(ms(100)).shared().by_deadline(ms(60_000));
    /// limit.acquire_one().await;
    ///
    /// let start = Instant::now();
    /// let newsletters = [(); 50].map(|()| tokio::spawn(limit.acquire_owned(1)));
    /// tokio::task::yield_now().await;
    /// limit.acquire_by(1, start + ms(2_000)).await.unwrap();
    /// assert_eq!(start.elapsed(), ms(100), "before 50 that came first");
    /// # drop(newsletters);
    /// # }
    /// ```
    ///
    /// **What it promises**, if each request has a deadline and costs 1: no order that leaves no permit unused while a request waits meets
    /// more deadlines. (An order that knows what will come, and leaves a permit unused for it, can meet more. And a request passes at once
    /// if none waits, although a more urgent one may come in the same instant.) With other costs, requests that come together at an
    /// `Interval` all meet their deadlines if any order does that. With other costs at another policy there is no such promise.
    ///
    /// **Other orders.** [Classes](Self::with_priority) and [newest first](Self::with_newest_first) have no effect then. Where keys take
    /// turns, in a [`FairQueue`](super::FairQueue), it is this that has none. A [`Combined`](super::Combined) and a thread in
    /// [`acquire_blocking`](super::LimiterExt::acquire_blocking) have no deadline. [`peek`](Self::peek) and a refused
    /// [`try_acquire`](Self::try_acquire), which overtakes no request, say the wait of a request without one.
    #[doc(alias("EDF", "earliest deadline first"))]
    #[must_use]
    pub fn by_deadline(self, usual: Duration) -> Self {
        self.queue.serve_by_deadline(usual);
        self
    }

    /// Waits for `cost` permits, behind every request that came before. It is queued when it is first polled.
    ///
    /// The future borrows the limit, and needs no handle of its own. One that outlives the limit is
    /// [`acquire_owned`](Self::acquire_owned).
    ///
    /// ```
    /// use paceline::limiter::PolicyExt;
    /// use paceline::policy::TokenBucket;
    /// use paceline::time::Rate;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let start = tokio::time::Instant::now();
    /// let limit = TokenBucket::new(Rate::per_second(10), 3).shared();
    ///
    /// limit.acquire(3).await.unwrap();
    /// limit.acquire(2).await.unwrap();
    /// assert_eq!(start.elapsed(), Duration::from_millis(200));
    ///
    /// let never = limit.acquire(4).await.unwrap_err();
    /// assert_eq!(never.to_string(), "a cost of 4 can never pass a limit of 3 at once");
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// At once, if that many can never pass.
    ///
    /// # Panics
    ///
    /// If it has to wait outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the queue; nothing was counted.
    #[doc(alias("until_n_ready", "consume", "removeTokens"))]
    #[inline]
    pub fn acquire(&self, cost: u32) -> Acquire<Lent<'_, P>> {
        Acquire::new(self.lend(), cost)
    }

    /// [`acquire`](Self::acquire) with a handle of its own: the future can be sent to a task or kept in a field. It fails, panics and is
    /// cancelled in the same way.
    ///
    /// ```
    /// use paceline::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let limit = Interval::every(Duration::from_millis(100)).shared();
    /// let waiting = tokio::spawn(limit.acquire_owned(1));
    /// waiting.await.unwrap().unwrap();
    /// # }
    /// ```
    pub fn acquire_owned(&self, cost: u32) -> Acquire<Self> {
        Acquire::new(self.with_same_count(), cost)
    }

    /// Waits for one permit, which no limit refuses for ever: [`acquire`](Self::acquire) of 1, without an error. It borrows the
    /// limit, too.
    ///
    /// ```
    /// use paceline::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let start = tokio::time::Instant::now();
    /// let limit = Interval::every(Duration::from_millis(100)).shared();
    /// for call in 1..=3 {
    ///     limit.acquire_one().await;
    ///     println!("call {call}");
    /// }
    /// # assert_eq!(start.elapsed(), Duration::from_millis(200));
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If it has to wait outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the queue; nothing was counted.
    #[doc(alias("until_ready", "consume", "schedule", "ready"))]
    #[inline]
    pub fn acquire_one(&self) -> AcquireOne<Lent<'_, P>> {
        AcquireOne::new(self.lend())
    }

    /// Waits for `cost` permits, if they can be had `within` this time.
    ///
    /// It fails at once when the wait behind the queued requests is known to be too long, and when the time is over at the
    /// latest. Nothing is counted then. The wait is known when it joins the queue: a pause, a retune, a charge or a request that returns
    /// to its position ahead can make it longer, and that is noticed at the deadline. The time begins when it is first polled; like any
    /// future it can say nothing while it is not polled, and one that is polled late takes a permit that is there. The future has a
    /// handle of its own.
    ///
    /// ```
    /// use paceline::limiter::PolicyExt;
    /// use paceline::policy::Interval;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let start = tokio::time::Instant::now();
    /// let limit = Interval::every(Duration::from_millis(100)).shared();
    /// limit.acquire_one().await;
    ///
    /// let refused = limit.acquire_within(1, Duration::from_millis(99)).await.unwrap_err();
    /// assert!(refused.is_too_late());
    /// assert_eq!(refused.retry_in(), Some(Duration::from_millis(100)));
    /// assert_eq!(start.elapsed(), Duration::ZERO);
    ///
    /// limit.acquire_within(1, Duration::from_millis(100)).await.unwrap();
    /// assert_eq!(start.elapsed(), Duration::from_millis(100));
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`is_too_late`](super::AcquireError::is_too_late), with [`retry_in`](super::AcquireError::retry_in) for a `Retry-After`;
    /// or [`is_too_costly`](super::AcquireError::is_too_costly) if that many can never pass.
    ///
    /// # Panics
    ///
    /// If it has to wait outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the queue; nothing was counted.
    #[doc(alias("tryConsume", "tryAcquire", "timeout"))]
    pub fn acquire_within(&self, cost: u32, within: Duration) -> AcquireWithin<Self> {
        AcquireWithin::new(self.with_same_count(), cost, within, Self::refuse_late)
    }

    /// Waits for `cost` permits, if they can be had by `deadline`. In a queue [by deadline](Self::by_deadline) the earliest goes first; else
    /// the order is that of arrival, and the deadline only ends the wait.
    ///
    /// It fails at once when the requests before it in this order are known to leave no permit in time; those that cannot make their own
    /// deadline do not count. Of a longer queue it knows the first 64. A request with an earlier deadline that comes later, a pause, a
    /// retune or a charge can make it late, too: then it fails when the deadline is over. Nothing is counted when it fails.
    ///
    /// A permit that is there at the deadline is in time. It never passes later, also if it is polled late. The deadline is an instant of
    /// tokio's clock; the future has a handle of its own.
    ///
    /// ```
    /// use paceline::prelude::*;
    /// use tokio::time::Instant;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let ms = Duration::from_millis;
    /// let limit = Interval::every(ms(100)).shared().by_deadline(ms(60_000));
    /// limit.acquire_one().await;
    ///
    /// let start = Instant::now();
    /// let (later, sooner, late) = tokio::join!(
    ///     limit.acquire_by(1, start + ms(250)),
    ///     limit.acquire_by(1, start + ms(100)),
    ///     limit.acquire_by(1, start + ms(199)),
    /// );
    /// assert!(later.is_ok() && sooner.is_ok());
    /// assert_eq!(late.unwrap_err().retry_in(), Some(ms(200)));
    /// assert_eq!(start.elapsed(), ms(200));
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`is_too_late`](super::AcquireError::is_too_late), whose message has the time from the first poll to the deadline, or says that
    /// it was over; [`is_too_costly`](super::AcquireError::is_too_costly) if that many can never pass.
    ///
    /// # Panics
    ///
    /// If it has to wait outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the queue; nothing was counted.
    #[doc(alias("deadline", "EDF"))]
    pub fn acquire_by(&self, cost: u32, deadline: Instant) -> AcquireWithin<Self> {
        let mut handle = self.with_same_count();
        handle.deadline = Some(deadline);
        let mut acquire = handle.acquire_within(cost, Duration::ZERO);
        acquire.by = handle.deadline;
        acquire
    }

    /// Asks for `cost` permits without waiting. It never overtakes a waiter.
    ///
    /// ```
    /// use paceline::limiter::PolicyExt;
    /// use paceline::policy::{Decision, Interval};
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let limit = Interval::every(Duration::from_millis(100)).shared();
    ///
    /// assert_eq!(limit.try_acquire(1), Decision::Pass);
    /// assert_eq!(
    ///     limit.try_acquire(1),
    ///     Decision::Wait { retry_in: Duration::from_millis(100) }
    /// );
    /// # }
    /// ```
    #[doc(alias("check", "check_n", "tryConsume"))]
    #[inline]
    pub fn try_acquire(&self, cost: u32) -> Decision {
        self.reported(cost, self.try_decide(Intent::Acquire, cost, None))
    }

    /// What [`try_acquire`](Self::try_acquire) would say. Nothing is counted.
    ///
    /// The time it says takes the queued requests into account; in a queue of more than 64 it may not know all of them, and say
    /// less.
    pub fn peek(&self, cost: u32) -> Decision {
        self.try_decide(Intent::Peek, cost, self.deadline)
    }

    /// What the limit has left now. Nothing is counted.
    ///
    /// It is what the policy has, or less if [`set_remaining`](Self::set_remaining) has said so: the queued requests take theirs of
    /// it before a new one. During a pause nothing remains, and the reset is not before its end. The clock of an unused limit does not start.
    ///
    /// ```
    /// use paceline::limiter::{PolicyExt, Quota};
    /// use paceline::policy::TokenBucket;
    /// use paceline::time::Rate;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let limit = TokenBucket::new(Rate::per_second(10), 10).shared();
    /// assert!(limit.try_acquire(4).is_pass());
    ///
    /// let left = limit.status().unwrap();
    /// assert_eq!(left.quota, Some(Quota { permits: 10, window: Duration::from_secs(1) }));
    /// assert_eq!(left.remaining, 6);
    /// assert_eq!(left.reset_in, Duration::from_millis(400));
    /// # }
    /// ```
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        self.queue.with(|limit, _| limit.status())
    }

    /// The policy that decides, as of the last [`retune`](Self::retune).
    ///
    /// ```
    /// use paceline::limiter::PolicyExt;
    /// use paceline::policy::Interval;
    /// use std::time::Duration;
    ///
    /// let limit = Interval::every(Duration::from_millis(100)).shared();
    /// limit.retune(Interval::every(Duration::from_millis(200)));
    /// assert_eq!(limit.policy().interval(), Duration::from_millis(200));
    /// ```
    #[must_use]
    pub fn policy(&self) -> P
    where
        P: Clone,
    {
        self.queue.with(|limit, _| limit.policy.clone())
    }

    /// How long no request passes, whatever the policy has: because of a pause, or since nothing is left of
    /// what [`set_remaining`](Self::set_remaining) has said. `None` if that does not hold it. A pause without end lasts for
    /// centuries.
    ///
    /// ```
    /// use paceline::limiter::PolicyExt;
    /// use paceline::policy::Interval;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let limit = Interval::every(Duration::from_millis(100)).shared();
    /// assert_eq!(limit.paused_for(), None);
    ///
    /// limit.pause_for(Duration::from_secs(2));
    /// assert_eq!(limit.paused_for(), Some(Duration::from_secs(2)));
    /// # }
    /// ```
    #[must_use]
    pub fn paused_for(&self) -> Option<Duration> {
        self.queue.with(|limit, _| limit.paused_for())
    }

    /// How many requests are queued now.
    #[doc(alias("queueSize", "queued"))]
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.with(|_, waiters| waiters.len())
    }

    /// What it has done so far, and how many requests wait.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.queue.stats()
    }

    #[inline]
    fn lend(&self) -> Lent<'_, P> {
        Lent {
            limit: self,
            position: Position::None,
            reporter: self.reporter.clone(),
        }
    }

    /// A handle that waits in the queue of this flow.
    pub(super) fn in_flow(&self, flow: Flow) -> Self {
        let mut handle = self.with_same_count();
        handle.flow = Some(flow);
        handle
    }

    /// A handle that shares the count of this one: see [`LimitHandle`].
    fn with_same_count(&self) -> Self {
        self.with_queue(Arc::clone(&self.queue))
    }

    /// A handle that is not queued, with the options of this one.
    fn with_queue(&self, queue: Arc<LimitHandle<P>>) -> Self {
        Self {
            queue,
            position: Position::None,
            resolution: self.resolution,
            priority: self.priority,
            flow: self.flow,
            deadline: self.deadline,
            reporter: self.reporter.clone(),
        }
    }

    #[inline]
    fn reported(&self, cost: u32, decision: Decision) -> Decision {
        if let Some(observer) = self.reporter.observer() {
            observer.report_try(cost, decision, None);
        }
        decision
    }

    /// Asks as a handle that is not queued, whether or not this one is.
    #[inline]
    fn try_decide(&self, intent: Intent, cost: u32, deadline: Option<Instant>) -> Decision {
        try_decide(&self.queue, &mut Position::None, intent, cost, deadline)
    }

    /// The same. `left` becomes the status after an answer that it `reads`, before any other request.
    #[inline]
    pub(super) fn try_and_read(
        &self,
        intent: Intent,
        cost: u32,
        reads: impl Fn(Decision) -> bool,
        left: &mut Option<Status>,
    ) -> Decision {
        let position = &mut Position::None;
        if !reads(Decision::Pass) && self.queue.takes_prefetched(*position, cost, intent) {
            return Decision::Pass;
        }
        let read = |limit: &mut LimitState<P>| *left = left_after(|| limit.status());
        let behind =
            |limit: &mut LimitState<P>, waiters: &_, cost| limit.wait_behind(waiters, cost, None);
        let queue = &self.queue;
        queue.try_and_read(position, None, cost, intent, behind, reads, read)
    }

    /// Leaves the queue, since it would take too long.
    fn refuse_late(&mut self, cost: u32, known: Option<Duration>) -> Option<Duration> {
        self.queue.cancel(&mut self.position);
        self.queue.with(|limit, _| limit.stats.refused += 1);
        let retry_in = known.or_else(|| retry_in(self.peek(cost)));
        self.reporter.too_late(cost, retry_in);
        retry_in
    }

    /// Whether it is neither queued nor has reserved a position.
    pub(super) const fn is_outside(&self) -> bool {
        self.position.is_none()
    }

    /// Asks for a key that waits. Out of line, because most requests for a key need no handle.
    #[inline(never)]
    pub(super) fn poll_for_key(
        &mut self,
        intent: Intent,
        cost: u32,
        cx: &mut Context<'_>,
    ) -> Answer {
        match intent {
            Intent::Acquire => self.poll_decide(cost, cx),
            Intent::Peek => self.poll_open(cost, cx),
        }
    }
}

/// Changes of the limit, and of what it has counted.
impl<P: Policy> Shared<P> {
    /// Gives back `cost` permits that passed and were not used; waiters may pass sooner.
    ///
    /// The limit never becomes better than full. Permits that are given back after others passed come on top of the bound of
    /// a window that holds those others: see [`Policy::refund`].
    #[doc(alias("addTokens", "incrementReservoir"))]
    pub fn refund(&self, cost: u32) {
        self.queue.update(|limit, now| limit.refund(now, cost));
    }

    /// Counts `cost` permits that were used without having been asked for: those of a call that has cost more than was known, or
    /// of work that could not wait.
    ///
    /// Permits that are not there are owed. It takes effect at once: queued requests wait until the debt is paid. What a limit
    /// owes at most, and for how long, depends on the policy: a [`TokenBucket`](crate::policy::TokenBucket) pays with the
    /// tokens that flow in, and a window counts until it is over. The statistics do not count it, since it is no request.
    ///
    /// ```
    /// use paceline::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let start = tokio::time::Instant::now();
    /// let limit = TokenBucket::new(Rate::per_second(10), 5).shared();
    ///
    /// limit.charge(8);
    /// limit.acquire_one().await;
    /// assert_eq!(start.elapsed(), Duration::from_millis(400)); // 3 are owed
    /// # }
    /// ```
    ///
    /// **Window bound**: the charge comes on top of it.
    #[doc(alias("consumeIgnoringRateLimits", "debt", "penalty"))]
    pub fn charge(&self, cost: u32) {
        self.queue.update(|limit, now| limit.charge(now, cost));
    }

    /// Begins anew, as if the limit had never been used: nothing is spent, and no pause is under way. The parameters stay those
    /// of the last [`retune`](Self::retune). It takes effect at once, for queued requests too.
    ///
    /// What was spent comes on top of the window bound.
    ///
    /// ```
    /// use paceline::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let limit = Interval::every(Duration::from_secs(3600)).shared();
    /// limit.acquire_one().await;
    ///
    /// limit.reset();
    /// assert!(limit.try_acquire(1).is_pass());
    /// # }
    /// ```
    #[doc(alias("refill"))]
    pub fn reset(&self) {
        self.queue.update(LimitState::reset);
        self.reporter.report(Event::Resumed);
    }

    /// Goes on with other parameters. What was spent stays spent. They take effect at once, for queued requests too.
    ///
    /// ```
    /// use paceline::limiter::PolicyExt;
    /// use paceline::policy::Interval;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let start = tokio::time::Instant::now();
    /// let limit = Interval::every(Duration::from_secs(3600)).shared();
    /// limit.acquire_one().await;
    ///
    /// let waiting = tokio::spawn(limit.acquire_owned(1));
    /// tokio::time::sleep(Duration::from_secs(1)).await;
    /// limit.retune(Interval::every(Duration::from_secs(5)));
    ///
    /// waiting.await.unwrap().unwrap();
    /// assert_eq!(start.elapsed(), Duration::from_secs(5));
    /// # }
    /// ```
    #[doc(alias("setRate", "replaceConfiguration", "updateSettings"))]
    pub fn retune(&self, policy: P) {
        self.queue
            .update_all(|limit, now| limit.retune(now, policy));
        self.reporter.report(Event::Retuned);
    }

    /// Lets no request pass before `duration` is over: after a provider has said "too many requests".
    ///
    /// It holds for waiters too. Of two pauses the later end counts. A request that can never pass is still refused, and cost 0
    /// passes.
    ///
    /// ```
    /// use paceline::limiter::PolicyExt;
    /// use paceline::policy::Interval;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let start = tokio::time::Instant::now();
    /// let limit = Interval::every(Duration::from_millis(100)).shared();
    ///
    /// limit.pause_for(Duration::from_secs(2));
    /// limit.acquire_one().await;
    /// assert_eq!(start.elapsed(), Duration::from_secs(2));
    /// # }
    /// ```
    pub fn pause_for(&self, duration: Duration) {
        let duration = self.pause(duration);
        self.reporter.report(Event::Paused { duration });
    }

    /// Pauses for as long as a provider asks, and says for how long; `None` if it asks for nothing.
    ///
    /// It is [`pause_for`](Self::pause_for) with what [`Feedback::pause`] says: every request waits, those that are queued
    /// included. Call it with every response, also with those that succeed: when nothing remains of the quota, the limit pauses
    /// before the first refusal.
    ///
    /// If many programs wait for the same instant, add a random time of your own:
    /// `limit.pause_for(pause + jitter)`; of two pauses the later end counts.
    ///
    /// ```
    /// use paceline::feedback::Feedback;
    /// use paceline::limiter::PolicyExt;
    /// use paceline::policy::Interval;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let start = tokio::time::Instant::now();
    /// let limit = Interval::every(Duration::from_millis(100)).shared();
    ///
    /// let fine = Feedback::parse([("X-RateLimit-Remaining", "7")], Duration::ZERO);
    /// assert_eq!(limit.apply_feedback(&fine), None);
    ///
    /// let refused = Feedback::parse([("Retry-After", "2")], Duration::ZERO);
    /// assert_eq!(limit.apply_feedback(&refused), Some(Duration::from_secs(2)));
    ///
    /// limit.acquire_one().await;
    /// assert_eq!(start.elapsed(), Duration::from_secs(2));
    /// # }
    /// ```
    #[doc(alias("retry-after", "backoff"))]
    #[expect(clippy::must_use_candidate, reason = "the pause is the effect")]
    pub fn apply_feedback(&self, feedback: &Feedback) -> Option<Duration> {
        let asked = feedback.pause()?;
        let pause = self.pause(asked);
        self.reporter.report(Event::FeedbackApplied { pause });
        Some(asked)
    }

    /// Lets at most `remaining` more permits pass before `reset_in` is over, whatever the policy has: from the headers of a
    /// provider that says what it has left.
    ///
    /// It never lets more pass than the policy does. With 0 it is a pause. A request for more than remains waits until the
    /// reset; after the reset it changes nothing any more. A refund does not raise it, a [`charge`](Self::charge) lowers it, and
    /// [`resume`](Self::resume) ends it.
    ///
    /// A later call replaces the earlier one, since the provider may have refilled early, or have been reset. So replies that
    /// come out of order can leave an older number in force, until the next reply or the reset. A reply does not know of the
    /// requests that are under way when it is written, either: the provider may refuse as many as were. Where that matters,
    /// subtract them: `remaining - permits.in_use()`.
    ///
    /// ```
    /// use paceline::feedback::Feedback;
    /// use paceline::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let start = tokio::time::Instant::now();
    /// let limit = TokenBucket::new(Rate::per_second(100), 100).shared();
    ///
    /// let headers = [("X-RateLimit-Remaining", "2"), ("X-RateLimit-Reset", "30")];
    /// let feedback = Feedback::parse(headers, Duration::ZERO);
    /// if let (Some(left), Some(reset_in)) = (feedback.remaining(), feedback.reset_in()) {
    ///     limit.set_remaining(u32::try_from(left).unwrap_or(u32::MAX), reset_in);
    /// }
    ///
    /// limit.acquire(2).await.unwrap();
    /// assert_eq!(start.elapsed(), Duration::ZERO);
    /// limit.acquire_one().await;
    /// assert_eq!(start.elapsed(), Duration::from_secs(30));
    /// # }
    /// ```
    ///
    /// It counts what the policy counts: costs, or requests of a [`PerRequest`](crate::policy::PerRequest). An
    /// [`All`](crate::policy::All) of both counts costs.
    ///
    /// While it is in force, nothing is [prefetched](Self#prefetch). An observer does not see it. Before it, settle what the call
    /// has cost: a charge that comes afterwards counts as permits that the provider does not know of yet.
    #[doc(alias("reservoir", "X-RateLimit-Remaining", "updateSettings"))]
    pub fn set_remaining(&self, remaining: u32, reset_in: Duration) {
        self.queue
            .update(|limit, now| limit.set_remaining(now, remaining, reset_in));
    }

    /// Lets one request pass until other numbers are set, or `patience` is over. Nobody knows how long a wait for that is.
    pub(super) fn let_one_pass(&self, patience: Duration) {
        self.queue.update(|limit, now| {
            limit.set_remaining(now, 1, patience);
            limit.hold.is_guess = true;
        });
    }

    /// Ends every pause, and what [`set_remaining`](Self::set_remaining) has said. Waiters pass as soon as the policy allows it.
    ///
    /// ```
    /// use paceline::limiter::PolicyExt;
    /// use paceline::policy::Interval;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let limit = Interval::every(Duration::from_millis(100)).shared();
    ///
    /// limit.pause_for(Duration::MAX);
    /// assert!(!limit.try_acquire(1).is_pass());
    /// limit.resume();
    /// assert!(limit.try_acquire(1).is_pass());
    /// # }
    /// ```
    pub fn resume(&self) {
        self.queue.update(|limit, _| limit.resume());
        self.reporter.report(Event::Resumed);
    }

    /// Pauses, and returns for how long.
    fn pause(&self, duration: Duration) -> Duration {
        self.queue
            .update(|limit, now| limit.hold.pause_for(now, duration))
    }
}

impl<P: Policy> Limiter for Shared<P> {
    type Error = Infallible;

    #[inline]
    fn poll_decide(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer {
        let (position, intent) = (&mut self.position, Intent::Acquire);
        if self.queue.takes_prefetched(*position, cost, intent) {
            self.reporter.answered(Method::Decide, cost, &PASS, None);
            return PASS;
        }
        let caller = Caller::new(cx, self.resolution, self.priority, self.flow).by(self.deadline);
        let decision = self.queue.poll_acquire(position, cost, intent, &caller);
        let answer = decision.map(Ok);
        self.reporter.answered(Method::Decide, cost, &answer, None);
        answer
    }

    fn poll_try(&mut self, cost: u32, _cx: &mut Context<'_>) -> Answer {
        let position = &mut self.position;
        let decision = try_decide(&self.queue, position, Intent::Acquire, cost, None);
        let answer = Poll::Ready(Ok(decision));
        self.reporter.answered(Method::Try, cost, &answer, None);
        answer
    }

    fn poll_open(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer {
        let (position, intent) = (&mut self.position, Intent::Peek);
        if self.queue.takes_prefetched(*position, cost, intent) {
            return Poll::Ready(Ok(Decision::Pass));
        }
        let caller = Caller::new(cx, self.resolution, self.priority, self.flow);
        let decision = self.queue.poll_acquire(position, cost, intent, &caller);
        let answer = decision.map(Ok);
        self.reporter.answered(Method::Open, cost, &answer, None);
        answer
    }

    fn give_up(&mut self) {
        self.queue.cancel(&mut self.position);
        self.reporter.gave_up();
    }

    fn status(&self) -> Option<Status> {
        self.status()
    }

    fn least_wait(&self, cost: u32) -> Duration {
        let wait = self.peek(cost).retry_in().unwrap_or_default();
        let is_known = wait.is_zero() || !self.queue.with(|limit, _| limit.hold.is_guess);
        if is_known { wait } else { Duration::ZERO }
    }

    fn resolution(&self) -> Resolution {
        self.resolution.unwrap_or_default()
    }

    fn foresee(&self, count: usize) -> Vec<Instant> {
        self.queue
            .with(|limit, waiters| limit.foresee(waiters, self.position, count))
    }

    #[inline]
    fn try_once(&self, cost: u32, all: bool, left: &mut Option<Status>) -> Option<Decision> {
        let reads = |decision: Decision| all || !decision.is_pass();
        let decision = self.try_and_read(Intent::Acquire, cost, reads, left);
        Some(self.reported(cost, decision))
    }
}

impl<P: Policy> Settle for Shared<P> {
    fn charge(&self, cost: u32) {
        self.charge(cost);
    }

    fn refund_from(&self, spent_at: Instant, cost: u32) {
        self.queue
            .update(|limit, now| limit.refund_from(now, spent_at, cost));
    }

    fn reserve_within(&self, estimate: u32, within: Duration) -> ReserveWithin<Self> {
        ReserveWithin {
            acquire: self.acquire_within(estimate, within),
        }
    }
}

impl<P: Policy> Obey for Shared<P> {
    type Error = Infallible;

    fn obey(&self, feedback: &Feedback) -> Option<Obeying<Infallible>> {
        self.apply_feedback(feedback);
        None
    }
}

/// Another handle of the same limit, which is not queued.
impl<P: Policy> Clone for Shared<P> {
    fn clone(&self) -> Self {
        self.with_queue(LimitHandle::of(Arc::clone(&self.queue.limit)))
    }
}

/// Reads what it prints before it writes, so that a slow writer blocks no caller.
impl<P: Policy> fmt::Debug for Shared<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stats = self.stats();
        f.debug_struct("Shared")
            .field("stats", &stats)
            .finish_non_exhaustive()
    }
}

/// Leaves the queue.
impl<P: Policy> Drop for Shared<P> {
    fn drop(&mut self) {
        self.give_up();
    }
}

const PASS: Answer = Poll::Ready(Ok(Decision::Pass));

/// A [`Shared`] limit that is lent to one request: see [`Shared::acquire`]. It has a position in the queue, and counts no reference.
// It has no destructor, since the gate around it leaves the queue.
pub struct Lent<'a, P: Policy> {
    limit: &'a Shared<P>,
    position: Position,
    reporter: Reporter,
}

impl<P: Policy> Lent<'_, P> {
    /// Out of line: most requests take a prefetched permit.
    #[inline(never)]
    fn poll_queue(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer {
        let (limit, position) = (self.limit, &mut self.position);
        let caller = Caller::new(cx, limit.resolution, limit.priority, limit.flow);
        let decision = limit
            .queue
            .poll_acquire(position, cost, Intent::Acquire, &caller);
        let answer = decision.map(Ok);
        self.reporter.answered(Method::Decide, cost, &answer, None);
        answer
    }
}

impl<P: Policy> Limiter for Lent<'_, P> {
    type Error = Infallible;

    #[inline]
    fn poll_decide(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer {
        let (queue, position) = (&self.limit.queue, self.position);
        if queue.takes_prefetched(position, cost, Intent::Acquire) {
            self.reporter.answered(Method::Decide, cost, &PASS, None);
            return PASS;
        }
        self.poll_queue(cost, cx)
    }

    #[inline]
    fn give_up(&mut self) {
        self.limit.queue.cancel(&mut self.position);
        self.reporter.gave_up();
    }

    fn resolution(&self) -> Resolution {
        self.limit.resolution.unwrap_or_default()
    }
}

impl<P: Policy> fmt::Debug for Lent<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lent").field(self.limit).finish()
    }
}

/// Asks without being queued.
#[inline]
fn try_decide<P: Policy>(
    queue: &LimitHandle<P>,
    position: &mut Position,
    intent: Intent,
    cost: u32,
    deadline: Option<Instant>,
) -> Decision {
    if queue.takes_prefetched(*position, cost, intent) {
        return Decision::Pass;
    }
    queue.try_acquire(position, None, cost, intent, |limit, waiters, cost| {
        limit.wait_behind(waiters, cost, deadline)
    })
}
