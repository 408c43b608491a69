use core::convert::Infallible;
use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;

use tokio::time::Instant;

use crate::policy::Decision;
use crate::time::{Timer, instant};

use super::blocking;
use super::{AcquireError, Gate, Limiter};

/// The methods to ask by hand, for every limiter that can be cloned: each request has a handle of its own.
///
/// [`Shared`](super::Shared), [`KeyedAt`](super::KeyedAt) and `RedisLimiter` have such methods themselves, where they can say or
/// return more. This trait brings them to a limiter around another, and to code that is generic. The limiter may have an error of its
/// own: it is the `E` of [`AcquireError`]. A future here owns its clone; that of [`Shared::acquire`](super::Shared::acquire) borrows
/// the limit.
///
/// ```
/// use paceline::limiter::{Event, Observed};
/// use paceline::policy::Interval;
/// use paceline::prelude::*;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let start = tokio::time::Instant::now();
/// let limit = Interval::every(Duration::from_millis(100)).shared();
/// let limit = Observed::new(limit, |event: Event| println!("{event:?}"));
///
/// limit.acquire_one().await;
/// limit.acquire(1).await.unwrap();
/// assert!(!limit.try_acquire(1).await.is_pass());
/// assert!(limit.acquire_within(1, Duration::from_millis(99)).await.is_err());
/// assert_eq!(start.elapsed(), Duration::from_millis(100));
/// # }
/// ```
///
/// # Cancel safety
///
/// Dropping a future leaves the queue; nothing was counted.
pub trait LimiterExt: Limiter + ByHand {
    /// Waits for `cost` permits, behind every request that came before. It is queued when it is first polled.
    ///
    /// The future fails at once if that many can never pass, or with the limiter's own error. It panics if it has to wait outside a
    /// tokio runtime.
    fn acquire(&self, cost: u32) -> Acquire<Self> {
        Acquire::new(self.clone(), cost)
    }

    /// Waits for one permit, which no limit refuses for ever: without an error, of a limiter that has none.
    ///
    /// The future panics if it has to wait outside a tokio runtime.
    #[doc(alias("until_ready", "removeTokens", "schedule", "ready"))]
    fn acquire_one(&self) -> AcquireOne<Self>
    where
        Self: Limiter<Error = Infallible>,
    {
        AcquireOne::new(self.clone())
    }

    /// Waits for `cost` permits, if they can be had `within` this time.
    ///
    /// The future fails at once if the limiter knows that the wait is longer ([`Limiter::least_wait`]) or that many can never pass,
    /// and when the time is over at the latest. It panics if it has to wait outside a tokio runtime.
    ///
    /// An observer is told that the request [gave up](super::Event::GaveUp). The methods of the same name of
    /// [`Shared`](super::Shared) and [`Keyed`](super::Keyed) also count it as refused.
    #[doc(alias("tryConsume", "tryAcquire", "timeout"))]
    fn acquire_within(&self, cost: u32, within: Duration) -> AcquireWithin<Self> {
        AcquireWithin::of_any(self.clone(), cost, within)
    }

    /// Waits for `cost` permits as a thread, if they can be had `within` this time. [`Duration::MAX`] is no deadline.
    ///
    /// It stands in one queue with the tasks that wait, in order of arrival, and parks the thread while it waits.
    ///
    /// ```
    /// use paceline::prelude::*;
    /// use std::{thread, time::Instant};
    ///
    /// let start = Instant::now();
    /// let limit = Interval::every(Duration::from_millis(5)).shared();
    /// let threads = [(); 3].map(|()| {
    ///     let limit = limit.clone();
    ///     thread::spawn(move || limit.acquire_blocking(1, Duration::from_secs(60)))
    /// });
    /// for thread in threads {
    ///     thread.join().unwrap().unwrap();
    /// }
    /// assert!(start.elapsed() >= Duration::from_millis(10));
    /// ```
    ///
    /// # Errors
    ///
    /// [`is_too_late`](AcquireError::is_too_late): at once, if the limiter knows that the wait is longer, and when the time is over at
    /// the latest. [`is_too_costly`](AcquireError::is_too_costly), at once, if that many can never pass. Nothing was counted.
    ///
    /// # In async code
    ///
    /// Call it in `tokio::task::spawn_blocking` or in a thread of your own. It blocks the thread: in a task it stops all tasks of that
    /// thread, and for ever if one of them is ahead in the queue. It needs no runtime. A thread outside of a runtime reads the real
    /// clock, also if that of a runtime is paused. One of `spawn_blocking` reads the clock of its runtime, which does not advance by
    /// itself while such a thread runs: on a paused clock it waits for ever.
    ///
    /// A future that is kept and never polled while it is the head of the queue is passed over, after about 10 ms if a request in a
    /// runtime waits, and after about 200 ms if only threads do, or if that runtime does not run.
    #[doc(alias("asBlocking", "blocking_acquire", "tryConsume"))]
    fn acquire_blocking(
        &self,
        cost: u32,
        within: Duration,
    ) -> Result<(), AcquireError<Self::Error>> {
        blocking::acquire(self.clone(), cost, within)
    }

