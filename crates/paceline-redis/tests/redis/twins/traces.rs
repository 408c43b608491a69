//! On any trace a script gives the same answers as its policy.

use std::cell::RefCell;
use std::time::Duration;

use paceline::policy::{All, Policy};
use paceline::time::Rate;
use proptest::collection::vec;
use proptest::prelude::{BoxedStrategy, Just, Strategy, prop_oneof};
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use super::asking::Store;
use super::beside::Beside;
use super::subject::Subject;
use super::trace::{Step, steps};
use super::{MILLI, SECOND};

/// In the year 2096: the latest supported date.
const END: u64 = 4_000_000_000_000_000;

/// Compares both sides on this many traces of these policies.
pub(super) fn agree(cases: u32, subjects: impl Strategy<Value = Vec<Subject>>) {
    let store = RefCell::new(Store::start());
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let tried = TestRunner::new(config).run(&(subjects, steps()), |(parts, steps)| {
        let mut store = store.borrow_mut();
        match &*parts {
            [one] => run(&mut store, one.clone(), &parts, &steps),
            [one, other] => {
                let all = All::new((one.clone(), other.clone()));
                run(&mut store, all, &parts, &steps)
            }
            [one, other, third] => {
                let all = All::new((one.clone(), other.clone(), third.clone()));
                run(&mut store, all, &parts, &steps)
            }
            _ => panic!("one to three, not {}", parts.len()),
        }
    });
    if let Err(broken) = tried {
        panic!("{broken}");
    }
}

fn run<P: Policy>(
    store: &mut Store,
    whole: P,
    parts: &[Subject],
    steps: &[Step],
) -> Result<(), TestCaseError> {
    let mut beside = Beside::new(store, whole, parts);
    steps.iter().try_for_each(|step| beside.step(step, END))
}

fn bucket() -> BoxedStrategy<Subject> {
    let micros = Duration::from_micros;
    let rate = prop_oneof![
        Just(Rate::per_second(3)),
        Just(Rate::per_minute(7)),
        Just(Rate::new(999_983, Duration::from_secs(86_400))),
        Just(Rate::new(3, Duration::from_nanos(7))),
        Just(Rate::per_second(1_000_000)),
        (1..50_u32, 1..100 * MILLI)
            .prop_map(move |(permits, period)| Rate::new(permits, micros(period))),
        (1..5_000_u32, 1..SECOND)
            .prop_map(|(permits, nanos)| Rate::new(permits, Duration::from_nanos(nanos))),
    ];
    (rate, 1..12_u32, proptest::bool::ANY)
        .prop_map(|(rate, burst, may_owe)| Subject::Bucket {
            rate,
            burst,
            may_owe,
        })
        .boxed()
}

fn interval() -> BoxedStrategy<Subject> {
    let every = prop_oneof![
        (1..100_u64).prop_map(Duration::from_nanos),
        (1..SECOND).prop_map(Duration::from_nanos),
        (1..SECOND).prop_map(Duration::from_micros),
    ];
    every.prop_map(|every| Subject::Interval { every }).boxed()
}

fn window() -> impl Strategy<Value = u64> {
    prop_oneof![1..20_u64, 1..SECOND, Just(60 * SECOND)]
}

fn log() -> BoxedStrategy<Subject> {
    (1..12_u32, window())
        .prop_map(|(limit, window)| Subject::Log { limit, window })
        .boxed()
}

fn strict() -> BoxedStrategy<Subject> {
    (1..12_u32, window(), 1..6_u32)
        .prop_map(|(limit, bucket, buckets)| Subject::Strict {
            limit,
            bucket,
            buckets,
        })
        .boxed()
}

fn smooth() -> BoxedStrategy<Subject> {
    (1..30_u32, window())
        .prop_map(|(limit, window)| Subject::Smooth { limit, window })
        .boxed()
}

fn fixed() -> BoxedStrategy<Subject> {
    (1..12_u32, window())
        .prop_map(|(limit, window)| Subject::Fixed { limit, window })
        .boxed()
}

const CASES: u32 = 100;

#[test]
fn a_token_bucket_answers_as_its_twin() {
    agree(2 * CASES, bucket().prop_map(|one| vec![one]));
}

#[test]
fn an_interval_answers_as_its_twin() {
    agree(CASES, interval().prop_map(|one| vec![one]));
}

#[test]
fn a_sliding_log_answers_as_its_twin() {
    agree(CASES, log().prop_map(|one| vec![one]));
}

#[test]
fn a_strict_counter_answers_as_its_twin() {
    agree(CASES, strict().prop_map(|one| vec![one]));
}

#[test]
fn a_smooth_counter_answers_as_its_twin() {
    agree(CASES, smooth().prop_map(|one| vec![one]));
}

#[test]
fn a_fixed_window_answers_as_its_twin() {
    agree(CASES, fixed().prop_map(|one| vec![one]));
}

#[test]
fn several_at_once_answer_as_their_twins() {
    let any = || prop_oneof![bucket(), interval(), log(), strict(), smooth(), fixed()];
    agree(3 * CASES, vec(any(), 2..4));
}

#[test]
fn a_limit_that_counts_requests_answers_as_its_twin_alone_and_beside_others() {
    let any = || prop_oneof![bucket(), interval(), log(), strict(), smooth(), fixed()];
    let per_request = || any().prop_map(|of| Subject::PerRequest(Box::new(of)));
    agree(CASES, per_request().prop_map(|one| vec![one]));
    let beside = (per_request(), any(), any(), proptest::bool::ANY);
    let beside = beside.prop_map(|(requests, one, other, is_last)| {
        if is_last {
            vec![one, requests]
        } else {
            vec![requests, one, other]
        }
    });
    agree(2 * CASES, beside);
}
