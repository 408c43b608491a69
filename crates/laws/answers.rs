//! Laws of a single decision.

use std::time::Duration;

use paceline::policy::Decision;
use paceline::time::Tick;
use proptest::test_runner::TestCaseResult;
use proptest::{prop_assert, prop_assert_eq};

use super::model::Model;
use super::subject::Subject;
use super::trace::{Ask, Case};

pub(super) fn a_wait_is_exact_to_the_nanosecond<S: Subject>(case: &Case<S>) -> TestCaseResult {
    each_answer(case, |policy, before, ask, answer| {
        let Decision::Wait { retry_in } = answer else {
            return Ok(());
        };
        prop_assert!(retry_in > Duration::ZERO, "{answer:?} for {ask:?}");
        let Some(then) = sum(ask.at, retry_in) else {
            return Ok(());
        };
        let nano = Duration::from_nanos(1);
        for left in [retry_in / 2, retry_in / 7, nano] {
            if !left.is_zero() {
                let answer = policy.peek(before, then.before(left), ask.cost);
                let wait = Decision::Wait { retry_in: left };
                prop_assert_eq!(answer, wait, "{:?} before {:?} for {:?}", left, then, ask);
            }
        }
        let answer = policy.peek(before, then, ask.cost);
        prop_assert_eq!(answer, Decision::Pass, "at {:?} for {:?}", then, ask);
        Ok(())
    })
}

pub(super) fn a_refusal_and_a_cost_of_zero_change_nothing<S: Subject>(
    case: &Case<S>,
) -> TestCaseResult {
    each_answer(case, |policy, before, ask, _| {
        for cost in [ask.cost, 0] {
            let mut after = before.clone();
            let answer = policy.decide(&mut after, ask.at, cost);
            prop_assert!(cost > 0 || answer.is_pass(), "{answer:?} at {:?}", ask.at);
            if cost == 0 || !answer.is_pass() {
                let (before, after) = (visible(before), visible(&after));
                prop_assert_eq!(before, after, "{:?} to {} of {:?}", answer, cost, ask);
            }
        }
        Ok(())
    })
}

pub(super) fn a_peek_equals_the_decision<S: Subject>(case: &Case<S>) -> TestCaseResult {
    each_answer(case, |policy, before, ask, answer| {
        let untouched = visible(before);
        let peek = policy.peek(before, ask.at, ask.cost);
        prop_assert_eq!(peek, answer, "to {:?}", ask);
        prop_assert_eq!(visible(before), untouched, "after {:?}", ask);
        let mut foreseen = before.clone();
        policy.foresee(&mut foreseen, ask.at);
        let then = policy.decide(&mut foreseen, ask.at, ask.cost);
        prop_assert_eq!(then, answer, "foreseen, to {:?}", ask);
        Ok(())
    })
}

/// Since a wait is exact, every other request passes eventually.
pub(super) fn only_a_cost_above_the_capacity_never_passes<S: Subject>(
    case: &Case<S>,
) -> TestCaseResult {
    each_answer(case, |policy, before, ask, answer| {
        let never = |cost| matches!(policy.peek(before, ask.at, cost), Decision::Never { .. });
        prop_assert!(!never(1), "cost 1 at {:?}", ask.at);
        let fresh = policy.peek(&policy.fresh(ask.at), ask.at, ask.cost);
        let Decision::Never { capacity } = answer else {
            let fresh_never = matches!(fresh, Decision::Never { .. });
            prop_assert!(!fresh_never, "a fresh one never passes {ask:?}");
            return Ok(());
        };
        prop_assert_eq!(fresh, answer, "a fresh one, to {:?}", ask);
        prop_assert!(ask.cost > capacity, "{answer:?} to {ask:?}");
        prop_assert!(!never(capacity), "the capacity {capacity} at {:?}", ask.at);
        let is_more_never = never(capacity.saturating_add(1));
        prop_assert!(is_more_never, "{capacity} + 1 at {:?}", ask.at);
        Ok(())
    })
}

pub(super) fn the_policy_agrees_with_its_model<S: Subject>(case: &Case<S>) -> TestCaseResult {
    agrees(&case.policy, case.start, &case.asks)
}

/// Compares up to the last tick, which means never.
pub(super) fn agrees<S: Subject>(policy: &S, start: Tick, asks: &[Ask]) -> TestCaseResult {
    let mut state = policy.fresh(start);
    let mut model = S::Model::start(policy, start);
    for ask in asks.iter().take_while(|ask| ask.at < Tick::MAX) {
        let due = model.due(ask.at, ask.cost);
        let answer = policy.decide(&mut state, ask.at, ask.cost);
        prop_assert!(
            due.agrees_with(answer, ask.at, 0),
            "{answer:?} to {ask:?}, due {due:?}"
        );
        if answer.is_pass() {
            model.count(ask.at, ask.cost);
        }
    }
    Ok(())
}

/// Calls `law` with the policy, the state before each request, the request and the decision.
fn each_answer<S: Subject>(
    case: &Case<S>,
    law: impl Fn(&S, &S::State, Ask, Decision) -> TestCaseResult,
) -> TestCaseResult {
    let mut state = case.policy.fresh(case.start);
    for &ask in &case.asks {
        let before = state.clone();
        let answer = case.policy.decide(&mut state, ask.at, ask.cost);
        law(&case.policy, &before, ask, answer)?;
    }
    Ok(())
}

/// Everything that is visible of a state.
fn visible(state: &impl std::fmt::Debug) -> String {
    format!("{state:?}")
}

/// `None` at the last tick and beyond, which means never.
fn sum(tick: Tick, duration: Duration) -> Option<Tick> {
    let then = tick.after(duration);
    (then < Tick::MAX).then_some(then)
}
