use core::time::Duration;

use crate::time::Tick;

use super::states::{
    AlignedWindowState, FixedWindowState, IntervalState, RampState, SlidingCounterState,
    SlidingLogState, TokenBucketState,
};
use super::{
    AlignedWindow, Decision, FixedWindow, Interval, Policy, Quota, Ramp, SlidingCounter,
    SlidingLog, Status, TokenBucket,
};

/// One of the limits of an [`AnyPolicy`](super::AnyPolicy): see [`limits`](super::AnyPolicy::limits).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct AnyLimit {
    /// The policy.
    pub kind: AnyKind,
    /// Whether each request counts as 1, whatever it costs.
    pub per_request: bool,
}

/// The policy of one of the limits of an [`AnyPolicy`](super::AnyPolicy).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum AnyKind {
    /// A rate with a burst.
    Bucket(TokenBucket),
    /// The time between two requests.
    Interval(Interval),
    /// The time between two requests, at a rate that changes first.
    Ramp(Ramp),
    /// A number in any window, exactly.
    Log(SlidingLog),
    /// A number in any window, by sums.
    Counter(SlidingCounter),
    /// A number in a window that begins with a request.
    Window(FixedWindow),
    /// A number in an hour, day, week or month of the calendar.
    Aligned(AlignedWindow),
}

/// The state of a limit. With a limit of another kind it passes nothing.
#[derive(Clone, Debug)]
pub(super) enum AnyState {
    Bucket(TokenBucketState),
    Interval(IntervalState),
    Ramp(RampState),
    Log(SlidingLogState),
    Counter(SlidingCounterState),
    Window(FixedWindowState),
    Aligned(AlignedWindowState),
}

const NOTHING_PASSES: Decision = Decision::Wait {
    retry_in: Duration::MAX,
};

/// Calls a method of the policy of a limit, which is given its state; or works on values that have a variant for each kind. If they are
/// of different kinds, this is the value after `else`.
macro_rules! of_kind {
    ($limit:ident.$method:ident($state:ident $(, $argument:expr)*) else $other:expr) => {
        of_kind!(
            (AnyKind(policy) = &$limit.kind, AnyState(state) = $state)
                => policy.$method(state $(, $argument)*), else $other
        )
    };
    (($($kinds:ident($name:ident) = $value:expr),+) => $work:expr $(, else $other:expr)?) => {
        match ($($value,)+) {
            ($($kinds::Bucket($name),)+) => $work,
            ($($kinds::Interval($name),)+) => $work,
            ($($kinds::Log($name),)+) => $work,
            ($($kinds::Counter($name),)+) => $work,
            ($($kinds::Window($name),)+) => $work,
            ($($kinds::Ramp($name),)+) => $work,
            ($($kinds::Aligned($name),)+) => $work,
            $(_ => $other,)?
        }
    };
}

impl AnyLimit {
    pub(super) fn fresh(&self, now: Tick) -> AnyState {
        match &self.kind {
            AnyKind::Bucket(policy) => AnyState::Bucket(policy.fresh(now)),
            AnyKind::Interval(policy) => AnyState::Interval(policy.fresh(now)),
            AnyKind::Log(policy) => AnyState::Log(policy.fresh(now)),
            AnyKind::Counter(policy) => AnyState::Counter(policy.fresh(now)),
            AnyKind::Window(policy) => AnyState::Window(policy.fresh(now)),
            AnyKind::Ramp(policy) => AnyState::Ramp(policy.fresh(now)),
            AnyKind::Aligned(policy) => AnyState::Aligned(policy.fresh(now)),
        }
    }

    pub(super) fn decide(&self, state: &mut AnyState, now: Tick, cost: u32) -> Decision {
        let cost = self.cost(cost);
        of_kind!(self.decide(state, now, cost) else NOTHING_PASSES)
    }

    pub(super) fn peek(&self, state: &AnyState, now: Tick, cost: u32) -> Decision {
        let cost = self.cost(cost);
        of_kind!(self.peek(state, now, cost) else NOTHING_PASSES)
    }

    pub(super) fn foresee(&self, state: &mut AnyState, then: Tick) {
        of_kind!(self.foresee(state, then) else ());
    }

    /// None where each request counts as 1: the sum of several would be counted as one.
    pub(super) fn credit(&self, state: &AnyState, now: Tick) -> u32 {
        if self.per_request {
            return 0;
        }
        of_kind!(self.credit(state, now) else 0)
    }

    pub(super) fn room(&self, state: &AnyState, now: Tick) -> u32 {
        of_kind!(self.room(state, now) else 0)
    }

    pub(super) fn status(&self, state: &AnyState, now: Tick) -> Status {
        let none = || Status::new(self.quota(), 0, Duration::MAX);
        of_kind!(self.status(state, now) else none())
    }

