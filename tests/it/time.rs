use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use paceline::time::{Clock, Tick, Timer};
use proptest::prelude::*;
use testkit::clock::jump;
use testkit::wakes::Driven;
use tokio::task::coop::poll_proceed;

use crate::timed::{ms, now, since, sleep};

async fn elapse(timer: &mut Timer) {
    poll_fn(|cx| timer.poll_elapsed(cx)).await;
}

#[tokio::test(start_paused = true)]
async fn whole_milliseconds_are_exact_with_one_wake_up() {
    for millis in [1, 2, 100, 86_400_000] {
        let start = now();
        let mut timer = Timer::new();
        timer.arm(ms(millis));
        let mut waiting = Driven::new(poll_fn(move |cx| timer.poll_elapsed(cx)));
        assert!(waiting.poll().is_pending());
        sleep(millis).await;
        assert!(waiting.is_woken());
        assert!(waiting.poll().is_ready());
        assert_eq!(since(start), millis);
        assert_eq!(waiting.wakes(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn other_instants_come_at_the_next_millisecond() {
    for (micros, millis) in [(1, 1), (999, 1), (1_001, 2), (2_500, 3)] {
        let start = now();
        let mut timer = Timer::new();
        timer.arm(Duration::from_micros(micros));
        elapse(&mut timer).await;
        assert_eq!(since(start), millis, "{micros} µs");
    }
}

#[tokio::test(start_paused = true)]
async fn waits_that_are_over_at_once_yield_to_other_tasks() {
    let other = tokio::spawn(async {});
    let mut timer = Timer::new();
    let mut waits = 0;
    while !other.is_finished() {
        waits += 1;
        assert!(waits < 1_000);
        timer.arm(Duration::ZERO);
        elapse(&mut timer).await;
    }
    assert!(waits > 10, "it does not yield each time");
}

/// Polls it when the task has used up its budget.
fn poll_without_budget(timer: &mut Timer, cx: &mut Context<'_>) -> Poll<()> {
    while poll_proceed(cx).map(|turn| turn.made_progress()).is_ready() {}
    timer.poll_elapsed(cx)
}

/// Or a stream that is always ready, and is polled first, would starve it.
#[tokio::test(start_paused = true)]
async fn without_budget_a_due_timer_is_pending_once_at_most() {
    let mut timer = Timer::new();
    timer.arm(Duration::ZERO);
    let mut polls = 0;
    poll_fn(|cx| {
        polls += 1;
        poll_without_budget(&mut timer, cx)
    })
    .await;
    assert_eq!(polls, 2);

    timer.arm(ms(100));
    assert!(poll_fn(|cx| Poll::Ready(timer.poll_elapsed(cx).is_pending())).await);
    jump(ms(100)).await;
    assert!(poll_fn(|cx| Poll::Ready(poll_without_budget(&mut timer, cx).is_ready())).await);
}

#[tokio::test(start_paused = true)]
async fn arming_replaces_the_earlier_instant() {
    let start = now();
    let mut timer = Timer::new();
    timer.arm(ms(10));
    timer.arm(ms(30));
    elapse(&mut timer).await;
    assert_eq!(since(start), 30);

    timer.arm(ms(1_000));
    timer.disarm();
    elapse(&mut timer).await;
    assert_eq!(since(start), 30);

    timer.arm(ms(1_000));
    timer.arm(ms(5));
    elapse(&mut timer).await;
    assert_eq!(since(start), 35);
}

#[tokio::test(start_paused = true)]
async fn the_longest_duration_can_be_armed() {
    let mut timer = Timer::new();
    timer.arm(Duration::MAX);
    let waited = tokio::time::timeout(ms(86_400_000 * 365), elapse(&mut timer)).await;
    assert!(waited.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_clock_starts_when_it_is_first_read() {
    let mut clock = Clock::new();
    jump(ms(50)).await;
    assert_eq!(clock.now(), Tick::ZERO);
    jump(ms(7)).await;
    assert_eq!(clock.now(), Tick::ZERO.after(ms(7)));
    assert_eq!(clock.clone().now(), clock.now());
}

proptest! {
    #[test]
    fn a_timer_is_never_early_whatever_the_phase(phase in 0_u64..3_000_000, wait in 0_u64..5_000_000) {
        let runtime = testkit::clock::paused_runtime();
        runtime.block_on(async {
            jump(Duration::from_nanos(phase)).await;
            let start = now();
            let wait = Duration::from_nanos(wait);
            let mut timer = Timer::of_this_runtime();
            timer.arm(wait);
            elapse(&mut timer).await;
            let late = start.elapsed().checked_sub(wait).expect("never early");
            assert!(late < ms(1), "{late:?}");
        });
    }
}
