//! No window holds more than the docs say.

use paceline::time::Tick;
use proptest::prelude::{Strategy, any};
use proptest::prop_assert;
use proptest::test_runner::TestCaseResult;

use super::subject::{Subject, Window};
use super::trace::{Ask, Case, asks, cases, check, greedy_cases};

pub(super) fn no_window_of_a_random_trace_exceeds_the_bound_in_the_docs<S: Subject>() {
    check::<S, _>(cases::<S>(), keeps_its_bound);
}

pub(super) fn no_window_of_a_greedy_trace_exceeds_the_bound_in_the_docs<S: Subject>() {
    check::<S, _>(greedy_cases::<S>(), keeps_its_bound);
}

/// A debt from before only makes it less.
pub(super) fn after_a_retune_the_new_bound_holds<S: Subject>() {
    let cases = (greedy_cases::<S>(), greedy_cases::<S>());
    check::<S, _>(
        cases.prop_map(|(old, new)| (old, new.policy, new.then)),
        |(old, policy, then)| {
            let (mut state, now) = old.end();
            policy.retune(&old.policy, &mut state, now);
            let asks = asks(&policy, state.clone(), now, &then);
            allows_every_window(&policy, &passed(&policy, state, &asks))
        },
    );
}

/// A refund makes the limit full at most.
pub(super) fn after_a_refund_the_bound_holds<S: Subject>() {
    check::<S, _>((greedy_cases::<S>(), any::<u32>()), |(case, refund)| {
        let (mut state, now) = case.end();
        case.policy.refund(&mut state, now, refund);
        let asks = asks(&case.policy, state.clone(), now, &case.then);
        allows_every_window(&case.policy, &passed(&case.policy, state, &asks))
    });
}

fn keeps_its_bound<S: Subject>(case: Case<S>) -> TestCaseResult {
    let Case {
        policy,
        start,
        asks,
        ..
    } = case;
    let state = policy.fresh(start);
    allows_every_window(&policy, &passed(&policy, state, &asks))
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
