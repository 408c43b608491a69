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

    /// When one more of `cost` could pass behind those in `line`, at the earliest. Nobody passes before `from`.
    pub(super) fn open_at<P: Policy<State = S>>(
        &mut self,
        policy: &P,
        state: &S,
        from: Tick,
        cost: u32,
        line: &Line,
    ) -> Tick {
        let len = line.len();
        if len <= SHORT || self.changes >= len {
            self.changes = 0;
            self.tail = Some(Tail::of(policy, state.clone(), from, line));
        }
        match &self.tail {
            Some(tail) => tail.open_at(policy, from, cost),
            None => from.after(retry_in(policy.peek(state, from, cost))),
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

    fn open_at<P: Policy<State = S>>(&self, policy: &P, from: Tick, cost: u32) -> Tick {
        let from = self.at.max(from);
        from.after(retry_in(policy.peek(&self.state, from, cost)))
    }
}

/// How long it says to wait, if it does.
pub(super) fn retry_in(decision: Decision) -> Duration {
    match decision {
        Decision::Wait { retry_in } => retry_in,
        Decision::Pass | Decision::Never { .. } => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use core::task::Waker;

    use super::*;
    use crate::line::{Asker, Waiter};
    use crate::policy::Interval;

    const EVERY: Interval = Interval::every(Duration::from_nanos(10));

    fn at(nanos: u64) -> Tick {
        Tick::from_nanos(nanos)
    }

    fn line_of(waiters: usize) -> Line {
        let mut line = Line::new();
        for _ in 0..waiters {
            line.join(Waiter::new(1, Asker::Told(Waker::noop())));
        }
        line
    }

    #[test]
    fn a_short_line_is_gone_through_for_each_question() {
        let mut forecast = Forecast::new();
        let (line, state) = (line_of(SHORT), EVERY.fresh(at(0)));

        for from in [0, 7] {
            let open_at = forecast.open_at(&EVERY, &state, at(from), 1, &line);
            assert_eq!(open_at, at(from + 640));
        }
    }

    #[test]
    fn a_long_line_is_gone_through_when_as_much_has_happened_in_it() {
        let mut forecast = Forecast::new();
        let (line, state) = (line_of(100), EVERY.fresh(at(0)));
        let ask =
            |forecast: &mut Forecast<_>, from| forecast.open_at(&EVERY, &state, at(from), 1, &line);
        for _ in 0..99 {
            forecast.joined(&EVERY, 1);
        }
        assert_eq!(
            ask(&mut forecast, 0),
            at(0),
            "what is not known is not said"
        );
        forecast.joined(&EVERY, 1);
        assert_eq!(ask(&mut forecast, 0), at(1_000));
        for _ in 0..99 {
            forecast.passed();
        }
        assert_eq!(
            ask(&mut forecast, 500),
            at(1_000),
            "they were late, which is not noticed yet"
        );
        forecast.passed();
        assert_eq!(ask(&mut forecast, 500), at(1_500));
    }

    #[test]
    fn who_joins_is_added_at_the_end() {
        let mut forecast = Forecast::new();
        let (line, state) = (line_of(100), EVERY.fresh(at(0)));
        for _ in 0..100 {
            forecast.joined(&EVERY, 1);
        }
        assert_eq!(forecast.open_at(&EVERY, &state, at(0), 1, &line), at(1_000));
        forecast.joined(&EVERY, 3);
        assert_eq!(forecast.open_at(&EVERY, &state, at(0), 1, &line), at(1_030));
    }
}
