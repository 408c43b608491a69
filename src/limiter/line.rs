//! A `Line` knows only the trait of a limiter, or of permits (`concurrency/line.rs`). It keeps a waker for each request that waits, under a lock that is never held
//! while the limiter is asked. When the line is full, a request asks with `poll_try`, so it never enters the queue. `close`
//! sets a flag and wakes all. A request reads the flag before it asks, and again under the lock when it takes its place, so
//! none sleeps through the end.
//!
//! With jitter, a request that waits only looks (`poll_open`). When it could pass, its jitter begins with a reserved
//! position, and it asks for permits when the jitter is over. So no permit is held meanwhile, and the window bound stays
//! that of the limit.

use core::fmt;
use core::future::{Future, poll_fn};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::feedback::Feedback;
use crate::policy::{Decision, Status};
use crate::time::{Clock, Resolution, Tick};

use super::error::LineError;
use super::future::Obeying;
use super::share::random_up_to;
use super::{Answer, Gate, Limiter, Limits, Obey, RateCall, Settle, forward_answers};

/// The line in front of a limit: how many requests may wait in it, until when, and how evenly they leave it.
///
/// It wraps any limiter and is a limiter itself, whose error is a [`LineError`]. Clones share the line.
///
/// ```
/// use paceline::limiter::Line;
/// use paceline::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let limit = Interval::every(Duration::from_millis(100)).shared();
/// let line = Line::new(limit).with_max_waiting(1);
///
/// line.acquire(1).await.unwrap();
/// let waiting = tokio::spawn(line.acquire(1));
/// tokio::task::yield_now().await;
///
/// let refused = line.acquire(1).await.unwrap_err();
/// assert!(refused.is_full());
/// assert_eq!(refused.to_string(), "1 request waits already, and at most 1 may");
///
/// // At shutdown.
/// line.close();
/// assert!(waiting.await.unwrap().unwrap_err().is_closed());
/// # }
/// ```
///
/// * **[`with_max_waiting`](Self::with_max_waiting)**: a request that would have to wait is refused when so many wait already.
/// * **[`close`](Self::close)**: every request fails from then on, those that wait included.
/// * **[`with_jitter`](Self::with_jitter)**: adds a random delay to requests that waited.
///
/// It is asked with the verbs of [`LimiterExt`](super::LimiterExt), and every request can fail. Streams take it with
/// [`try_pace`](crate::stream::PaceStreamExt::try_pace), which ends with the error. Around [`Limits`], such as a
/// [`Keyed`](super::Keyed), it is one line for all keys. Around permits it [waits for
/// a permit](Self::acquire_permit), and [admits](crate::concurrency::Admit) work itself.
///
/// # Cancel safety
///
/// Dropping a future or a handle leaves the line and the queue of the limit; nothing was counted.
///
/// **Window bound**: that of the limit.
#[doc(alias(
    "highWater",
    "maxQueueSize",
    "queue_limit",
    "stop",
    "disconnect",
    "shutdown"
))]
pub struct Line<L> {
    limiter: L,
    shared: Arc<Mutex<Shared>>,
    options: Options,
    /// The place of its request while that waits.
    place: Option<Place>,
}

/// The options of a handle.
#[derive(Clone, Copy)]
struct Options {
    max_waiting: u32,
    jitter: Duration,
    seed: u64,
}

#[derive(Default)]
struct Shared {
    is_closed: bool,
    /// A waker for each request that waits, by its number.
    waiting: BTreeMap<u64, Waker>,
    next: u64,
}

/// A request that waits.
struct Place {
    number: u64,
    /// When its jitter ends, once the limit would have passed it.
    passes_from: Option<Tick>,
    clock: Clock,
}

impl<L> Line<L> {
    /// A line in front of `limiter` that is not bounded yet.
    #[must_use]
    pub fn new(limiter: L) -> Self {
        Self {
            limiter,
            shared: Arc::default(),
            options: Options {
                max_waiting: u32::MAX,
                jitter: Duration::ZERO,
                seed: RandomState::new().hash_one(()),
            },
            place: None,
        }
    }

