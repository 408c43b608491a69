//! A permit comes back some time after it was released.

use std::thread;

use paceline::concurrency::Permits;
use testkit::clock::jump;
use testkit::wakes::Driven;

use crate::timed::ms;

#[tokio::test(start_paused = true)]
async fn a_permit_dropped_in_a_thread_without_a_runtime_begins_to_cool_down() {
    let permits = Permits::new(1).with_cooldown(ms(3_600_000));
    let held = permits.try_acquire();
    let mut waits = Driven::new(permits.acquire());
    assert!(waits.poll().is_pending());

    thread::spawn(move || drop(held)).join().unwrap();
    assert!(waits.is_woken(), "it sets a timer in its own runtime");
    assert_eq!(permits.in_use(), 0);
    assert!(waits.poll().is_pending());
    // That thread reads the real clock, so the exact instant differs.
    jump(ms(7_200_000)).await;
    assert!(waits.poll().is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_cooldown_of_zero_is_none_and_one_for_ever_is_for_ever() {
    let permits = Permits::new(1).with_cooldown(ms(0));
    drop(permits.try_acquire());
    assert!(permits.try_acquire().is_some());

    let permits = Permits::new(1).with_cooldown(std::time::Duration::MAX);
    drop(permits.try_acquire());
    let waited = tokio::time::timeout(ms(1_000 * 86_400 * 365), permits.acquire()).await;
    assert!(waited.is_err());
}

#[test]
#[should_panic(expected = "a limit of paceline has to wait, and there is no tokio runtime here")]
fn a_cooldown_that_is_waited_for_outside_a_runtime_panics() {
    let permits = Permits::new(1).with_cooldown(ms(100));
    drop(permits.try_acquire());
    let _ = Driven::new(permits.acquire()).poll();
}
