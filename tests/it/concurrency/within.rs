//! `acquire_within` of permits, and what permits count.

use futures::FutureExt;
use paceline::concurrency::{KeyedPermits, Permits};
use paceline::prelude::*;
use testkit::clock::jump;
use testkit::wakes::Driven;

use crate::timed::{ms, now, since, sleep};

#[tokio::test(start_paused = true)]
async fn a_permit_that_comes_back_in_time_is_had() {
    let start = now();
    let permits = Permits::new(1);
    let held = permits.acquire().await;
    let waits = tokio::spawn(permits.acquire_within(ms(100)));
    sleep(99).await;
    drop(held);
    assert_eq!(waits.await.unwrap().unwrap().count(), 1);
    assert_eq!(since(start), 99);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_too_long_ends_with_the_time_and_leaves_the_queue() {
    let start = now();
    let permits = Permits::new(1);
    let held = permits.acquire().await;
    let refused = permits.acquire_within(ms(100)).await.unwrap_err();
    assert!(refused.is_too_late() && !refused.is_too_costly());
    assert_eq!(refused.to_string(), "could not pass within 100ms");
    assert_eq!((refused.retry_in(), since(start)), (None, 100));

    let stats = permits.stats();
    assert_eq!((stats.passed, stats.refused), (1, 1));
    assert_eq!((stats.held_back, stats.waiting), (1, 0));
    drop(held);
    assert!(permits.try_acquire().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_cooldown_that_is_known_to_be_too_long_is_not_waited_for() {
    let start = now();
    let permits = Permits::new(1).with_cooldown(ms(100));
    drop(permits.acquire().await);
    assert!(permits.acquire_within(ms(99)).await.is_err());
    assert_eq!(since(start), 0);
    assert!(permits.acquire_within(ms(100)).await.is_ok());
    assert_eq!(since(start), 100);

    let users = KeyedPermits::new(1).with_cooldown(ms(100));
    drop(users.acquire("ann").await);
    assert!(users.acquire_within("ann", ms(99)).await.is_err());
    assert_eq!(since(start), 100);
    assert!(users.acquire_within("ann", ms(100)).await.is_ok());
    assert_eq!(since(start), 200);
}

#[tokio::test(start_paused = true)]
async fn within_no_time_means_now_or_not_at_all() {
    let permits = Permits::new(1);
    let held = permits.acquire_within(ms(0)).now_or_never().unwrap();
    assert!(held.is_ok());
    let refused = permits.acquire_within(ms(0)).now_or_never().unwrap();
    assert!(refused.is_err());
}

#[tokio::test(start_paused = true)]
async fn one_that_is_polled_late_takes_a_permit_that_is_there() {
    let permits = Permits::new(1);
    let held = permits.try_acquire();
    let mut late = Driven::new(permits.acquire_within(ms(50)));
    assert!(late.poll().is_pending());
    jump(ms(100)).await;
    drop(held);
    assert!(late.poll().is_ready());
}

#[tokio::test(start_paused = true)]
async fn one_that_is_dropped_leaves_the_queue() {
    let permits = Permits::new(1);
    let held = permits.try_acquire();
    let mut gone = Driven::new(permits.acquire_within(ms(50)));
    let mut next = Driven::new(permits.acquire());
    assert!(gone.poll().is_pending() && next.poll().is_pending());
    drop(gone);
    drop(held);
    assert!(next.poll().is_ready());
    assert_eq!(permits.stats().refused, 0);
}

#[tokio::test(start_paused = true)]
async fn one_that_has_ended_is_polled_in_vain() {
    let mut done = Driven::new(Permits::new(1).acquire_within(ms(1)));
    assert!(done.poll().is_ready());
    let again = std::panic::AssertUnwindSafe(|| done.poll());
    assert!(std::panic::catch_unwind(again).is_err());
}

#[tokio::test(start_paused = true)]
async fn stats_count_requests_and_not_permits() {
    let permits = Permits::new(4);
    let four = permits.try_acquire_many(4);
    assert!(permits.try_acquire_many(0).is_some());
    assert!(permits.try_acquire_many(3).is_none());
    assert!(permits.acquire_many(5).await.is_err());
    let mut waits = Driven::new(permits.acquire_many(2));
    assert!(waits.poll().is_pending() && waits.poll().is_pending());

    let stats = permits.stats();
    assert_eq!((stats.passed, stats.refused), (1, 2));
    assert_eq!((stats.held_back, stats.waiting), (1, 1));
    drop(four);
    assert!(waits.poll().is_ready());
    let stats = permits.stats();
    assert_eq!((stats.passed, stats.refused), (2, 2));
    assert_eq!((stats.held_back, stats.waiting), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_waits_for_permits_is_not_counted_as_refused() {
    let permits = Permits::new(1);
    let work = |item: u32| async move {
        sleep(10).await;
        item
    };
    let calls = futures::stream::iter(0..5).concurrent(permits.clone(), work);
    assert_eq!(futures::StreamExt::count(calls).await, 5);
    let stats = permits.stats();
    assert_eq!((stats.passed, stats.refused), (5, 0));
}