    /// Lets at most `n` requests wait, over all clones. A request that would have to wait fails with
    /// [`is_full`](LineError::is_full) then, and one that passes at once passes. With 0 no request waits.
    ///
    /// It holds for requests made through this handle and its later clones.
    #[doc(alias("highWater", "max_queue"))]
    #[must_use]
    pub fn with_max_waiting(mut self, n: u32) -> Self {
        self.options.max_waiting = n;
        self
    }

    /// Makes a request that had to wait wait up to `most` longer, evenly at random.
    ///
    /// Where many processes wait for the same instant, such as the end of a pause or of a window, they do not all come at once. The
    /// permits are taken after the jitter, not before, so that no window holds more than the limit allows. A request keeps its place
    /// meanwhile and is in the way of none: requests behind it may pass first. Each request has one jitter.
    ///
    /// A limiter that cannot look without counting, such as one on a server, has its jitter before it is asked again.
    ///
    /// ```
    /// use paceline::limiter::Line;
    /// use paceline::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let start = tokio::time::Instant::now();
    /// let limit = SlidingLog::new(1, Duration::from_secs(1)).shared();
    /// let line = Line::new(limit).with_jitter(Duration::from_millis(200));
    ///
    /// line.acquire(1).await.unwrap();
    /// assert_eq!(start.elapsed(), Duration::ZERO, "it did not wait");
    /// line.acquire(1).await.unwrap();
    /// let waited = start.elapsed().as_millis();
    /// assert!((1_000..=1_200).contains(&waited));
    /// # }
    /// ```
    #[doc(alias("until_ready_with_jitter", "Jitter"))]
    #[must_use]
    pub fn with_jitter(mut self, most: Duration) -> Self {
        self.options.jitter = most;
        self
    }

