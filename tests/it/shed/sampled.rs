//! The task of a `WorkerUtilization`: when it runs, and what holds without a sample.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt;
use paceline::shed::{Class, Sensor, WorkerUtilization};
use testkit::clock::{jump, paused_runtime};
use tokio::runtime::Builder;

use super::{Dial, Timeline, quietly, settled, tasks};
use crate::timed::{ms, sleep};

const ALL: Class = Class::Sheddable(0);
const HOUR: Duration = Duration::from_secs(3600);
/// Of a ramp of 120 s.
#[track_caller]
fn assert_amount(shedder: &WorkerUtilization, seconds: f64) {
    assert_eq!(shedder.amount().to_bits(), (seconds / 120.0).to_bits());
}

#[track_caller]
fn assert_at_rest(shedder: &WorkerUtilization) {
    assert_amount(shedder, -28.0);
    assert_eq!(shedder.utilization(), None);
    assert!((0..100).all(|_| shedder.admits(ALL)));
}

/// Half of all requests are shed, after a minute and a half.
async fn half_shed(dial: &Dial) -> (WorkerUtilization, Timeline) {
    let shedder = dial.shedder();
    let timeline = Timeline::of(&shedder).await;
    timeline.at(88_000).await;
    assert_amount(&shedder, 60.0);
    (shedder, timeline)
}

/// Moves the clock, and lets no task run.
fn jump_at_once(by: Duration) {
    let _ = tokio::time::advance(by).now_or_never();
}

#[tokio::test(start_paused = true)]
async fn the_sensor_is_asked_once_a_period_and_not_once_a_request() {
    let dial = Dial::at(1.0);
    let shedder = dial.shedder();
    sleep(10_000).await;
    assert_eq!(dial.asked(), 0, "before the first use");
    let timeline = Timeline::of(&shedder).await;
    for second in 1..=20 {
        timeline.at(second * 1_000).await;
        for _ in 0..500 {
            let _ = (shedder.admits(ALL), shedder.amount(), shedder.utilization());
        }
    }
    assert_eq!(dial.asked(), 21);
}

