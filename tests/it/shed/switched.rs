//! Shedders with a switch: the kill switch, the shadow mode, and a share that is enforced.

use std::future::poll_fn;

use futures::{StreamExt, stream};
use paceline::concurrency::Admit;
use paceline::limiter::{Mode, Share, Switch, Switched};
use paceline::shed::{Class, WorkerUtilization};
use paceline::stream::PaceStreamExt;

use super::{Dial, Timeline};

const ALL: Class = Class::Sheddable(0);

/// What a handle answers: refused, or admitted with what the shedder gave.
async fn ask(handle: &mut Switched<WorkerUtilization>, class: Class) -> Option<Option<()>> {
    let Ok(answer) = poll_fn(|cx| handle.poll_admit(class, cx)).await;
    answer
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
