//! Pauses and modes, also while requests wait.

use std::time::Duration;

use futures::{StreamExt, stream};
use paceline::limiter::{Mode, Switch};
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
async fn nothing_passes_during_a_pause_neither_do_queued_waiters() {
    let start = now();
    let limit = Interval::every(ms(100)).shared();
    limit.acquire(1).await.unwrap();
    let tasks: Vec<_> = (0..2).map(|_| tokio::spawn(limit.acquire(1))).collect();
    sleep(50).await;

    limit.pause_for(ms(1_000));
    assert_eq!(
        limit.try_acquire(1),
        wait(1_000 + 200),
        "behind two waiters"
    );
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
async fn a_pause_hides_neither_a_cost_too_large_nor_a_cost_of_zero() {
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
async fn resuming_wakes_the_head() {
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
async fn in_shadow_mode_every_request_passes_and_held_back_ones_are_counted() {
    let limit = TokenBucket::new(Rate::new(1, ms(100)), 2).shared();
    let switch = Switch::new().with_mode(Mode::Shadow);
    let switched = limit.clone().switched(&switch);
    for cost in [1, 1, 1, 3] {
        assert_eq!(switched.try_acquire(cost).await, Decision::Pass);
    }
    switched.acquire(9).await.unwrap();
    assert_eq!((switch.stats().shadowed, switch.stats().held_back), (5, 3));
    assert_eq!(limit.stats().passed, 2);

    switch.set_mode(Mode::Active);
    assert_eq!(
        switched.try_acquire(1).await,
        wait(100),
        "what conformed was charged, and no more"
    );
}

#[tokio::test(start_paused = true)]
async fn when_off_every_request_passes_and_nothing_is_charged_or_counted() {
    let limit = TokenBucket::new(Rate::new(1, ms(100)), 2).shared();
    let switch = Switch::new().with_mode(Mode::Off);
    let switched = limit.clone().switched(&switch);
    for _ in 0..9 {
        assert_eq!(switched.try_acquire(1).await, Decision::Pass);
    }
    assert_eq!((limit.stats().passed, switch.stats().shadowed), (0, 0));

    switch.set_mode(Mode::Active);
    assert_eq!(switched.try_acquire(2).await, Decision::Pass);
}

#[tokio::test(start_paused = true)]
async fn every_waiter_feels_a_new_mode_at_once() {
    for mode in [Mode::Shadow, Mode::Off] {
        let start = now();
        let switch = Switch::new();
        let limit = Interval::every(ms(60_000)).shared().switched(&switch);
        limit.acquire(1).await.unwrap();
        let tasks: Vec<_> = (0..3).map(|_| tokio::spawn(limit.acquire(1))).collect();
        sleep(10).await;
        switch.set_mode(mode);
        for task in tasks {
            task.await.unwrap().unwrap();
        }
        assert_eq!(since(start), 10);
    }
}

/// The waiter has been woken, and has not asked again yet.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_not_limited_waits_behind_no_other() {
    for mode in [Mode::Off, Mode::Shadow] {
        let switch = Switch::new();
        let limit = Interval::every(ms(100)).shared().switched(&switch);
        assert!(limit.try_acquire(1).await.is_pass());
        let mut waits = Driven::new(limit.acquire(1));
        assert!(waits.poll().is_pending());
        switch.set_mode(mode);
        assert_eq!(limit.try_acquire(1).await, Decision::Pass, "{mode:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn counts_requests_that_passed_were_refused_were_held_back_and_wait() {
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

/// The head sleeps on a timer of its own until the end of the pause, so the timer of the queue has to wake it.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_pause_is_felt_by_a_head_that_sleeps_until_a_later_one() {
    let limit = Interval::every(ms(100)).shared();
    assert!(limit.try_acquire(1).is_pass());
    let mut waiters = [(); 2].map(|()| Driven::new(limit.acquire(1)));
    for waiter in &mut waiters {
        assert!(waiter.poll().is_pending());
    }
    let [mut first, mut second] = waiters;
    jump(ms(100)).await;
    assert!(first.poll().is_ready());
    limit.pause_for(ms(3_600_000));
    jump(ms(99)).await;
    assert!(second.poll().is_pending());
    limit.resume();
    assert!(!second.is_woken(), "its permit is due in 1 ms");
    jump(ms(1)).await;
    assert!(second.is_woken());
    assert!(second.poll().is_ready());
}

/// Its permit is due in less than the millisecond of tokio's timers.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_pause_is_felt_within_a_millisecond() {
    let micros = Duration::from_micros;
    let limit = Interval::every(micros(100_500)).shared();
    assert!(limit.try_acquire(1).is_pass());
    let mut waiters = [(); 2].map(|()| Driven::new(limit.acquire(1)));
    for waiter in &mut waiters {
        assert!(waiter.poll().is_pending());
    }
    let [mut first, mut second] = waiters;
    jump(ms(101)).await;
    assert!(first.poll().is_ready());
    jump(ms(99)).await;
    limit.pause_for(ms(3_600_000));
    jump(ms(1)).await;
    tokio::task::yield_now().await;
    assert!(second.poll().is_pending());
    jump(micros(100)).await;
    limit.resume();
    let start = now();
    second.into_inner().await.unwrap();
    assert!(start.elapsed() < ms(2), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn requests_that_passed_while_it_was_off_are_not_in_the_estimate() {
    let (limit, switch) = (Interval::every(ms(10)).shared(), Switch::new());
    assert!(limit.try_acquire(1).is_pass());
    let switched = limit.clone().switched(&switch);
    let mut waiters: Vec<_> = (0..200).map(|_| Driven::new(switched.acquire(1))).collect();
    for waiter in &mut waiters {
        assert!(waiter.poll().is_pending());
    }
    assert_eq!(limit.peek(1), wait(2_010));
    switch.set_mode(Mode::Off);
    for waiter in &mut waiters[..60] {
        assert!(waiter.poll().is_ready());
    }
    switch.set_mode(Mode::Active);
    let estimate = limit.peek(1).retry_in().unwrap();
    assert!(estimate <= ms(1_410), "{estimate:?}");
}

#[tokio::test(start_paused = true)]
async fn a_new_mode_does_not_start_the_clock_of_an_unused_limit() {
    let switch = Switch::new().with_mode(Mode::Off);
    let limit = Interval::every(ms(100)).with_delayed_start().shared();
    let limit = limit.switched(&switch);
    assert!(limit.try_acquire(1).await.is_pass());
    switch.set_mode(Mode::Active);
    jump(ms(100)).await;
    assert_eq!(limit.try_acquire(1).await.retry_in(), Some(ms(100)));
}
