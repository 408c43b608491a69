//! Laws of costs that are known late: a charge, and a refund of what was spent at an earlier instant.

use std::time::Duration;

use paceline::policy::{Decision, PerRequest, Policy};
use paceline::time::Tick;
use proptest::collection::vec;
use proptest::prelude::{Strategy, any};
use proptest::sample::Index;
use proptest::test_runner::{TestCaseError, TestCaseResult};
use proptest::{prop_assert, prop_assert_eq};

use super::changes::alike;
use super::model::Model;
use super::reading::is_the_room;
use super::subject::Subject;
use super::trace::{Ask, Case, asks, cases, check};

/// What happens after a request, besides it.
#[derive(Clone, Debug)]
struct Change {
    kind: u8,
    cost: u32,
    /// The earlier request whose instant a refund names.
    of: Index,
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let change = (0..9u8, any::<u32>(), any::<Index>());
    vec(
        change.prop_map(|(kind, cost, of)| Change { kind, cost, of }),
        30,
    )
}

pub(super) fn a_charge_of_what_passes_equals_the_decision<S: Subject>() {
    check::<S, _>((cases::<S>(), changes()), |(case, changes)| {
        let mut state = case.policy.fresh(case.start);
        for (ask, change) in case.asks.iter().zip(changes) {
            let (mut decided, mut charged) = (state.clone(), state.clone());
            if case.policy.decide(&mut decided, ask.at, ask.cost).is_pass() {
                case.policy.charge(&mut charged, ask.at, ask.cost);
                prop_assert_eq!(format!("{decided:?}"), format!("{charged:?}"));
            }
            state = decided;
            if change.kind == 0 {
                case.policy.charge(&mut state, ask.at, change.cost % 99);
            }
        }
        Ok(())
    });
}

pub(super) fn a_charge_lets_no_request_pass_earlier<S: Subject>() {
    check::<S, _>((cases::<S>(), any::<u32>()), |(case, cost)| {
        let (state, now) = case.end();
        let mut charged = state.clone();
        case.policy.charge(&mut charged, now, cost >> (cost % 32));
        for ask in asks(&case.policy, charged.clone(), now, &case.then) {
            let before = case.policy.peek(&state, ask.at, ask.cost);
            let after = case.policy.peek(&charged, ask.at, ask.cost);
            prop_assert!(
                wait(after) >= wait(before),
                "{after:?}, not {before:?}, to {ask:?}"
            );
        }
        Ok(())
    });
}

/// If nothing else happens in between. The refund may come later, but one of more than the largest cost is exact only at once.
pub(super) fn a_refund_of_a_charge_undoes_it<S: Subject>() {
    let gap = (0..4u64, any::<u64>());
    check::<S, _>((cases::<S>(), changes(), gap), |(case, changes, gap)| {
        let (mut state, now) = case.end();
        let cost = changes[0].cost >> (changes[0].cost % 32);
        let most: u64 = case.asks.iter().map(|ask| u64::from(ask.cost)).sum();
        let later = match gap {
            _ if most + u64::from(cost) > u32::MAX.into() => now,
            (0, _) => now,
            (1, nanos) => now.after(Duration::from_nanos(nanos % 50)),
            (times, nanos) => now.after_times(
                Duration::from_nanos(case.policy.grain() / 2),
                u32::try_from(times * (nanos % 4)).unwrap_or(0),
            ),
        };
        let before = state.clone();
        case.policy.charge(&mut state, now, cost);
        case.policy.refund_from(&mut state, later, now, cost);
        let asks = asks(&case.policy, before.clone(), later, &case.then);
        alike(&case.policy, &state, &before, &asks)
    });
}

/// What was spent before the last reset makes no room after it.
pub(super) fn a_refund_after_its_window_makes_no_room<S: Subject>() {
    if !S::RETURNS_IN_TIME {
        return;
    }
    check::<S, _>((cases::<S>(), changes()), |(case, changes)| {
        let (state, now) = case.end();
        let reset = case.policy.full().settled_at(&state).max(now);
        if reset == Tick::MAX {
            return Ok(());
        }
        let (mut late, mut never) = (state.clone(), state);
        let asks = asks(&case.policy, late.clone(), reset, &case.then);
        for (ask, change) in asks.iter().zip(changes) {
            let given = case.policy.decide(&mut late, ask.at, ask.cost);
            let expected = case.policy.decide(&mut never, ask.at, ask.cost);
            prop_assert_eq!(given, expected, "to {:?}", ask);
            let spent_at = change.of.get(&case.asks).at;
            if spent_at < reset {
                let cost = change.cost >> (change.cost % 32);
                case.policy.refund_from(&mut late, ask.at, spent_at, cost);
            }
        }
        Ok(())
    });
}

/// Also of more than was spent, and of instants at which nothing was.
pub(super) fn charges_and_refunds_agree_with_the_model<S: Subject>() {
    check::<S, _>((cases::<S>(), changes()), |(case, changes)| {
        follow(&case, &changes)?;
        Ok(())
    });
}

