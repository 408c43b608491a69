//! The laws of the laws: near twins are told apart; and sums that are done by hand.

use std::time::Duration;

use paceline::policy::{Decision, Interval, Policy, TokenBucket, Unlimited};
use paceline::time::{Rate, Tick};
use proptest::prelude::Strategy;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use super::answers::agrees;
use super::subject::Subject;
use super::trace::{Ask, Case, cases, cases_with, check_times};

const TEN: Interval = Interval::every(Duration::from_nanos(10));
const ONE: TokenBucket = bucket(1, 10, 1);
const TWO: TokenBucket = bucket(1, 10, 2);

const fn bucket(permits: u32, nanos: u64, burst: u32) -> TokenBucket {
    TokenBucket::new(Rate::new(permits, Duration::from_nanos(nanos)), burst)
}

#[test]
fn near_twins_differ_on_some_trace() {
    differ_on_some_trace(&TEN, &Interval::every(Duration::from_nanos(11)));
    differ_on_some_trace(&TEN, &TEN.delayed());
    differ_on_some_trace(&TEN, &ONE);
    differ_on_some_trace(&TEN, &Unlimited);
    differ_on_some_trace(&TWO, &ONE);
    differ_on_some_trace(&TWO, &TWO.empty());
    differ_on_some_trace(&TWO, &TWO.with_debt());
    differ_on_some_trace(&TWO, &bucket(1, 11, 2));
    differ_on_some_trace(&TWO, &bucket(21, 200, 2));
    differ_on_some_trace(&TWO, &TEN);
}

#[test]
#[should_panic(expected = "no trace tells them apart")]
fn twins_agree_on_every_trace() {
    differ_on_some_trace(&TWO, &bucket(3, 30, 2));
}

#[test]
fn an_interval_is_a_bucket_of_one_while_every_cost_is_one() {
    let both = cases::<Interval>().prop_filter("no rate", |case| {
        !case.policy.interval().is_zero() && case.policy == case.policy.full()
    });
    check_times(4, both, |mut case| {
        case.asks.retain(|ask| ask.at < Tick::MAX);
        for ask in &mut case.asks {
            ask.cost = 1;
        }
        let bucket = TokenBucket::new(Rate::new(1, case.policy.interval()), 1);
        agrees(&case.policy, case.start, &case.asks)?;
        agrees(&bucket, case.start, &case.asks)
    });
}

/// The k-th permit comes (k − burst) · period / permits after the start, rounded up once and not k times.
#[test]
fn a_greedy_bucket_has_not_drifted_after_a_hundred_days() {
    const DAYS: u64 = 100 * 86_400 * 1_000_000_000;
    for (permits, period, burst) in [
        (3, 10 * 60_000_000_000, 2),
        (7, 3_599_999_999_999, 2),
        (11, 86_400_000_000_001, 5),
        (1, 1_000_000_000_000, 2),
    ] {
        let policy = bucket(permits, period, burst);
        let mut state = policy.fresh(Tick::ZERO);
        let mut now = Tick::ZERO;
        let mut passed = 0;
        while now.as_nanos() < DAYS {
            match policy.decide(&mut state, now, 1) {
                Decision::Wait { retry_in } => {
                    assert!(!retry_in.is_zero(), "{policy:?} at {now:?}");
                    now = now.after(retry_in);
                }
                _ => passed += 1,
            }
            let came = u128::from(now.as_nanos()) * u128::from(permits) / u128::from(period);
            let more = policy.peek(&state, now, 1).is_pass();
            assert_eq!(
                more,
                passed < came + u128::from(burst),
                "{policy:?} at {now:?}"
            );
        }
    }
}

/// On the traces of the first.
#[track_caller]
fn differ_on_some_trace<S: Subject>(one: &S, other: &impl Policy) {
    let config = Config {
        cases: 1000,
        failure_persistence: None,
        ..Config::default()
    };
    let law = |Case { start, asks, .. }: Case<S>| {
        if answers(one, start, &asks) == answers(other, start, &asks) {
            return Ok(());
        }
        Err(TestCaseError::fail("different"))
    };
    let apart = TestRunner::new(config).run(&cases_with(one), law);
    assert!(apart.is_err(), "no trace tells them apart: {one:?}");
}

fn answers(policy: &impl Policy, start: Tick, asks: &[Ask]) -> Vec<Decision> {
    let mut state = policy.fresh(start);
    asks.iter()
        .map(|ask| policy.decide(&mut state, ask.at, ask.cost))
        .collect()
}
