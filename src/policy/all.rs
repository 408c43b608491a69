use core::cmp::Reverse;
use core::ops::RangeInclusive;
use core::time::Duration;

use crate::time::{Tick, or_panic};

use super::{AnyPolicy, Decision, Policy, Quota, Status, Unlimited};

/// Several limits at once: a request passes if all of them pass it. Otherwise none of them counts it.
///
/// For quotas such as "10 a second and 500 a day". It takes a tuple of two to six policies, each of which may be an `All`
/// too. The wait is the longest of theirs.
///
/// Each limit counts the whole cost of a request, except in a [`PerRequest`](super::PerRequest), which counts 1. This is how
/// "60 requests and 90,000 tokens a minute" is one limit. A request that the one refuses takes nothing from the other:
///
/// ```
/// use paceline::limiter::PolicyExt;
/// use paceline::policy::{All, FixedWindow, PerRequest, TokenBucket};
/// use paceline::time::Rate;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let requests = PerRequest::new(FixedWindow::new(60, Duration::from_secs(60)));
/// let tokens = TokenBucket::new(Rate::per_minute(90_000), 90_000);
/// let limit = All::new((requests, tokens)).shared();
///
/// assert!(limit.try_acquire(60_000).is_pass());
/// assert!(limit.try_acquire(60_000).retry_in().is_some(), "30,000 tokens are missing");
/// let left = limit.status().unwrap();
/// assert_eq!((left.remaining, left.binding), (59, Some(0)), "one request was counted");
/// # }
/// ```
///
/// **Window bound**: that of each policy.
///
/// **Status**: that of the limit with the least room, and its number in [`binding`](Status::binding). The limits of an `All`
/// inside an `All` are numbered one by one, in the order in which they are written.
///
/// Two adapters in a chain, such as `.pace(a).pace(b)`, do not keep both limits: the second one can hold back items that
/// the first one has spaced, and then emit several of them at once. `.pace(All::new((a, b)).owned())` keeps both:
///
/// ```
/// use futures::{StreamExt, stream};
/// use paceline::policy::{All, FixedWindow, Interval};
/// use paceline::prelude::*;
/// use std::time::Duration;
/// use tokio::time::Instant;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let spacing = Interval::every(Duration::from_millis(50));
/// let window = FixedWindow::new(2, Duration::from_secs(1));
///
/// let start = Instant::now();
/// let both = stream::iter(0..4).pace(All::new((spacing, window)).owned());
/// let emitted: Vec<_> = both.map(|_| start.elapsed().as_millis()).collect().await;
/// assert_eq!(emitted, [0, 50, 1000, 1050]);
///
/// let start = Instant::now();
/// let chained = stream::iter(0..4).pace(spacing.owned()).pace(window.owned());
/// let emitted: Vec<_> = chained.map(|_| start.elapsed().as_millis()).collect().await;
/// assert_eq!(emitted, [0, 50, 1000, 1000], "two at once, although they were 50 ms apart");
/// # }
/// ```
///
/// ```
/// use paceline::policy::{All, Decision, Interval, Policy, SlidingLog};
/// use paceline::time::Tick;
/// use std::time::Duration;
///
/// let limit = All::new((
///     Interval::every(Duration::from_nanos(10)),
///     SlidingLog::new(2, Duration::from_nanos(100)),
/// ));
/// let at = Tick::from_nanos;
/// let mut state = limit.fresh(at(0));
///
/// assert_eq!(limit.decide(&mut state, at(0), 1), Decision::Pass);
/// assert_eq!(limit.decide(&mut state, at(10), 1), Decision::Pass);
/// assert_eq!(
///     limit.decide(&mut state, at(20), 1),
///     Decision::Wait { retry_in: Duration::from_nanos(80) }
/// );
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct All<T> {
    limits: T,
}

impl<T> All<T> {
    /// All of `limits`, a tuple of policies.
    #[must_use]
    pub const fn new(limits: T) -> Self {
        Self { limits }
    }

    /// The limits.
    #[must_use]
    pub const fn limits(&self) -> &T {
        &self.limits
    }

    /// Each of the limits holds for *arrivals*, if each request takes a time in `delay` to arrive. See [the module](super#a-margin).
    ///
    /// The limits are those that `with_margin` of each policy returns. It is an [`AnyPolicy`], since the kind of a policy may change:
    /// a fixed window becomes a [`SlidingLog`](super::SlidingLog).
    ///
    /// ```
    /// use paceline::policy::{All, FixedWindow, PerRequest, SlidingLog, TokenBucket};
    /// use paceline::time::Rate;
    /// use std::time::Duration;
    ///
    /// let ms = Duration::from_millis;
    /// let requests = PerRequest::new(FixedWindow::new(60, ms(60_000)));
    /// let tokens = |burst| TokenBucket::new(Rate::per_second(1_500), burst);
    /// let limit = All::new((requests, tokens(90_000))).with_margin(ms(5)..=ms(85));
    ///
    /// let requests = PerRequest::new(SlidingLog::new(60, ms(60_080)));
    /// assert_eq!(limit, All::new((requests, tokens(89_880))).into());
    /// ```
    ///
    /// # Panics
    ///
    /// If one of the limits has no such margin: the longest delay is less than the shortest, a bucket may owe, or the period of a ramp
    /// or a window of the calendar does not allow it. [`AnyPolicy::try_with_margin`] returns the error.
    #[must_use]
    #[track_caller]
    pub fn with_margin(self, delay: RangeInclusive<Duration>) -> AnyPolicy
    where
        Self: Into<AnyPolicy>,
    {
        or_panic(AnyPolicy::try_with_margin(self.into(), delay))
    }
}

