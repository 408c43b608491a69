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

fn buckets() -> Vec<Subject> {
    let micros = Duration::from_micros;
    let nanos = Duration::from_nanos;
    let buckets = [
        (1, micros(MOST), 1),
        (1, micros(MOST / 3), 3),
        (1, micros(1 << 20), u32::MAX),
        (1, nanos(1), u32::MAX),
        (u32::MAX, nanos(1), u32::MAX),
        // In lowest terms already: both are odd, and not multiples of five.
        (u32::MAX, nanos((1 << 40) - 1), 4_097),
        (u32::MAX - 1, nanos(1_048_573), u32::MAX),
        (999_983, Duration::from_secs(86_400), 52_124),
        (4_294_967_291, nanos(MOST - 1), 1),
        (3, nanos(MOST - 1), 1),
    ];
    let both = buckets.into_iter().flat_map(|(permits, period, burst)| {
        let rate = Rate::new(permits, period);
        [Subject::Bucket(rate, burst), Subject::Owing(rate, burst)]
    });
    both.collect()
}

fn intervals() -> Vec<Subject> {
    [
        Duration::from_micros(MOST),
        Duration::from_nanos(MOST - 1),
        Duration::from_nanos(1),
        Duration::from_micros(1 << 20),
    ]
    .map(Subject::Interval)
    .into()
}

fn windows() -> Vec<Subject> {
    let limit = u32::MAX;
    let most = u64::from(limit);
    vec![
        Subject::Log(40, LONGEST),
        Subject::Log(40, LONGEST - 1),
        Subject::Fixed(limit, LONGEST),
        Subject::Fixed(limit, 1),
        Subject::Smooth(2, LONGEST),
        Subject::Smooth(1, LONGEST),
        Subject::Smooth(limit, MOST / most),
        Subject::Smooth(1_000_003, MOST / 1_000_003),
        Subject::Strict(2, LONGEST, 1),
        Subject::Strict(limit, MOST / most, 40),
        Subject::Strict(4_000, LONGEST / 2_048, 1_000),
    ]
}

#[test]
fn the_largest_numbers_have_the_same_answers_alone_and_together() {
    let one = |subjects| select(subjects).prop_map(|one| vec![one]);
    let alone = prop_oneof![4 => one(buckets()), 2 => one(intervals()), 3 => one(windows())];
    agree(600, alone);
    let longest = Just(intervals().remove(0));
    let together = (select(buckets()), select(windows()), longest);
    agree(
        200,
        together.prop_map(|(one, other, third)| vec![one, other, third]),
    );
}
