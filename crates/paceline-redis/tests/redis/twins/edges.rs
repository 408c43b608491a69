//! The largest numbers: both sides still compute the same.

use std::time::Duration;

use paceline::time::Rate;
use proptest::prelude::{Just, Strategy, prop_oneof};
use proptest::sample::select;

use super::subject::Subject;
use super::traces::agree;

/// The largest product.
const MOST: u64 = 1 << 52;

/// The longest time.
const LONGEST: u64 = 1 << 51;

fn bucket(permits: u32, period: Duration, burst: u32) -> Vec<Subject> {
    let rate = Rate::new(permits, period);
    [false, true]
        .map(|may_owe| Subject::Bucket {
            rate,
            burst,
            may_owe,
        })
        .into()
}

fn buckets() -> Vec<Subject> {
    let micros = Duration::from_micros;
    let nanos = Duration::from_nanos;
    [
        bucket(1, micros(MOST), 1),
        bucket(1, micros(MOST / 3), 3),
        bucket(1, micros(1 << 20), u32::MAX),
        bucket(1, nanos(1), u32::MAX),
        bucket(u32::MAX, nanos(1), u32::MAX),
        // In lowest terms already: both are odd, and not multiples of five.
        bucket(u32::MAX, nanos((1 << 40) - 1), 4_097),
        bucket(u32::MAX - 1, nanos(1_048_573), u32::MAX),
        bucket(999_983, Duration::from_secs(86_400), 52_124),
        bucket(4_294_967_291, nanos(MOST - 1), 1),
        bucket(3, nanos(MOST - 1), 1),
    ]
    .concat()
}

fn intervals() -> Vec<Subject> {
    [
        Duration::from_micros(MOST),
        Duration::from_nanos(MOST - 1),
        Duration::from_nanos(1),
        Duration::from_micros(1 << 20),
    ]
    .map(|every| Subject::Interval { every })
    .into()
}

fn windows() -> Vec<Subject> {
    let limit = u32::MAX;
    let most = u64::from(limit);
    vec![
        Subject::Log {
            limit: 40,
            window: LONGEST,
        },
        Subject::Log {
            limit: 40,
            window: LONGEST - 1,
        },
        Subject::Fixed {
            limit,
            window: LONGEST,
        },
        Subject::Fixed { limit, window: 1 },
        Subject::Smooth {
            limit: 2,
            window: LONGEST,
        },
        Subject::Smooth {
            limit: 1,
            window: LONGEST,
        },
        Subject::Smooth {
            limit,
            window: MOST / most,
        },
        Subject::Smooth {
            limit: 1_000_003,
            window: MOST / 1_000_003,
        },
        Subject::Strict {
            limit: 2,
            bucket: LONGEST,
            buckets: 1,
        },
        Subject::Strict {
            limit,
            bucket: MOST / most,
            buckets: 40,
        },
        Subject::Strict {
            limit: 4_000,
            bucket: LONGEST / 2_048,
            buckets: 1_000,
        },
    ]
}

#[test]
fn the_largest_numbers_have_the_same_answers() {
    let one = |subjects| select(subjects).prop_map(|one| vec![one]);
    let subjects = prop_oneof![4 => one(buckets()), 2 => one(intervals()), 3 => one(windows())];
    agree(600, subjects);
}

#[test]
fn several_limits_with_the_largest_numbers_have_the_same_answers() {
    let subjects = (
        select(buckets()),
        select(windows()),
        Just(intervals()[0].clone()),
    );
    agree(
        200,
        subjects.prop_map(|(one, other, third)| vec![one, other, third]),
    );
}
