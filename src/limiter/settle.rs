//! To settle a reservation is to `charge` or `refund_from` the difference. Both are laws of a policy: a charge of what
//! would pass is a decision, and a refund from the instant of a charge undoes it.
//!
//! * **`charge`** moves the state beyond the limit. The next decision is the same formula as before, so it waits until
//!   enough has flowed in or expired.
//! * **`refund_from`** has the instant at which the permits were spent. A log finds its entry, a counter its bucket; a
//!   window gives nothing back if another one has begun since.
//! * **`set_remaining`** is not part of a policy: a hold beside the pause counts how many permits may pass until when.
//!   While it is in force nothing is prefetched.

use core::convert::Infallible;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;

use tokio::time::Instant;

use crate::policy::Decision;
use crate::time::instant;

use super::acquire::{Acquire, AcquireWithin};
use super::{AcquireError, Limiter};

/// A limit for requests whose cost is known when they are done: reserve an estimate, and settle it afterwards.
///
/// A call of a language model costs the tokens that the answer says, a query the rows that it has read, a job the seconds that it
/// took. Implemented by limits in memory and by limiters around them. `use paceline::prelude::*;` brings the methods.
///
/// ```
/// use paceline::prelude::*;
///
/// # struct Answer { tokens: u32 }
/// # async fn call(_: &str) -> Answer { Answer { tokens: 1_234 } }
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), paceline::limiter::AcquireError> {
/// let tokens = TokenBucket::new(Rate::per_minute(90_000), 90_000).shared();
///
/// let reserved = tokens.reserve(800).await?;
/// let answer = call("how are you?").await;
/// reserved.settle(answer.tokens);
/// assert_eq!(tokens.status().unwrap().remaining, 90_000 - 1_234);
/// # Ok(())
/// # }
/// ```
///
/// # What an estimate does
///
/// It is spent as soon as the request has passed, so that calls at the same time do not all take the same permits. Too high, it
/// makes other requests wait until it is settled; too low, it leaves a debt, and requests wait afterwards. Nothing is lost either
/// way. A request whose number counts as well, whatever it costs, has two limits: an [`All`](crate::policy::All) of them.
///
/// **Window bound**: that of the limit for what is estimated. The excess over the estimate comes on top of it.
#[doc(alias("reservation", "token budget", "post-paid", "two-phase"))]
#[diagnostic::on_unimplemented(
    message = "the costs of `{Self}` cannot be settled",
    label = "expected a limit in memory that many can use",
    note = "a policy becomes one with `.shared()`, and a `Keyed` or a `Fair` has one for each key: `keyed.at(key)`"
)]
pub trait Settle {
    /// Counts `cost` permits that were used without having been asked for, whether or not the limit has them. Any excess becomes
    /// debt: see [`Shared::charge`](super::Shared::charge).
    fn charge(&self, cost: u32);

    /// Returns `cost` permits that were spent when a request passed at `spent_at`, as far as they still count.
    ///
    /// What comes back after its window is over makes no room in the next window. Of an instant that was read before the request
    /// has passed, less may come back.
    fn refund_from(&self, spent_at: Instant, cost: u32);

    /// This handle, a clone, is used to settle the request that has just `passed` there: it settles nothing where the limit did not
    /// count the request.
    #[doc(hidden)]
    fn settles(&mut self, passed: &Self)
    where
        Self: Sized,
    {
        let _ = passed;
    }

    /// Waits until the `estimate` passes, behind every request that came before, and spends it until it is
    /// [settled](Reservation::settle).
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
    fn reserve(&self, estimate: u32) -> Reserve<Self>
    where
        Self: Limiter + Clone,
    {
        Reserve {
            acquire: Acquire::new(self.clone(), estimate),
        }
    }

    /// Waits until the `estimate` passes, if it can `within` this time.
    ///
    /// It fails as `acquire_within` of the limiter does: those of [`Shared`](super::Shared::acquire_within),
    /// [`Keyed`](super::Keyed::acquire_within) and [`Fair`](super::Fair::acquire_within) at once when the wait is known to be too long, a limiter around
    /// another when the time is over.
    ///
    /// ```
    /// use paceline::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let tokens = TokenBucket::new(Rate::per_second(100), 1000).shared();
    /// let reserved = tokens.reserve(900).await.unwrap();
    ///
    /// let late = tokens.reserve_within(200, Duration::from_millis(500)).await.unwrap_err();
    /// assert_eq!(late.retry_in(), Some(Duration::from_secs(1)));
    ///
    /// reserved.settle(50);
    /// assert!(tokens.reserve_within(200, Duration::from_millis(500)).await.is_ok());
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`is_too_late`](AcquireError::is_too_late), with [`retry_in`](AcquireError::retry_in) where the limiter knows it; or
    /// [`is_too_costly`](AcquireError::is_too_costly) if that many can never pass.
    ///
    /// # Panics
    ///
    /// If it has to wait outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the queue; nothing was counted.
    fn reserve_within(&self, estimate: u32, within: Duration) -> ReserveWithin<Self>
    where
        Self: Limiter + Clone,
    {
        ReserveWithin {
            acquire: AcquireWithin::of_any(self.clone(), estimate, within),
        }
    }

    /// Spends the `estimate` if it passes now. It never overtakes a waiter.
    ///
    /// ```
    /// use paceline::policy::Decision;
    /// use paceline::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let tokens = TokenBucket::new(Rate::per_second(100), 1000).shared();
    /// let reserved = tokens.try_reserve(900).unwrap();
    ///
    /// let wait = Decision::Wait { retry_in: Duration::from_secs(1) };
    /// assert_eq!(tokens.try_reserve(200).unwrap_err(), wait);
    ///
    /// reserved.settle(800);
    /// assert!(tokens.try_reserve(200).is_ok());
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// How long to wait, or that it can never pass. A limiter that has no answer at once does not know how long:
    /// [`Duration::MAX`].
    fn try_reserve(&self, estimate: u32) -> Result<Reservation<Self>, Decision>
    where
        Self: Limiter<Error = Infallible> + Clone,
    {
        let (mut limit, cx) = (self.clone(), &mut Context::from_waker(Waker::noop()));
        // As in `poll_reserve`.
        let _ = limit.poll_try(0, cx);
        match limit.poll_try(estimate, cx) {
            Poll::Ready(Ok(Decision::Pass)) => Ok(Reservation::of(&limit, estimate)),
            Poll::Ready(Ok(decision)) => Err(decision),
            Poll::Pending => Err(Decision::Wait {
                retry_in: Duration::MAX,
            }),
        }
    }
}

