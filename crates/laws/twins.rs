//! Checks of the laws themselves: similar policies differ on some trace. And results that are computed by hand.

use std::time::Duration;

use paceline::policy::{
    All, Decision, FixedWindow, Interval, Policy, SlidingCounter, SlidingLog, TokenBucket,
    Unlimited,
};
use paceline::time::{Rate, Tick};
use proptest::prelude::Strategy;
use proptest::prop_assert_eq;
use proptest::test_runner::TestCaseError;

use super::subject::Subject;
use super::trace::{Ask, Case, cases, cases_with, check_times, nanos, runner};

const TEN: Interval = Interval::every(Duration::from_nanos(10));
const ONE: TokenBucket = bucket(1, 10, 1);
const TWO: TokenBucket = bucket(1, 10, 2);

const LOG: SlidingLog = SlidingLog::new(2, nanos(10));
const STRICT: SlidingCounter = SlidingCounter::strict(2, nanos(10), 5);
const SMOOTH: SlidingCounter = SlidingCounter::smooth(2, nanos(10));
const FIXED: FixedWindow = FixedWindow::new(2, nanos(10));

const fn bucket(permits: u32, nanos: u64, burst: u32) -> TokenBucket {
    TokenBucket::new(Rate::new(permits, Duration::from_nanos(nanos)), burst)
}

#[test]
fn similar_policies_differ_on_some_trace() {
    differ_on_some_trace(&TEN, &Interval::every(Duration::from_nanos(11)));
    differ_on_some_trace(&TEN, &TEN.with_delayed_start());
    differ_on_some_trace(&TEN, &ONE);
    differ_on_some_trace(&TEN, &Unlimited);
    differ_on_some_trace(&TWO, &ONE);
    differ_on_some_trace(&TWO, &TWO.with_empty_start());
    differ_on_some_trace(&TWO, &TWO.with_debt());
    differ_on_some_trace(&TWO, &bucket(1, 11, 2));
    differ_on_some_trace(&TWO, &bucket(21, 200, 2));
    differ_on_some_trace(&TWO, &TEN);

    differ_on_some_trace(&LOG, &SlidingLog::new(3, nanos(10)));
    differ_on_some_trace(&LOG, &SlidingLog::new(2, nanos(11)));
    differ_on_some_trace(&LOG, &SlidingCounter::strict(2, nanos(10), 10));
    differ_on_some_trace(&LOG, &STRICT);
    differ_on_some_trace(&LOG, &FIXED);
    differ_on_some_trace(&LOG, &TWO);
    differ_on_some_trace(&STRICT, &SlidingCounter::strict(3, nanos(10), 5));
    differ_on_some_trace(&STRICT, &SlidingCounter::strict(2, nanos(11), 5));
    differ_on_some_trace(&STRICT, &SlidingCounter::strict(2, nanos(10), 4));
    differ_on_some_trace(&SMOOTH, &SlidingCounter::smooth(2, nanos(11)));
    differ_on_some_trace(&SMOOTH, &SlidingCounter::strict(2, nanos(10), 1));
    differ_on_some_trace(&SMOOTH, &FIXED);
    differ_on_some_trace(&FIXED, &FixedWindow::new(3, nanos(10)));
    differ_on_some_trace(&FIXED, &FixedWindow::new(2, nanos(11)));

    let both = All::new((SlidingLog::new(3, nanos(30)), LOG));
    differ_on_some_trace(&both, &SlidingLog::new(3, nanos(30)));
    differ_on_some_trace(&both, &LOG);
    differ_on_some_trace(&both, &All::new((LOG, LOG)));
}

/// All four remember one request for the length of the window.
#[test]
fn with_a_limit_of_one_a_log_a_fixed_window_and_a_bucket_are_an_interval() {
    let all = cases::<SlidingLog>().prop_map(|mut case| {
        case.asks.retain(|ask| ask.at < Tick::MAX && ask.cost <= 1);
        case
    });
    check_times(4, all, |case| {
        let window = case.policy.window();
        let interval = answers(&Interval::every(window), case.start, &case.asks);
        let log = answers(&SlidingLog::new(1, window), case.start, &case.asks);
        prop_assert_eq!(&log, &interval);
        let fixed = answers(&FixedWindow::new(1, window), case.start, &case.asks);
        prop_assert_eq!(&fixed, &interval);
        let bucket = TokenBucket::new(Rate::new(1, window), 1);
        let bucket = answers(&bucket, case.start, &case.asks);
        prop_assert_eq!(&bucket, &interval);
        Ok(())
    });
}

#[test]
#[should_panic(expected = "no trace shows a difference")]
fn equal_policies_do_not_differ() {
    differ_on_some_trace(&TWO, &bucket(3, 30, 2));
}

/// The k-th permit passes (k − burst) · period / permits after the start, rounded up once and not k times.
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

/// On traces for the first policy.
#[track_caller]
fn differ_on_some_trace<S: Subject>(one: &S, other: &impl Policy) {
    let law = |Case { start, asks, .. }: Case<S>| {
        if answers(one, start, &asks) == answers(other, start, &asks) {
            return Ok(());
        }
        Err(TestCaseError::fail("different"))
    };
    let apart = runner(4).run(&cases_with(one), law);
    assert!(apart.is_err(), "no trace shows a difference: {one:?}");
}

/// All waits that end beyond the last tick are equal: they never end.
fn answers(policy: &impl Policy, start: Tick, asks: &[Ask]) -> Vec<Decision> {
    let mut state = policy.fresh(start);
    let answers = asks.iter().map(|ask| {
        let answer = policy.decide(&mut state, ask.at, ask.cost);
        match answer.retry_in() {
            Some(wait) if ask.at.after(wait) == Tick::MAX => Decision::Wait {
                retry_in: Duration::MAX,
            },
            _ => answer,
        }
    });
    answers.collect()
}
