use core::cmp::Reverse;
use core::convert::Infallible;
use core::fmt;
use core::task::{Context, Poll, ready};
use core::time::Duration;

use tokio::time::Instant;

use crate::policy::{Decision, Status};
use crate::time::Resolution;

use super::acquire::{Acquire, AcquireWithin};
use super::part::{
    Member, Part, Together, enter, hold, look_outside, never, peek, refuse_never, reserve, take,
};
use super::{Answer, Limiter, Priority, Settle, TooCostly};

/// Limits on different handles, all or nothing: a limit for each user and one for all users.
///
/// It takes a tuple of two to four handles, each a [`Shared`](super::Shared), such as that of a key of a
/// [`FairQueue`](super::FairQueue), or that of a key of a [`Keyed`](super::Keyed), and is a limiter itself. What wraps a limiter, such as a [`Line`](super::Line) or a [`Switched`](super::Switched), goes around the
/// whole: `Line::new(Combined::new((a, b)))`, and so does a switch: a member has no mode of its own. Nor has it a
/// [class](super::Priority), [see below](#the-order). An [`Owned`](super::Owned) limit has no queue: make it a `Shared`.
///
/// Limits that are always asked together need no handles: [`All`](crate::policy::All) makes one policy of them, which is cheaper. For
/// streams and layers by key, [`Keyed::with_total`](super::Keyed::with_total) combines the limit of each key with one for all keys.
///
/// ```
/// use paceline::limiter::Combined;
/// use paceline::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let users = TokenBucket::new(Rate::per_second(1), 2).keyed::<&str>();
/// let account = TokenBucket::new(Rate::per_second(10), 3).shared();
/// let limit = |user| Combined::new((users.at(user), account.clone()));
///
/// limit("ann").acquire(2).await.unwrap();
/// assert!(!limit("ann").try_acquire(1).await.is_pass());
/// assert!(limit("bob").try_acquire(1).await.is_pass(), "ann's refusal took nothing from the account");
/// assert!(!account.try_acquire(1).is_pass());
/// # }
/// ```
///
/// Each limit can have a cost of its own:
///
/// ```
/// use paceline::limiter::Combined;
/// use paceline::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let requests = SlidingLog::new(60, Duration::from_secs(60)).shared();
/// let input = TokenBucket::new(Rate::per_minute(30_000), 30_000).shared();
/// let output = TokenBucket::new(Rate::per_minute(8_000), 8_000).shared();
///
/// let call = Combined::new((requests, input, output));
/// call.acquire_each([1, 1_200, 300]).await.unwrap();
/// assert_eq!(call.status().unwrap().binding, Some(0), "59 requests are the least that is left");
/// # }
/// ```
///
/// # The order
///
/// * **All or none**: the permits of all limits are taken in one step, under the locks of all. A request that waits holds none.
/// * **Fair**: a request keeps its place of arrival in the queue of every limit, among requests for all of them and requests for one.
/// * **The narrow limit first**: a request waits for one limit after the other, in the order of the tuple, and is in the way of others
///   at a limit only when all limits before that one would let it pass. So write the limit of the user first and that of the account
///   last: a user above its limit holds up no other.
/// * **No deadlock**, in whatever order the tuples are written: of two requests one came first, at every limit that both need.
/// * **Turns**: a [`FairQueue`](super::FairQueue) is waited for last, wherever it stands in the tuple, and of two of them always the
///   same one first. Otherwise two requests could stand in two orders, and wait for each other.
/// * **Newest first**: at a limit that serves the newest first now, a request that would pass and waits at the next one keeps no
///   permits for itself. If they are gone when it comes back, it waits there again.
/// * **No class**: a class puts a request before older ones, so that two requests could stand in two orders at two limits, and wait for
///   each other. So [`new`](Self::new) refuses a handle with a class. Requests for one limit may have classes, and come before or
///   after those for all, which are [`Normal`](super::Priority::Normal).
/// * A request that would pass at one limit and waits at the next stays the head of the first. If its task is not polled, it is passed
///   over there after one second, and at the limit that it waits for after about 10 ms, as in a [`Shared`](super::Shared) limit.
///
/// A limit that is in a tuple twice is charged the sum, and an error says so if that is too costly. Cost 0 passes and uses nothing, at
/// one limit or at all. What a pause or other parameters of one limit change is felt at once.
///
/// # With a fair share
///
/// The client of a [`Fair`](super::Fair) is no member. Its permits are not behind the lock of its queue, since all clients draw on the
/// same capacity: after all limits have said that they would pass the request, another client could take the permits, and some limits
/// would have counted a request that others have not. Reserve them first, and give them back if another limit refuses:
///
/// ```
/// use paceline::fair::FairShare;
/// use paceline::limiter::Fair;
/// use paceline::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let tenants = Fair::new(FairShare::new(40, Duration::from_secs(10)));
/// let account = TokenBucket::new(Rate::per_second(1), 1).shared();
/// account.acquire_one().await;
///
/// let reserved = tenants.at("ann").reserve(1).await.unwrap();
/// if account.acquire_within(1, Duration::from_millis(100)).await.is_err() {
///     reserved.settle(0);
/// }
/// assert_eq!(tenants.cycle().spent, 0);
/// # }
/// ```
///
/// # Cancel safety
///
/// Dropping a future or a handle leaves every queue; nothing was counted.
///
/// **Window bound**: that of each limit, over all its handles.
#[doc(alias("chain", "CompositeRateLimiter", "multiple bandwidths", "hierarchical"))]
pub struct Combined<T: Together> {
    limits: T,
    /// Of [`acquire_each`](Self::acquire_each); otherwise every limit is charged the same.
    costs: Option<T::Costs>,
    /// Why the last request can never pass, if it was refused for that.
    never: Option<TooCostly>,
}

