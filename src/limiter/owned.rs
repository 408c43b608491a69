use core::convert::Infallible;
use core::task::{Context, Poll};

use tokio::time::Instant;

use crate::policy::{Decision, Policy, Status};
use crate::time::{Clock, Resolution, Tick};

use super::estimate::Ahead;
use super::hold::Hold;
use super::prefetch::Prefetch;
use super::{Answer, Limiter};

/// A limit with one owner: no lock, no queue.
///
/// Made by [`PolicyExt::owned`](super::PolicyExt::owned). Its clock starts when it is first asked; inside an adapter, at
/// the adapter's first poll.
///
/// It cannot be cloned, so it has none of the methods to ask by hand, such as `acquire_one`: for these, make a
/// [`Shared`](super::Shared).
///
/// # Prefetch
///
/// Reading the clock is nearly all that it costs. Where the policy allows it, a few permits pass between two readings, and count
/// as spent at the second: of a [`TokenBucket`](crate::policy::TokenBucket) or [`SlidingLog`](crate::policy::SlidingLog) of 480
/// and more a thirty-second, at most 256; of [`All`](crate::policy::All) what each of them allows; of
/// [`Unlimited`](crate::policy::Unlimited) everything; of a policy of your own what its
/// [`credit`](crate::policy::Policy::credit) says.
///
/// So never more passes than the policy says; after a long pause between two readings, the next burst is smaller by that little.
/// On tokio's paused clock it reads the clock each time; what is left of an earlier prefetch when the clock is paused can still
/// pass, and is counted later.
#[derive(Debug)]
pub struct Owned<P: Policy> {
    policy: P,
    clock: Clock,
    state: Option<P::State>,
    prefetch: Prefetch,
    resolution: Resolution,
}

impl<P: Policy> Owned<P> {
    /// A limit that has not been used yet.
    pub const fn new(policy: P) -> Self {
        Self {
            policy,
            clock: Clock::new(),
            state: None,
            prefetch: Prefetch::new(),
            resolution: Resolution::Exact,
        }
    }

    /// How exactly an adapter waits for it: see [`Shared::with_resolution`](super::Shared::with_resolution).
    #[must_use]
    pub fn with_resolution(mut self, resolution: Resolution) -> Self {
        self.resolution = resolution;
        self
    }

    /// The policy that decides.
    pub const fn policy(&self) -> &P {
        &self.policy
    }

    /// Reads the clock, and counts the permits that passed without a reading.
    #[inline]
    fn now(&mut self) -> (&P, &mut P::State, &mut Prefetch, Tick) {
        let now = self.clock.now();
        let state = self.state.get_or_insert_with(|| self.policy.fresh(now));
        self.prefetch.commit(&self.policy, state, now);
        (&self.policy, state, &mut self.prefetch, now)
    }

    /// The state now. What was taken of the prefetched permits counts as spent.
    fn look(&self) -> (P::State, Clock, Tick) {
        let mut clock = self.clock.clone();
        let now = clock.now();
        let state = self.state.clone();
        let mut state = state.unwrap_or_else(|| self.policy.fresh(now));
        self.prefetch.clone().commit(&self.policy, &mut state, now);
        (state, clock, now)
    }

    #[inline(never)]
    fn decide(&mut self, cost: u32) -> Decision {
        let (policy, state, prefetch, now) = self.now();
        let decision = policy.decide(state, now, cost);
        prefetch.reserve(policy, state, now, cost);
        decision
    }
}

impl<P: Policy> Limiter for Owned<P> {
    type Error = Infallible;

    #[inline]
    fn poll_decide(&mut self, cost: u32, _cx: &mut Context<'_>) -> Answer {
        if self.prefetch.take(cost) {
            return Poll::Ready(Ok(Decision::Pass));
        }
        Poll::Ready(Ok(self.decide(cost)))
    }

    fn poll_open(&mut self, cost: u32, _cx: &mut Context<'_>) -> Answer {
        if self.prefetch.has(cost) {
            return Poll::Ready(Ok(Decision::Pass));
        }
        let (policy, state, _, now) = self.now();
        Poll::Ready(Ok(policy.peek(state, now, cost)))
    }

    fn give_up(&mut self) {}

    /// The clock of an unused limit does not start.
    fn status(&self) -> Option<Status> {
        let (state, _, now) = self.look();
        Some(self.policy.status(&state, now))
    }

    fn foresee(&self, count: usize) -> Vec<Instant> {
        if let (1, Some(state), true) = (count, &self.state, self.prefetch.is_committed()) {
            // The state of a log is long. The next permit needs no copy of it.
            let mut clock = self.clock.clone();
            let now = clock.now();
            let wait = self.policy.peek(state, now, 1).retry_in();
            return vec![clock.instant_of(now.after(wait.unwrap_or_default()))];
        }
        let (state, clock, now) = self.look();
        let mut ahead = Ahead::new(state, Hold::NONE, now);
        let passes = (0..count).map(|_| clock.instant_of(ahead.pass(&self.policy, 1, Tick::MAX)));
        passes.collect()
    }

    fn resolution(&self) -> Resolution {
        self.resolution
    }
}
