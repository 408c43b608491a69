//! Shedders with a switch: the kill switch, the shadow mode, and a share that is enforced.

use std::convert::Infallible;
use std::future::poll_fn;

use futures::{StreamExt, stream};
use paceline::concurrency::Admit;
use paceline::limiter::{Mode, Share, Switch, Switched};
use paceline::shed::{Class, FleetUsage, WorkerUtilization};
use paceline::stream::PaceStreamExt;

use super::fleet_cases::CASES;
use super::{Dial, Timeline, importance, in_use};
use crate::timed::sleep;

const ALL: Class = Class::Sheddable(0);

/// What a handle answers: refused, or admitted with what the shedder gave.
async fn ask<C: Clone, A: Admit<C, Error = Infallible>>(
    handle: &mut Switched<A>,
    class: C,
) -> Option<Option<A::Guard>> {
    let Ok(answer) = poll_fn(|cx| handle.poll_admit(class.clone(), cx)).await;
    answer
}

/// How many of these requests are refused.
async fn refused(handle: &mut Switched<WorkerUtilization>, class: Class, requests: u32) -> u32 {
    let mut refused = 0;
    for _ in 0..requests {
        refused += u32::from(ask(handle, class).await.is_none());
    }
    refused
}

/// The requests that were shadowed, and how many of them were held back.
fn counts(switch: &Switch) -> (u64, u64) {
    let stats = switch.stats();
    (stats.shadowed, stats.held_back)
}

/// What was admitted and shed of the first class.
fn decided(shedder: &WorkerUtilization) -> (u64, u64) {
    let stats = shedder.stats()[0];
    (stats.admitted, stats.shed)
}

/// A shedder after these seconds of full utilization, and a handle with a switch.
async fn overloaded_for(seconds: u64) -> (WorkerUtilization, Switch, Switched<WorkerUtilization>) {
    let shedder = Dial::at(1.0).shedder().with_seed(42);
    Timeline::of(&shedder).await.at(seconds * 1_000).await;
    let switch = Switch::new();
    let switched = Switched::new(shedder.clone(), switch.clone());
    (shedder, switch, switched)
}

#[tokio::test(start_paused = true)]
async fn active_it_is_the_shedder_in_shadow_mode_both_count_what_passes_and_off_it_is_not_asked() {
    for (mode, sheddable, critical, counted, shed) in [
        (Mode::Active, None, Some(Some(())), (0, 0), 1),
        (Mode::Shadow, Some(None), Some(Some(())), (2, 1), 1),
        (Mode::Off, Some(None), Some(None), (0, 0), 0),
    ] {
        let (shedder, switch, mut switched) = overloaded_for(148).await;
        switch.set_mode(mode);
        assert_eq!(ask(&mut switched, ALL).await, sheddable, "{mode:?}");
        let is_shadowed = Admit::<Class>::shadowed(&switched).is_some();
        assert_eq!(is_shadowed, mode == Mode::Shadow);
        assert_eq!(ask(&mut switched, Class::Critical).await, critical);
        assert!(Admit::<Class>::shadowed(&switched).is_none());
        assert_eq!((counts(&switch), decided(&shedder)), (counted, (0, shed)));
    }
}

#[tokio::test(start_paused = true)]
async fn in_shadow_mode_the_shedder_decides_as_it_would_alone() {
    let (alone, _, _) = overloaded_for(0).await;
    let (shedder, switch, mut switched) = overloaded_for(64).await;
    // Three tenths are shed, by chance.
    assert_eq!(alone.share_shed(ALL).to_bits(), 0.3_f64.to_bits());
    switch.set_mode(Mode::Shadow);
    for _ in 0..1_000 {
        let would_pass = alone.admits(ALL);
        let guard = ask(&mut switched, ALL).await;
        assert_eq!(guard, Some(would_pass.then_some(())));
    }
    assert_eq!(decided(&shedder), decided(&alone));
    assert_eq!(counts(&switch), (1_000, decided(&alone).1));
}

#[tokio::test(start_paused = true)]
async fn while_it_is_off_samples_go_on() {
    let (_, switch, mut switched) = overloaded_for(28).await;
    switch.set_mode(Mode::Off);
    sleep(120_000).await;
    assert_eq!(refused(&mut switched, ALL, 10).await, 0);
    switch.set_mode(Mode::Active);
    assert_eq!(refused(&mut switched, ALL, 10).await, 10);
}

#[tokio::test(start_paused = true)]
async fn a_shedder_that_was_never_asked_takes_no_samples_and_begins_at_rest() {
    let dial = Dial::at(1.0);
    let switch = Switch::new().with_mode(Mode::Off);
    let mut switched = Switched::new(dial.shedder(), switch.clone());
    assert_eq!(refused(&mut switched, ALL, 10).await, 0);
    sleep(148_000).await;
    assert_eq!(dial.asked(), 0);
    switch.set_mode(Mode::Active);
    assert_eq!(refused(&mut switched, ALL, 10).await, 0);
    sleep(148_001).await;
    assert_eq!(refused(&mut switched, ALL, 10).await, 10);
}

#[tokio::test(start_paused = true)]
async fn a_share_is_shed_exactly_and_the_rest_is_in_shadow_mode() {
    let (shedder, switch, mut switched) = overloaded_for(148).await;
    switch.set_share(Share::percent(30));
    assert_eq!(refused(&mut switched, ALL, 10_000).await, 3_000);
    assert_eq!(counts(&switch), (7_000, 7_000));
    assert_eq!(decided(&shedder), (0, 10_000));
    assert_eq!(refused(&mut switched, Class::Critical, 10_000).await, 0);

    switch.set_share(Share::NONE);
    assert_eq!(refused(&mut switched, ALL, 100).await, 0);
    switch.set_share(Share::FULL);
    assert_eq!(refused(&mut switched, ALL, 100).await, 100);
}

