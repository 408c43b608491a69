use core::task::{Context, Poll};
use std::convert::Infallible;

use crate::policy::{Decision, Policy};
use crate::time::{Clock, Tick};

use super::credit::Tab;
use super::{Answer, Limiter};

/// A limit with one owner: no lock, no line.
///
/// Made by [`PolicyExt::owned`](super::PolicyExt::owned). Its clock starts when it is first asked; inside an adapter, at
/// the adapter's first poll.
///
/// # Credit
///
/// To look at the clock is nearly all that it costs. Where the policy allows it, a few permits pass between two looks, and count as
/// spent at the second: of a [`TokenBucket`](crate::policy::TokenBucket) or [`SlidingLog`](crate::policy::SlidingLog) of 480 and more a
/// thirty-second, at most 256; of [`All`](crate::policy::All) what each of them allows; of
/// [`Unlimited`](crate::policy::Unlimited) everything; of a policy of your own what its
/// [`credit`](crate::policy::Policy::credit) says.
///
/// So never more passes than the policy says; if nobody asks for long between two looks, that few less of the next burst. On tokio's
/// paused clock it looks each time, but for what is left of a credit when the clock is paused: that can still pass, and is counted
/// later.
#[derive(Debug)]
pub struct Owned<P: Policy> {
    policy: P,
    clock: Clock,
    state: Option<P::State>,
    /// How many may pass without a look at the clock.
    credit: u32,
    /// Those that have.
    tab: Tab,
}

impl<P: Policy> Owned<P> {
    /// A limit nobody has used yet.
    pub const fn new(policy: P) -> Self {
        Self {
            policy,
            clock: Clock::new(),
            state: None,
            credit: 0,
            tab: Tab::new(),
        }
    }

    /// The policy that decides.
    pub const fn policy(&self) -> &P {
        &self.policy
    }

    /// Looks at the clock, and counts what has passed without that.
    #[inline]
    fn look(&mut self) -> (&P, &mut P::State, &mut Tab, Tick) {
        let now = self.clock.now();
        let state = self.state.get_or_insert_with(|| self.policy.fresh(now));
        self.tab.settle(&self.policy, state, now);
        (&self.policy, state, &mut self.tab, now)
    }

    #[inline(never)]
    fn decide(&mut self, cost: u32) -> Decision {
        let (policy, state, tab, now) = self.look();
        let decision = policy.decide(state, now, cost);
        self.credit = tab.open(policy, state, now, cost);
        decision
    }
}

impl<P: Policy> Limiter for Owned<P> {
    type Error = Infallible;

    #[inline]
    fn poll_decide(&mut self, cost: u32, _cx: &mut Context<'_>) -> Answer {
        let Some(credit) = self.credit.checked_sub(cost).filter(|_| cost > 0) else {
            return Poll::Ready(Ok(self.decide(cost)));
        };
        self.credit = credit;
        self.tab.put(cost);
        Poll::Ready(Ok(Decision::Pass))
    }

    fn poll_open(&mut self, cost: u32, _cx: &mut Context<'_>) -> Answer {
        if self.state.is_some() && cost <= self.credit {
            return Poll::Ready(Ok(Decision::Pass));
        }
        let (policy, state, _, now) = self.look();
        Poll::Ready(Ok(policy.peek(state, now, cost)))
    }

    fn give_up(&mut self) {}
}
