//! Laws of costs that are known late: a charge, and a refund of what was spent at an earlier instant.

use std::time::Duration;

use paceline::policy::{Decision, PerRequest, Policy};
use paceline::time::Tick;
use proptest::test_runner::{TestCaseError, TestCaseResult};
use proptest::{prop_assert, prop_assert_eq};

use super::changes::{alike, wait};
use super::model::Model;
use super::reading::is_the_room;
use super::subject::Subject;
use super::trace::{Ask, Case, Change, Retuned, asks};

/// The kind of change that refunds without an instant, and one that changes nothing.
const REFUND: u8 = 3;
const NOTHING: u8 = Change::KINDS - 1;

pub(super) fn a_charge_of_what_passes_equals_the_decision<S: Subject>(
    case: &Case<S>,
) -> TestCaseResult {
    let mut state = case.policy.fresh(case.start);
    for (ask, change) in case.asks.iter().zip(&case.changes) {
        let (mut decided, mut charged) = (state.clone(), state.clone());
        if case.policy.decide(&mut decided, ask.at, ask.cost).is_pass() {
            case.policy.charge(&mut charged, ask.at, ask.cost);
            prop_assert_eq!(format!("{decided:?}"), format!("{charged:?}"));
        }
        state = decided;
        if change.kind == 0 {
            let more = change.number % 99;
            case.policy.charge(&mut state, ask.at, more);
        }
    }
    Ok(())
}

pub(super) fn a_charge_lets_no_request_pass_earlier<S: Subject>(case: &Case<S>) -> TestCaseResult {
    let (state, now) = case.end();
    let mut charged = state.clone();
    case.policy.charge(&mut charged, now, case.cost());
    for ask in case.later(&charged, now) {
        let before = case.policy.peek(&state, ask.at, ask.cost);
        let after = case.policy.peek(&charged, ask.at, ask.cost);
        prop_assert!(
            wait(after) >= wait(before),
            "{after:?}, not {before:?}, to {ask:?}"
        );
    }
    Ok(())
}

/// If nothing else happens in between. The refund may come later, but one of more than the largest cost is exact only at once.
pub(super) fn a_refund_of_a_charge_undoes_it<S: Subject>(case: &Case<S>) -> TestCaseResult {
    let (mut state, now) = case.end();
    let Change { kind, number, .. } = case.changes[0];
    let cost = case.cost();
    let most: u64 = case.asks.iter().map(|ask| u64::from(ask.cost)).sum();
    let later = match kind % 4 {
        _ if most + u64::from(cost) > u32::MAX.into() => now,
        0 => now,
        1 => now.after(Duration::from_nanos(u64::from(number % 50))),
        times => {
            let half = Duration::from_nanos(case.policy.grain() / 2);
            now.after_times(half, u32::from(times) * (number % 4))
        }
    };
    let before = state.clone();
    case.policy.charge(&mut state, now, cost);
    case.policy.refund_from(&mut state, later, now, cost);
    alike(&case.policy, &state, &before, &case.later(&before, later))
}

/// What was spent before the last reset makes no room after it.
pub(super) fn a_refund_after_its_window_makes_no_room<S: Subject>(
    case: &Case<S>,
) -> TestCaseResult {
    let (state, now) = case.end();
    let reset = case.policy.full().settled_at(&state).max(now);
    if !S::RETURNS_IN_TIME || reset == Tick::MAX {
        return Ok(());
    }
    let (mut late, mut never) = (state.clone(), state);
    let asks = case.later(&late, reset);
    for (ask, change) in asks.iter().zip(&case.changes) {
        let given = case.policy.decide(&mut late, ask.at, ask.cost);
        let expected = case.policy.decide(&mut never, ask.at, ask.cost);
        prop_assert_eq!(given, expected, "to {:?}", ask);
        let spent_at = change.of(&case.asks).at;
        if spent_at < reset {
            case.policy
                .refund_from(&mut late, ask.at, spent_at, change.cost());
        }
    }
    Ok(())
}

/// Also of more than was spent, and of instants at which nothing was.
pub(super) fn charges_and_refunds_agree_with_the_model<S: Subject>(
    case: &Case<S>,
) -> TestCaseResult {
    Followed::start(case).follow(&case.policy, &case.asks, &case.changes)?;
    Ok(())
}

/// Whatever is done to it: a limit for each key keeps such a state as a word.
pub(super) fn a_word_keeps_the_state_exactly<S: Subject>(case: &Case<S>) -> TestCaseResult {
    let policy = &case.policy;
    let mut state = policy.fresh(case.start);
    let mut kept = state.clone();
    for (&Ask { at, cost }, change) in case.asks.iter().zip(&case.changes) {
        let later = change.of(&case.asks).at;
        for state in [&mut state, &mut kept] {
            let _ = policy.decide(state, at, cost);
            match change.kind {
                0 => policy.refund_from(state, at, later, change.cost()),
                1 | 2 => policy.refund(state, at, change.number % 9),
                3 | 4 => policy.charge(state, at, change.number % 9),
                5 => policy.charge(state, at, change.cost()),
                _ => {}
            }
        }
        if let Some(word) = policy.to_word(&kept) {
            kept = policy.of_word(word);
            prop_assert_eq!(policy.to_word(&kept), Some(word));
        }
        prop_assert_eq!(format!("{kept:?}"), format!("{state:?}"));
    }
    Ok(())
}

