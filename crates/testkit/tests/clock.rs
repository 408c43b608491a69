//! The clock leaps at once, and the stopwatch is exact.

use std::{future, task::Poll, time::Duration};

use testkit::{
    clock::{self, Stopwatch, ms},
    wakes::Driven,
};
use tokio::time::timeout;

/// Sleeps, and returns the instant at which it woke.
async fn nap(watch: Stopwatch, millis: u64) -> u128 {
    let never = timeout(ms(millis), future::pending::<()>());
    never.await.unwrap_err();
    watch.elapsed_ms()
}

#[tokio::test(start_paused = true)]
async fn a_leap_makes_every_timer_in_between_late_and_wakes_its_task_and_no_other() {
    let watch = Stopwatch::start();
    let mut naps = [10, 100, 180, 181].map(|millis| Driven::new(nap(watch, millis)));
    assert!(naps.iter_mut().all(|nap| nap.poll().is_pending()));

    clock::jump(ms(180)).await;

    assert_eq!(
        naps.each_ref().map(Driven::is_woken),
        [true, true, true, false]
    );
    let late = Poll::Ready(180);
    assert_eq!(
        naps.each_mut().map(Driven::poll),
        [late, late, late, Poll::Pending]
    );
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
