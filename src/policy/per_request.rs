use core::ops::RangeInclusive;
use core::time::Duration;

use crate::time::{Tick, or_panic};

use super::{AnyPolicy, Decision, Policy, Quota, Status};

/// Counts requests and not their cost: each request takes 1 from the policy inside.
///
/// For "60 requests and 90,000 tokens a minute", where one decision keeps both limits. A request takes its cost from the one
/// and 1 from the other, or nothing from either:
///
/// ```
/// use paceline::policy::{All, Decision, FixedWindow, PerRequest, Policy, TokenBucket};
/// use paceline::time::{Rate, Tick};
/// use std::time::Duration;
///
/// const MINUTE: Duration = Duration::from_secs(60);
/// let limit = All::new((
///     PerRequest::new(FixedWindow::new(2, MINUTE)),
///     TokenBucket::new(Rate::per_minute(90_000), 90_000),
/// ));
/// let mut state = limit.fresh(Tick::ZERO);
///
/// assert_eq!(limit.decide(&mut state, Tick::ZERO, 800), Decision::Pass);
/// assert_eq!(limit.decide(&mut state, Tick::ZERO, 5_000), Decision::Pass);
/// assert_eq!(limit.decide(&mut state, Tick::ZERO, 1), Decision::Wait { retry_in: MINUTE });
/// ```
///
/// **Window bound**: that of the policy inside, in requests. Cost 0 is no request, and no cost is [`Decision::Never`].
///
/// A request that was made was made, whatever its cost turns out to be: [`refund`](Policy::refund),
/// [`refund_from`](Policy::refund_from) and [`charge`](Policy::charge) change nothing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[doc(alias("rpm", "requests per minute"))]
pub struct PerRequest<P> {
    policy: P,
}

impl<P> PerRequest<P> {
    /// `policy`, with a cost of 1 for every request.
    #[must_use]
    pub const fn new(policy: P) -> Self {
        Self { policy }
    }

    /// The policy inside.
    #[must_use]
    pub const fn get_ref(&self) -> &P {
        &self.policy
    }

    /// The window bound holds for requests that *arrive*, if each takes a time in `delay` to arrive. See
    /// [the module](super#a-margin).
    ///
    /// The policy inside is the one that its own `with_margin` returns. It is an [`AnyPolicy`], as of
    /// [`All::with_margin`](super::All::with_margin).
    ///
    /// ```
    /// use paceline::policy::{FixedWindow, PerRequest, SlidingLog};
    /// use std::time::Duration;
    ///
    /// let ms = Duration::from_millis;
    /// let limit = PerRequest::new(FixedWindow::new(60, ms(1_000))).with_margin(ms(5)..=ms(80));
    /// assert_eq!(limit, PerRequest::new(SlidingLog::new(60, ms(1_075))).into());
    /// ```
    ///
    /// # Panics
    ///
    /// If the longest delay is less than the shortest, and if the policy inside has no such margin.
    /// [`AnyPolicy::try_with_margin`] returns the error.
    #[must_use]
    #[track_caller]
    pub fn with_margin(self, delay: RangeInclusive<Duration>) -> AnyPolicy
    where
        Self: Into<AnyPolicy>,
    {
        or_panic(AnyPolicy::try_with_margin(self.into(), delay))
    }
}

impl<P: Policy> Policy for PerRequest<P> {
    type State = P::State;

    const LIMITS: usize = P::LIMITS;

    fn fresh(&self, now: Tick) -> P::State {
        self.policy.fresh(now)
    }

    fn decide(&self, state: &mut P::State, now: Tick, cost: u32) -> Decision {
        self.policy.decide(state, now, cost.min(1))
    }

    fn peek(&self, state: &P::State, now: Tick, cost: u32) -> Decision {
        self.policy.peek(state, now, cost.min(1))
    }

    fn foresee(&self, state: &mut P::State, then: Tick) {
        self.policy.foresee(state, then);
    }

    /// None: the sum of several requests would be counted as one.
    fn credit(&self, _state: &P::State, _now: Tick) -> u32 {
        0
    }

    fn room(&self, state: &P::State, now: Tick) -> u32 {
        self.policy.room(state, now)
    }

    fn quota(&self) -> Option<Quota> {
        self.policy.quota()
    }

    fn is_per_request(&self) -> bool {
        true
    }

    fn status(&self, state: &P::State, now: Tick) -> Status {
        self.policy.status(state, now)
    }

    /// Nothing: the request was made.
    fn refund(&self, _state: &mut P::State, _now: Tick, _cost: u32) {}

    /// Nothing: the request was counted when it was made.
    fn charge(&self, _state: &mut P::State, _now: Tick, _cost: u32) {}

