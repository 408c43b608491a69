//! On any trace a script gives the same answers as its policy.

use std::time::Duration;

use paceline::time::Rate;
use proptest::collection::vec;
use proptest::prelude::{BoxedStrategy, Just, Strategy, prop_oneof};

use super::beside::Beside;
use super::subject::Subject;
use super::trace::{many_steps, steps};
use super::{MILLI, SECOND, holds};

/// In the year 2096: the latest supported date.
const END: u64 = 4_000_000_000_000_000;

/// Compares both sides on this many traces of these policies.
pub(super) fn agree(cases: u32, subjects: impl Strategy<Value = Vec<Subject>>) {
    holds(cases, (subjects, steps()), |store, (subjects, steps)| {
        let mut beside = Beside::new(store, &subjects);
        steps.iter().try_for_each(|step| beside.step(step, END))
    });
}

pub(super) fn bucket() -> BoxedStrategy<Subject> {
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
    let bucket = (rate, 1..12_u32, proptest::bool::ANY);
    let bucket = bucket.prop_map(|(rate, burst, may_owe)| {
        let kind = if may_owe {
            Subject::Owing
        } else {
            Subject::Bucket
        };
        kind(rate, burst)
    });
    bucket.boxed()
}

pub(super) fn interval() -> BoxedStrategy<Subject> {
    let every = prop_oneof![
        (1..100_u64).prop_map(Duration::from_nanos),
        (1..SECOND).prop_map(Duration::from_nanos),
        (1..SECOND).prop_map(Duration::from_micros),
    ];
    every.prop_map(Subject::Interval).boxed()
}

fn window() -> impl Strategy<Value = u64> {
    prop_oneof![1..20_u64, 1..SECOND, Just(60 * SECOND)]
}

fn any() -> BoxedStrategy<Subject> {
    prop_oneof![
        2 => bucket(),
        1 => interval(),
        1 => (1..12_u32, window()).prop_map(|(limit, window)| Subject::Log(limit, window)),
        1 => (1..12_u32, window(), 1..6_u32)
            .prop_map(|(limit, bucket, buckets)| Subject::Strict(limit, bucket, buckets)),
        1 => (1..30_u32, window()).prop_map(|(limit, window)| Subject::Smooth(limit, window)),
        1 => (1..12_u32, window()).prop_map(|(limit, window)| Subject::Fixed(limit, window)),
    ]
    .boxed()
}

const CASES: u32 = 100;

#[test]
fn each_policy_answers_as_its_twin() {
    agree(7 * CASES, any().prop_map(|one| vec![one]));
}

/// It is read and written in parts.
#[test]
fn a_log_of_many_entries_answers_as_its_twin() {
    let logs = (20..90_u32, Just(SECOND)).prop_map(|(limit, window)| Subject::Log(limit, window));
    holds(150, (logs, many_steps()), |store, (log, steps)| {
        let subjects = [log];
        let mut beside = Beside::new(store, &subjects);
        steps.iter().try_for_each(|step| beside.step(step, END))
    });
}

#[test]
fn several_at_once_answer_as_their_twins() {
    agree(3 * CASES, vec(any(), 2..4));
}

#[test]
fn a_limit_that_counts_requests_answers_as_its_twin_alone_and_beside_others() {
    let per_request = || any().prop_map(|of| Subject::PerRequest(Box::new(of)));
    agree(CASES, per_request().prop_map(|one| vec![one]));
    let beside = (per_request(), any(), any(), 0..2_usize);
    let beside = beside.prop_map(|(requests, one, other, last)| match last {
        0 => vec![requests, one, other],
        _ => vec![one, requests],
    });
    agree(2 * CASES, beside);
}