/// As the model does, exactly: a debt follows new parameters as every count does, and so does what comes after it. A policy that
/// has to round may be late by a nanosecond, never early.
pub(super) fn a_retune_keeps_what_is_spent_and_owed<S: Subject>(
    (case, new): &Retuned<S>,
) -> TestCaseResult {
    let mut changes = case.changes.clone();
    if case.number % 2 == 0 {
        for change in &mut changes {
            change.kind = NOTHING;
        }
    }
    let mut followed = Followed::start(case);
    let is_exact = followed.follow(&case.policy, &case.asks, &changes)?;
    if is_exact.is_none() {
        return Ok(());
    }
    let Followed {
        state, model, now, ..
    } = &mut followed;
    new.retune(&case.policy, state, *now);
    let Some(retuned) = model.retuned(new, *now) else {
        return Ok(());
    };
    *model = retuned;
    followed.late = S::Model::LATE_WHEN_RETUNED;
    // A refund that names an instant is of a window of the old parameters.
    for change in &mut changes {
        change.kind = change.kind.max(REFUND);
    }
    let asks = asks(new, followed.state.clone(), followed.now, &case.then);
    followed.follow(new, &asks, &changes)?;
    Ok(())
}

pub(super) fn a_debt_settles_when_it_says<S: Subject>(case: &Case<S>) -> TestCaseResult {
    let mut followed = Followed::start(case);
    let is_exact = followed.follow(&case.policy, &case.asks, &case.changes)?;
    let Followed { state, now, .. } = followed;
    let settled = case.policy.settled_at(&state).max(now);
    if is_exact.is_none() || settled == Tick::MAX {
        return Ok(());
    }
    let fresh = case.policy.fresh(settled);
    alike(&case.policy, &state, &fresh, &case.later(&fresh, settled))
}

/// A state beside its model, which agree with each other.
struct Followed<S: Subject> {
    state: S::State,
    model: S::Model,
    now: Tick,
    /// By how many nanoseconds the policy may be late.
    late: u128,
}

impl<S: Subject> Followed<S> {
    fn start(case: &Case<S>) -> Self {
        Self {
            state: case.policy.fresh(case.start),
            model: S::Model::start(&case.policy, case.start),
            now: case.start,
            late: 0,
        }
    }

    /// Requests with a change after each. `None` if the exact result would overflow.
    fn follow(
        &mut self,
        policy: &S,
        asks: &[Ask],
        changes: &[Change],
    ) -> Result<Option<()>, TestCaseError> {
        let before = asks.iter().take_while(|ask| ask.at < Tick::MAX);
        for (ask, change) in before.zip(changes) {
            self.now = ask.at;
            self.agrees(policy, ask.cost)?;
            let passes = policy.decide(&mut self.state, self.now, ask.cost).is_pass();
            if passes {
                self.model.count(self.now, ask.cost);
            }
            let (cost, spent_at) = (change.cost(), change.of(asks).at);
            match change.kind {
                0 => self.refund_from(policy, spent_at, cost),
                1 | 2 => self.refund_from(policy, spent_at, change.number % 9),
                REFUND => {
                    let cost = match change.number % 4 {
                        0 => 1,
                        1 => change.number % ask.cost.max(1),
                        2 => ask.cost.saturating_add(change.number / 4 % 3),
                        _ => cost,
                    };
                    policy.refund(&mut self.state, self.now, cost);
                    self.model.refund(self.now, cost);
                }
                4..7 if change.kind == 4 || !passes => {
                    let cost = if change.kind == 4 { cost } else { ask.cost };
                    policy.charge(&mut self.state, self.now, cost);
                    if self.model.charge(self.now, cost).is_none() {
                        return Ok(None);
                    }
                }
                _ => {}
            }
            is_the_room(
                policy,
                &self.state,
                self.now,
                policy.room(&self.state, self.now),
            )?;
            for cost in [1, policy.burst(), ask.cost] {
                self.agrees(policy, cost)?;
            }
        }
        Ok(Some(()))
    }

    fn refund_from(&mut self, policy: &S, spent_at: Tick, cost: u32) {
        policy.refund_from(&mut self.state, self.now, spent_at, cost);
        self.model.refund_from(self.now, spent_at, cost);
    }

    /// The decision is that of the model, and the wait ends when it says.
    fn agrees(&self, policy: &S, cost: u32) -> TestCaseResult {
        let Self { state, now, .. } = self;
        let due = self.model.due(*now, cost);
        let answer = policy.peek(state, *now, cost);
        prop_assert!(
            due.agrees_with(answer, *now, self.late),
            "{answer:?} to {cost} at {now:?}, due {due:?} with {state:?}"
        );
        let Decision::Wait { retry_in } = answer else {
            return Ok(());
        };
        let then = now.after(retry_in);
        if then < Tick::MAX {
            let late = policy.peek(state, then, cost);
            prop_assert_eq!(late, Decision::Pass, "at {:?} to {}", then, cost);
        }
        Ok(())
    }
}

/// It differs from the policy inside only in the cost, which is 1.
pub(super) fn a_policy_per_request_is_the_policy_with_cost_1<S: Subject>(
    case: &Case<S>,
) -> TestCaseResult {
    let (policy, cost) = (&case.policy, case.number);
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
}