    fn retune(&self, old: &Self, state: &mut P::State, now: Tick) {
        self.policy.retune(&old.policy, state, now);
    }

    fn settled_at(&self, state: &P::State) -> Tick {
        self.policy.settled_at(state)
    }

    fn is_settled(&self, state: &P::State, now: Tick) -> bool {
        self.policy.is_settled(state, now)
    }

    fn saves_until(&self, state: &P::State) -> Tick {
        self.policy.saves_until(state)
    }
}

impl<P: Into<Self>> From<PerRequest<P>> for AnyPolicy {
    fn from(requests: PerRequest<P>) -> Self {
        requests.policy.into().per_request()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{All, FixedWindow, SlidingLog, TokenBucket};
    use crate::time::Rate;

    const REQUESTS: PerRequest<FixedWindow> = PerRequest::new(window(2, 100));
    const TOKENS: TokenBucket = TokenBucket::new(Rate::new(1, Duration::from_nanos(1)), 50);

    const fn window(limit: u32, nanos: u64) -> FixedWindow {
        FixedWindow::new(limit, Duration::from_nanos(nanos))
    }

    fn at(nanos: u64) -> Tick {
        Tick::from_nanos(nanos)
    }

    fn wait(nanos: u64) -> Decision {
        Decision::Wait {
            retry_in: Duration::from_nanos(nanos),
        }
    }

    #[test]
    fn neither_limit_counts_a_request_that_one_refuses() {
        let limit = All::new((REQUESTS, TOKENS));
        let mut state = limit.fresh(at(0));
        let left = |state: &(_, _)| (REQUESTS.room(&state.0, at(0)), TOKENS.room(&state.1, at(0)));

        assert_eq!(limit.decide(&mut state, at(0), 40), Decision::Pass);
        assert_eq!(left(&state), (1, 10));
        assert_eq!(limit.decide(&mut state, at(0), 30), wait(20));
        assert_eq!(left(&state), (1, 10), "the tokens refuse");
        assert_eq!(limit.decide(&mut state, at(0), 3), Decision::Pass);
        assert_eq!(limit.decide(&mut state, at(0), 1), wait(100));
        assert_eq!(left(&state), (0, 7), "the requests refuse");
        let never = Decision::Never { capacity: 50 };
        assert_eq!(limit.decide(&mut state, at(0), 51), never);
    }

    #[test]
    fn a_settled_cost_changes_only_the_limit_of_costs() {
        let limit = All::new((REQUESTS, TOKENS));
        let mut state = limit.fresh(at(0));
        assert_eq!(limit.decide(&mut state, at(0), 40), Decision::Pass);

        limit.refund_from(&mut state, at(0), at(0), 35);
        assert_eq!(TOKENS.room(&state.1, at(0)), 45);
        limit.refund(&mut state, at(0), 3);
        limit.charge(&mut state, at(0), 50);
        assert_eq!(TOKENS.room(&state.1, at(0)), 0);
        assert_eq!(REQUESTS.room(&state.0, at(0)), 1);
    }

    #[test]
    fn cost_0_is_no_request_and_every_other_cost_is_one() {
        let mut state = REQUESTS.fresh(at(0));
        for cost in [0, u32::MAX, 0] {
            assert_eq!(REQUESTS.decide(&mut state, at(0), cost), Decision::Pass);
        }
        assert_eq!(REQUESTS.room(&state, at(0)), 1);
        assert_eq!(REQUESTS.peek(&state, at(0), u32::MAX), Decision::Pass);
        assert_eq!(REQUESTS.decide(&mut state, at(0), 1), Decision::Pass);
        assert_eq!(REQUESTS.peek(&state, at(0), 0), Decision::Pass);
        assert_eq!(REQUESTS.peek(&state, at(0), u32::MAX), wait(100));
    }

    #[test]
    fn it_works_inside_an_all_inside_an_all_and_around_one() {
        let log = SlidingLog::new(3, Duration::from_nanos(10));
        let requests = PerRequest::new(All::new((window(2, 100), log)));
        let limit = All::new((TOKENS, All::new((requests, TOKENS))));
        assert_eq!(
            All::<(TokenBucket, PerRequest<All<(FixedWindow, SlidingLog)>>)>::LIMITS,
            3
        );

        let mut state = limit.fresh(at(0));
        assert_eq!(limit.decide(&mut state, at(0), 20), Decision::Pass);
        let status = limit.status(&state, at(0));
        assert_eq!((status.remaining, status.binding), (1, Some(1)));
        assert_eq!(limit.room(&state, at(0)), 1);
        assert_eq!(limit.credit(&state, at(0)), 0);
        assert_eq!(limit.settled_at(&state), at(100));
    }
}
