//! Pauses, also while requests wait.

use std::time::Duration;

use futures::{StreamExt, stream};
use paceline::policy::Interval;
use paceline::prelude::*;
use testkit::clock::jump;

use super::{queued, spawned, used, wait};
use crate::timed::{ms, now, since, sleep};

#[tokio::test(start_paused = true)]
async fn nothing_passes_during_a_pause_neither_do_queued_waiters() {
    let limit = used(100);
    let passed = spawned([(); 2].map(|()| limit.acquire_owned(1)));
    sleep(50).await;

    limit.pause_for(ms(1_000));
    assert_eq!(
        limit.try_acquire(1),
        wait(1_000 + 200),
        "behind two waiters"
    );
    assert_eq!(passed.await, [1_050, 1_150]);
}

#[tokio::test(start_paused = true)]
async fn resuming_wakes_the_head() {
    let limit = Interval::every(ms(100)).shared();
    limit.pause_for(Duration::MAX);
    let passed = spawned([(); 3].map(|()| limit.acquire_owned(1)));
    sleep(70).await;
    limit.resume();
    assert_eq!(passed.await, [70, 170, 270]);
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

    tokio::spawn(async move {
        sleep(20).await;
        limit.pause_for(ms(10_000));
        sleep(200).await;
        limit.resume();
    });
    paced.next().await;
    assert_eq!(since(start), 720);
}

/// The head sleeps on a timer of its own until the end of the pause, so the timer of the queue has to wake it.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_pause_is_felt_by_a_head_that_sleeps_until_a_later_one() {
    let limit = used(100);
    let [mut first, mut second] = [(); 2].map(|()| queued(limit.acquire(1)));
    jump(ms(100)).await;
    assert!(first.poll().is_ready());
    limit.pause_for(ms(3_600_000));
    jump(ms(99)).await;
    assert!(second.poll().is_pending());
    limit.resume();
    assert!(!second.is_woken(), "its permit is due in 1 ms");
    jump(ms(1)).await;
    assert!(second.is_woken() && second.poll().is_ready());
}

/// Its permit is due in less than the millisecond of tokio's timers.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_pause_is_felt_within_a_millisecond() {
    let micros = Duration::from_micros;
    let limit = Interval::every(micros(100_500)).shared();
    assert!(limit.try_acquire(1).is_pass());
    let [mut first, mut second] = [(); 2].map(|()| queued(limit.acquire(1)));
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