    pub(super) fn quota(&self) -> Option<Quota> {
        of_kind!((AnyKind(policy) = &self.kind) => policy.quota())
    }

    /// Nothing where each request counts as 1: the request was made.
    pub(super) fn refund(&self, state: &mut AnyState, now: Tick, cost: u32) {
        if !self.per_request {
            of_kind!(self.refund(state, now, cost) else ());
        }
    }

    /// As [`refund`](Self::refund).
    pub(super) fn refund_from(&self, state: &mut AnyState, now: Tick, at: Tick, cost: u32) {
        if !self.per_request {
            of_kind!(self.refund_from(state, now, at, cost) else ());
        }
    }

    /// As [`refund`](Self::refund).
    pub(super) fn charge(&self, state: &mut AnyState, now: Tick, cost: u32) {
        if !self.per_request {
            self.count(state, now, cost);
        }
    }

    /// Goes on from the state of an `old` limit.
    ///
    /// One of the same kind keeps its state as that kind does. Of one of another kind it is only known how much it had spent: that
    /// much is spent here too, or everything if that is less.
    pub(super) fn retune(&self, old: &Self, mut state: AnyState, now: Tick) -> AnyState {
        of_kind!(
            (AnyKind(policy) = &self.kind, AnyKind(old) = &old.kind, AnyState(state) = &mut state)
                => policy.retune(old, state, now),
            else return self.begin_with_spent(now, old.spent(&state, now))
        );
        state
    }

    /// The permits that are missing until it is full. A debt is not among them.
    pub(super) fn spent(&self, state: &AnyState, now: Tick) -> u32 {
        self.full().saturating_sub(self.room(state, now))
    }

    /// The state of a new limit with `spent` permits spent.
    pub(super) fn begin_with_spent(&self, now: Tick, spent: u32) -> AnyState {
        let mut state = self.fresh(now);
        let left = self.full().saturating_sub(spent);
        // A limit that starts empty has spent some already.
        let excess = self.room(&state, now).saturating_sub(left);
        self.count(&mut state, now, excess);
        state
    }

    pub(super) fn settled_at(&self, state: &AnyState) -> Tick {
        of_kind!(self.settled_at(state) else Tick::MAX)
    }

    pub(super) fn is_settled(&self, state: &AnyState, now: Tick) -> bool {
        of_kind!(self.is_settled(state, now) else false)
    }

    pub(super) fn saves_until(&self, state: &AnyState) -> Tick {
        of_kind!(self.saves_until(state) else Tick::ZERO)
    }

    /// The state and, in two bits, its kind.
    pub(super) fn to_word(&self, state: &AnyState) -> Option<u64> {
        let (word, kind) = match (&self.kind, state) {
            (AnyKind::Bucket(policy), AnyState::Bucket(state)) => (policy.to_word(state)?, 0),
            (AnyKind::Interval(policy), AnyState::Interval(state)) => (policy.to_word(state)?, 1),
            (AnyKind::Window(policy), AnyState::Window(state)) => (policy.to_word(state)?, 2),
            _ => return None,
        };
        (word >> 62 == 0).then_some(word << 2 | kind)
    }

    /// Of the word of another kind it is a state with which nothing passes.
    pub(super) fn of_word(&self, word: u64) -> AnyState {
        let (word, kind) = (word >> 2, word & 3);
        match (&self.kind, kind) {
            (AnyKind::Bucket(policy), 0) => AnyState::Bucket(policy.of_word(word)),
            (AnyKind::Interval(policy), 1) => AnyState::Interval(policy.of_word(word)),
            (AnyKind::Window(policy), 2) => AnyState::Window(policy.of_word(word)),
            (AnyKind::Interval(_), _) => {
                AnyState::Window(FixedWindow::new(1, Duration::MAX).fresh(Tick::ZERO))
            }
            _ => AnyState::Interval(Interval::every(Duration::MAX).fresh(Tick::ZERO)),
        }
    }

    const fn cost(&self, cost: u32) -> u32 {
        if self.per_request && cost > 1 {
            return 1;
        }
        cost
    }

    /// The most that passes at once.
    const fn full(&self) -> u32 {
        match &self.kind {
            AnyKind::Bucket(policy) => policy.burst(),
            AnyKind::Interval(_) | AnyKind::Ramp(_) => 1,
            AnyKind::Log(policy) => policy.limit(),
            AnyKind::Counter(policy) => policy.limit(),
            AnyKind::Window(policy) => policy.limit(),
            AnyKind::Aligned(policy) => policy.limit(),
        }
    }

    fn count(&self, state: &mut AnyState, now: Tick, cost: u32) {
        of_kind!(self.charge(state, now, cost) else ());
    }
}