    /// Asks for `cost` permits without waiting for them. It never overtakes a waiter.
    ///
    /// It is a future because a limit can be on a server. In memory it is ready at once.
    #[doc(alias("check", "check_n", "tryConsume"))]
    fn try_acquire(&self, cost: u32) -> impl Future<Output = Decision>
    where
        Self: Limiter<Error = Infallible>,
    {
        let mut handle = self.clone();
        async move {
            let Ok(decision) = poll_fn(|cx| handle.poll_try(cost, cx)).await;
            decision
        }
    }
}

impl<L: Limiter + ByHand> LimiterExt for L {}

/// A limiter that can be asked by hand, since each request has a clone of its own: every one that is [`Clone`] and [`Unpin`].
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be asked by hand: it is for one adapter and cannot be cloned",
    label = "expected a handle",
    note = "`.shared()` instead of `.owned()` makes a limit that is asked with `acquire` and `try_acquire`"
)]
pub trait ByHand: Clone + Unpin {}

#[diagnostic::do_not_recommend]
impl<T: Clone + Unpin> ByHand for T {}

/// Future of [`LimiterExt::acquire`], [`Shared::acquire`](super::Shared::acquire) (of a [`Lent`](super::future::Lent) limit),
/// [`Shared::acquire_owned`](super::Shared::acquire_owned) and [`Keyed::acquire`](super::Keyed::acquire).
#[derive(Debug)]
#[must_use = "futures do nothing unless you `.await` or poll them"]
pub struct Acquire<L: Limiter> {
    /// Gone when it is done, and with it the position in the queue.
    gate: Option<Gate<L>>,
    pub(super) cost: u32,
}

impl<L: Limiter> Acquire<L> {
    pub(super) const fn new(limiter: L, cost: u32) -> Self {
        Self {
            gate: Some(Gate::new(limiter)),
            cost,
        }
    }

    /// A finished future that is polled again panics: it would take the permits again.
    pub(super) fn gate(&mut self) -> &mut Gate<L> {
        self.gate.as_mut().expect("polled after it was ready")
    }
}

impl<L: Limiter + Unpin> Acquire<L> {
    /// Makes something of the limiter when the request has passed.
    #[inline]
    pub(super) fn poll_and<T>(
        &mut self,
        cx: &mut Context<'_>,
        passed: impl FnOnce(&L) -> T,
    ) -> Poll<Result<T, AcquireError<L::Error>>> {
        let cost = self.cost;
        let answer = ready!(self.gate().poll_pass(cost, cx));
        let answer = answer.map(|()| passed(self.gate().limiter()));
        self.gate = None;
        Poll::Ready(answer)
    }
}

impl<L: Limiter + Unpin> Future for Acquire<L> {
    type Output = Result<(), AcquireError<L::Error>>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_and(cx, |_| ())
    }
}

/// Future of [`LimiterExt::acquire_one`], [`Shared::acquire_one`](super::Shared::acquire_one) and
/// [`Keyed::acquire_one`](super::Keyed::acquire_one).
#[derive(Debug)]
#[must_use = "futures do nothing unless you `.await` or poll them"]
pub struct AcquireOne<L: Limiter> {
    acquire: Acquire<L>,
}

impl<L: Limiter> AcquireOne<L> {
    pub(super) const fn new(limiter: L) -> Self {
        Self {
            acquire: Acquire::new(limiter, 1),
        }
    }
}

impl<L: Limiter<Error = Infallible> + Unpin> Future for AcquireOne<L> {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Ok(()) = ready!(self.acquire.gate().poll_one(cx));
        self.acquire.gate = None;
        Poll::Ready(())
    }
}

