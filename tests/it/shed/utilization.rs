//! The published time lines, to the instant, and the decisions of a `WorkerUtilization`.

use std::convert::Infallible;
use std::future::poll_fn;
use std::time::Duration;

use paceline::concurrency::Admit;
use paceline::shed::{Class, ClassStats, WorkerUtilization};

use super::{Dial, Timeline};
use crate::timed::ms;

const ALL: Class = Class::Sheddable(0);

/// Milliseconds of a ramp of 120 s; equality of floats is exact here.
#[track_caller]
#[expect(clippy::cast_precision_loss, reason = "it is a few minutes")]
fn assert_amount(shedder: &WorkerUtilization, millis: i64) {
    let expected = (millis * 1_000_000) as f64 / 120e9;
    assert_eq!(shedder.amount().to_bits(), expected.to_bits(), "{millis}");
}

#[track_caller]
fn assert_share(shedder: &WorkerUtilization, class: Class, share: f64) {
    let shed = shedder.share_shed(class);
    assert_eq!(shed.to_bits(), share.to_bits(), "{shed} of {class:?}");
}

#[tokio::test(start_paused = true)]
async fn a_fresh_process_is_at_rest_and_sheds_nothing() {
    let shedder = Dial::at(1.0).shedder();
    assert!(shedder.admits(ALL));
    assert_amount(&shedder, -28_000);
    assert_share(&shedder, ALL, 0.0);
    Timeline(crate::timed::now()).at(0).await;
    assert_amount(&shedder, -28_000);
    assert_eq!(shedder.utilization(), Some(1.0));
}

