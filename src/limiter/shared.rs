use core::convert::Infallible;
use core::task::{Context, Poll};
use core::time::Duration;
use std::sync::{Arc, Mutex, PoisonError};

use crate::line::Ticket;
use crate::policy::{Decision, Policy};

use super::acquire::{Acquire, AcquireWithin};
use super::desk::{After, Ask, Desk};
use super::{Answer, Limiter};

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
/// in the number of waiters, and about one wake-up for each permit granted, with 100,000 waiters too.
///
/// **Window bound**: that of its policy, over all clones together.
#[derive(Debug)]
pub struct Shared<P: Policy> {
    desk: Arc<Mutex<Desk<P>>>,
    place: Option<Ticket>,
}

impl<P: Policy> Shared<P> {
    /// A limit nobody has used yet.
    pub fn new(policy: P) -> Self {
        Self {
            desk: Arc::new(Mutex::new(Desk::new(policy))),
            place: None,
        }
    }

    /// Waits for `cost` permits, behind everybody who came before.
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
    /// Nothing is counted then. The time begins when it is first polled.
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
        self.locked(|desk, _| desk.ask_aside(Ask::ToPass, cost))
    }

    /// What [`try_acquire`](Self::try_acquire) would say. Nothing is counted.
    ///
    /// While others wait, the time it says takes them into account; in a line of more than 64 it may not know about all of
    /// them, and say less.
    pub fn peek(&self, cost: u32) -> Decision {
        self.locked(|desk, _| desk.ask_aside(Ask::ToLook, cost))
    }

    /// Gives back `cost` permits that passed and were not used; those who wait may go sooner.
    ///
    /// The limit never becomes better than full. Permits given back while others passed in between come on top of the
    /// bound of a window that holds both: see [`Policy::refund`].
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

    /// How long `cost` would have to wait if it joined the line now, at the least.
    pub(super) fn forecast(&self, cost: u32) -> Duration {
        match self.peek(cost) {
            Decision::Wait { retry_in } => retry_in,
            Decision::Pass | Decision::Never { .. } => Duration::ZERO,
        }
    }

    fn ask_in_line(&mut self, ask: Ask, cost: u32, cx: &mut Context<'_>) -> Answer {
        let place = &mut self.place;
        let waker = cx.waker();
        locked(&self.desk, |desk, after| {
            desk.ask_in_line(ask, place, cost, waker, after)
        })
        .map(Ok)
    }

    fn locked<T>(&self, work: impl FnOnce(&mut Desk<P>, &mut After) -> T) -> T {
        locked(&self.desk, work)
    }
}

impl<P: Policy> Limiter for Shared<P> {
    type Error = Infallible;

    fn poll_decide(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer {
        self.ask_in_line(Ask::ToPass, cost, cx)
    }

    fn poll_try(&mut self, cost: u32, _cx: &mut Context<'_>) -> Answer {
        Poll::Ready(Ok(self.try_acquire(cost)))
    }

    fn poll_open(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer {
        self.ask_in_line(Ask::ToLook, cost, cx)
    }

    fn give_up(&mut self) {
        if self.place.is_some() {
            let place = &mut self.place;
            locked(&self.desk, |desk, after| desk.give_up(place, after));
        }
    }
}

/// A place of its own in the same line, not taken yet.
impl<P: Policy> Clone for Shared<P> {
    fn clone(&self) -> Self {
        Self {
            desk: Arc::clone(&self.desk),
            place: None,
        }
    }
}

/// Leaves the line.
impl<P: Policy> Drop for Shared<P> {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// Under the lock, wakers are cloned and the policy is asked, but nobody is woken and nothing is dropped: a waker may ask
/// this very limit when that happens.
fn locked<P: Policy, T>(
    desk: &Mutex<Desk<P>>,
    work: impl FnOnce(&mut Desk<P>, &mut After) -> T,
) -> T {
    let mut after = After::default();
    // A policy must not panic; should one do, its state is as it left it, and the line is whole.
    let mut guard = desk.lock().unwrap_or_else(PoisonError::into_inner);
    let done = work(&mut guard, &mut after);
    drop(guard);
    after.run();
    done
}
