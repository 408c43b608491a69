use crate::policy::Decision;

use super::limit::Ask;

/// How seriously a limit is taken.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "a limit holds, is only watched, or is off"
)]
pub enum Mode {
    /// It holds.
    #[default]
    Enforce,
    /// Everything passes. What conforms is charged, and what would have waited or been refused is counted as
    /// [`held_back`](Stats::held_back): to see what a limit would do before it does it.
    Shadow,
    /// Everything passes, and nothing is charged or counted: a kill switch.
    Off,
}

impl Mode {
    /// What an answer becomes in this mode, counted if it was asked in earnest.
    pub(super) fn judge(self, ask: Ask, decision: Decision, stats: &mut Stats) -> Decision {
        if !decision.is_pass() && self == Self::Enforce {
            return decision;
        }
        let is_counted = u64::from(ask == Ask::ToPass && self != Self::Off);
        stats.passed += is_counted;
        stats.held_back += is_counted * u64::from(!decision.is_pass());
        Decision::Pass
    }
}

/// What a limit has done so far, in requests, whatever they cost. Requests of cost 0 are not counted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Let pass, at once or after waiting.
    pub passed: u64,
    /// Told no: by `try_acquire`, `enforce` or `shed`, because it was too late for `acquire_within`, or because it costs more
    /// than could ever pass.
    pub refused: u64,
    /// Had to stand in line; in [`Mode::Shadow`]: passed, but would have waited or been refused.
    pub held_back: u64,
    /// Stand in line now.
    pub waiting: usize,
}

impl Stats {
    pub(super) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.refused += other.refused;
        self.held_back += other.held_back;
        self.waiting += other.waiting;
    }

    pub(super) const fn new() -> Self {
        Self {
            passed: 0,
            refused: 0,
            held_back: 0,
            waiting: 0,
        }
    }
}