/// A macro, because Rust cannot implement a trait for tuples of any length.
macro_rules! all_of {
    ($($policy:ident $limit:tt),+) => {
        impl<$($policy: Policy),+> Policy for All<($($policy,)+)> {
            type State = ($($policy::State,)+);

            const LIMITS: usize = 0 $(+ $policy::LIMITS)+;

            fn fresh(&self, now: Tick) -> Self::State {
                ($(self.limits.$limit.fresh(now),)+)
            }

            fn decide(&self, state: &mut Self::State, now: Tick, cost: u32) -> Decision {
                let decision = self.peek(state, now, cost);
                if decision.is_pass() {
                    $(let _ = self.limits.$limit.decide(&mut state.$limit, now, cost);)+
                }
                decision
            }

            fn peek(&self, state: &Self::State, now: Tick, cost: u32) -> Decision {
                let decision = Decision::Pass;
                $(let decision = decision.strictest(self.limits.$limit.peek(&state.$limit, now, cost));)+
                decision
            }

            fn foresee(&self, state: &mut Self::State, then: Tick) {
                $(self.limits.$limit.foresee(&mut state.$limit, then);)+
            }

            fn credit(&self, state: &Self::State, now: Tick) -> u32 {
                let credit = u32::MAX;
                $(let credit = credit.min(self.limits.$limit.credit(&state.$limit, now));)+
                credit
            }

            fn room(&self, state: &Self::State, now: Tick) -> u32 {
                let room = u32::MAX;
                $(let room = room.min(self.limits.$limit.room(&state.$limit, now));)+
                room
            }

            /// The one of fewest permits, which a fresh limit exhausts first; of equal ones, that of the longest window.
            fn quota(&self) -> Option<Quota> {
                let quotas = [$(self.limits.$limit.quota()),+];
                let rank = |quota: &Quota| (quota.permits, Reverse(quota.window));
                quotas.into_iter().flatten().min_by_key(rank)
            }

            fn is_per_request(&self) -> bool {
                true $(&& self.limits.$limit.is_per_request())+
            }

            fn status(&self, state: &Self::State, now: Tick) -> Status {
                Status::least([$((self.limits.$limit.status(&state.$limit, now), $policy::LIMITS)),+])
            }

            fn refund(&self, state: &mut Self::State, now: Tick, cost: u32) {
                $(self.limits.$limit.refund(&mut state.$limit, now, cost);)+
            }

            fn refund_from(&self, state: &mut Self::State, now: Tick, spent_at: Tick, cost: u32) {
                $(self.limits.$limit.refund_from(&mut state.$limit, now, spent_at, cost);)+
            }

            fn charge(&self, state: &mut Self::State, now: Tick, cost: u32) {
                $(self.limits.$limit.charge(&mut state.$limit, now, cost);)+
            }

            fn retune(&self, old: &Self, state: &mut Self::State, now: Tick) {
                $(self.limits.$limit.retune(&old.limits.$limit, &mut state.$limit, now);)+
            }

            fn settled_at(&self, state: &Self::State) -> Tick {
                let settled_at = Tick::ZERO;
                $(let settled_at = settled_at.max(self.limits.$limit.settled_at(&state.$limit));)+
                settled_at
            }
        }

        impl<$($policy: Into<AnyPolicy>),+> From<All<($($policy,)+)>> for AnyPolicy {
            fn from(all: All<($($policy,)+)>) -> Self {
                Self::from(Unlimited)$(.and(all.limits.$limit))+
            }
        }
    };
}

