use core::convert::Infallible;
use core::fmt;
use core::future::poll_fn;
use core::task::{Context, Poll};
use core::time::Duration;

use crate::policy::{Decision, Status};
use crate::time::{OutOfRange, Resolution, or_panic};

use super::acquire::{Acquire, AcquireWithin};
use super::future::Part;
use super::{AcquireError, Answer, Limiter};

/// One of several limits: the first that has room, such as that of one API key or one provider connection of many.
///
/// A request stands in the queue of every limit, takes its permits from exactly one, and then leaves the other queues. So it passes
/// when the first of them would have served it, were it queued there alone. [`acquire`](Self::acquire) says which one that was.
///
/// ```
/// use paceline::limiter::AnyOf;
/// use paceline::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let start = tokio::time::Instant::now();
/// let connections = ["a", "b"];
/// let slow = Interval::every(Duration::from_millis(100)).shared();
/// let quick = Interval::every(Duration::from_millis(40)).shared();
/// let any = AnyOf::new([slow, quick]);
///
/// let mut sent = Vec::new();
/// for _ in 0..5 {
///     let number = any.acquire(1).await.unwrap();
///     sent.push((connections[number], start.elapsed().as_millis()));
/// }
/// assert_eq!(sent, [("a", 0), ("b", 0), ("b", 40), ("b", 80), ("a", 100)]);
/// # }
/// ```
///
/// It is a limiter itself, for adapters that need not know which limit has served an item, such as
/// [`pace`](crate::stream::PaceStreamExt::pace). Each handle in it is a [`Shared`](super::Shared) or that of a key of a
/// [`Keyed`](super::Keyed). For limits in Redis there is `RedisLimiter::acquire_any`.
///
/// * **Order**: requests for the same limits and the same cost pass in order of arrival, and none overtakes those that wait for one of
///   the limits alone. There is no order between requests for different limits.
/// * All limits have one type. Different policies are [`AnyPolicy`](crate::policy::AnyPolicy)s: `SlidingLog::new(9, d).into()`.
/// * If several have room, it takes the first, so write first what you prefer.
/// * A limit that can never pass the cost is left out until the request ends, even if it gets other parameters; if none can, the
///   request fails.
/// * Parameters, pauses and refunds of one limit are felt at once: refund at [`limits`](Self::limits)`().nth(number)`.
/// * A limit counts a request that was queued there as held back, wherever it passes. One that does not wait counts as refused
///   at each limit that had no room.
///
/// # Cancel safety
///
/// Dropping a future or a handle leaves every queue; nothing was counted.
///
/// **Window bound**: that of each limit, over all its handles; over all of them the sum.
#[doc(alias("select", "pool", "failover", "load balancing"))]
#[derive(Clone)]
pub struct AnyOf<L> {
    members: Vec<Member<L>>,
    passed: usize,
}

#[derive(Clone)]
struct Member<L> {
    limit: L,
    /// The most that it can pass, once the request under way has cost more.
    never: Option<u32>,
}

impl<L: Part> AnyOf<L> {
    /// Any of `limits`.
    ///
    /// # Panics
    ///
    /// If there is none.
    #[must_use]
    #[track_caller]
    pub fn new(limits: impl IntoIterator<Item = L>) -> Self {
        or_panic(Self::try_new(limits))
    }

    /// The same as [`new`](Self::new), for limits from a configuration.
    ///
    /// # Errors
    ///
    /// If there is no limit.
    pub fn try_new(limits: impl IntoIterator<Item = L>) -> Result<Self, OutOfRange> {
        let limits = limits.into_iter();
        let members: Vec<_> = limits.map(|limit| Member { limit, never: None }).collect();
        if members.is_empty() {
            return Err(OutOfRange::new(
                "limits",
                "any of several limits needs at least 1, got 0",
            ));
        }
        Ok(Self { members, passed: 0 })
    }

    /// The handles, by number.
    #[must_use]
    pub fn limits(&self) -> impl ExactSizeIterator<Item = &L> {
        self.members.iter().map(|member| &member.limit)
    }

    /// Waits for `cost` permits of one limit, and returns its number.
    ///
    /// # Errors
    ///
    /// At once, if no limit can ever pass that many.
    ///
    /// # Panics
    ///
    /// If it has to wait outside a tokio runtime.
    pub async fn acquire(&self, cost: u32) -> Result<usize, AcquireError>
    where
        L: Clone + Unpin,
    {
        let mut acquire = Acquire::new(self.clone(), cost);
        poll_fn(|cx| acquire.poll_and(cx, |any| any.passed)).await
    }

