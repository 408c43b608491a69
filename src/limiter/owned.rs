use core::task::{Context, Poll};
use std::convert::Infallible;

use crate::policy::Policy;
use crate::time::Clock;

use super::{Answer, Limiter};

/// A limit with one owner: no lock, no line.
///
/// Made by [`PolicyExt::owned`](super::PolicyExt::owned). Its clock starts when it is first asked; inside an adapter, at
/// the adapter's first poll.
#[derive(Debug)]
pub struct Owned<P: Policy> {
    policy: P,
    clock: Clock,
    state: Option<P::State>,
}

impl<P: Policy> Owned<P> {
    /// A limit nobody has used yet.
    pub const fn new(policy: P) -> Self {
        Self {
            policy,
            clock: Clock::new(),
            state: None,
        }
    }

    /// The policy that decides.
    pub const fn policy(&self) -> &P {
        &self.policy
    }
}

impl<P: Policy> Limiter for Owned<P> {
    type Error = Infallible;

    fn poll_decide(&mut self, cost: u32, _cx: &mut Context<'_>) -> Answer {
        let now = self.clock.now();
        let state = self.state.get_or_insert_with(|| self.policy.fresh(now));
        Poll::Ready(Ok(self.policy.decide(state, now, cost)))
    }

    fn poll_open(&mut self, cost: u32, _cx: &mut Context<'_>) -> Answer {
        let now = self.clock.now();
        let state = self.state.get_or_insert_with(|| self.policy.fresh(now));
        Poll::Ready(Ok(self.policy.peek(state, now, cost)))
    }

    fn give_up(&mut self) {}
}
