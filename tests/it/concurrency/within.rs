//! `acquire_within` of permits, and what permits count.

use std::panic::{AssertUnwindSafe, catch_unwind};

use futures::FutureExt;
use paceline::concurrency::future::AcquirePermits;
use paceline::concurrency::{KeyedPermits, Permits};
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
    let refused = permits.acquire_within(ms(99)).await.unwrap_err();
    assert_eq!((refused.retry_in(), since(start)), (Some(ms(100)), 0));
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
async fn one_that_has_ended_is_polled_in_vain_as_one_without_a_time() {
    fn panics_at_its_second_poll<F: Future>(request: F) {
        let mut request = Driven::new(request);
        assert!(request.poll().is_ready());
        let again = catch_unwind(AssertUnwindSafe(|| drop(request.poll())));
        let message = again.unwrap_err();
        let message = message.downcast_ref::<String>().unwrap();
        assert_eq!(message, "polled after it was ready");
    }
    let permits = Permits::new(2);
    panics_at_its_second_poll(permits.acquire());
    panics_at_its_second_poll(permits.acquire_within(ms(1)));
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

/// Each of `count` calls takes this long, one after the other for each permit.
async fn calls(permits: &Permits, count: u32, millis: u64) {
    let calls = (0..count).map(|_| {
        let permits = permits.clone();
        tokio::spawn(async move {
            let _permit = permits.acquire().await;
            sleep(millis).await;
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
}

fn waiters<'a>(permits: &'a Permits, costs: &[u32]) -> Vec<Driven<AcquirePermits<'a>>> {
    let waiters = costs.iter().map(|cost| {
        let mut waiter = Driven::new(permits.acquire_many(*cost));
        assert!(waiter.poll().is_pending());
        waiter
    });
    waiters.collect()
}

fn refused_in(permits: &Permits) -> Option<u128> {
    let refused = permits.acquire_within(ms(1)).now_or_never()?.err()?;
    refused.retry_in().map(|retry_in| retry_in.as_millis())
}

#[tokio::test(start_paused = true)]
async fn the_estimated_wait_counts_all_permits_that_are_wanted_ahead() {
    let permits = Permits::new(4).with_estimated_wait();
    calls(&permits, 4, 100).await;
    let held = permits.try_acquire_many(4);
    assert_eq!(refused_in(&permits), Some(25));
    let ahead = waiters(&permits, &[1, 1, 3]);
    assert_eq!(refused_in(&permits), Some(150), "the sixth permit");
    permits.resize(2);
    assert_eq!(refused_in(&permits), Some(400), "the eighth, of two");
    permits.resize(4);
    drop(ahead);
    assert_eq!(refused_in(&permits), Some(25));
    drop(held);
    assert!(permits.acquire_within(ms(0)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn no_wait_is_estimated_before_as_many_permits_have_come_back_as_there_are() {
    let start = now();
    let permits = Permits::new(2).with_estimated_wait();
    calls(&permits, 1, 100).await;
    let _held = permits.try_acquire_many(2);
    assert_eq!(refused_in(&permits), None, "it is queued");
    let refused = permits.acquire_within(ms(10)).await.unwrap_err();
    assert_eq!((refused.retry_in(), since(start)), (None, 110));
}

#[tokio::test(start_paused = true)]
async fn a_request_is_never_refused_for_an_estimate_while_a_permit_is_free() {
    let permits = Permits::new(1).with_estimated_wait();
    calls(&permits, 1, 3_600_000).await;
    for _ in 0..200 {
        let permit = permits.acquire_within(ms(0)).await;
        assert!(permit.is_ok());
        let refused = permits.acquire_within(ms(9)).now_or_never();
        assert!(refused.is_some_and(|end| end.is_err()));
        sleep(10).await;
    }
    let _permit = permits.acquire_within(ms(0)).await;
    assert_eq!(refused_in(&permits), Some(10), "one hour is forgotten");
}

#[tokio::test(start_paused = true)]
async fn the_estimate_follows_when_calls_become_slower() {
    let permits = Permits::new(2).with_estimated_wait();
    calls(&permits, 40, 20).await;
    let held = permits.try_acquire_many(2);
    assert_eq!(refused_in(&permits), Some(10));
    drop(held);
    calls(&permits, 80, 200).await;
    let held = permits.try_acquire_many(2);
    assert_eq!(refused_in(&permits), Some(99));

    sleep(10_000).await;
    let stuck = refused_in(&permits).unwrap();
    assert!(stuck > 500, "permits that do not come back: {stuck}");
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn a_cool_down_is_part_of_the_estimate_and_known_without_it() {
    let permits = Permits::new(1).with_cooldown(ms(50)).with_estimated_wait();
    calls(&permits, 1, 100).await;
    assert_eq!(refused_in(&permits), Some(50), "known");
    let ahead = waiters(&permits, &[1]);
    assert_eq!(refused_in(&permits), Some(300), "two of 150");
    drop(ahead);
    sleep(50).await;
    let _held = permits.try_acquire();
    assert_eq!(refused_in(&permits), Some(150));
}

#[tokio::test(start_paused = true)]
async fn with_the_newest_first_the_estimate_counts_no_waiter_ahead() {
    let permits = Permits::new(1).with_estimated_wait();
    let permits = permits.with_newest_first(ms(250));
    calls(&permits, 1, 100).await;
    let _held = permits.try_acquire();
    let _ahead = waiters(&permits, &[1, 1, 1]);
    assert_eq!(refused_in(&permits), Some(250), "from then on it is first");
    jump(ms(250)).await;
    // Held for 100, then for 250 so far.
    assert_eq!(refused_in(&permits), Some(350));
}
