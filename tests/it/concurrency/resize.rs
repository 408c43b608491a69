//! A limit that is resized while requests wait.

use std::task::Poll;

use paceline::concurrency::Permits;
use paceline::concurrency::future::AcquirePermits;
use testkit::wakes::Driven;

use crate::timed::{now, since};

/// The cost and the capacity of a request that is refused for ever.
fn refused(request: &mut Driven<AcquirePermits>) -> (u32, u32) {
    let Poll::Ready(Err(refused)) = request.poll() else {
        panic!("it is too large");
    };
    let never = refused.too_costly().unwrap();
    (never.cost(), never.capacity())
}

#[test]
fn with_no_permits_nothing_passes_until_there_are_some() {
    let permits = Permits::new(2);
    permits.resize(0);
    assert!(permits.try_acquire().is_none());
    let mut one = Driven::new(permits.acquire());
    let mut many = Driven::new(permits.acquire_many(7));
    assert!(one.poll().is_pending());
    assert!(many.poll().is_pending(), "a pause refuses no request");

    permits.resize(7);
    assert!(one.is_woken());
    let one = one.poll();
    assert!(!many.is_woken());
    drop(one);
    assert!(many.poll().is_ready());
}

#[test]
fn a_request_that_became_too_large_is_refused_when_it_is_the_head() {
    let permits = Permits::new(4);
    let held = permits.try_acquire_many(4);
    let mut first = Driven::new(permits.acquire());
    let mut dear = Driven::new(permits.acquire_many(4));
    let mut last = Driven::new(permits.acquire());
    assert!(first.poll().is_pending() && dear.poll().is_pending());
    assert!(last.poll().is_pending());

    permits.resize(3);
    assert!(
        dear.poll().is_pending(),
        "the limit may grow again until it is the head"
    );
    drop(held);
    let _first = first.poll();
    assert!(dear.is_woken());
    assert_eq!(refused(&mut dear), (4, 3));
    assert!(last.is_woken());
    assert!(last.poll().is_ready());
}

#[test]
fn a_request_that_was_too_large_for_a_while_passes_after_growth() {
    let permits = Permits::new(4);
    let held = permits.try_acquire();
    let mut dear = Driven::new(permits.acquire_many(4));
    assert!(dear.poll().is_pending());
    let mut behind = Driven::new(permits.acquire_many(4));
    assert!(behind.poll().is_pending());

    permits.resize(3);
    assert!(dear.is_woken(), "it is the head, and would be refused now");
    permits.resize(4);
    drop(held);
    assert!(dear.poll().is_ready());
    assert!(behind.poll().is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_head_that_is_too_large_and_idle_does_not_starve_the_waiters_behind_it() {
    let permits = Permits::new(2);
    let held = permits.try_acquire_many(2);
    let mut dear = Driven::new(permits.acquire_many(2));
    assert!(dear.poll().is_pending());
    let behind = tokio::spawn(permits.acquire_owned());
    tokio::task::yield_now().await;
    let start = now();
    permits.resize(1);
    drop(held);

    drop(behind.await.unwrap());
    assert_eq!(since(start), 10);
    assert_eq!(refused(&mut dear), (2, 1));
}
