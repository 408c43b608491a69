//! Laws of what a limit says about itself: its room, its quota and its status.

use std::time::Duration;

use paceline::policy::{Decision, Policy, Status};
use paceline::time::Tick;
use proptest::test_runner::TestCaseResult;
use proptest::{prop_assert, prop_assert_eq};

use super::changes::answers_as_a_new_one;
use super::subject::Subject;
use super::trace::Case;

/// A larger room is counted by one request of the rest.
const FEW: u32 = 64;

pub(super) fn room_requests_pass_and_the_next_one_does_not<S: Subject>(
    case: &Case<S>,
) -> TestCaseResult {
    each_state(case, |policy, state, now| {
        let before = format!("{state:?}");
        let room = policy.room(state, now);
        prop_assert_eq!(before, format!("{:?}", state), "room changes nothing");
        is_the_room(policy, state, now, room)
    })
}

/// Whether `room` requests of cost 1 pass from this state, and the next one does not.
pub(super) fn is_the_room<P: Policy>(
    policy: &P,
    state: &P::State,
    now: Tick,
    room: u32,
) -> TestCaseResult {
    let mut state = state.clone();
    let mut passes = |cost| policy.decide(&mut state, now, cost).is_pass();
    let few = (0..FEW).take_while(|_| passes(1)).count();
    if few < FEW as usize {
        prop_assert_eq!(room as usize, few, "at {:?}", now);
        return Ok(());
    }
    prop_assert!(room >= FEW, "{room} at {now:?}, and more pass");
    prop_assert!(passes(room - FEW), "fewer than {room} pass at {now:?}");
    if room < u32::MAX {
        prop_assert!(!passes(1), "more than {room} pass at {now:?}");
    }
    Ok(())
}

/// Of several limits it describes the one with the least room, of equal ones the one that resets last, of those the first.
pub(super) fn a_status_describes_the_limit_with_the_least_room<S: Subject>(
    case: &Case<S>,
) -> TestCaseResult {
    each_state(case, |policy, state, now| {
        let parts = policy.parts(state, now);
        prop_assert_eq!(parts.len(), S::LIMITS);
        let mut binding = 0;
        for (number, part) in parts.iter().enumerate() {
            let least: Status = parts[binding];
            let is_less = part.remaining < least.remaining;
            let is_equal = part.remaining == least.remaining;
            if is_less || (is_equal && part.reset_in > least.reset_in) {
                binding = number;
            }
        }
        let mut expected = parts[binding];
        expected.binding = (S::LIMITS > 1).then_some(binding);
        prop_assert_eq!(policy.status(state, now), expected, "at {:?}", now);
        prop_assert_eq!(policy.room(state, now), expected.remaining);
        let quotas = parts.iter().filter_map(|part| part.quota);
        let fewest = quotas.map(|quota| quota.permits).min();
        prop_assert_eq!(policy.quota().map(|quota| quota.permits), fewest);
        let quota = expected.quota.map_or(u32::MAX, |quota| quota.permits);
        prop_assert!(expected.remaining <= quota, "more than the quota");
        Ok(())
    })
}

pub(super) fn after_its_reset_a_limit_answers_as_a_full_one<S: Subject>() {
    // Several limits have one reset for each. A ramp goes on.
    if S::LIMITS == 1 && S::RESETS {
        answers_as_a_new_one(S::full, |policy, state, now| {
            now.after(policy.status(state, now).reset_in)
        });
    }
}

/// "A window of the quota holds no more than the quota", or twice that where the docs of the policy say so.
pub(super) fn no_window_of_a_quota_holds_more_than_the_docs_say<S: Subject>(
    case: &Case<S>,
) -> TestCaseResult {
    let Some(quota) = case.policy.quota() else {
        return Ok(());
    };
    let most = case.policy.quotas_in_a_window() * u128::from(quota.permits);
    let mut state = case.policy.fresh(case.start);
    let mut passed = Vec::new();
    for ask in case.asks.iter().take_while(|ask| ask.at < Tick::MAX) {
        if case.policy.decide(&mut state, ask.at, 1).is_pass() {
            passed.push(ask.at);
        }
        let from = |at: &&Tick| ask.at.since(**at) < quota.window;
        let inside = passed.iter().filter(from).count();
        prop_assert!(inside as u128 <= most, "{inside} in the window to {ask:?}");
    }
    Ok(())
}

/// The quota promises a caller no more than the limit gives: from a full start that many pass. (Each permit of a bucket with a
/// burst of 1 is up to 1 ns late.)
pub(super) fn a_full_limit_passes_its_quota_within_the_window<S: Subject>(
    policy: &S,
) -> TestCaseResult {
    let full = policy.full();
    let quota = full.quota().filter(|quota| quota.permits <= 2 * FEW);
    let Some(quota) = quota.filter(|_| S::LIMITS == 1) else {
        return Ok(());
    };
    let mut state = full.fresh(Tick::ZERO);
    let mut now = Tick::ZERO;
    for passed in 0..quota.permits {
        if let Decision::Wait { retry_in } = full.peek(&state, now, 1) {
            now = now.after(retry_in);
        }
        if now == Tick::MAX {
            break;
        }
        let since = now.since(Tick::ZERO);
        let late = Duration::from_nanos(passed.into());
        prop_assert!(
            since < quota.window.saturating_add(late),
            "{passed} passed in {since:?}"
        );
        prop_assert_eq!(full.decide(&mut state, now, 1), Decision::Pass);
    }
    Ok(())
}

/// "A caller that spreads the permits over the window keeps exactly to the rate."
pub(super) fn a_caller_that_spreads_its_quota_evenly_is_never_refused<S: Subject>(
    policy: &S,
) -> TestCaseResult {
    let full = policy.full();
    let quota = full.quota().filter(|quota| quota.permits <= 2 * FEW);
    let Some(quota) = quota.filter(|_| full.sustains_its_quota()) else {
        return Ok(());
    };
    let every = quota.window.as_nanos().div_ceil(quota.permits.into());
    let every = Duration::from_nanos(u64::try_from(every).unwrap_or(u64::MAX));
    let mut state = full.fresh(Tick::ZERO);
    let mut now = Tick::ZERO;
    for passed in 0..4 * quota.permits {
        if now == Tick::MAX {
            break;
        }
        let answer = full.decide(&mut state, now, 1);
        prop_assert_eq!(answer, Decision::Pass, "after {} at {:?}", passed, now);
        now = now.after(every);
    }
    Ok(())
}

/// Calls `law` with the state before each request and after the last one, and the time.
fn each_state<S: Subject>(
    case: &Case<S>,
    law: impl Fn(&S, &S::State, Tick) -> TestCaseResult,
) -> TestCaseResult {
    let mut state = case.policy.fresh(case.start);
    for ask in case.asks.iter().take_while(|ask| ask.at < Tick::MAX) {
        law(&case.policy, &state, ask.at)?;
        let _ = case.policy.decide(&mut state, ask.at, ask.cost);
        law(&case.policy, &state, ask.at)?;
    }
    Ok(())
}
