//! The clock leaps at once, and the stopwatch is exact.

use std::{future, time::Duration};

use testkit::{
    clock::{self, Stopwatch},
    wakes::Driven,
};
use tokio::time::timeout;

/// Sleeps, and returns the instant at which it woke.
async fn nap(watch: Stopwatch, ms: u64) -> u128 {
    let never = timeout(Duration::from_millis(ms), future::pending::<()>());
    never.await.unwrap_err();
    watch.elapsed_ms()
}

#[tokio::test(start_paused = true)]
async fn a_leap_makes_every_timer_in_between_late_and_no_other() {
    let watch = Stopwatch::start();
    let naps = [10, 100, 180, 200].map(|ms| tokio::spawn(nap(watch, ms)));
    tokio::task::yield_now().await;

    clock::jump(Duration::from_millis(180)).await;

    let mut woke = Vec::new();
    for nap in naps {
        woke.push(nap.await.unwrap());
    }
    assert_eq!(woke, [180, 180, 180, 200]);
}

#[tokio::test(start_paused = true)]
async fn a_timer_that_was_leapt_over_wakes_its_task_without_another_wait() {
    let mut nap = Driven::new(nap(Stopwatch::start(), 50));
    assert!(nap.poll().is_pending());

    clock::jump(Duration::from_millis(49)).await;
    assert!(!nap.is_woken());

    clock::jump(Duration::from_millis(1)).await;
    assert!(nap.is_woken());
    assert!(nap.poll().is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_stopwatch_measures_waits_and_leaps_exactly() {
    let watch = Stopwatch::start();
    assert_eq!(watch.elapsed(), Duration::ZERO);

    nap(watch, 20).await;
    clock::jump(Duration::from_micros(12_345)).await;

    assert_eq!(watch.elapsed(), Duration::from_micros(32_345));
    assert_eq!(watch.elapsed_ms(), 32);
}

#[tokio::test]
#[should_panic(expected = "time is not frozen")]
async fn a_running_clock_does_not_leap() {
    clock::jump(Duration::from_millis(1)).await;
}