impl<T: Together> Combined<T> {
    /// All of `limits`, a tuple of handles.
    ///
    /// # Panics
    ///
    /// If a handle has a [class](super::Priority) other than [`Normal`](super::Priority::Normal): [see above](#the-order).
    #[must_use]
    #[track_caller]
    pub fn new(limits: T) -> Self {
        for (number, part) in limits.parts().enumerate() {
            require_no_class(format_args!("limit {number} of a `Combined`"), part.class());
        }
        Self::of(limits)
    }

    /// Of handles without a class.
    pub(super) const fn of(limits: T) -> Self {
        Self {
            limits,
            costs: None,
            never: None,
        }
    }

    /// The handles.
    #[must_use]
    pub const fn limits(&self) -> &T {
        &self.limits
    }

    /// What all limits have left: the status of the one with the least room, and its number.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        let parts = self.limits.parts().enumerate();
        let known = parts.filter_map(|(number, part)| Some(part.status()?.with_binding(number)));
        known.min_by_key(|status| (status.remaining, Reverse(status.reset_in)))
    }

    /// What all limits say to a request that is not queued: the strictest of their answers. Nothing is counted.
    pub fn peek(&self, cost: u32) -> Decision {
        let costs = self.costs.unwrap_or_else(|| T::same(cost));
        look_outside(&self.limits, costs)
    }

    /// Asks without waiting, with a cost for each limit. It never overtakes a waiter.
    ///
    /// ```
    /// use paceline::limiter::Combined;
    /// use paceline::policy::Decision;
    /// use paceline::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let requests = Interval::every(Duration::from_secs(1)).shared();
    /// let tokens = TokenBucket::new(Rate::per_second(100), 500).shared();
    /// let call = Combined::new((requests.clone(), tokens.clone()));
    ///
    /// assert_eq!(call.try_acquire_each([1, 600]), Decision::Never { capacity: 500 });
    /// assert!(call.try_acquire_each([1, 500]).is_pass());
    /// assert_eq!(
    ///     call.try_acquire_each([1, 300]),
    ///     Decision::Wait { retry_in: Duration::from_secs(3) }
    /// );
    /// # }
    /// ```
    pub fn try_acquire_each(&self, costs: T::Costs) -> Decision
    where
        T: Clone,
    {
        self.with_costs(costs).try_all(0)
    }

    /// Waits until all limits pass the request, with a cost for each.
    ///
    /// # Errors
    ///
    /// At once, if one of them can never pass that many.
    ///
    /// # Panics
    ///
    /// If it has to wait outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves every queue; nothing was counted.
    pub fn acquire_each(&self, costs: T::Costs) -> Acquire<Self>
    where
        T: Clone,
    {
        // The costs are those of the handle.
        Acquire::new(self.with_costs(costs), 0)
    }

    /// Waits until all limits pass the request, with a cost for each, if that is `within` this time.
    ///
    /// # Errors
    ///
    /// When the time is over, at once if the wait is known to be longer, and at once if one of them can never pass that many.
    ///
    /// # Panics
    ///
    /// If it has to wait outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves every queue; nothing was counted.
    pub fn acquire_each_within(&self, costs: T::Costs, within: Duration) -> AcquireWithin<Self>
    where
        T: Clone,
    {
        AcquireWithin::of_any(self.with_costs(costs), 0, within)
    }

    fn with_costs(&self, costs: T::Costs) -> Self
    where
        T: Clone,
    {
        Self {
            limits: self.limits.clone(),
            costs: Some(costs),
            never: None,
        }
    }

    fn try_all(&mut self, cost: u32) -> Decision {
        let (decision, too_costly) = self.with_members(cost, |members| {
            let mut decision = enter(members);
            if decision.is_pass() && take(members) {
                return (Decision::Pass, None);
            }
            decision = Decision::strictest(decision, peek(members));
            if decision.is_pass() {
                // Another request has taken the permits and given them back.
                let retry_in = Duration::from_nanos(1);
                decision = Decision::Wait { retry_in };
            }
            let too_costly = never(members);
            for member in members.iter_mut().filter(|member| member.cost > 0) {
                member.part.refuse(member.cost, decision);
            }
            (decision, too_costly)
        });
        self.never = too_costly;
        decision
    }

    /// Asks for all, and waits for the first limit that would refuse.
    fn poll_all(&mut self, cost: u32, cx: &mut Context<'_>) -> Poll<Decision> {
        let answer = self.with_members(cost, |members| {
            let entered = enter(members);
            if !entered.is_pass() {
                return Poll::Ready(Ok(entered));
            }
            for _ in 0..TRIES {
                if take(members) {
                    return Poll::Ready(Ok(Decision::Pass));
                }
                refuse_never(members)?;
                reserve(members);
                let held = ready!(hold(members, cx));
                if !held.is_pass() {
                    return Poll::Ready(Ok(held));
                }
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        });
        self.answered(answer)
    }

    /// Remembers why a request can never pass.
    fn answered(&mut self, answer: Poll<Result<Decision, TooCostly>>) -> Poll<Decision> {
        answer.map(|answer| {
            self.never = answer.err();
            answer.unwrap_or_else(|never| Decision::Never {
                capacity: never.capacity(),
            })
        })
    }

    fn with_members<R>(&mut self, cost: u32, work: impl FnOnce(&mut [Member<'_>]) -> R) -> R {
        let costs = self.costs.unwrap_or_else(|| T::same(cost));
        self.limits.with_members(costs, work)
    }
}

/// Panics unless requests of this class can be for several limits.
#[track_caller]
pub(super) fn require_no_class(limit: impl fmt::Display, class: Priority) {
    assert!(
        class == Priority::Normal,
        "{limit} has the class {class:?}: its requests have no class, since two of them could wait for each other; \
         hand it a handle with `Priority::Normal`, or ask a limit with a class alone"
    );
}

/// Each try fails only if another thread is quicker between two locks.
const TRIES: usize = 8;

impl<T: Together> Limiter for Combined<T> {
    type Error = Infallible;

    fn poll_decide(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer {
        self.poll_all(cost, cx).map(Ok)
    }

    fn poll_try(&mut self, cost: u32, _cx: &mut Context<'_>) -> Answer {
        Poll::Ready(Ok(self.try_all(cost)))
    }

    fn poll_open(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer {
        let answer = self.with_members(cost, |members| {
            let entered = enter(members);
            if !entered.is_pass() {
                return Poll::Ready(Ok(entered));
            }
            refuse_never(members)?;
            reserve(members);
            let held = ready!(hold(members, cx));
            if held.is_pass() {
                // It keeps its places and is in the way of none.
                for member in members {
                    member.part.step_aside();
                }
            }
            Poll::Ready(Ok(held))
        });
        self.answered(answer).map(Ok)
    }

    fn give_up(&mut self) {
        self.with_members(0, |members| {
            for member in members {
                member.part.cancel();
            }
        });
    }

    fn status(&self) -> Option<Status> {
        self.status()
    }

    fn least_wait(&self, cost: u32) -> Duration {
        self.peek(cost).retry_in().unwrap_or_default()
    }

    fn shadowed(&self) -> Option<Decision> {
        self.limits.parts().find_map(|part| part.shadowed())
    }

    fn too_costly(&self, cost: u32, capacity: u32) -> TooCostly {
        let unknown = || TooCostly::new(cost, capacity);
        self.never.unwrap_or_else(unknown)
    }

    /// Exact, if one of them is.
    fn resolution(&self) -> Resolution {
        let exact = |part: &dyn Part| part.resolution() == Resolution::Exact;
        if self.limits.parts().any(exact) {
            Resolution::Exact
        } else {
            Resolution::Millis
        }
    }
}

/// Every limit is charged and given back the same. Where one of them counts requests, [`PerRequest`](crate::policy::PerRequest) leaves
/// it as it is:
///
/// ```
/// use paceline::limiter::{Combined, Settle};
/// use paceline::policy::PerRequest;
/// use paceline::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let requests = PerRequest::new(SlidingLog::new(60, Duration::from_secs(60))).shared();
/// let users = TokenBucket::new(Rate::per_minute(1_000), 1_000).keyed::<String>();
/// let call = Combined::new((users.at("ann".into()), requests.clone()));
///
/// let reserved = call.reserve(800).await.unwrap();
/// reserved.settle(300);
/// assert!(users.try_acquire("ann", 700).is_pass());
/// assert_eq!(requests.status().unwrap().remaining, 59);
/// # }
/// ```
impl<T: Together> Settle for Combined<T> {
    fn charge(&self, cost: u32) {
        self.limits.parts().for_each(|part| part.charge(cost));
    }

    fn refund_from(&self, spent_at: Instant, cost: u32) {
        let parts = self.limits.parts();
        parts.for_each(|part| part.refund_from(spent_at, cost));
    }

    fn settles(&mut self, passed: &Self) {
        self.limits.settles(&passed.limits);
    }
}

/// Another handle of the same limits, which is not queued, and charges every limit the same.
impl<T: Together + Clone> Clone for Combined<T> {
    fn clone(&self) -> Self {
        Self::of(self.limits.clone())
    }
}

impl<T: Together> fmt::Debug for Combined<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Combined")
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}