/// As the model does: a debt follows new parameters as every count does.
pub(super) fn a_retune_keeps_a_debt<S: Subject>() {
    check::<S, _>(
        (cases::<S>(), changes(), S::any()),
        |(case, changes, new)| {
            let Some((mut state, model, now)) = follow(&case, &changes)? else {
                return Ok(());
            };
            new.retune(&case.policy, &mut state, now);
            let Some(model) = model.retuned(&new, now) else {
                return Ok(());
            };
            let asks = asks(&new, state.clone(), now, &case.then);
            let late = S::Model::LATE_WHEN_RETUNED;
            for ask in asks.iter().take_while(|ask| ask.at < Tick::MAX) {
                let due = model.due(ask.at, ask.cost);
                let answer = new.peek(&state, ask.at, ask.cost);
                prop_assert!(
                    due.agrees_with(answer, ask.at, late),
                    "{answer:?} to {ask:?}, due {due:?}"
                );
            }
            Ok(())
        },
    );
}

pub(super) fn a_debt_settles_when_it_says<S: Subject>() {
    check::<S, _>((cases::<S>(), changes()), |(case, changes)| {
        let Some((state, _, now)) = follow(&case, &changes)? else {
            return Ok(());
        };
        let settled = case.policy.settled_at(&state).max(now);
        if settled == Tick::MAX {
            return Ok(());
        }
        let fresh = case.policy.fresh(settled);
        let asks = asks(&case.policy, fresh.clone(), settled, &case.then);
        alike(&case.policy, &state, &fresh, &asks)
    });
}

type Followed<S> = (<S as Policy>::State, <S as Subject>::Model, Tick);

/// The state, the model and the time after the requests and the changes, which agree with each other. `None` if the exact
/// result would overflow.
fn follow<S: Subject>(
    case: &Case<S>,
    changes: &[Change],
) -> Result<Option<Followed<S>>, TestCaseError> {
    let policy = &case.policy;
    let mut state = policy.fresh(case.start);
    let mut model = S::Model::start(policy, case.start);
    let mut now = case.start;
    let asks = case.asks.iter().take_while(|ask| ask.at < Tick::MAX);
    for (ask, change) in asks.zip(changes) {
        now = ask.at;
        agrees(policy, &state, &model, *ask)?;
        let passes = policy.decide(&mut state, now, ask.cost).is_pass();
        if passes {
            model.count(now, ask.cost);
        }
        let cost = change.cost >> (change.cost % 32);
        let spent_at = change.of.get(&case.asks).at;
        match change.kind {
            0 => {
                policy.refund_from(&mut state, now, spent_at, cost);
                model.refund_from(now, spent_at, cost);
            }
            1 | 2 => {
                let cost = change.cost % 9;
                policy.refund_from(&mut state, now, spent_at, cost);
                model.refund_from(now, spent_at, cost);
            }
            3 => {
                policy.refund(&mut state, now, cost);
                model.refund(now, cost);
            }
            4 => {
                policy.charge(&mut state, now, cost);
                if model.charge(now, cost).is_none() {
                    return Ok(None);
                }
            }
            5 | 6 if !passes => {
                policy.charge(&mut state, now, ask.cost);
                if model.charge(now, ask.cost).is_none() {
                    return Ok(None);
                }
            }
            _ => {}
        }
        is_the_room(policy, &state, now, policy.room(&state, now))?;
        for cost in [1, policy.burst(), ask.cost] {
            agrees(policy, &state, &model, Ask { at: now, cost })?;
        }
    }
    Ok(Some((state, model, now)))
}

/// The decision is that of the model, and the wait ends when it says.
fn agrees<S: Subject>(policy: &S, state: &S::State, model: &S::Model, ask: Ask) -> TestCaseResult {
    let due = model.due(ask.at, ask.cost);
    let answer = policy.peek(state, ask.at, ask.cost);
    prop_assert!(
        due.agrees_with(answer, ask.at, 0),
        "{answer:?} to {ask:?}, due {due:?} with {state:?}"
    );
    let Decision::Wait { retry_in } = answer else {
        return Ok(());
    };
    let then = ask.at.after(retry_in);
    if then < Tick::MAX {
        let late = policy.peek(state, then, ask.cost);
        prop_assert_eq!(late, Decision::Pass, "at {:?} to {:?}", then, ask);
    }
    Ok(())
}

/// It differs from the policy inside only in the cost, which is 1.
pub(super) fn a_policy_per_request_is_the_policy_with_cost_1<S: Subject>() {
    check::<S, _>((cases::<S>(), any::<u32>()), |(case, cost)| {
        let policy = &case.policy;
        let each = PerRequest::new(policy.clone());
        let (mut state, mut inner) = (each.fresh(case.start), policy.fresh(case.start));
        for &Ask { at, cost: of_ask } in &case.asks {
            let one = of_ask.min(1);
            prop_assert_eq!(each.peek(&state, at, of_ask), policy.peek(&inner, at, one));
            prop_assert_eq!(
                each.decide(&mut state, at, of_ask),
                policy.decide(&mut inner, at, one)
            );
            each.charge(&mut state, at, cost);
            each.refund(&mut state, at, cost);
            each.refund_from(&mut state, at, case.start, cost);
            prop_assert_eq!(format!("{state:?}"), format!("{inner:?}"));
            prop_assert_eq!(each.status(&state, at), policy.status(&inner, at));
            prop_assert_eq!(each.credit(&state, at), 0);
        }
        Ok(())
    });
}

fn wait(decision: Decision) -> Duration {
    match decision {
        Decision::Pass => Duration::ZERO,
        Decision::Wait { retry_in } => retry_in,
        Decision::Never { .. } => Duration::MAX,
    }
}
