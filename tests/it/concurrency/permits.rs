//! Taking and giving back.

use std::panic::{AssertUnwindSafe, catch_unwind};

use futures::executor::block_on;
use futures::{FutureExt, StreamExt, stream};
use paceline::concurrency::{Permit, Permits};
use paceline::limiter::Event;
use paceline::prelude::*;
use testkit::wakes::Driven;

use super::panics_with;
use crate::timed::{now, since};

#[tokio::test(start_paused = true)]
async fn a_holder_that_panics_gives_back_what_it_held() {
    let permits = Permits::new(1);
    let holder = tokio::spawn({
        let permits = permits.clone();
        async move {
            let _permit = permits.acquire().await;
            panic!("on purpose");
        }
    });

    assert!(holder.await.unwrap_err().is_panic());
    assert_eq!(permits.in_use(), 0);
    drop(permits.acquire().await);
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_panics_when_a_request_has_passed_keeps_no_permit() {
    let permits = Permits::new(1);
    let permits = permits.with_observer(|event: Event| assert!(!passed(&event), "as it should"));
    let panics = |work: &dyn Fn()| assert!(catch_unwind(AssertUnwindSafe(work)).is_err());
    for _ in 0..3 {
        panics(&|| drop(permits.try_acquire()));
        panics(&|| drop(permits.acquire().now_or_never()));
        assert_eq!(permits.in_use(), 0);
    }

    permits.resize(0);
    let mut waits = Driven::new(permits.acquire());
    assert!(waits.poll().is_pending());
    permits.resize(1);
    assert!(catch_unwind(AssertUnwindSafe(|| waits.poll())).is_err());
    drop(waits);
    assert_eq!(permits.in_use(), 0);
}

fn passed(event: &Event) -> bool {
    matches!(event, Event::Passed { .. })
}

#[test]
fn an_observer_that_panics_while_its_thread_unwinds_does_not_end_the_program() {
    let permits = Permits::new(2);
    let released = |event| matches!(event, Event::Released { .. });
    let permits = permits.with_observer(move |event: Event| assert!(!released(event), "again"));
    panics_with(|| permits.try_acquire().unwrap());
    assert_eq!(permits.in_use(), 0);
}

#[test]
fn more_permits_than_there_are_is_refused_at_once() {
    let permits = Permits::new(2);
    let _held = permits.try_acquire_many(2);
    let mut waits = Driven::new(permits.acquire());
    assert!(waits.poll().is_pending());

    let refused = block_on(permits.acquire_many(3)).unwrap_err();
    let never = refused.too_costly().unwrap();
    assert_eq!((never.cost(), never.capacity()), (3, 2));
    assert!(permits.try_acquire_many(3).is_none());
}

#[test]
fn a_request_for_no_permits_passes_at_once_and_uses_nothing() {
    let permits = Permits::new(1);
    let _held = permits.try_acquire();
    permits.resize(0);
    let mut waits = Driven::new(permits.acquire());
    assert!(waits.poll().is_pending());

    let nothing = block_on(permits.acquire_many(0)).unwrap();
    assert_eq!(nothing.count(), 0);
    assert!(permits.try_acquire_many(0).is_some());
    drop(nothing);
    assert_eq!(permits.in_use(), 1);
}

#[test]
#[should_panic(expected = "at least 1 permit, got 0")]
fn zero_permits_are_refused_at_construction() {
    let _ = Permits::new(0);
}

#[test]
fn a_permit_can_go_anywhere_and_shows_little() {
    fn free<T: Send + Sync + Unpin + 'static>(_: &T) {}
    let permits = Permits::new(3);
    let permit: Permit = permits.try_acquire_many(2).unwrap();
    free(&permit);
    assert_eq!(format!("{permit:?}"), "Permit { count: 2, .. }");
    let mut waits = Driven::new(permits.acquire_many(2));
    assert!(waits.poll().is_pending());
    assert_eq!(
        format!("{permits:?}"),
        "Permits { limit: 3, in_use: 2, waiting: 1, .. }"
    );
}

#[test]
fn a_number_of_permits_from_a_configuration_is_checked() {
    let refused = Permits::try_new(0).unwrap_err().to_string();
    assert_eq!(refused, "there must be at least 1 permit, got 0");
    for n in [1, u32::MAX] {
        assert_eq!(Permits::try_new(n).unwrap().limit(), n);
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_stream_does_not_starve_other_requests_and_is_not_refused() {
    let permits = Permits::new(1);
    let held = permits.try_acquire();
    let mut calls = Box::pin(stream::iter([1]).concurrent(permits.clone(), std::future::ready));
    assert!(futures::poll!(calls.next()).is_pending());
    let start = now();
    drop(held);

    drop(permits.acquire().await);
    assert_eq!(since(start), 10);
    assert_eq!(calls.next().await, Some(1));
    let stats = permits.stats();
    assert_eq!((stats.passed, stats.refused), (3, 0));
}
