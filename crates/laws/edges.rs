//! Laws at the limits: of extreme numbers, of a long run, of a clock that goes back.

use std::time::Duration;

use paceline::policy::Decision;
use paceline::time::Tick;
use proptest::array::uniform3;
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::test_runner::TestCaseResult;
use proptest::{prop_assert, prop_assert_eq};

use super::answers::agrees;
use super::changes::wait;
use super::reading::is_the_room;
use super::subject::Subject;
use super::trace::{Ask, Case, check_times, starts};

/// Calls of every method, with times that jump back and forth.
#[derive(Clone, Debug)]
pub(super) struct Jumble<S> {
    pub(super) policies: [S; 3],
    pub(super) start: Tick,
    pub(super) calls: Vec<Call>,
}

/// The kind, the time, the cost, the number of the new policy, and an earlier time.
pub(super) type Call = (u8, Tick, u32, usize, Tick);

pub(super) fn calls<S: Subject>() -> impl Strategy<Value = Jumble<S>> {
    let cost = prop_oneof![0..3u32, Just(u32::MAX), any::<u32>()];
    let calls = vec((0..6u8, starts(), cost, 0..3usize, starts()), 1..40);
    (uniform3(S::any()), starts(), calls).prop_map(|(policies, start, calls)| Jumble {
        policies,
        start,
        calls,
    })
}

pub(super) fn no_method_panics_with_extreme_values_in_any_order<S: Subject>(
    jumble: &Jumble<S>,
) -> TestCaseResult {
    let mut policy = &jumble.policies[0];
    let mut state = policy.fresh(jumble.start);
    for &(call, now, cost, new, spent_at) in &jumble.calls {
        match call {
            0 => {
                let old = policy;
                policy = &jumble.policies[new];
                policy.retune(old, &mut state, now);
            }
            1 => policy.refund(&mut state, now, cost),
            2 => policy.charge(&mut state, now, cost),
            3 => policy.refund_from(&mut state, now, spent_at, cost),
            _ => {
                let peek = policy.peek(&state, now, cost);
                let answer = policy.decide(&mut state, now, cost);
                prop_assert_eq!(peek, answer, "to {} at {:?}", cost, now);
            }
        }
        let _ = policy.settled_at(&state);
        let _ = policy.quota();
        let status = policy.status(&state, now);
        prop_assert_eq!(policy.room(&state, now), status.remaining);
        if now < Tick::MAX {
            is_the_room(policy, &state, now, status.remaining)?;
        }
    }
    Ok(())
}

/// Every other step comes at the end of the last wait, so that rounding errors would add up. The others come after a nap.
pub(super) fn the_policy_agrees_with_its_model_for_a_hundred_days<S: Subject>() {
    const NAPS: u32 = 300;
    const NAP: Duration = Duration::from_secs(100 * 86_400 / NAPS as u64);
    check_times(1, (S::any(), any::<u64>()), |(policy, seed)| {
        let nap = NAP + Duration::from_nanos(seed % 1000);
        let mut state = policy.fresh(Tick::ZERO);
        let mut now = Tick::ZERO;
        let mut asks = Vec::new();
        for step in 0..2 * NAPS {
            let cost = u32::try_from((seed >> (step % 48)) % 7).unwrap_or(1) + 1;
            asks.push(Ask { at: now, cost });
            now = match policy.decide(&mut state, now, cost) {
                _ if step % 2 == 0 => now.after(nap),
                Decision::Wait { retry_in } if now.after(retry_in) < Tick::MAX => {
                    now.after(retry_in)
                }
                _ => now,
            };
        }
        agrees(&policy, Tick::ZERO, &asks)
    });
}

/// The same holds for the requests after it.
pub(super) fn no_request_passes_earlier_if_the_clock_goes_back<S: Subject>(
    case: &Case<S>,
) -> TestCaseResult {
    let policy = &case.policy;
    let mut state = policy.fresh(case.start);
    // The latest time that the policy has seen.
    let mut latest = case.start;
    for (ask, change) in case.asks.iter().zip(&case.changes) {
        let back = match change.kind {
            0..3 => 0,
            3..8 => u64::from(change.number % 50),
            _ => u64::from(change.number) << (change.of % 32),
        };
        let reading = Tick::from_nanos(ask.at.as_nanos().saturating_sub(back));
        let still = reading.max(latest);
        let mut stood = state.clone();
        let answer = policy.decide(&mut state, reading, ask.cost);
        let answer_still = policy.decide(&mut stood, still, ask.cost);
        // If the request passes with the still clock, its earliest instant is unknown.
        prop_assert!(
            answer_still.is_pass() || due(answer, reading) >= due(answer_still, still),
            "{answer:?} at {reading:?}, but {answer_still:?} at {still:?}"
        );
        if !answer.is_pass() {
            continue;
        }
        if ask.cost > 0 {
            latest = still;
        }
        for probe in case.later(&stood, still) {
            let answer = policy.peek(&state, probe.at, probe.cost);
            let answer_still = policy.peek(&stood, probe.at, probe.cost);
            prop_assert!(
                due(answer, probe.at) >= due(answer_still, probe.at),
                "after {ask:?} read as {reading:?}: {answer:?}, not {answer_still:?} to {probe:?}"
            );
        }
    }
    Ok(())
}

fn due(answer: Decision, now: Tick) -> Tick {
    now.after(wait(answer))
}
