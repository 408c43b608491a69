//! Laws of the other operations on a state: settling, refund, retune.

use std::cell::Cell;
use std::time::Duration;

use paceline::policy::Decision;
use paceline::time::Tick;
use proptest::collection::vec;
use proptest::prelude::{Just, any, prop_oneof};
use proptest::test_runner::TestCaseResult;
use proptest::{prop_assert, prop_assert_eq};

use super::subject::Subject;
use super::trace::{Ask, asks, cases, check};

/// The instant is exact: on some trace the state still differs from a fresh one a nanosecond before, unless it has settled
/// already.
pub(super) fn a_settled_state_answers_as_a_fresh_one<S: Subject>() {
    let (settled_late, visible) = (Cell::new(false), Cell::new(false));
    let later = prop_oneof![Just(0), 0..50u64];
    check::<S, _>((cases::<S>(), later), |(case, later)| {
        let (state, now) = case.end();
        let settled = case.policy.settled_at(&state);
        if settled == Tick::MAX {
            return Ok(());
        }
        let from = settled.max(now).after(Duration::from_nanos(later));
        let fresh = case.policy.fresh(from);
        alike(&case.policy, &state, &fresh, &[all(&case.policy, from)])?;
        for asks in [
            asks(&case.policy, fresh.clone(), from, &case.then),
            asks(&case.policy, state.clone(), from, &case.then),
        ] {
            alike(&case.policy, &state, &fresh, &asks)?;
        }
        if settled > now {
            settled_late.set(true);
            let from = settled.before(Duration::from_nanos(1));
            let fresh = case.policy.fresh(from);
            let apart = alike(&case.policy, &state, &fresh, &[all(&case.policy, from)]).is_err();
            visible.set(visible.get() || apart);
        }
        Ok(())
    });
    assert_eq!(
        settled_late.get(),
        visible.get(),
        "it settles before it says so"
    );
}

pub(super) fn is_settled_agrees_with_settled_at<S: Subject>() {
    check::<S, _>(cases::<S>(), |case| {
        let mut state = case.policy.fresh(case.start);
        for ask in case.asks.iter().filter(|ask| ask.at < Tick::MAX) {
            let is_settled = case.policy.settled_at(&state) <= ask.at;
            prop_assert_eq!(case.policy.is_settled(&state, ask.at), is_settled);
            let _ = case.policy.decide(&mut state, ask.at, ask.cost);
        }
        Ok(())
    });
}

/// A request that passes after a refund also passes a full limit after the same requests. If a policy divides time into
/// windows, those of the full limit may end later; then the requests are compared within one instant.
pub(super) fn a_refund_never_makes_a_state_better_than_full<S: Subject>() {
    let refunds = vec(
        (any::<proptest::sample::Index>(), 0..5u32, any::<bool>()),
        1..4,
    );
    check::<S, _>((cases::<S>(), refunds), |(case, refunds)| {
        let (mut state, now) = case.end();
        for (index, more, much) in refunds {
            let cost = index.get(&case.asks).cost;
            let cost = if much {
                u32::MAX
            } else {
                cost.saturating_add(more)
            };
            case.policy.refund(&mut state, now, cost);
        }
        let best = case.policy.full();
        let mut full = best.fresh(now);
        for mut ask in asks(&case.policy, state.clone(), now, &case.then) {
            if S::PHASED {
                ask.at = now;
            }
            let from_full = best.peek(&full, ask.at, ask.cost);
            let answer = case.policy.decide(&mut state, ask.at, ask.cost);
            prop_assert!(
                !sooner(answer, from_full) || (S::PHASED && !answer.is_pass()),
                "{answer:?}, not {from_full:?}, to {ask:?}"
            );
            if answer.is_pass() {
                let _ = best.decide(&mut full, ask.at, ask.cost);
            }
        }
        Ok(())
    });
}

/// A full or partial refund leaves the state as if only the rest had passed.
pub(super) fn a_refund_at_once_undoes_the_request<S: Subject>() {
    check::<S, _>((cases::<S>(), any::<u32>()), |(case, part)| {
        let (mut state, mut now) = case.end();
        let cost = case.asks.last().map_or(1, |ask| ask.cost);
        if let Decision::Wait { retry_in } = case.policy.peek(&state, now, cost) {
            now = now.after(retry_in);
        }
        let mut without = state.clone();
        if !case.policy.decide(&mut state, now, cost).is_pass() {
            return Ok(());
        }
        let refund = if part % 2 == 0 {
            cost
        } else {
            part % cost.max(1)
        };
        case.policy.refund(&mut state, now, refund);
        let rest = case.policy.decide(&mut without, now, cost - refund);
        prop_assert_eq!(
            rest,
            Decision::Pass,
            "{} of {} at {:?}",
            cost - refund,
            cost,
            now
        );
        let asks = asks(&case.policy, without.clone(), now, &case.then);
        alike(&case.policy, &state, &without, &asks)
    });
}

pub(super) fn a_retune_to_the_same_parameters_changes_no_answer<S: Subject>() {
    check::<S, _>(cases::<S>(), |case| {
        let (state, now) = case.end();
        let mut retuned = state.clone();
        case.policy.retune(&case.policy, &mut retuned, now);
        let asks = asks(&case.policy, state.clone(), now, &case.then);
        alike(&case.policy, &state, &retuned, &asks)
    });
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

/// Whether one decision passes the request earlier than the other. Both are made at the same time.
fn sooner(one: Decision, other: Decision) -> bool {
    let wait = |decision| match decision {
        Decision::Pass => Some(Duration::ZERO),
        Decision::Wait { retry_in } => Some(retry_in),
        Decision::Never { .. } => None,
    };
    match (wait(one), wait(other)) {
        (Some(one), Some(other)) => one < other,
        (Some(_), None) => true,
        (None, _) => false,
    }
}