all_of!(A 0, B 1);
all_of!(A 0, B 1, C 2);
all_of!(A 0, B 1, C 2, D 3);
all_of!(A 0, B 1, C 2, D 3, E 4);
all_of!(A 0, B 1, C 2, D 3, E 4, F 5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{FixedWindow, Interval, SlidingLog, TokenBucket};
    use crate::time::Rate;

    fn at(nanos: u64) -> Tick {
        Tick::from_nanos(nanos)
    }

    fn wait(nanos: u64) -> Decision {
        Decision::Wait {
            retry_in: Duration::from_nanos(nanos),
        }
    }

    #[test]
    fn no_limit_counts_a_request_that_one_refuses() {
        let bucket = TokenBucket::new(Rate::new(1, Duration::from_nanos(10)), 5);
        let limit = All::new((bucket, Interval::every(Duration::from_nanos(100))));
        let mut state = limit.fresh(at(0));

        assert_eq!(limit.decide(&mut state, at(0), 1), Decision::Pass);
        for _ in 0..9 {
            assert_eq!(limit.decide(&mut state, at(0), 1), wait(100));
        }
        assert_eq!(bucket.peek(&state.0, at(0), 4), Decision::Pass);
    }

    #[test]
    fn every_limit_counts_a_charge_and_returns_its_part() {
        let window = |limit, nanos| FixedWindow::new(limit, Duration::from_nanos(nanos));
        let limit = All::new((window(5, 10), SlidingLog::new(7, Duration::from_nanos(30))));
        let mut state = limit.fresh(at(0));
        limit.charge(&mut state, at(0), 9);
        assert_eq!(limit.decide(&mut state, at(0), 1), wait(30));
        limit.refund_from(&mut state, at(5), at(0), 3);
        assert_eq!(limit.decide(&mut state, at(5), 1), wait(5));
        limit.refund_from(&mut state, at(5), at(0), 2);
        assert_eq!(limit.decide(&mut state, at(5), 1), Decision::Pass);
    }

    #[test]
    fn the_wait_is_the_longest_and_exact() {
        let window = |limit, nanos| SlidingLog::new(limit, Duration::from_nanos(nanos));
        let limit = All::new((window(1, 10), window(2, 50), window(3, 300)));
        let mut state = limit.fresh(at(0));

        for (now, waits) in [(0, 10), (10, 40), (50, 250), (300, 10)] {
            assert_eq!(limit.decide(&mut state, at(now), 1), Decision::Pass);
            assert_eq!(limit.decide(&mut state, at(now), 1), wait(waits));
            assert_eq!(limit.decide(&mut state, at(now + waits - 1), 1), wait(1));
        }
    }

    #[test]
    fn a_cost_above_the_smallest_limit_never_passes() {
        let limit = All::new((
            FixedWindow::new(7, Duration::from_nanos(10)),
            FixedWindow::new(5, Duration::from_nanos(10)),
            Unlimited,
        ));
        let mut state = limit.fresh(at(0));
        let decisions = [8, 6, 5].map(|cost| limit.decide(&mut state, at(0), cost));
        let never = Decision::Never { capacity: 5 };
        assert_eq!(decisions, [never, never, Decision::Pass]);
    }

    #[test]
    fn the_status_is_that_of_the_limit_with_the_least_room() {
        let window = |limit, nanos| FixedWindow::new(limit, Duration::from_nanos(nanos));
        let limit = All::new((window(5, 10), window(7, 100), Unlimited));
        let mut state = limit.fresh(at(0));
        let mut status = |now, cost| {
            assert_eq!(limit.decide(&mut state, at(now), cost), Decision::Pass);
            let status = limit.status(&state, at(now));
            assert_eq!(status.remaining, limit.room(&state, at(now)));
            let window = status.quota.map(|quota| quota.window.as_nanos());
            (
                status.remaining,
                window,
                status.reset_in.as_nanos(),
                status.binding,
            )
        };
        assert_eq!(status(0, 0), (5, Some(10), 0, Some(0)));
        assert_eq!(status(0, 4), (1, Some(10), 10, Some(0)));
        assert_eq!(status(15, 0), (3, Some(100), 85, Some(1)));
        assert_eq!(status(15, 2), (1, Some(100), 85, Some(1)));
    }

    #[test]
    fn of_equal_limits_the_one_that_resets_last_binds_then_the_first() {
        let window = |nanos| FixedWindow::new(1, Duration::from_nanos(nanos));
        let limit = All::new((window(10), window(30), window(30), window(20)));
        let mut state = limit.fresh(at(0));
        assert_eq!(limit.status(&state, at(0)).binding, Some(0));
        assert_eq!(limit.decide(&mut state, at(0), 1), Decision::Pass);
        assert_eq!(limit.status(&state, at(0)).binding, Some(1));
    }

    #[test]
    fn the_limits_of_an_all_inside_an_all_are_numbered_one_by_one() {
        let window = |limit| FixedWindow::new(limit, Duration::from_nanos(10));
        let binding = |a, b, c, d| {
            let inner = All::new((window(b), window(c)));
            let limit = All::new((window(a), inner, window(d)));
            limit.status(&limit.fresh(at(0)), at(0)).binding
        };
        assert_eq!(binding(1, 2, 2, 2), Some(0));
        assert_eq!(binding(2, 1, 2, 2), Some(1));
        assert_eq!(binding(2, 2, 1, 2), Some(2));
        assert_eq!(binding(2, 2, 2, 1), Some(3));
    }
}