    /// Makes the jitters the same in every run, for tests.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.options.seed = seed;
        self
    }

    /// Closes the line, for all clones and for ever: requests that wait fail with [`is_closed`](LineError::is_closed), and so does
    /// every new one. What has passed has passed.
    #[doc(alias("stop", "disconnect", "shutdown"))]
    pub fn close(&self) {
        let mut line = self.lock();
        line.is_closed = true;
        let wakers: Vec<_> = line.waiting.values().cloned().collect();
        drop(line);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Whether it was closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// How many requests wait now, made through any clone.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    /// The limiter behind the line. What is asked of it directly goes past the line.
    pub const fn limiter(&self) -> &L {
        &self.limiter
    }

    /// Another handle of the same line, with another handle of the limit, such as one of another class.
    ///
    /// ```
    /// use paceline::limiter::{Line, Priority};
    /// use paceline::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let normal = Line::new(Interval::every(Duration::from_secs(1)).shared());
    /// let urgent = normal.with_limiter(|limit| limit.clone().with_priority(Priority::High));
    ///
    /// normal.acquire(1).await.unwrap();
    /// let (first, second) = (tokio::spawn(normal.acquire(1)), tokio::spawn(urgent.acquire(1)));
    /// second.await.unwrap().unwrap();
    /// assert!(!first.is_finished());
    /// assert_eq!(normal.waiting(), 1);
    /// # }
    /// ```
    pub fn with_limiter<H>(&self, handle: impl FnOnce(&L) -> H) -> Line<H> {
        self.handle(handle(&self.limiter))
    }

    /// Another handle of the same line.
    fn handle<H>(&self, limiter: H) -> Line<H> {
        Line {
            limiter,
            shared: Arc::clone(&self.shared),
            options: self.options,
            place: None,
        }
    }

    pub(crate) const fn limiter_mut(&mut self) -> &mut L {
        &mut self.limiter
    }

    /// Whether a request that does not wait yet may not wait.
    pub(crate) fn is_full(&self) -> bool {
        self.place.is_none() && self.lock().is_full(self.options)
    }

    pub(crate) fn full<E>(&self, retry_in: Option<Duration>) -> LineError<E> {
        self.lock().full(self.options, retry_in)
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // Nothing that panics runs under the lock, but the clone of a waker.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves the line.
    pub(crate) fn leave(&mut self) {
        if let Some(place) = self.place.take() {
            let waker = self.lock().waiting.remove(&place.number);
            drop(waker);
        }
    }

    /// Takes a place in the line, or keeps it, to be woken when the line is closed.
    pub(crate) fn wait<E>(&mut self, cx: &Context<'_>) -> Result<(), LineError<E>> {
        let waker = cx.waker().clone();
        let mut line = self.lock();
        if line.is_closed {
            return Err(LineError::closed());
        }
        let number = match &self.place {
            Some(place) => place.number,
            None if line.is_full(self.options) => {
                return Err(line.full(self.options, None));
            }
            None => {
                line.next += 1;
                line.next
            }
        };
        let replaced = line.waiting.insert(number, waker);
        drop(line);
        drop(replaced);
        self.place.get_or_insert_with(|| Place {
            number,
            passes_from: None,
            clock: Clock::new(),
        });
        Ok(())
    }
}

impl<L: Limiter> Line<L> {
    /// Waits for one permit, which no limit refuses for ever.
    ///
    /// The verbs of [`LimiterExt`](super::LimiterExt) are here too; every one can fail.
    ///
    /// # Errors
    ///
    /// [`is_full`](LineError::is_full), [`is_closed`](LineError::is_closed), or the error of the limiter.
    ///
    /// # Panics
    ///
    /// If it has to wait outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the line; nothing was counted.
    pub fn acquire_one(&self) -> impl Future<Output = Result<(), LineError<L::Error>>> + use<L>
    where
        L: Clone,
    {
        let mut gate = Gate::new(self.clone());
        poll_fn(move |cx| gate.poll_one(cx))
    }

    /// Asks for `cost` permits without waiting. It never overtakes a request that waits.
    ///
    /// It is a future because a limit can be on a server. In memory it is ready at once.
    ///
    /// # Errors
    ///
    /// [`is_closed`](LineError::is_closed), or the error of the limiter.
    pub fn try_acquire(
        &self,
        cost: u32,
    ) -> impl Future<Output = Result<Decision, LineError<L::Error>>> + use<L>
    where
        L: Clone,
    {
        let mut handle = self.clone();
        poll_fn(move |cx| handle.poll_try(cost, cx))
    }

    /// Asks, and has its jitter between the answer that it may pass and the next question.
    fn poll_waiting(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer<L::Error> {
        let has_jitter = !self.options.jitter.is_zero();
        let Some(place) = self.place.as_mut().filter(|_| has_jitter) else {
            return self.limiter.poll_decide(cost, cx);
        };
        let passes_from = match place.passes_from {
            Some(passes_from) => passes_from,
            None => match self.limiter.poll_open(cost, cx) {
                Poll::Ready(Ok(Decision::Pass)) => {
                    let (most, seed) = (self.options.jitter, self.options.seed);
                    let jitter = random_up_to(most, seed, place.number);
                    let passes_from = place.clock.now().after(jitter);
                    *place.passes_from.insert(passes_from)
                }
                answer => return answer,
            },
        };
        let retry_in = passes_from.since(place.clock.now());
        if retry_in.is_zero() {
            return self.limiter.poll_decide(cost, cx);
        }
        Poll::Ready(Ok(Decision::Wait { retry_in }))
    }

    fn leave_if_closed(&mut self) -> Result<(), LineError<L::Error>> {
        if self.is_closed() {
            self.give_up();
            return Err(LineError::closed());
        }
        Ok(())
    }

    /// Takes or leaves a place, as the limiter has answered. A look that passes keeps its place until it passes.
    fn answered(
        &mut self,
        answer: Answer<L::Error>,
        is_look: bool,
        cx: &Context<'_>,
    ) -> Answer<LineError<L::Error>> {
        match answer {
            Poll::Pending | Poll::Ready(Ok(Decision::Wait { .. })) => {
                if let Err(error) = self.wait(cx) {
                    self.give_up();
                    return Poll::Ready(Err(error));
                }
            }
            Poll::Ready(Ok(Decision::Pass)) if is_look => {}
            Poll::Ready(_) => self.leave(),
        }
        answer.map_err(LineError::of_limit)
    }
}

impl<L: Limiter> Limiter for Line<L> {
    type Error = LineError<L::Error>;

    fn poll_decide(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer<Self::Error> {
        self.leave_if_closed()?;
        if cost == 0 {
            // A request that waits and costs nothing any more passes, too.
            let answer = self.limiter.poll_decide(0, cx);
            if matches!(answer, Poll::Ready(Ok(Decision::Pass))) {
                self.leave();
            }
            return answer.map_err(LineError::of_limit);
        }
        let is_full = self.is_full();
        let answer = if is_full {
            // It may not wait.
            self.limiter.poll_try(cost, cx)
        } else {
            self.poll_waiting(cost, cx)
        };
        match answer {
            Poll::Ready(Ok(Decision::Wait { retry_in })) if is_full => {
                Poll::Ready(Err(self.full(Some(retry_in))))
            }
            answer => self.answered(answer, false, cx),
        }
    }

    fn poll_try(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer<Self::Error> {
        self.leave_if_closed()?;
        let answer = self.limiter.poll_try(cost, cx);
        if matches!(answer, Poll::Ready(Ok(Decision::Pass))) && cost > 0 {
            self.leave();
        }
        answer.map_err(LineError::of_limit)
    }

    /// Without jitter, which comes between this and the request.
    fn poll_open(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer<Self::Error> {
        self.leave_if_closed()?;
        let answer = self.limiter.poll_open(cost, cx);
        self.answered(answer, true, cx)
    }

    fn give_up(&mut self) {
        self.limiter.give_up();
        self.leave();
    }

    fn is_refusal(&self, error: &Self::Error) -> bool {
        let of_limit = |error| self.limiter.is_refusal(error);
        error.is_closed() || error.is_full() || error.limit().is_some_and(of_limit)
    }

    /// A closed line has an answer at once.
    fn least_wait(&self, cost: u32) -> Duration {
        if self.is_closed() {
            return Duration::ZERO;
        }
        self.limiter.least_wait(cost)
    }

    forward_answers!(self => self.limiter);
}

/// One line for all keys.
impl<K, L: Limits<K>> Limits<K> for Line<L> {
    type Limit = Line<L::Limit>;
    type Error = L::Error;

    fn at(&self, key: K) -> Result<Line<L::Limit>, L::Error> {
        self.limiter.at(key).map(|limiter| self.handle(limiter))
    }
}

/// A closed line too: what has passed can be settled.
impl<L: Settle> Settle for Line<L> {
    fn charge(&self, cost: u32) {
        self.limiter.charge(cost);
    }

    fn refund_from(&self, spent_at: Instant, cost: u32) {
        self.limiter.refund_from(spent_at, cost);
    }

    fn settles(&mut self, passed: &Self) {
        self.limiter.settles(&passed.limiter);
    }
}

impl<L: Obey> Obey for Line<L> {
    type Error = L::Error;

    fn obey(&self, feedback: &Feedback) -> Option<Obeying<L::Error>> {
        self.limiter.obey(feedback)
    }

    fn begin(&self) -> Option<RateCall> {
        self.limiter.begin()
    }
}

/// Another handle of the same line, which does not wait.
impl<L: Clone> Clone for Line<L> {
    fn clone(&self) -> Self {
        self.handle(self.limiter.clone())
    }
}

impl<L> fmt::Debug for Line<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (waiting, is_closed) = (self.waiting(), self.is_closed());
        f.debug_struct("Line")
            .field("waiting", &waiting)
            .field("is_closed", &is_closed)
            .finish_non_exhaustive()
    }
}

/// Leaves the line.
impl<L> Drop for Line<L> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Shared {
    fn is_full(&self, options: Options) -> bool {
        self.waiting.len() >= options.max_waiting as usize
    }

    fn full<E>(&self, options: Options, retry_in: Option<Duration>) -> LineError<E> {
        LineError::full(self.waiting.len(), options.max_waiting, retry_in)
    }
}