#[tokio::test(start_paused = true)]
async fn to_print_it_starts_no_task() {
    let dial = Dial::at(1.0);
    let shedder = dial.shedder();
    let printed = format!("{shedder:?}");
    assert!(printed.contains("amount: -0.2333"), "{printed}");
    sleep(5_000).await;
    assert_eq!(dial.asked(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_type_can_be_a_sensor() {
    struct Half;
    impl Sensor for Half {
        fn utilization(&mut self) -> f64 {
            0.5
        }
    }
    let shedder = WorkerUtilization::new(Half);
    let _ = Timeline::of(&shedder).await;
    assert_eq!(shedder.utilization(), Some(0.5));
}

#[tokio::test(start_paused = true)]
async fn the_task_ends_with_the_last_clone() {
    let dial = Dial::at(1.0);
    let shedder = dial.shedder().try_with_period(HOUR).unwrap();
    let _ = Timeline::of(&shedder).await;
    let clone = shedder.clone();
    drop(shedder);
    settled().await;
    assert!(dial.is_in_use());
    assert_eq!(tasks(), 1);
    drop(clone);
    assert!(!dial.is_in_use());
    settled().await;
    assert_eq!(tasks(), 0, "not one period later");
}

#[test]
fn clones_in_many_threads_start_one_task() {
    let runtime = Builder::new_multi_thread()
        .worker_threads(4)
        .enable_time()
        .build()
        .unwrap();
    let dial = Dial::at(0.5);
    let shedder = dial.shedder().try_with_period(HOUR).unwrap();
    runtime.block_on(async {
        let requests = (0..64).map(|_| {
            let shedder = shedder.clone();
            tokio::spawn(async move { shedder.admits(ALL) })
        });
        for request in requests.collect::<Vec<_>>() {
            assert!(request.await.unwrap());
        }
        // The requests have ended, and one task is left, which has taken its first sample.
        let left = async {
            while tasks() != 1 || dial.asked() == 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(ms(20_000), left).await.unwrap();
        assert_eq!(dial.asked(), 1);
    });
}

#[tokio::test(start_paused = true)]
async fn without_a_reading_the_amount_stays_for_three_periods_and_begins_at_rest_then() {
    let dial = Dial::at(1.0);
    let (shedder, timeline) = half_shed(&dial).await;
    dial.set(f64::NAN);
    timeline.at(90_999).await;
    assert_amount(&shedder, 60.0);
    assert_eq!(shedder.utilization(), Some(1.0));
    timeline.at(91_000).await;
    assert_at_rest(&shedder);

    timeline.at(100_000).await;
    dial.set(1.0);
    for (at, amount) in [(101_000, -28.0), (129_000, 0.0), (130_000, 1.0)] {
        timeline.at(at).await;
        assert_amount(&shedder, amount);
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_gap_of_two_samples_the_next_reading_counts_for_the_gap_too() {
    let dial = Dial::at(1.0);
    let (shedder, timeline) = half_shed(&dial).await;
    dial.set(f64::NAN);
    timeline.at(89_900).await;
    dial.set(1.0);
    timeline.at(90_000).await;
    assert_amount(&shedder, 62.0);
}

#[tokio::test(start_paused = true)]
async fn a_sensor_that_panics_has_no_reading_and_is_asked_again() {
    quietly();
    let is_broken = Arc::new(AtomicBool::new(false));
    let broken = Arc::clone(&is_broken);
    let shedder = WorkerUtilization::new(move || {
        assert!(!broken.load(Ordering::Relaxed), "the sensor is broken");
        1.0
    });
    let timeline = Timeline::of(&shedder).await;
    timeline.at(88_000).await;
    is_broken.store(true, Ordering::Relaxed);
    timeline.at(91_000).await;
    assert_at_rest(&shedder);
    is_broken.store(false, Ordering::Relaxed);
    timeline.at(92_000).await;
    assert_eq!(shedder.utilization(), Some(1.0));
    timeline.at(152_000).await;
    assert_amount(&shedder, 32.0);
}

#[tokio::test(start_paused = true)]
async fn while_its_task_is_blocked_for_three_periods_it_is_at_rest() {
    let dial = Dial::at(1.0);
    let (shedder, _) = half_shed(&dial).await;
    let asked = dial.asked();
    jump_at_once(ms(2_999));
    assert_amount(&shedder, 60.0);
    jump_at_once(ms(1));
    assert_eq!(dial.asked(), asked, "the task is blocked");
    assert_at_rest(&shedder);
}

#[tokio::test(start_paused = true)]
async fn a_late_sample_counts_for_the_time_since_the_one_before() {
    let dial = Dial::at(1.0);
    let (shedder, timeline) = half_shed(&dial).await;
    jump(ms(2_500)).await;
    settled().await;
    assert_amount(&shedder, 62.5);
    // The next one comes a period later.
    let asked = dial.asked();
    timeline.at(91_499).await;
    assert_eq!(dial.asked(), asked);
    timeline.at(91_500).await;
    assert_amount(&shedder, 63.5);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_slept_for_an_hour_sheds_nothing_when_it_wakes_up() {
    let dial = Dial::at(1.0);
    let (shedder, _) = half_shed(&dial).await;
    jump(HOUR).await;
    settled().await;
    assert_amount(&shedder, -28.0);
    assert!((0..100).all(|_| shedder.admits(ALL)));
}

#[test]
fn it_is_at_rest_when_its_runtime_has_ended_and_starts_anew_in_the_next_one() {
    let dial = Dial::at(1.0);
    let (first, second) = (paused_runtime(), paused_runtime());
    let (shedder, _) = first.block_on(half_shed(&dial));
    drop(first);
    assert_amount(&shedder, -28.0);
    assert!(
        (0..100).all(|_| shedder.admits(ALL)),
        "outside a runtime too"
    );
    let asked = dial.asked();
    second.block_on(async {
        let timeline = Timeline::of(&shedder).await;
        assert_eq!(dial.asked(), asked + 1);
        timeline.at(88_000).await;
        assert_amount(&shedder, 60.0);
    });
}

#[test]
fn outside_a_runtime_nothing_is_shed_and_no_sample_is_taken() {
    let dial = Dial::at(1.0);
    let shedder = dial.shedder();
    assert_at_rest(&shedder);
    assert_eq!((dial.asked(), shedder.stats()[0].admitted), (0, 100));
    paused_runtime().block_on(async {
        let _ = Timeline::of(&shedder).await;
        assert_eq!(dial.asked(), 1);
    });
}

#[test]
fn in_a_runtime_without_timers_nothing_is_shed_and_the_next_runtime_samples() {
    let dial = Dial::at(1.0);
    let shedder = dial.shedder();
    let without = Builder::new_current_thread().build().unwrap();
    without.block_on(async {
        assert!(shedder.admits(ALL));
        settled().await;
        assert_at_rest(&shedder);
        settled().await;
        let asked = dial.asked();
        assert_eq!((asked, tasks()), (0, 1), "not one task for each request");
    });
    drop(without);
    paused_runtime().block_on(async {
        let _ = half_shed(&dial).await;
        let _ = Timeline::of(&shedder).await;
        assert_eq!(shedder.utilization(), Some(1.0));
    });
}

#[test]
fn a_request_while_its_runtime_shuts_down_is_admitted() {
    struct AsksAtItsEnd(WorkerUtilization);
    impl Drop for AsksAtItsEnd {
        fn drop(&mut self) {
            assert!(self.0.admits(ALL));
        }
    }
    let shedder = Dial::at(1.0).shedder();
    let (first, second) = (paused_runtime(), paused_runtime());
    let asks = AsksAtItsEnd(shedder.clone());
    first.block_on(async {
        tokio::spawn(async move {
            let _asks = asks;
            std::future::pending::<()>().await;
        });
        settled().await;
    });
    drop(first);
    assert_eq!(shedder.stats()[0].admitted, 1);
    second.block_on(async {
        let _ = Timeline::of(&shedder).await;
        assert_eq!(shedder.utilization(), Some(1.0));
    });
}
