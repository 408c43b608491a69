//! Permits that follow a controller.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use futures::FutureExt;
use futures::future::join_all;
use paceline::concurrency::{Adaptive, AdaptivePermit, Aimd, Controller, Gradient, Outcome};
use paceline::limiter::Event;
use paceline::time::Tick;
use testkit::clock::jump;
use testkit::wakes::Driven;

use super::recorded::{Recorded, outcomes, success};
use super::{claims, panics_with};
use crate::timed::{ms, now, since, sleep};

#[tokio::test(start_paused = true)]
async fn adaptive_permits_keep_the_claims() {
    claims::hold_for(|n| Adaptive::new(Recorded::at(n))).await;
    claims::hold_for(|n| Adaptive::new(Aimd::new(n, n))).await;
    claims::hold_for(|n| Adaptive::new(Gradient::new(n, n))).await;
    claims::hold_for(|n| {
        let chosen: Box<dyn Controller> = Box::new(Aimd::new(n, n));
        Adaptive::new(chosen)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_report_has_the_time_what_is_in_use_and_the_latency_without_the_wait() {
    let adaptive = Adaptive::new(Recorded::at(2));
    let (one, two) = (adaptive.acquire().await, adaptive.acquire().await);
    let waits = tokio::spawn(adaptive.acquire());
    sleep(10).await;
    one.success();
    let three = waits.await.unwrap();
    assert_eq!(three.latency(), Duration::ZERO);
    sleep(5).await;
    assert_eq!(three.latency(), ms(5));
    three.success();
    two.dropped();
    let at = |millis| Tick::ZERO.after(ms(millis));
    let expected = [
        (at(10), 2, success(10)),
        (at(15), 2, success(5)),
        (at(15), 1, Outcome::Dropped),
    ];
    assert_eq!(adaptive.controller().seen, expected);
    assert_eq!(adaptive.permits().in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_begins_when_its_permit_is_granted_however_late_that_is() {
    let adaptive = Adaptive::new(Recorded::at(1));
    let held = adaptive.acquire().await;
    let mut late = Driven::new(adaptive.acquire());
    let mut within = Driven::new(adaptive.acquire_within(ms(1_000)));
    assert!(late.poll().is_pending() && within.poll().is_pending());
    sleep(10).await;
    held.success();
    jump(ms(300)).await;
    assert!(late.poll().map(AdaptivePermit::success).is_ready());
    jump(ms(2_000)).await;
    let late = within.poll().map(Result::unwrap);
    assert!(late.map(AdaptivePermit::success).is_ready());
    assert_eq!(outcomes(&adaptive), [success(10), success(0), success(0)]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_cancelled_is_ignored() {
    let adaptive = Adaptive::new(Recorded::at(1));
    let call = async {
        let permit = adaptive.acquire().await;
        sleep(1_000).await;
        permit.success();
    };
    let cancelled = tokio::time::timeout(ms(10), call).await;
    assert!(cancelled.is_err());
    assert_eq!(outcomes(&adaptive), [Outcome::Ignored]);
    assert_eq!(adaptive.permits().in_use(), 0);

    panics_with(|| adaptive.try_acquire().unwrap());
    assert_eq!(outcomes(&adaptive), [Outcome::Ignored; 2]);
    assert_eq!(adaptive.permits().in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_never_had_a_permit_reports_nothing() {
    let adaptive = Adaptive::new(Recorded::at(1));
    let held = adaptive.acquire().await;
    assert!(adaptive.acquire().now_or_never().is_none());
    assert!(adaptive.try_acquire().is_none());
    let refused = adaptive.acquire_within(ms(10)).await.unwrap_err();
    assert!(refused.is_too_late());
    assert!(outcomes(&adaptive).is_empty());
    let stats = adaptive.permits().stats();
    assert_eq!((stats.passed, stats.refused, stats.waiting), (1, 2, 0));
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn the_first_report_counts_and_the_permit_stays() {
    let adaptive = Adaptive::new(Recorded::at(1));
    let mut permit = adaptive.acquire().await;
    permit.report(success(7));
    assert_eq!(adaptive.permits().in_use(), 1);
    permit.report(Outcome::Dropped);
    permit.dropped();
    assert_eq!(outcomes(&adaptive), [success(7)]);
    assert_eq!(adaptive.permits().in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_higher_limit_wakes_the_next_waiters_in_their_order() {
    let adaptive = Adaptive::new(Aimd::new(1, 100));
    let start = now();
    let calls = (0..10).map(|number| {
        let adaptive = adaptive.clone();
        async move {
            let permit = adaptive.acquire().await;
            let begun = (since(start), number);
            sleep(10).await;
            permit.success();
            begun
        }
    });
    // One, two and three at once. Of three that end in one instant the last finds two permits unused, and does not count.
    let begun = join_all(calls).await;
    let at = [0, 10, 10, 20, 20, 20, 30, 30, 30, 40];
    assert_eq!(begun, at.into_iter().zip(0..10).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_zero_counts_as_one() {
    let adaptive = Adaptive::new(Recorded::at(0));
    for _ in 0..3 {
        adaptive.acquire().await.success();
    }
    assert_eq!(adaptive.permits().limit(), 1);
}

#[tokio::test(start_paused = true)]
async fn another_size_lasts_until_the_next_report() {
    let adaptive = Adaptive::new(Recorded::at(3));
    let held = adaptive.acquire().await;
    adaptive.permits().resize(0);
    assert!(adaptive.try_acquire().is_none());
    held.success();
    assert_eq!(adaptive.permits().limit(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_observer_hears_of_the_size_only_when_it_changes() {
    let (sender, events) = mpsc::channel();
    let adaptive = Adaptive::new(Aimd::new(1, 100));
    let observer = move |event: Event| sender.send(event).unwrap();
    let _observed = adaptive.permits().clone().with_observer(observer);
    for _ in 0..2 {
        adaptive.try_acquire().unwrap().success();
    }
    adaptive.try_acquire().unwrap().dropped();
    drop(adaptive.try_acquire());
    let sizes = events.try_iter().filter_map(|event| match event {
        Event::Resized { limit, .. } => Some(limit),
        _ => None,
    });
    // One success in use of two is half: it counts, and the limit of two needs two of them.
    assert_eq!(sizes.collect::<Vec<_>>(), [1, 2, 1]);
}

#[test]
fn without_waiting_it_needs_no_runtime() {
    let adaptive = Adaptive::new(Aimd::new(1, 10));
    adaptive.try_acquire().unwrap().success();
    assert_eq!(adaptive.permits().limit(), 2);
    let _debug = format!("{adaptive:?} {:?}", adaptive.try_acquire());
}

/// It panics at every call that is not a success.
#[derive(Clone)]
struct Panicking;

impl Controller for Panicking {
    fn observe(&mut self, _: Tick, _: u32, outcome: Outcome) {
        assert!(matches!(outcome, Outcome::Success { .. }), "as it should");
    }

    fn limit(&self) -> u32 {
        1
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_panics_keeps_no_permit() {
    let adaptive = Adaptive::new(Panicking);
    for _ in 0..3 {
        let permit = adaptive.try_acquire().unwrap();
        assert!(catch_unwind(AssertUnwindSafe(|| permit.dropped())).is_err());
        assert_eq!(adaptive.permits().in_use(), 0);
        adaptive.try_acquire().unwrap().success();
    }
}

#[test]
fn a_controller_that_panics_while_its_call_unwinds_does_not_end_the_program() {
    let adaptive = Adaptive::new(Panicking);
    panics_with(|| adaptive.try_acquire().unwrap());
    assert_eq!(adaptive.permits().in_use(), 0);
}

/// Calls begin, end and are cancelled at random, and the clock moves at random.
#[tokio::test(start_paused = true)]
async fn what_begins_is_never_above_the_limit_of_the_moment_on_random_schedules() {
    for seed in 0..300 {
        let mut rng = Rng::with_seed(seed);
        if rng.bool() {
            let aimd = Aimd::new(1, 12).with_start(rng.u32(1..=12));
            random_schedule(&mut rng, Adaptive::new(aimd)).await;
        } else {
            let gradient = Gradient::new(1, 12).with_start(rng.u32(1..=12));
            let gradient = gradient.with_window(ms(20));
            random_schedule(&mut rng, Adaptive::new(gradient)).await;
        }
    }
}

async fn random_schedule(rng: &mut Rng, adaptive: Adaptive<impl Controller + Clone>) {
    let (mut waiting, mut held) = (Vec::new(), Vec::new());
    for _ in 0..400 {
        let (limit, in_use) = (adaptive.permits().limit(), adaptive.permits().in_use());
        match rng.u8(..10) {
            0..3 => waiting.push(Driven::new(adaptive.clone().acquire())),
            3..6 if !waiting.is_empty() => {
                let index = rng.usize(..waiting.len());
                if let Poll::Ready(permit) = waiting[index].poll() {
                    assert!(in_use < limit, "{in_use} of {limit}");
                    held.push(permit);
                    drop(waiting.remove(index));
                }
            }
            6 if !waiting.is_empty() => drop(waiting.swap_remove(rng.usize(..waiting.len()))),
            7 => jump(ms(rng.u64(..15))).await,
            _ if !held.is_empty() => {
                let permit = held.swap_remove(rng.usize(..held.len()));
                match rng.u8(..8) {
                    0 => permit.dropped(),
                    1 => drop(permit),
                    _ => permit.success(),
                }
            }
            _ => {}
        }
        assert_eq!(adaptive.permits().in_use() as usize, held.len());
        assert_eq!(adaptive.permits().limit(), adaptive.controller().limit());
        assert!((1..=12).contains(&adaptive.permits().limit()));
    }
    held.clear();
    // Every waiter is served: none was lost when the limit moved.
    for _ in 0..waiting.len() {
        waiting.retain_mut(|waiter| waiter.poll().is_pending());
    }
    assert!(waiting.is_empty());
    assert_eq!(adaptive.permits().in_use(), 0);
}

/// Its limit changes with each report.
#[derive(Clone)]
struct Restless(u32);

impl Controller for Restless {
    fn observe(&mut self, _: Tick, _: u32, _: Outcome) {
        self.0 += 1;
    }

    fn limit(&self) -> u32 {
        10 + self.0 % 10
    }
}

#[test]
fn threads_that_report_at_once_leave_the_limit_of_the_controller() {
    for round in 0..200 {
        let adaptive = Adaptive::new(Restless(0));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        adaptive.try_acquire().expect("there are ten").success();
                    }
                });
            }
        });
        let limit = adaptive.controller().limit();
        assert_eq!(adaptive.permits().limit(), limit, "round {round}");
        assert_eq!(adaptive.permits().in_use(), 0);
    }
}
