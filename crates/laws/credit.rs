//! Laws of credit: permits that pass without a clock reading and are counted late.

use std::time::Duration;

use paceline::policy::{All, Interval, Policy, SlidingLog, TokenBucket, Unlimited};
use paceline::time::{Rate, Tick};
use proptest::collection::vec;
use proptest::prelude::{Strategy, any};
use proptest::test_runner::TestCaseResult;
use proptest::{prop_assert, prop_assert_eq};

use super::subject::Subject;
use super::trace::{Ask, Case, check_times};

/// Every request that passes on credit would also pass with a clock reading, and so would the later ones.
pub(super) fn a_request_that_passes_on_credit_would_pass_without_it<S: Subject>(
    case: &Case<S>,
) -> TestCaseResult {
    let passed = on_credit(&case.policy, case.start, &case.asks)?;
    would_have_passed(&case.policy, case.start, &passed)
}

#[test]
fn a_large_bucket_hands_out_credit_and_keeps_its_bound() {
    keeps_its_bound(large_buckets());
}

#[test]
fn a_large_log_hands_out_credit_and_keeps_its_bound() {
    keeps_its_bound(large_logs());
}

#[test]
fn several_large_limits_hand_out_credit_and_keep_their_bounds() {
    keeps_its_bound((large_buckets(), large_logs()).prop_map(All::new));
}

fn large_buckets() -> impl Strategy<Value = TokenBucket> {
    let rate = (1..5_000u32, 1..1_000u64)
        .prop_map(|(permits, period)| Rate::new(permits, Duration::from_nanos(period)));
    (rate, 480..20_000u32, any::<bool>(), any::<bool>()).prop_map(
        |(rate, burst, is_empty, may_owe)| {
            let bucket = TokenBucket::new(rate, burst);
            let bucket = if is_empty {
                bucket.with_empty_start()
            } else {
                bucket
            };
            if may_owe { bucket.with_debt() } else { bucket }
        },
    )
}

fn large_logs() -> impl Strategy<Value = SlidingLog> {
    (480..5_000u32, 1..40_000u64)
        .prop_map(|(limit, window)| SlidingLog::new(limit, Duration::from_nanos(window)))
}

fn keeps_its_bound<S: Subject>(policies: impl Strategy<Value = S>) {
    let steps = vec((0..400u64, 1..60u32), 1..400);
    check_times(4, (policies, steps), |(policy, steps)| {
        let mut now = Tick::ZERO;
        let asks: Vec<Ask> = steps
            .into_iter()
            .map(|(gap, cost)| {
                now = now.after(Duration::from_nanos(gap));
                Ask { at: now, cost }
            })
            .collect();
        let passed = on_credit(&policy, Tick::ZERO, &asks)?;
        would_have_passed(&policy, Tick::ZERO, &passed)?;
        super::bounds::allows_every_window(&policy, &passed)
    });
}

#[test]
fn a_bucket_and_a_log_lend_a_thirty_second_of_what_they_hold_and_at_most_256() {
    for (most, credit) in [(1, 0), (479, 0), (480, 15), (3_200, 100), (u32::MAX, 256)] {
        lends(&TokenBucket::new(Rate::per_second(1), most), most, credit);
        let log = SlidingLog::new(most, Duration::from_nanos(100));
        let empty = lends(&log, most, credit);
        assert_eq!(log.credit(&empty, Tick::from_nanos(99)), 0, "{most}");
        assert_eq!(log.credit(&empty, Tick::from_nanos(100)), credit);
    }
}

/// Returns the state in which nothing is left, and no credit.
fn lends<P: Policy>(policy: &P, most: u32, credit: u32) -> P::State {
    let mut state = policy.fresh(Tick::ZERO);
    assert_eq!(policy.credit(&state, Tick::ZERO), credit, "of {most}");
    assert!(policy.decide(&mut state, Tick::ZERO, most).is_pass());
    assert_eq!(policy.credit(&state, Tick::ZERO), 0, "of {most}, spent");
    state
}

#[test]
fn several_limits_lend_as_much_as_the_strictest() {
    let log = SlidingLog::new(960, Duration::from_nanos(100));
    let bucket = TokenBucket::new(Rate::per_second(1), 3_200);
    assert_eq!(of_a_fresh_one(&All::new((log, bucket))), 30);
    assert_eq!(of_a_fresh_one(&All::new((Unlimited, bucket))), 100);
    let every = Interval::every(Duration::ZERO);
    assert_eq!(of_a_fresh_one(&All::new((log, bucket, every))), 0);
}

fn of_a_fresh_one(policy: &impl Policy) -> u32 {
    policy.credit(&policy.fresh(Tick::ZERO), Tick::ZERO)
}

/// The requests that pass if the clock is read only when the credit does not cover a request.
fn on_credit<P: Policy>(
    policy: &P,
    start: Tick,
    asks: &[Ask],
) -> Result<Vec<Ask>, proptest::test_runner::TestCaseError> {
    let mut state = policy.fresh(start);
    let (mut credit, mut spent) = (0, 0);
    let mut passed = Vec::new();
    for ask in asks.iter().filter(|ask| ask.cost > 0) {
        if ask.cost <= credit {
            credit -= ask.cost;
            spent += ask.cost;
            passed.push(*ask);
            continue;
        }
        if spent > 0 {
            let counted = policy.decide(&mut state, ask.at, spent);
            prop_assert!(counted.is_pass(), "{spent} were spent, and are not there");
        }
        spent = 0;
        if policy.decide(&mut state, ask.at, ask.cost).is_pass() {
            passed.push(*ask);
        }
        credit = policy.credit(&state, ask.at);
    }
    Ok(passed)
}

fn would_have_passed<P: Policy>(policy: &P, start: Tick, passed: &[Ask]) -> TestCaseResult {
    let mut state = policy.fresh(start);
    for ask in passed {
        let decision = policy.decide(&mut state, ask.at, ask.cost);
        prop_assert_eq!(decision.is_pass(), true, "{:?}", ask);
    }
    Ok(())
}
