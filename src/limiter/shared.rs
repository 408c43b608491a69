use core::convert::Infallible;
use core::fmt;
use core::task::{Context, Poll};
use core::time::Duration;
use std::sync::Arc;

use crate::line::{Behind, Place, Shelf};
use crate::policy::{Decision, Policy};
use crate::time::Precision;

use super::acquire::{Acquire, AcquireWithin};
use super::booth::Booth;
use super::desk::{After, Desk};
use super::limit::{Ask, Limit};
use super::{Answer, Limiter, Mode, Stats};

/// One limit for many tasks and adapters: every clone asks the same one, and those who wait are served first come, first
/// served.
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
///     tokio::spawn(async move { limit.acquire(1).await })
/// });
/// for task in tasks.collect::<Vec<_>>() {
///     task.await.unwrap().unwrap();
/// }
/// assert_eq!(start.elapsed(), Duration::from_millis(300));
/// # }
/// ```
///
/// # The line
///
/// It is in order of arrival, whatever the costs: a dear request at its head is not overtaken by cheap ones. Who could
/// never pass is told at once. Leaving the line costs nothing and grants nothing. All this takes time that is logarithmic
/// in the number of waiters, with 100,000 of them too. Each is woken about once: in the instant in which the permit is due,
/// and once before it where that lies between two of the timer's milliseconds.
///
/// **An idle head.** A stream or task whose turn has come and that is not polled, because its owner is busy elsewhere, does
/// not hold up the others: when it has let its turn go by for 10 ms, the next in line may pass before it. It keeps its place,
/// and is first again as soon as it asks. (A task that runs at all comes within microseconds of its turn. Where the whole
/// runtime is late, nobody is overtaken for that.)
///
/// # Credit
///
/// Where the policy allows it, a few permits pass without a look at the clock, and without the lock, for whoever asks: as many as
/// in an [`Owned`](super::Owned) limit, and only while nobody waits who would be overtaken. They count as spent at the next look, so
/// that never more passes than the policy says. On tokio's paused clock there is a look each time, but for what is
/// left of a credit when the clock is paused. In two runtimes at once, one of which has a paused clock that is ahead, a credit may
/// be counted by the earlier clock.
///
/// **Window bound**: that of its policy, over all clones together.
pub struct Shared<P: Policy> {
    pub(super) booth: Arc<Booth<P>>,
    pub(super) place: Place,
    pub(super) precision: Precision,
    shelf: Shelf,
}

impl<P> Shared<P>
where
    P: Policy + Send + 'static,
    P::State: Send,
{
    /// A limit nobody has used yet.
    #[must_use]
    pub fn new(policy: P) -> Self {
        Self::of(Limit::new(policy))
    }

    pub(super) fn of(limit: Limit<P>) -> Self {
        Self {
            booth: Booth::new(limit),
            place: Place::Outside,
            precision: Precision::default(),
            shelf: None,
        }
    }
}

impl<P: Policy> Shared<P> {
    /// Waits for `cost` permits, behind everybody who came before. It joins the line when it is first polled.
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
    /// At once, if so many can never pass.
    ///
    /// # Panics
    ///
    /// If it has to wait outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the line; nothing was counted.
    pub fn acquire(&self, cost: u32) -> Acquire<P> {
        Acquire::new(self.clone(), cost)
    }

