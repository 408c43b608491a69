//! A limit without a queue, a lock or a task: the answers of a shared limit to the head of its queue.

use std::time::Duration;

use paceline::policy::Decision;
use paceline::time::Tick;
use testkit::clock::Stopwatch;

use crate::dice::Tunable;

/// A policy with its state and pause. Its clock starts at the first request.
pub(crate) struct Mirror<P: Tunable> {
    policy: P,
    state: Option<P::State>,
    started: Option<Stopwatch>,
    paused_until: Tick,
    /// The requests that passed since the last refund or retune.
    passed: Vec<(Tick, u32)>,
}

impl<P: Tunable> Mirror<P> {
    pub(crate) fn new(policy: P) -> Self {
        Self {
            policy,
            state: None,
            started: None,
            paused_until: Tick::ZERO,
            passed: Vec::new(),
        }
    }

    pub(crate) fn now(&mut self) -> Tick {
        let started = self.started.get_or_insert_with(Stopwatch::start);
        let now = Tick::ZERO.after(started.elapsed());
        self.state.get_or_insert_with(|| self.policy.fresh(now));
        now
    }

    /// The answer at `then` to the head of the queue.
    pub(crate) fn look(&self, then: Tick, cost: u32) -> Decision {
        let Some(state) = &self.state else {
            return Decision::Pass;
        };
        let pause = self.paused_until.since(then);
        match self.policy.peek(state, then, cost) {
            Decision::Pass if !pause.is_zero() && cost > 0 => Decision::Wait { retry_in: pause },
            Decision::Wait { retry_in } => Decision::Wait {
                retry_in: retry_in.max(pause),
            },
            decision => decision,
        }
    }

    /// Whether the cost is more than can ever pass.
    pub(crate) fn never_passes(&self, cost: u32) -> bool {
        matches!(self.timeless(cost), Decision::Never { .. })
    }

    /// The answer to a request that does not depend on the time.
    pub(crate) fn timeless(&self, cost: u32) -> Decision {
        self.policy
            .peek(&self.policy.fresh(Tick::ZERO), Tick::ZERO, cost)
    }

    /// Counts a request that passes.
    pub(crate) fn pay(&mut self, cost: u32) {
        let now = self.now();
        let decision = self.look(now, cost);
        assert!(decision.is_pass(), "{cost} passed at {now:?}: {decision:?}");
        if let Some(state) = &mut self.state {
            let decision = self.policy.decide(state, now, cost);
            assert!(decision.is_pass(), "{decision:?} after a look that passed");
        }
        self.passed.push((now, cost));
    }

    /// The wait of one more request behind waiters with these `costs`, if each passes as early as possible.
    pub(crate) fn wait_behind(&mut self, costs: &[u32], cost: u32) -> Duration {
        let now = self.now();
        let mut at = now.max(self.paused_until);
        let mut state = self.state.clone().expect("`now` was called before");
        for &ahead in costs {
            if let Decision::Wait { retry_in } = self.policy.decide(&mut state, at, ahead) {
                at = at.after(retry_in);
                let _ = self.policy.decide(&mut state, at, ahead);
            }
        }
        if let Decision::Wait { retry_in } = self.policy.peek(&state, at, cost) {
            at = at.after(retry_in);
        }
        at.since(now)
    }

    /// The time until the limit is as good as unused.
    pub(crate) fn settles_in(&mut self) -> Duration {
        let now = self.now();
        let settled_at = self
            .state
            .as_ref()
            .map(|state| self.policy.settled_at(state));
        settled_at.map_or(Duration::ZERO, |settled_at| settled_at.since(now))
    }

    pub(crate) fn refund(&mut self, cost: u32) {
        let now = self.now();
        if let Some(state) = &mut self.state {
            self.policy.refund(state, now, cost);
        }
    }

    pub(crate) fn retune(&mut self, policy: P) {
        let now = self.now();
        let old = std::mem::replace(&mut self.policy, policy);
        if let Some(state) = &mut self.state {
            self.policy.retune(&old, state, now);
        }
    }

    pub(crate) fn pause_for(&mut self, duration: Duration) {
        self.paused_until = self.paused_until.max(self.now().after(duration));
    }

    pub(crate) fn resume(&mut self) {
        let _ = self.now();
        self.paused_until = Tick::ZERO;
    }

    /// No window of what passed exceeds the bound in the docs.
    pub(crate) fn bound_holds(&mut self) {
        self.policy.assert_bound(&self.passed);
        self.passed.clear();
    }
}