/// Future of [`LimiterExt::acquire_within`], [`Shared::acquire_within`](super::Shared::acquire_within),
/// [`Shared::acquire_by`](super::Shared::acquire_by) and [`Keyed::acquire_within`](super::Keyed::acquire_within).
#[derive(Debug)]
#[must_use = "futures do nothing unless you `.await` or poll them"]
pub struct AcquireWithin<L: Limiter> {
    acquire: Acquire<L>,
    within: Duration,
    /// If it has to pass by an instant: that leaves the time from the first poll, and it never passes later.
    pub(super) by: Option<Instant>,
    /// Armed while it waits.
    deadline: Option<Timer>,
    /// Leaves the queue, and counts and reports the request as refused. Returns how long a retry would wait, if the limiter can say:
    /// the wait that is given, if it was known before the request was queued.
    refuse: Refuse<L>,
}

type Refuse<L> = fn(&mut L, u32, Option<Duration>) -> Option<Duration>;

impl<L: Limiter> AcquireWithin<L> {
    pub(super) const fn new(limiter: L, cost: u32, within: Duration, refuse: Refuse<L>) -> Self {
        Self {
            acquire: Acquire::new(limiter, cost),
            within,
            by: None,
            deadline: None,
            refuse,
        }
    }

    /// Of a limiter that cannot count a request as refused: it gives up.
    pub(super) fn of_any(limiter: L, cost: u32, within: Duration) -> Self {
        Self::new(limiter, cost, within, |limiter, cost, known| {
            limiter.give_up();
            let least_wait = || Some(limiter.least_wait(cost)).filter(|wait| !wait.is_zero());
            known.or_else(least_wait)
        })
    }

    /// Without a `known` wait it asks after it has left the queue: a retry does not wait behind this request.
    fn too_late<T>(&mut self, known: Option<Duration>) -> Poll<Result<T, AcquireError<L::Error>>> {
        let cost = self.acquire.cost;
        let retry_in = (self.refuse)(self.acquire.gate().limiter_mut(), cost, known);
        self.acquire.gate = None;
        let is_over = self.by.is_some() && self.within.is_zero();
        let within = (!is_over).then_some(self.within);
        Poll::Ready(Err(AcquireError::late(within, retry_in)))
    }
}

impl<L: Limiter + Unpin> AcquireWithin<L> {
    /// Asks with `ask`, unless it is known to be too late.
    pub(super) fn poll_with<T>(
        &mut self,
        cx: &mut Context<'_>,
        ask: impl FnOnce(&mut Acquire<L>, &mut Context<'_>) -> Poll<Result<T, AcquireError<L::Error>>>,
    ) -> Poll<Result<T, AcquireError<L::Error>>> {
        if self.acquire.cost > 0 && self.by.is_some_and(|by| by < instant()) {
            return self.too_late(None);
        }
        // Of two requests that can pass at their deadline the second one is polled first. And if others wait, `least_wait` is not zero.
        let grace = Duration::from_nanos(u64::from(self.by.is_some()));
        if self.deadline.is_none() {
            let left = |by: Instant| by.saturating_duration_since(instant());
            self.within = self.by.map_or(self.within, left);
            let cost = self.acquire.cost;
            let least_wait = self.acquire.gate().limiter().least_wait(cost);
            if least_wait > self.within.max(grace) {
                return self.too_late(Some(least_wait));
            }
        }
        if let Poll::Ready(answer) = ask(&mut self.acquire, cx) {
            return Poll::Ready(answer);
        }
        let (within, resolution) = (self.within, self.acquire.gate().limiter().resolution());
        let deadline = self.deadline.get_or_insert_with(|| {
            let mut timer = Timer::new().with_resolution(resolution);
            timer.arm(within.saturating_add(grace));
            timer
        });
        ready!(deadline.poll_elapsed(cx));
        self.too_late(None)
    }
}

impl<L: Limiter + Unpin> Future for AcquireWithin<L> {
    type Output = Result<(), AcquireError<L::Error>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_with(cx, |acquire, cx| acquire.poll_and(cx, |_| ()))
    }
}

/// How long a retry would wait; `None` if it could never pass.
pub(super) fn retry_in(retry: Decision) -> Option<Duration> {
    match retry {
        Decision::Pass => Some(Duration::ZERO),
        Decision::Wait { retry_in } => Some(retry_in),
        Decision::Never { .. } => None,
    }
}