    /// Waits for `cost` permits, if they can be had `within` this time.
    ///
    /// It fails at once when the wait, with those ahead, is known to be too long, and when the time is over at the latest.
    /// Nothing is counted then. The time begins when it is first polled; like any future it can say nothing while it is
    /// not polled, and one that is polled late takes a permit that is there.
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
    /// limit.acquire(1).await.unwrap();
    ///
    /// let refused = limit.acquire_within(1, Duration::from_millis(99)).await.unwrap_err();
    /// assert!(refused.is_too_late());
    /// assert_eq!(start.elapsed(), Duration::ZERO);
    ///
    /// limit.acquire_within(1, Duration::from_millis(100)).await.unwrap();
    /// assert_eq!(start.elapsed(), Duration::from_millis(100));
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`is_too_late`](super::AcquireError::is_too_late), or [`is_too_costly`](super::AcquireError::is_too_costly) if so
    /// many can never pass.
    ///
    /// # Panics
    ///
    /// If it has to wait outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the line; nothing was counted.
    pub fn acquire_within(&self, cost: u32, within: Duration) -> AcquireWithin<P> {
        AcquireWithin::new(self.clone(), cost, within)
    }

    /// Asks for `cost` permits without waiting. It never overtakes those who wait.
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
    pub fn try_acquire(&self, cost: u32) -> Decision {
        self.ask_aside(Ask::ToPass, cost)
    }

    /// What [`try_acquire`](Self::try_acquire) would say. Nothing is counted.
    ///
    /// While others wait, the time it says takes them into account; in a line of more than 64 it may not know about all of
    /// them, and say less.
    pub fn peek(&self, cost: u32) -> Decision {
        self.ask_aside(Ask::ToLook, cost)
    }

    /// Gives back `cost` permits that passed and were not used; those who wait may go sooner.
    ///
    /// The limit never becomes better than full. Permits that are given back after others passed come on top of the bound of
    /// a window that holds those others: see [`Policy::refund`].
    pub fn refund(&self, cost: u32) {
        self.locked(|desk, after| desk.refund(cost, after));
    }

    /// Goes on with other parameters. What was spent stays spent, and those who wait feel it at once.
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
    /// limit.acquire(1).await.unwrap();
    ///
    /// let waiting = tokio::spawn(limit.acquire(1));
    /// tokio::time::sleep(Duration::from_secs(1)).await;
    /// limit.retune(Interval::every(Duration::from_secs(5)));
    ///
    /// waiting.await.unwrap().unwrap();
    /// assert_eq!(start.elapsed(), Duration::from_secs(5));
    /// # }
    /// ```
    pub fn retune(&self, policy: P) {
        self.locked(|desk, after| desk.retune(policy, after));
    }

    /// Lets nothing pass before `duration` is over, for anybody: after a provider has said "too many requests".
    ///
    /// It holds for those who wait too. Of two pauses the later end counts. What can never pass is still told so, and cost 0
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
    /// limit.acquire(1).await.unwrap();
    /// assert_eq!(start.elapsed(), Duration::from_secs(2));
    /// # }
    /// ```
    pub fn pause_for(&self, duration: Duration) {
        self.locked(|desk, _| desk.pause_for(duration));
    }

    /// Ends every pause. Those who wait go as soon as the policy lets them.
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
        self.locked(Desk::resume);
    }

    /// Whether the limit holds, is only watched, or is off. Those who wait feel it at once.
    ///
    /// ```
    /// use paceline::limiter::{Mode, PolicyExt};
    /// use paceline::policy::Interval;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let limit = Interval::every(Duration::from_millis(100)).shared();
    ///
    /// limit.set_mode(Mode::Shadow);
    /// for _ in 0..3 {
    ///     assert!(limit.try_acquire(1).is_pass());
    /// }
    /// assert_eq!(limit.stats().held_back, 2);
    /// # }
    /// ```
    pub fn set_mode(&self, mode: Mode) {
        self.locked(|desk, after| desk.set_mode(mode, after));
    }

    /// What it has done so far, and how many wait.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.locked(|desk, _| desk.stats())
    }

    /// As one who has no place in line, whoever holds this handle.
    fn ask_aside(&self, ask: Ask, cost: u32) -> Decision {
        self.booth.ask_aside(ask, &mut Place::Outside, cost)
    }

    fn ask_in_line(&mut self, ask: Ask, cost: u32, cx: &mut Context<'_>) -> Answer {
        let asker = Behind {
            waker: cx.waker(),
            precision: self.precision,
            shelf: &mut self.shelf,
        };
        let answer = self.booth.ask_in_line(ask, &mut self.place, cost, asker);
        answer.map(Ok)
    }

    pub(super) fn locked<T>(&self, work: impl FnOnce(&mut Desk<P>, &mut After) -> T) -> T {
        self.booth.work(work)
    }
}

impl<P: Policy> Limiter for Shared<P> {
    type Error = Infallible;

    fn poll_decide(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer {
        self.ask_in_line(Ask::ToPass, cost, cx)
    }

    fn poll_try(&mut self, cost: u32, _cx: &mut Context<'_>) -> Answer {
        let decision = self.booth.ask_aside(Ask::ToPass, &mut self.place, cost);
        Poll::Ready(Ok(decision))
    }

    fn poll_open(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer {
        self.ask_in_line(Ask::ToLook, cost, cx)
    }

    fn give_up(&mut self) {
        if !matches!(self.place, Place::Outside) {
            let place = &mut self.place;
            self.booth.work(|desk, after| desk.give_up(place, after));
        }
    }

    fn be_precise(&mut self) {
        self.precision = Precision::BEST;
        self.shelf = None;
    }
}

/// A place of its own in the same line, not taken yet.
impl<P: Policy> Clone for Shared<P> {
    fn clone(&self) -> Self {
        Self {
            booth: Arc::clone(&self.booth),
            place: Place::Outside,
            precision: self.precision,
            shelf: None,
        }
    }
}

/// Says what it has done. What it prints is read before anything is written, so that a slow writer holds up nobody.
impl<P: Policy> fmt::Debug for Shared<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stats = self.stats();
        f.debug_struct("Shared")
            .field("stats", &stats)
            .finish_non_exhaustive()
    }
}

/// Leaves the line.
impl<P: Policy> Drop for Shared<P> {
    fn drop(&mut self) {
        self.give_up();
    }
}
