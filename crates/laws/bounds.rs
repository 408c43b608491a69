//! No window holds more than the docs say.

use paceline::time::Tick;
use proptest::prop_assert;
use proptest::test_runner::TestCaseResult;

use super::subject::{Subject, Window};
use super::trace::{Ask, Case, Retuned, asks};

pub(super) fn no_window_of_a_random_trace_exceeds_the_bound_in_the_docs<S: Subject>(
    case: &Case<S>,
) -> TestCaseResult {
    let state = case.policy.fresh(case.start);
    allows_every_window(&case.policy, &passed(&case.policy, state, &case.asks))
}

pub(super) fn no_window_of_a_greedy_trace_exceeds_the_bound_in_the_docs<S: Subject>(
    case: &Case<S>,
) -> TestCaseResult {
    no_window_of_a_random_trace_exceeds_the_bound_in_the_docs(case)
}

/// A debt from before only makes it less.
pub(super) fn after_a_retune_the_new_bound_holds<S: Subject>(
    (old, new): &Retuned<S>,
) -> TestCaseResult {
    let (mut state, now) = old.end();
    new.retune(&old.policy, &mut state, now);
    let asks = asks(new, state.clone(), now, &old.then);
    allows_every_window(new, &passed(new, state, &asks))
}

/// A refund makes the limit full at most.
pub(super) fn after_a_refund_the_bound_holds<S: Subject>(case: &Case<S>) -> TestCaseResult {
    let (mut state, now) = case.end();
    case.policy.refund(&mut state, now, case.number);
    let asks = case.later(&state, now);
    allows_every_window(&case.policy, &passed(&case.policy, state, &asks))
}

pub(super) fn passed<S: Subject>(policy: &S, mut state: S::State, asks: &[Ask]) -> Vec<Ask> {
    let mut passed = asks.to_vec();
    passed.retain(|ask| policy.decide(&mut state, ask.at, ask.cost).is_pass() && ask.cost > 0);
    // After the last tick, which means never, there is no bound.
    passed.retain(|ask| ask.at < Tick::MAX);
    passed
}

/// Checks every window that is the shortest with its requests.
pub(super) fn allows_every_window(policy: &impl Subject, passed: &[Ask]) -> TestCaseResult {
    for (i, first) in passed.iter().enumerate() {
        let (mut total, mut dearest) = (0, 0);
        for last in &passed[i..] {
            total += u128::from(last.cost);
            dearest = dearest.max(last.cost);
            let window = Window {
                span: last.at.as_nanos() - first.at.as_nanos(),
                total,
                dearest,
                last: last.cost,
            };
            prop_assert!(
                policy.allows(&window),
                "{window:?} from {first:?} to {last:?}"
            );
        }
    }
    Ok(())
}