#[tokio::test(start_paused = true)]
async fn the_published_time_lines_hold_at_each_sample_to_the_millisecond() {
    for (utilization, period, step, begins, all) in [
        (1.0, 1, 1, 28_000, 148_000),
        (1.0, 1_000, 1_000, 28_000, 148_000),
        (0.9, 1_000, 500, 56_000, 296_000),
        (0.85, 1_000, 250, 112_000, 592_000),
    ] {
        let shedder = Dial::at(utilization).shedder();
        let shedder = shedder.try_with_period(ms(period)).unwrap();
        let timeline = Timeline::of(&shedder).await;
        for (at, amount) in [
            (begins - period, -step),
            (begins, 0),
            (begins + period, step),
            (all - period, 120_000 - step),
            (all, 120_000),
            (all + 100_000, 120_000),
        ] {
            timeline.at(at).await;
            assert_amount(&shedder, amount);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn from_good_to_bad_the_amount_stays_and_idle_it_falls_to_rest() {
    let dial = Dial::at(1.0);
    let shedder = dial.shedder();
    let timeline = Timeline::of(&shedder).await;
    for (at, amount, utilization_from_then) in [
        (60_000, 32_000, 0.7),
        (120_000, 32_000, 0.75),
        (180_000, 32_000, 0.8),
        (240_000, 32_000, 0.0),
        (271_000, 1_000, 0.0),
        (272_000, 0, 0.0),
        (300_000, -28_000, 0.0),
        (400_000, -28_000, 0.0),
    ] {
        timeline.at(at).await;
        assert_amount(&shedder, amount);
        dial.set(utilization_from_then);
    }
}

#[tokio::test(start_paused = true)]
async fn a_period_below_a_millisecond_counts_as_one() {
    for period in [Duration::from_nanos(1), Duration::from_micros(333)] {
        let shedder = Dial::at(1.0).shedder().try_with_period(period).unwrap();
        Timeline::of(&shedder).await.at(148_000).await;
        assert_share(&shedder, ALL, 1.0);
        assert_eq!(shedder.utilization(), Some(1.0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_utilization_outside_of_0_to_1_counts_as_the_nearest() {
    for (reading, counts_as) in [
        (7.5, 1.0),
        (f64::INFINITY, 1.0),
        (-3.0, 0.0),
        (f64::NEG_INFINITY, 0.0),
    ] {
        let (one, other) = (Dial::at(1.0), Dial::at(1.0));
        let (shedder, expected) = (one.shedder(), other.shedder());
        let timeline = Timeline::of(&shedder).await;
        let _ = Timeline::of(&expected).await;
        timeline.at(40_000).await;
        one.set(reading);
        other.set(counts_as);
        timeline.at(50_000).await;
        assert_eq!(shedder.amount().to_bits(), expected.amount().to_bits());
    }
}

#[tokio::test(start_paused = true)]
async fn every_option_changes_the_time_line() {
    let shedder = Dial::at(0.75).shedder();
    let shedder = shedder
        .try_with_thresholds(0.25, 0.5)
        .unwrap()
        .try_with_delay(ms(500))
        .unwrap()
        .try_with_ramp(ms(2_000))
        .unwrap()
        .try_with_period(ms(100))
        .unwrap()
        .with_classes(2);
    let timeline = Timeline::of(&shedder).await;
    assert_eq!(shedder.amount().to_bits(), (-0.25_f64).to_bits());
    // Half the speed: 1 s of delay, and 4 s of ramp.
    timeline.at(1_000).await;
    assert_share(&shedder, ALL, 0.0);
    timeline.at(3_000).await;
    assert_share(&shedder, Class::Sheddable(0), 1.0);
    assert_share(&shedder, Class::Sheddable(1), 0.0);
    timeline.at(4_000).await;
    assert_share(&shedder, Class::Sheddable(1), 0.5);
    timeline.at(5_000).await;
    assert_share(&shedder, Class::Sheddable(1), 1.0);
}

#[tokio::test(start_paused = true)]
async fn the_longest_delay_and_ramp_shed_nothing_and_overflow_nothing() {
    let shedder = Dial::at(1.0).shedder().with_classes(u8::MAX);
    let shedder = shedder
        .try_with_delay(Duration::MAX)
        .unwrap()
        .try_with_ramp(Duration::MAX)
        .unwrap();
    Timeline::of(&shedder).await.at(1_000_000).await;
    assert!(shedder.amount() < 0.0);
    assert!(shedder.admits(Class::Sheddable(0)));
    let shedder = Dial::at(1.0)
        .shedder()
        .try_with_period(Duration::MAX)
        .unwrap();
    let _ = Timeline::of(&shedder).await;
    assert_eq!(shedder.utilization(), Some(1.0));
}

#[test]
fn options_that_make_no_sense_are_refused_and_named() {
    let new = || Dial::at(0.0).shedder();
    for (good, bad) in [
        (0.8, 0.8),
        (0.9, 0.8),
        (0.0, 0.8),
        (-0.1, 0.8),
        (0.7, 1.0),
        (0.7, f64::INFINITY),
        (f64::NAN, 0.8),
        (0.7, f64::NAN),
    ] {
        let refused = new().try_with_thresholds(good, bad).unwrap_err();
        assert_eq!(refused.parameter(), "good", "{good} and {bad}");
        let values = format!(", got {good} and {bad}");
        assert!(refused.to_string().ends_with(&values), "{refused}");
    }
    let zero = Duration::ZERO;
    let refused = [
        new().try_with_delay(zero).unwrap_err(),
        new().try_with_ramp(zero).unwrap_err(),
        new().try_with_period(zero).unwrap_err(),
    ];
    assert_eq!(
        refused.map(|error| error.to_string()),
        [
            "the delay must be at least 1 ns, got 0",
            "the ramp must be at least 1 ns, got 0",
            "the period must be at least 1 ns, got 0",
        ]
    );
}

#[test]
#[should_panic(expected = "there must be at least 1 sheddable class, got 0")]
fn no_class_is_a_callers_mistake() {
    let _ = Dial::at(0.0).shedder().with_classes(0);
}

#[test]
#[should_panic(expected = "the options of a shedder are set before it is cloned or used")]
fn an_option_of_a_shedder_with_a_clone_is_a_callers_mistake() {
    let shedder = Dial::at(0.0).shedder();
    let _clone = shedder.clone();
    let _ = shedder.with_classes(3);
}

/// As it was published by its authors, in a code of its own.
struct SplitMix64(u64);

impl Iterator for SplitMix64 {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Some(z ^ (z >> 31))
    }
}

#[tokio::test(start_paused = true)]
async fn of_100_000_decisions_chance_sheds_its_exact_share() {
    let shedder = Dial::at(1.0).shedder().with_seed(42);
    Timeline::of(&shedder).await.at(64_000).await;
    assert_share(&shedder, ALL, 0.3);

    // Three tenths of all numbers.
    let below = |n: &u64| u128::from(*n) * 10 < 3 << 64;
    let mut chance = SplitMix64(42);
    let mut shed = 0_u64;
    for decision in 0..100_000 {
        let is_shed = below(&chance.next().unwrap());
        assert_eq!(shedder.admits(ALL), !is_shed, "decision {decision}");
        shed += u64::from(is_shed);
    }
    let stats = shedder.stats()[0];
    assert_eq!((stats.admitted, stats.shed), (100_000 - shed, shed));
    assert!((29_500..30_500).contains(&shed), "{shed}");
}

#[tokio::test(start_paused = true)]
async fn no_number_is_drawn_where_chance_decides_nothing() {
    let shedder = Dial::at(1.0).shedder().with_classes(3).with_seed(7);
    Timeline::of(&shedder).await.at(88_000).await;
    let mut chance = SplitMix64(7);
    for _ in 0..1_000 {
        assert!(shedder.admits(Class::Critical));
        assert!(!shedder.admits(Class::Sheddable(0)), "all are shed");
        assert!(shedder.admits(Class::Sheddable(2)), "none is shed");
        let is_shed = chance.next().unwrap() < 1 << 63;
        assert_eq!(shedder.admits(Class::Sheddable(1)), !is_shed);
    }
}

#[tokio::test(start_paused = true)]
async fn two_shedders_without_a_seed_shed_different_requests() {
    let shedders = [Dial::at(1.0).shedder(), Dial::at(1.0).shedder()];
    let timeline = Timeline::of(&shedders[0]).await;
    let _ = Timeline::of(&shedders[1]).await;
    timeline.at(88_000).await;
    let decisions =
        shedders.map(|shedder| (0..200).map(|_| shedder.admits(ALL)).collect::<Vec<_>>());
    assert_ne!(decisions[0], decisions[1]);
}

#[tokio::test(start_paused = true)]
async fn requests_are_counted_by_class_over_all_clones_and_a_class_beyond_the_last_is_the_last() {
    let shedder = Dial::at(1.0).shedder().with_classes(2);
    Timeline::of(&shedder).await.at(88_000).await;
    let clone = shedder.clone();
    for _ in 0..3 {
        let _ = shedder.admits(Class::Sheddable(0));
        let _ = clone.admits(Class::Critical);
    }
    for class in [1, 2, u8::MAX] {
        let _ = clone.admits(Class::Sheddable(class));
    }
    let counts = |one: &ClassStats| (one.class, one.admitted, one.shed);
    assert_eq!(
        clone.stats().iter().map(counts).collect::<Vec<_>>(),
        [
            (Class::Sheddable(0), 0, 3),
            (Class::Sheddable(1), 3, 0),
            (Class::Critical, 3, 0),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_handle_admits_by_class_and_never_queues() {
    let shedder = Dial::at(1.0).shedder();
    Timeline::of(&shedder).await.at(148_000).await;
    let mut handle: Box<dyn Admit<Class, Guard = (), Error = Infallible>> =
        Box::new(shedder.clone());
    let shed = poll_fn(|cx| handle.poll_admit(ALL, cx)).await;
    let tried = poll_fn(|cx| handle.poll_try_admit(ALL, cx)).await;
    assert_eq!((shed, tried), (Ok(None), Ok(None)));
    handle.give_up();
    let critical = poll_fn(|cx| handle.poll_admit(Class::Critical, cx)).await;
    assert_eq!(critical, Ok(Some(())));
    assert_eq!(shedder.stats()[0].shed, 2);
}
