//! Laws of the other operations on a state: settling, refund, retune.

use std::cell::Cell;
use std::time::Duration;

use paceline::policy::Decision;
use paceline::time::Tick;
use proptest::test_runner::TestCaseResult;
use proptest::{prop_assert, prop_assert_eq};

use super::subject::Subject;
use super::trace::{Ask, Case, cases, check};

pub(super) fn a_settled_state_answers_as_a_fresh_one<S: Subject>() {
    answers_as_a_new_one(S::clone, |policy, state, _| policy.settled_at(state));
}

/// From this instant on, a state answers as one of the `new` policy. The instant is exact: on some trace the state still differs
/// a nanosecond before, unless the instant is over already.
pub(super) fn answers_as_a_new_one<S: Subject>(
    new: fn(&S) -> S,
    instant: fn(&S, &S::State, Tick) -> Tick,
) {
    let (is_late, is_visible) = (Cell::new(false), Cell::new(false));
    check::<S, _>(cases::<S>(), |case| {
        let (state, now) = case.end();
        let (policy, new) = (&case.policy, new(&case.policy));
        let due = instant(policy, &state, now);
        if due == Tick::MAX {
            return Ok(());
        }
        let more = u64::from(case.number % 2 * (case.number / 2 % 50));
        let from = due.max(now).after(Duration::from_nanos(more));
        let fresh = new.fresh(from);
        alike(policy, &state, &fresh, &[all(policy, from)])?;
        for begin in [&fresh, &state] {
            alike(policy, &state, &fresh, &case.later(begin, from))?;
        }
        if due > now {
            is_late.set(true);
            let before = due.before(Duration::from_nanos(1));
            // Of a ramp only the second request shows when it began.
            let asks = [all(policy, before); 2];
            let apart = alike(policy, &state, &new.fresh(before), &asks);
            is_visible.set(is_visible.get() || apart.is_err());
        }
        Ok(())
    });
    assert_eq!(
        is_late.get(),
        is_visible.get(),
        "it is new before it says so"
    );
}

pub(super) fn is_settled_agrees_with_settled_at<S: Subject>(case: &Case<S>) -> TestCaseResult {
    let mut state = case.policy.fresh(case.start);
    for ask in case.asks.iter().filter(|ask| ask.at < Tick::MAX) {
        let is_settled = case.policy.settled_at(&state) <= ask.at;
        prop_assert_eq!(case.policy.is_settled(&state, ask.at), is_settled);
        let _ = case.policy.decide(&mut state, ask.at, ask.cost);
    }
    Ok(())
}

/// A request that passes after a refund also passes a full limit after the same requests. If a policy divides time into
/// windows, those of the full limit may end later; then the requests are compared within one instant.
pub(super) fn a_refund_never_makes_a_state_better_than_full<S: Subject>(
    case: &Case<S>,
) -> TestCaseResult {
    let (mut state, now) = case.end();
    for change in case.changes.iter().take(3) {
        let cost = change.of(&case.asks).cost.saturating_add(change.number % 5);
        let is_much = change.kind % 2 == 0;
        let cost = if is_much { u32::MAX } else { cost };
        case.policy.refund(&mut state, now, cost);
    }
    let best = case.policy.full();
    let mut full = best.fresh(now);
    for mut ask in case.later(&state, now) {
        if S::PHASED {
            ask.at = now;
        }
        let from_full = best.peek(&full, ask.at, ask.cost);
        let answer = case.policy.decide(&mut state, ask.at, ask.cost);
        prop_assert!(
            wait(answer) >= wait(from_full) || (S::PHASED && !answer.is_pass()),
            "{answer:?}, not {from_full:?}, to {ask:?}"
        );
        if answer.is_pass() {
            let _ = best.decide(&mut full, ask.at, ask.cost);
        }
    }
    Ok(())
}

/// A full or partial refund leaves the state as if only the rest had passed.
pub(super) fn a_refund_at_once_undoes_the_request<S: Subject>(case: &Case<S>) -> TestCaseResult {
    let (mut state, mut now) = case.end();
    let cost = case.asks.last().map_or(1, |ask| ask.cost);
    if let Decision::Wait { retry_in } = case.policy.peek(&state, now, cost) {
        now = now.after(retry_in);
    }
    let mut without = state.clone();
    if !case.policy.decide(&mut state, now, cost).is_pass() {
        return Ok(());
    }
    let refund = match case.number {
        part if part % 2 == 0 => cost,
        part => part % cost.max(1),
    };
    case.policy.refund(&mut state, now, refund);
    let rest = cost - refund;
    let answer = case.policy.decide(&mut without, now, rest);
    prop_assert_eq!(answer, Decision::Pass, "{} of {} at {:?}", rest, cost, now);
    alike(&case.policy, &state, &without, &case.later(&without, now))
}

pub(super) fn a_retune_to_the_same_parameters_changes_no_answer<S: Subject>(
    case: &Case<S>,
) -> TestCaseResult {
    let (state, now) = case.end();
    let mut retuned = state.clone();
    case.policy.retune(&case.policy, &mut retuned, now);
    alike(&case.policy, &state, &retuned, &case.later(&state, now))
}

/// With the largest cost that a full limit passes at once.
pub(super) fn all<S: Subject>(policy: &S, at: Tick) -> Ask {
    let cost = policy.burst();
    Ask { at, cost }
}

/// Compares all decisions. All waits that end beyond the last tick are equal: they never end.
pub(super) fn alike<S: Subject>(
    policy: &S,
    one: &S::State,
    other: &S::State,
    asks: &[Ask],
) -> TestCaseResult {
    let (mut one, mut other) = (one.clone(), other.clone());
    for ask in asks {
        let first = policy.decide(&mut one, ask.at, ask.cost);
        let second = policy.decide(&mut other, ask.at, ask.cost);
        let never = |answer| match answer {
            Decision::Wait { retry_in } => ask.at.after(retry_in) == Tick::MAX,
            Decision::Pass | Decision::Never { .. } => false,
        };
        if !(never(first) && never(second)) {
            prop_assert_eq!(first, second, "to {:?} of {:?}", ask, asks);
        }
    }
    Ok(())
}

/// The time until a request passes.
pub(super) fn wait(decision: Decision) -> Duration {
    match decision {
        Decision::Pass => Duration::ZERO,
        Decision::Wait { retry_in } => retry_in,
        Decision::Never { .. } => Duration::MAX,
    }
}
