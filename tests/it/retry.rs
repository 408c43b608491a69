//! The budget of retries, and the waits between them.

use std::time::Duration;

use fastrand::Rng;
use paceline::limiter::Share;
use paceline::retry::{Attempts, Failure, GiveUp, Retry, RetryBudget};

use crate::timed::ms;

const REFUSED: Failure = Failure::Refused { retry_after: None };

fn refused(millis: u64) -> Failure {
    let retry_after = Some(ms(millis));
    Failure::Refused { retry_after }
}

fn unlimited() -> RetryBudget {
    RetryBudget::new(u32::MAX, Share::FULL)
}

fn is_retried(retry: &Retry) -> bool {
    let wait = retry.after(&mut Attempts::default(), Failure::Transient);
    wait.is_some()
}

#[test]
fn retries_are_at_most_the_cap_and_the_share_of_the_successes_in_every_stretch() {
    for seed in 0..300 {
        let mut random = Rng::with_seed(seed);
        let (cap, parts) = (random.u32(0..6), random.u32(0..=10_000));
        let budget = RetryBudget::new(cap, Share::of_ten_thousand(parts));
        let retry = Retry::new(budget.clone());
        let of_successes = random.f64();
        let mut credit = 10_000 * u64::from(cap);
        let mut trace = Vec::new();
        for _ in 0..200 {
            if random.f64() < of_successes {
                retry.succeeded(&mut Attempts::default());
                credit = (credit + u64::from(parts)).min(10_000 * u64::from(cap));
                trace.push((1, 0));
            } else {
                let expected = credit >= 10_000;
                assert_eq!(is_retried(&retry), expected, "{seed}");
                credit -= 10_000 * u64::from(expected);
                trace.push((0, u64::from(expected)));
            }
            assert_eq!(u64::from(budget.left()), credit / 10_000);
        }
        for from in 0..trace.len() {
            let (mut successes, mut retries) = (0, 0);
            for (success, retry) in &trace[from..] {
                (successes, retries) = (successes + success, retries + retry);
                let most = 10_000 * u64::from(cap) + u64::from(parts) * successes;
                assert!(10_000 * retries <= most, "{seed} {from}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn time_adds_no_retry() {
    let retry = Retry::new(RetryBudget::new(3, Share::FULL));
    let retries = [(); 5].map(|()| is_retried(&retry));
    assert_eq!(retries, [true, true, true, false, false]);
    tokio::time::advance(Duration::from_secs(86_400)).await;
    assert!(!is_retried(&retry));
}

#[test]
fn clones_share_the_budget() {
    let budget = RetryBudget::new(2, Share::FULL);
    let (one, other) = (Retry::new(budget.clone()), Retry::new(budget));
    assert!(is_retried(&one) && is_retried(&other.clone()) && !is_retried(&one));
    other.succeeded(&mut Attempts::default());
    assert!(is_retried(&one));
}

#[test]
fn the_nth_wait_is_between_the_least_and_its_double_of_n_times_and_the_same_for_a_seed() {
    let (least, most) = (ms(100), ms(1_000));
    let retry = || {
        let retry = Retry::new(unlimited()).with_attempts(u32::MAX);
        retry.with_backoff(least..=most).with_seed(7)
    };
    let waits = |retry: Retry| {
        let mut all = Vec::new();
        for _ in 0..500 {
            let mut attempts = Attempts::default();
            all.push([(); 40].map(|()| retry.after(&mut attempts, Failure::Transient).unwrap()));
        }
        all
    };
    let all = waits(retry());
    for n in 0..40 {
        let highest = if n < 3 { least * (2 << n) } else { most };
        let highest = highest.min(most);
        let nth = all.iter().map(|waits| waits[n]);
        let (low, high) = (nth.clone().min().unwrap(), nth.max().unwrap());
        assert!(least <= low && high <= highest, "{n}: {low:?} {high:?}");
        let hundredth = highest.saturating_sub(least) / 100;
        assert!(low < least + hundredth && high + hundredth > highest);
    }
    assert_eq!(waits(retry()), all);
    assert_ne!(waits(retry().with_seed(8)), all);
}

#[test]
fn the_ends_of_the_range_do_not_overflow() {
    let ends = Duration::from_nanos(1)..=Duration::MAX;
    let retry = Retry::new(unlimited()).with_attempts(u32::MAX);
    for retry in [
        retry.clone().with_backoff(ends),
        retry.with_backoff(Duration::MAX..=Duration::MAX),
    ] {
        let mut attempts = Attempts::default();
        for _ in 0..100 {
            assert!(retry.after(&mut attempts, Failure::Transient).is_some());
        }
    }
}

#[test]
fn a_retry_after_is_obeyed_exactly_but_not_below_the_least_wait() {
    let retry = Retry::new(unlimited()).with_backoff(ms(100)..=ms(200));
    let mut attempts = Attempts::default();
    for (asked, wait) in [(100, 100), (5_000, 5_000), (99, 100), (0, 100)] {
        assert_eq!(retry.after(&mut attempts, refused(asked)), Some(ms(wait)));
    }
}

#[test]
fn an_item_that_is_refused_for_ever_leaves_retries_to_others() {
    let budget = RetryBudget::new(100, Share::NONE);
    for (most, retry) in [
        (20, Retry::new(budget.clone())),
        (2, Retry::new(budget.clone()).with_refusals(2)),
        (0, Retry::new(budget.clone()).with_refusals(0)),
    ] {
        let before = budget.left();
        let mut attempts = Attempts::default();
        while retry.after(&mut attempts, refused(1)).is_some() {}
        assert_eq!(
            (attempts.refusals, before - budget.left()),
            (most + 1, most)
        );
        assert_eq!(attempts.given_up, Some(GiveUp::Attempts));
    }
}

#[test]
fn a_refusal_is_no_attempt_and_a_final_error_takes_nothing_from_the_budget() {
    let budget = RetryBudget::new(100, Share::NONE);
    let retry = Retry::new(budget.clone())
        .with_attempts(2)
        .with_refusals(100);
    let mut attempts = Attempts::default();
    for _ in 0..50 {
        assert!(retry.after(&mut attempts, REFUSED).is_some());
    }
    assert!(retry.after(&mut attempts, Failure::Transient).is_some());
    assert!(retry.after(&mut attempts, REFUSED).is_some());
    assert_eq!(retry.after(&mut attempts, Failure::Transient), None);
    assert_eq!(attempts.given_up, Some(GiveUp::Attempts));
    assert_eq!((attempts.calls, attempts.refusals), (53, 51));

    let mut attempts = Attempts::default();
    assert_eq!(retry.after(&mut attempts, Failure::Final), None);
    assert_eq!(attempts.given_up, Some(GiveUp::Final));
    assert_eq!(budget.left(), 100 - 52);

    let empty = Retry::new(RetryBudget::new(0, Share::FULL));
    empty.succeeded(&mut Attempts::default());
    assert_eq!(empty.after(&mut attempts, REFUSED), None);
    assert_eq!(attempts.given_up, Some(GiveUp::Budget));
}

#[test]
fn bad_input_is_refused_with_the_value_and_what_would_be_right() {
    let retry = Retry::new(unlimited());
    let refused = |error: Result<Retry, paceline::config::ConfigError>| {
        error.expect_err("it is out of range").to_string()
    };
    assert_eq!(
        refused(retry.clone().try_with_attempts(0)),
        "retries need at least 1 attempt of an item, got 0"
    );
    let message = "a backoff is from at least 1 ns up to no less, got";
    let zero = Duration::ZERO..=ms(1);
    assert_eq!(
        refused(retry.clone().try_with_backoff(zero)),
        format!("{message} 0ns..=1ms")
    );
    assert_eq!(
        refused(retry.clone().try_with_backoff(ms(2)..=ms(1))),
        format!("{message} 2ms..=1ms")
    );
    let panic = std::panic::catch_unwind(|| retry.with_attempts(0));
    assert!(panic.is_err());
}
