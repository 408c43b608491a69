use crate::policy::{Decision, Policy};
use crate::time::{Clock, Tick};

use super::credit::{Credit, Tab};
use super::forecast::retry_in;
use super::{Mode, Stats};

/// A policy with its state and its clock, and what can be said to it while it runs: a pause, and a mode.
///
/// It answers one question at a time and knows nothing of those who wait.
#[derive(Debug)]
pub(super) struct Limit<P: Policy> {
    policy: P,
    clock: Clock,
    state: Option<P::State>,
    mode: Mode,
    paused_until: Tick,
    tab: Tab,
    /// How much credit was given, and not called in yet.
    lent: u32,
    pub(super) stats: Stats,
}

/// Whether what passes is counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Ask {
    ToPass,
    ToLook,
}

impl<P: Policy> Limit<P> {
    pub(super) const fn new(policy: P) -> Self {
        Self {
            policy,
            clock: Clock::new(),
            state: None,
            mode: Mode::Enforce,
            paused_until: Tick::ZERO,
            tab: Tab::new(),
            lent: 0,
            stats: Stats::new(),
        }
    }

    /// A limit that goes on from a state.
    pub(super) const fn with_state(policy: P, clock: Clock, state: P::State, mode: Mode) -> Self {
        Self {
            policy,
            clock,
            state: Some(state),
            mode,
            paused_until: Tick::ZERO,
            tab: Tab::new(),
            lent: 0,
            stats: Stats::new(),
        }
    }

    pub(super) const fn state(&self) -> Option<&P::State> {
        self.state.as_ref()
    }

    pub(super) fn is_paused(&self, now: Tick) -> bool {
        now < self.paused_until
    }

    /// From when on a fresh one would answer alike.
    pub(super) fn settled_at(&self) -> Tick {
        let settled_at = self
            .state
            .as_ref()
            .map(|state| self.policy.settled_at(state));
        settled_at.unwrap_or(Tick::ZERO).max(self.paused_until)
    }

    /// What time it is; the state begins with the first time anybody asks.
    pub(super) fn now(&mut self) -> Tick {
        let now = self.clock.now();
        let state = self.state.get_or_insert_with(|| self.policy.fresh(now));
        self.tab.settle(&self.policy, state, now);
        now
    }

    /// Counts what has passed on credit. `false` if that cannot be done now: should the policy have panicked over it, it must
    /// not be asked again before that is over, since a second panic ends the program.
    pub(super) fn settle(&mut self) -> bool {
        if self.tab.is_empty() {
            return true;
        }
        if std::thread::panicking() {
            return false;
        }
        let _ = self.now();
        true
    }

    /// How much may pass on credit once a request of this cost did.
    #[inline]
    pub(super) fn lend(&mut self, now: Tick, cost: u32) -> u32 {
        // What passes at no cost passes while the limit is paused, too.
        let lends = cost > 0 && self.mode == Mode::Enforce;
        let state = self.state.as_ref().filter(|_| lends);
        self.lent = state.map_or(0, |state| self.tab.open(&self.policy, state, now, cost));
        self.lent
    }

    /// Nobody has any credit from now on. What has passed on it is counted when it is known what time it is.
    #[inline]
    pub(super) fn call_in(&mut self, credit: &Credit) {
        let lent = core::mem::take(&mut self.lent);
        if lent > 0 {
            let taken = credit.call_in(lent);
            self.tab.put(taken.permits);
            self.stats.passed += u64::from(taken.requests);
        }
    }

    /// Whether everybody passes, whatever the policy says.
    pub(super) fn passes_everybody(&self) -> bool {
        self.mode != Mode::Enforce
    }

    /// The answer `now`, in the present mode.
    pub(super) fn ask(&mut self, ask: Ask, now: Tick, cost: u32) -> Decision {
        if cost == 0 || self.mode == Mode::Off {
            return Decision::Pass;
        }
        let decision = match ask {
            Ask::ToPass => self.decide(now, cost),
            Ask::ToLook => self.look(now, cost),
        };
        self.mode.judge(ask, decision, &mut self.stats)
    }

    /// What the policy and the pause say, whatever the mode. Nothing is counted.
    pub(super) fn look(&self, now: Tick, cost: u32) -> Decision {
        let Some(state) = &self.state else {
            return Decision::Pass;
        };
        self.unless_paused(self.policy.peek(state, now, cost), now)
    }

    /// The least instant at which whoever asks now could pass, and the state they would find: for forecasts.
    pub(super) fn outlook(&mut self, now: Tick) -> (&P, &P::State, Tick) {
        let state = self.state.get_or_insert_with(|| self.policy.fresh(now));
        (&self.policy, state, now.max(self.paused_until))
    }

    pub(super) fn policy(&self) -> &P {
        &self.policy
    }

    pub(super) fn refund(&mut self, now: Tick, cost: u32) {
        if let Some(state) = &mut self.state {
            self.policy.refund(state, now, cost);
        }
    }

    pub(super) fn retune(&mut self, now: Tick, policy: P) {
        let old = core::mem::replace(&mut self.policy, policy);
        if let Some(state) = &mut self.state {
            self.policy.retune(&old, state, now);
        }
    }

    /// Of two pauses the later end counts.
    pub(super) fn pause_until(&mut self, until: Tick) {
        self.paused_until = self.paused_until.max(until);
    }

    pub(super) fn resume(&mut self) {
        self.paused_until = Tick::ZERO;
    }

    pub(super) fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
    }

    fn decide(&mut self, now: Tick, cost: u32) -> Decision {
        if now < self.paused_until {
            return self.look(now, cost);
        }
        let state = self.state.get_or_insert_with(|| self.policy.fresh(now));
        self.policy.decide(state, now, cost)
    }

    /// A pause makes everybody wait, but does not hide what could never pass.
    fn unless_paused(&self, decision: Decision, now: Tick) -> Decision {
        match decision {
            Decision::Pass | Decision::Wait { .. } if now < self.paused_until => Decision::Wait {
                retry_in: retry_in(decision).max(self.paused_until.since(now)),
            },
            _ => decision,
        }
    }
}