/// An estimate that is spent, until it is known what the request has cost.
///
/// From [`reserve`](Settle::reserve), [`reserve_within`](Settle::reserve_within) or [`try_reserve`](Settle::try_reserve). It can be
/// sent to another task and kept as long as a call takes; it needs no runtime.
///
/// **Dropped** without being settled, the estimate stays spent. A call that was cancelled or that failed may have been made and
/// paid for all the same, and the limit cannot know. Where it was not made, `settle(0)` gives all of it back.
///
/// A request that has passed only because of a [`Switch`](super::Switch) was not counted, and what it has cost is not either. While the
/// switch is off, settling changes nothing.
#[derive(Debug)]
#[must_use = "settle it with what the request has cost; dropped, the estimate stays spent"]
pub struct Reservation<L> {
    limit: L,
    estimate: u32,
    passed_at: Instant,
}

impl<L> Reservation<L> {
    /// What is spent until it is settled.
    pub const fn estimate(&self) -> u32 {
        self.estimate
    }

    /// Corrects the estimate to what the request has cost in fact: gives the difference back, or charges it.
    ///
    /// It takes effect at once: waiters pass sooner, or wait longer. What comes back after its window is over makes no room in the
    /// next window. What is charged counts from now on.
    ///
    /// ```
    /// use paceline::policy::FixedWindow;
    /// use paceline::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let limit = FixedWindow::new(100, Duration::from_secs(60)).shared();
    /// let remaining = || limit.status().unwrap().remaining;
    ///
    /// limit.try_reserve(40).unwrap().settle(10);
    /// assert_eq!(remaining(), 90);
    /// limit.try_reserve(40).unwrap().settle(70);
    /// assert_eq!(remaining(), 20);
    /// limit.try_reserve(20).unwrap().settle(0);
    /// assert_eq!(remaining(), 20);
    /// # }
    /// ```
    #[doc(alias("commit", "true up"))]
    pub fn settle(self, actual: u32)
    where
        L: Settle,
    {
        if actual > self.estimate {
            self.limit.charge(actual - self.estimate);
        } else if actual < self.estimate {
            self.limit
                .refund_from(self.passed_at, self.estimate - actual);
        }
    }
}

impl<L: Limiter + Settle + Clone> Reservation<L> {
    /// Of a request that has just passed. Its instant is not before it was counted: else nothing could be given back of a request
    /// that has begun a window.
    pub(super) fn of(limit: &L, estimate: u32) -> Self {
        let passed_at = instant();
        let mut settling = limit.clone();
        settling.settles(limit);
        Self {
            limit: settling,
            estimate,
            passed_at,
        }
    }
}

/// Prefetched permits are counted later than they pass, and could not be given back from the instant of passing. Cost 0 ends the
/// prefetch, so that the request has to ask.
fn poll_reserve<L: Limiter + Settle + Clone + Unpin>(
    acquire: &mut Acquire<L>,
    cx: &mut Context<'_>,
) -> Poll<Result<Reservation<L>, AcquireError<L::Error>>> {
    let estimate = acquire.cost;
    acquire.gate().begin(cx);
    acquire.poll_and(cx, |limit| Reservation::of(limit, estimate))
}

/// Future of [`Settle::reserve`].
#[derive(Debug)]
#[must_use = "futures do nothing unless you `.await` or poll them"]
pub struct Reserve<L: Limiter> {
    acquire: Acquire<L>,
}

impl<L: Limiter + Settle + Clone + Unpin> Future for Reserve<L> {
    type Output = Result<Reservation<L>, AcquireError<L::Error>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        poll_reserve(&mut self.acquire, cx)
    }
}

/// Future of [`Settle::reserve_within`].
#[derive(Debug)]
#[must_use = "futures do nothing unless you `.await` or poll them"]
pub struct ReserveWithin<L: Limiter> {
    pub(super) acquire: AcquireWithin<L>,
}

impl<L: Limiter + Settle + Clone + Unpin> Future for ReserveWithin<L> {
    type Output = Result<Reservation<L>, AcquireError<L::Error>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.acquire.poll_with(cx, poll_reserve)
    }
}