#[tokio::test(start_paused = true)]
async fn clones_have_one_switch_and_number_their_requests_together() {
    let (_, switch, mut one) = overloaded_for(148).await;
    let mut other = one.clone();
    switch.set_share(Share::percent(50));
    let mut shed = 0;
    for _ in 0..5_000 {
        shed += refused(&mut one, ALL, 1).await + refused(&mut other, ALL, 1).await;
    }
    assert_eq!(shed, 5_000);
}

#[tokio::test(start_paused = true)]
async fn fleet_usage_follows_its_table_and_in_shadow_mode_counts_only_what_it_would_admit() {
    for mode in [Mode::Active, Mode::Shadow, Mode::Off] {
        for (capacity, reserved, asked, expected) in CASES {
            let usage = FleetUsage::new(capacity, reserved);
            let switch = Switch::new().with_mode(mode);
            let mut switched = Switched::new(usage.clone(), switch.clone());
            let mut held = Vec::new();
            for (kind, answer) in asked.chars().zip(expected.chars()) {
                let admitted = ask(&mut switched, importance(kind)).await;
                let has_guard = matches!(admitted, Some(Some(_)));
                assert_eq!(admitted.is_none(), mode == Mode::Active && answer == '-');
                assert_eq!(has_guard, mode != Mode::Off && answer != '-');
                held.push(admitted);
            }
            let of = |kind| u32::try_from(expected.matches(kind).count()).unwrap();
            let (used, shed) = ((of('c'), of('s')), u64::from(of('-')));
            assert_eq!(
                in_use(&usage),
                if mode == Mode::Off { (0, 0) } else { used }
            );
            let requests = asked.len() as u64;
            let shadowed = if mode == Mode::Shadow {
                (requests, shed)
            } else {
                (0, 0)
            };
            assert_eq!(counts(&switch), shadowed, "{mode:?}: {asked}");
            drop(held);
            assert_eq!(in_use(&usage), (0, 0));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn of_requests_beyond_the_capacity_a_share_is_shed_and_the_others_hold_nothing() {
    let usage = FleetUsage::new(2, 0);
    let switch = Switch::new().with_share(Share::percent(25));
    let mut switched = Switched::new(usage.clone(), switch.clone());
    let mut held = Vec::new();
    for _ in 0..10_000 {
        held.push(ask(&mut switched, Class::Sheddable(0)).await);
    }
    let with = held
        .iter()
        .filter(|one| matches!(one, Some(Some(_))))
        .count();
    let shed = held.iter().filter(|one| one.is_none()).count() as u64;
    assert_eq!((with, usage.in_use().sheddable), (2, 2));
    // Both of the first two have a guard, whether they are in the share or not.
    let (shadowed, held_back) = counts(&switch);
    assert_eq!((shadowed, shed + held_back), (7_500, 9_998));
    drop(held);
    assert_eq!(usage.in_use().sheddable, 0);

    switch.set_share(Share::FULL);
    let first = ask(&mut switched, Class::Sheddable(0)).await;
    let second = ask(&mut switched, Class::Sheddable(0)).await;
    assert!(matches!((&first, &second), (Some(Some(_)), Some(Some(_)))));
    assert!(ask(&mut switched, Class::Sheddable(0)).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_guard_leaves_the_count_as_it_was_when_the_switch_is_turned_on() {
    let usage = FleetUsage::new(1, 0);
    let switch = Switch::new().with_mode(Mode::Off);
    let mut switched = Switched::new(usage.clone(), switch.clone());
    let before = ask(&mut switched, Class::Sheddable(0)).await;
    assert!(matches!(before, Some(None)));
    switch.set_mode(Mode::Active);
    let first = ask(&mut switched, Class::Sheddable(0)).await;
    assert!(matches!(first, Some(Some(_))), "it is not known");
    assert!(ask(&mut switched, Class::Sheddable(0)).await.is_none());
    drop(before);
    assert_eq!(usage.in_use().sheddable, 1);
}

#[tokio::test(start_paused = true)]
async fn a_stream_sheds_as_the_switch_says() {
    for (mode, share, dropped, held_back) in [
        (Mode::Active, Share::FULL, 10_000, 0),
        (Mode::Active, Share::percent(30), 3_000, 7_000),
        (Mode::Active, Share::NONE, 0, 10_000),
        (Mode::Shadow, Share::FULL, 0, 10_000),
        (Mode::Off, Share::FULL, 0, 0),
    ] {
        let (shedder, switch, switched) = overloaded_for(148).await;
        switch.set(mode, share);
        let mut shed = stream::iter(0..10_000_u64).shed_by(switched, |_| ALL);
        let left = shed.by_ref().count().await as u64;
        assert_eq!(
            (left, shed.shed_count()),
            (10_000 - dropped, dropped),
            "{mode:?}, {share}"
        );
        assert_eq!(switch.stats().held_back, held_back);
        assert_eq!(decided(&shedder).1, dropped + held_back);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_obeys_a_switch_that_is_turned_between_two_items() {
    let (_, switch, switched) = overloaded_for(148).await;
    let operator = switch.clone();
    let events = stream::iter(0..6).inspect(move |event| match event {
        2 => operator.set_mode(Mode::Off),
        4 => operator.set_mode(Mode::Active),
        _ => {}
    });
    let left = events.shed_by(switched, |_| ALL).collect::<Vec<_>>().await;
    assert_eq!(left, [2, 3]);
}
