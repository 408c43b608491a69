use core::time::Duration;

use crate::line::Line;
use crate::policy::{Decision, Policy};
use crate::time::Tick;

/// A line this short is gone through anew for each question.
const SHORT: usize = 64;

/// When the line will be through: the state of the limit after everybody who waits now has passed as early as possible.
///
/// It answers how long one more would have to wait. Going through a long line is paid for by what happened in it since the
/// last time, so that a question costs a constant, however many wait. What it says is never later than the truth: those
/// in line may be late, and nobody can pass before them.
#[derive(Debug)]
pub(super) struct Forecast<S> {
    tail: Option<Tail<S>>,
    /// How much happened in line since it was last gone through.
    changes: usize,
}

#[derive(Clone, Debug)]
struct Tail<S> {
    state: S,
    at: Tick,
}

impl<S: Clone> Forecast<S> {
    pub(super) const fn new() -> Self {
        Self {
            tail: None,
            changes: 0,
        }
    }

    /// Somebody joined the end of the line.
    pub(super) fn joined<P: Policy<State = S>>(&mut self, policy: &P, cost: u32) {
        self.changes = self.changes.saturating_add(1);
        if let Some(tail) = &mut self.tail {
            tail.pass(policy, cost);
        }
    }

    /// The first one passed, as was foreseen, or later.
    pub(super) fn passed(&mut self) {
        self.changes = self.changes.saturating_add(1);
    }

    /// Those in line may pass earlier than was foreseen.
    pub(super) fn overthrown(&mut self) {
        self.changes = self.changes.saturating_add(1);
        self.tail = None;
    }

    /// How long one more of `cost` would have to wait behind those in `line`, at the least.
    pub(super) fn wait<P: Policy<State = S>>(
        &mut self,
        policy: &P,
        state: &S,
        now: Tick,
        cost: u32,
        line: &Line,
    ) -> Duration {
        let len = line.len();
        if len <= SHORT || self.changes >= len {
            self.changes = 0;
            self.tail = Some(Tail::of(policy, state.clone(), now, line));
        }
        match &self.tail {
            Some(tail) => tail.wait(policy, now, cost),
            None => retry_in(policy.peek(state, now, cost)),
        }
    }
}

impl<S: Clone> Tail<S> {
    fn of<P: Policy<State = S>>(policy: &P, state: S, now: Tick, line: &Line) -> Self {
        let mut tail = Self { state, at: now };
        for cost in line.costs() {
            tail.pass(policy, cost);
        }
        tail
    }

    fn pass<P: Policy<State = S>>(&mut self, policy: &P, cost: u32) {
        let wait = retry_in(policy.decide(&mut self.state, self.at, cost));
        if !wait.is_zero() {
            self.at = self.at.after(wait);
            // Waits are exact: this passes, unless time itself ends before.
            let _ = policy.decide(&mut self.state, self.at, cost);
        }
    }

    fn wait<P: Policy<State = S>>(&self, policy: &P, now: Tick, cost: u32) -> Duration {
        let from = self.at.max(now);
        let wait = retry_in(policy.peek(&self.state, from, cost));
        from.since(now).saturating_add(wait)
    }
}

fn retry_in(decision: Decision) -> Duration {
    match decision {
        Decision::Wait { retry_in } => retry_in,
        Decision::Pass | Decision::Never { .. } => Duration::ZERO,
    }
}
