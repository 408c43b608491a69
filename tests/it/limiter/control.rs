//! What can be said to a limit while tasks wait for it.

use std::time::Duration;

use futures::{StreamExt, stream};
use paceline::limiter::Mode;
use paceline::policy::{Decision, Interval, TokenBucket};
use paceline::prelude::*;
use paceline::time::Rate;
use testkit::clock::jump;
use testkit::wakes::Driven;

use crate::timed::{ms, now, since, sleep};

fn wait(millis: u64) -> Decision {
    Decision::Wait {
        retry_in: ms(millis),
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_passes_during_a_pause_also_who_waits_already() {
    let start = now();
    let limit = Interval::every(ms(100)).shared();
    limit.acquire(1).await.unwrap();
    let tasks: Vec<_> = (0..2).map(|_| tokio::spawn(limit.acquire(1))).collect();
    sleep(50).await;

    limit.pause_for(ms(1_000));
    assert_eq!(limit.try_acquire(1), wait(1_000 + 200), "the two before it");
    for (task, at) in tasks.into_iter().zip([1_050, 1_150]) {
        task.await.unwrap().unwrap();
        assert_eq!(since(start), at);
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_pauses_the_later_end_counts() {
    let start = now();
    let limit = Interval::every(ms(1)).shared();
    limit.pause_for(ms(300));
    sleep(100).await;
    limit.pause_for(ms(100));
    assert_eq!(limit.try_acquire(1), wait(200));
    limit.pause_for(ms(400));
    limit.acquire(1).await.unwrap();
    assert_eq!(since(start), 500);
}

#[tokio::test(start_paused = true)]
async fn a_pause_hides_neither_never_nor_what_costs_nothing() {
    let limit = TokenBucket::new(Rate::new(1, ms(100)), 3).shared();
    limit.pause_for(Duration::MAX);

    assert_eq!(limit.try_acquire(4), Decision::Never { capacity: 3 });
    assert_eq!(limit.try_acquire(0), Decision::Pass);
    assert!(limit.acquire(4).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn after_a_pause_the_policy_counts_as_before() {
    let limit = TokenBucket::new(Rate::new(1, ms(100)), 3).shared();
    limit.acquire(3).await.unwrap();
    limit.pause_for(ms(50));

    assert_eq!(limit.try_acquire(1), wait(100), "longer than the pause");
    limit.pause_for(ms(150));
    assert_eq!(limit.try_acquire(1), wait(150), "tokens arrive meanwhile");
    jump(ms(150)).await;
    assert_eq!(limit.try_acquire(1), Decision::Pass);
    assert_eq!(limit.try_acquire(1), wait(50));
}

#[tokio::test(start_paused = true)]
async fn resuming_calls_the_first_in_line() {
    let start = now();
    let limit = Interval::every(ms(100)).shared();
    limit.pause_for(Duration::MAX);
    let tasks: Vec<_> = (0..3).map(|_| tokio::spawn(limit.acquire(1))).collect();
    sleep(70).await;

    limit.resume();
    for (task, at) in tasks.into_iter().zip([70, 170, 270]) {
        task.await.unwrap().unwrap();
        assert_eq!(since(start), at);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_waits_feels_a_pause_and_its_end() {
    let start = now();
    let limit = Interval::every(ms(100)).shared();
    let mut paced = stream::iter(0..3).pace(limit.clone());
    paced.next().await;
    limit.pause_for(ms(500));
    paced.next().await;
    assert_eq!(since(start), 500);

    let control = limit.clone();
    tokio::spawn(async move {
        sleep(20).await;
        control.pause_for(ms(10_000));
        sleep(200).await;
        control.resume();
    });
    paced.next().await;
    assert_eq!(since(start), 720);
}

#[tokio::test(start_paused = true)]
async fn in_shadow_everything_passes_and_what_would_not_have_is_counted() {
    let limit = TokenBucket::new(Rate::new(1, ms(100)), 2).shared();
    limit.set_mode(Mode::Shadow);

    for cost in [1, 1, 1, 5] {
        assert_eq!(limit.try_acquire(cost), Decision::Pass);
    }
    limit.acquire(9).await.unwrap();
    assert_eq!(limit.stats().passed, 5);
    assert_eq!(limit.stats().held_back, 3);

    limit.set_mode(Mode::Enforce);
    assert_eq!(
        limit.try_acquire(1),
        wait(100),
        "what conformed was charged, and no more"
    );
}

#[tokio::test(start_paused = true)]
async fn off_everything_passes_and_nothing_is_charged_or_counted() {
    let limit = TokenBucket::new(Rate::new(1, ms(100)), 2).shared();
    limit.set_mode(Mode::Off);
    for _ in 0..9 {
        assert_eq!(limit.try_acquire(1), Decision::Pass);
    }
    assert_eq!(limit.stats().passed, 0);

    limit.set_mode(Mode::Enforce);
    assert_eq!(limit.try_acquire(2), Decision::Pass);
}

#[tokio::test(start_paused = true)]
async fn everybody_in_line_feels_a_new_mode_at_once() {
    for mode in [Mode::Shadow, Mode::Off] {
        let start = now();
        let limit = Interval::every(ms(60_000)).shared();
        limit.acquire(1).await.unwrap();
        let tasks: Vec<_> = (0..3).map(|_| tokio::spawn(limit.acquire(1))).collect();
        sleep(10).await;
        limit.set_mode(mode);
        for task in tasks {
            task.await.unwrap().unwrap();
        }
        assert_eq!(since(start), 10);
    }
}

/// They have been woken, and have not asked again yet.
#[tokio::test(start_paused = true)]
async fn in_another_mode_nobody_stands_behind_those_who_still_wait() {
    for mode in [Mode::Off, Mode::Shadow] {
        let limit = Interval::every(ms(100)).shared();
        assert!(limit.try_acquire(1).is_pass());
        let mut waits = Driven::new(limit.acquire(1));
        assert!(waits.poll().is_pending());
        limit.set_mode(mode);
        assert_eq!(limit.try_acquire(1), Decision::Pass, "{mode:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn counts_who_passed_was_refused_had_to_wait_and_waits() {
    let limit = TokenBucket::new(Rate::new(1, ms(100)), 2).shared();
    limit.acquire(2).await.unwrap();
    let mut waits = Driven::new(limit.acquire(1));
    assert!(waits.poll().is_pending());
    assert!(waits.poll().is_pending());
    assert!(!limit.try_acquire(1).is_pass());
    assert!(limit.acquire(3).await.is_err());
    assert!(limit.acquire_within(1, ms(10)).await.is_err());
    let _ = limit.peek(1);
    let _ = limit.try_acquire(0);

    let stats = limit.stats();
    assert_eq!(stats.passed, 1);
    assert_eq!(stats.refused, 3);
    assert_eq!((stats.held_back, stats.waiting), (1, 1));
    jump(ms(100)).await;
    assert!(waits.poll().is_ready());
    let stats = limit.stats();
    assert_eq!((stats.passed, stats.held_back, stats.waiting), (2, 1, 0));
}

/// An alarm that rang a fraction of a millisecond early is not one that is still set.
#[tokio::test(start_paused = true)]
async fn a_pause_that_ends_at_once_is_felt_although_the_alarm_has_rung() {
    let micros = Duration::from_micros;
    let limit = Interval::every(micros(100_500)).shared();
    assert!(limit.try_acquire(1).is_pass());
    let mut first = Driven::new(limit.acquire(1));
    let mut second = Driven::new(limit.acquire(1));
    assert!(first.poll().is_pending());
    assert!(second.poll().is_pending());
    jump(ms(101)).await;
    assert!(
        first.poll().is_ready(),
        "the second one's turn comes at 201.5"
    );
    jump(ms(99)).await;
    limit.pause_for(ms(3_600_000));
    jump(ms(1)).await;
    tokio::task::yield_now().await;
    assert!(second.is_woken());
    assert!(second.poll().is_pending(), "told an hour");
    jump(micros(100)).await;
    limit.resume();
    assert!(second.is_woken());
    let start = now();
    second.into_inner().await.unwrap();
    assert!(start.elapsed() < ms(2), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_passed_while_it_was_off_is_not_in_the_forecast() {
    let limit = Interval::every(ms(10)).shared();
    assert!(limit.try_acquire(1).is_pass());
    let mut line: Vec<_> = (0..200).map(|_| Driven::new(limit.acquire(1))).collect();
    for one in &mut line {
        assert!(one.poll().is_pending());
    }
    assert_eq!(limit.peek(1), wait(2_010));
    limit.set_mode(Mode::Off);
    for one in &mut line[..60] {
        assert!(one.poll().is_ready());
    }
    limit.set_mode(Mode::Enforce);
    let told = limit.peek(1).retry_in().unwrap();
    assert!(told <= ms(1_410), "{told:?}");
}