    /// Waits for `cost` permits of one limit, if they can be had `within` this time, and returns its number.
    ///
    /// # Errors
    ///
    /// When the time is over, at once if the wait is known to be longer at every limit, and at once if none can ever pass that many.
    ///
    /// # Panics
    ///
    /// If it has to wait outside a tokio runtime.
    pub async fn acquire_within(&self, cost: u32, within: Duration) -> Result<usize, AcquireError>
    where
        L: Clone + Unpin,
    {
        let mut acquire = AcquireWithin::of_any(self.clone(), cost, within);
        let mut ask = |acquire: &mut Acquire<Self>, cx: &mut Context<'_>| {
            acquire.poll_and(cx, |any| any.passed)
        };
        poll_fn(|cx| acquire.poll_with(cx, &mut ask)).await
    }

    /// Asks each limit for `cost` permits without waiting for them, and returns the number of the first that passes. It never overtakes
    /// a waiter.
    ///
    /// # Errors
    ///
    /// The best answer: the shortest wait, or [`Decision::Never`] with the largest capacity.
    pub fn try_acquire(&self, cost: u32) -> Result<usize, Decision>
    where
        L: Clone,
    {
        let mut any = self.clone();
        let mut cx = Context::from_waker(core::task::Waker::noop());
        match any.poll_try(cost, &mut cx) {
            Poll::Ready(Ok(Decision::Pass)) => Ok(any.passed),
            Poll::Ready(Ok(decision)) => Err(decision),
            Poll::Pending => unreachable!("a limit in memory answers at once"),
        }
    }

    /// Asks one after the other until one passes, and then leaves the other queues. `Pending` if all that can pass are queued behind
    /// others.
    fn poll_each(
        &mut self,
        cost: u32,
        mut ask: impl FnMut(&mut L) -> Answer,
        leave: fn(&mut L),
    ) -> Answer {
        let mut best = Decision::Never { capacity: 0 };
        let mut is_queued = false;
        for (number, Member { limit, never }) in self.members.iter_mut().enumerate() {
            let answer = match *never {
                Some(capacity) if cost > capacity => Poll::Ready(Ok(Decision::Never { capacity })),
                _ => ask(limit),
            };
            let Poll::Ready(Ok(decision)) = answer else {
                is_queued = true;
                continue;
            };
            if let Decision::Never { capacity } = decision {
                *never = Some(capacity);
            }
            best = best.mildest(decision);
            // Cost 0 starts the clock of each.
            if decision.is_pass() && cost > 0 {
                self.passed = number;
                self.leave_except(Some(number), leave);
                break;
            }
        }
        match best {
            Decision::Never { .. } if is_queued => return Poll::Pending,
            Decision::Never { .. } => self.leave_except(None, L::give_up),
            _ => {}
        }
        Poll::Ready(Ok(best))
    }

    fn leave_except(&mut self, kept: Option<usize>, leave: fn(&mut L)) {
        for (number, member) in self.members.iter_mut().enumerate() {
            member.never = None;
            if Some(number) != kept {
                leave(&mut member.limit);
            }
        }
    }
}

impl<L: Part> Limiter for AnyOf<L> {
    type Error = Infallible;

    fn poll_decide(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer {
        self.poll_each(cost, |limit| limit.poll_decide(cost, cx), L::give_up)
    }

    fn poll_try(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer {
        self.members
            .iter_mut()
            .for_each(|member| member.never = None);
        self.poll_each(cost, |limit| limit.poll_try(cost, cx), L::give_up)
    }

    fn poll_open(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer {
        self.poll_each(cost, |limit| limit.poll_open(cost, cx), L::step_aside)
    }

    fn give_up(&mut self) {
        self.leave_except(None, L::give_up);
    }

    /// That of the limit with the most room.
    fn status(&self) -> Option<Status> {
        let known = self.limits().filter_map(Limiter::status);
        known.max_by_key(|status| (status.remaining, core::cmp::Reverse(status.reset_in)))
    }

    fn least_wait(&self, cost: u32) -> Duration {
        let looks = self.limits().map(|limit| limit.peek(cost));
        let best = looks.fold(Decision::Never { capacity: 0 }, Decision::mildest);
        best.retry_in().unwrap_or_default()
    }

    fn shadowed(&self) -> Option<Decision> {
        self.members[self.passed].limit.shadowed()
    }

    /// Exact, if one of them is.
    fn resolution(&self) -> Resolution {
        let mut all = self.limits().map(Limiter::resolution);
        let exact = all.find(|resolution| *resolution == Resolution::Exact);
        exact.unwrap_or(Resolution::Millis)
    }
}

impl<L: Part + fmt::Debug> fmt::Debug for AnyOf<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyOf ")?;
        f.debug_list().entries(self.limits()).finish()
    }
}
