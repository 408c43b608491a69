//! Requests by hand: `acquire`, `acquire_one`, `acquire_within` and `try_acquire`.

use futures::FutureExt;
use paceline::limiter::{Event, Limiter, LimiterExt, Observed, Switch, Switched};
use paceline::policy::Decision;
use paceline::prelude::*;
use testkit::wakes::Driven;

use crate::timed::{ms, now, since};

const EVERY: Interval = Interval::every(ms(100));

/// The four methods of the trait, also where a type has its own.
async fn check<L: LimiterExt>(limit: L) {
    let start = now();
    let later = Decision::Wait { retry_in: ms(100) };
    limit.acquire_one().await;
    assert_eq!(limit.try_acquire(1).await, later);
    limit.acquire(1).await.unwrap();
    assert_eq!(since(start), 100);

    let too_late = limit.acquire_within(1, ms(60)).await.unwrap_err();
    assert!(too_late.is_too_late());
    assert_eq!(
        since(start),
        160,
        "it does not know before that the queue is too long"
    );
    limit.acquire_within(1, ms(40)).await.unwrap();
    assert_eq!(since(start), 200);

    // Those that are dropped leave the queue.
    let mut dropped = Driven::new(limit.acquire_one());
    assert!(dropped.poll().is_pending());
    assert_eq!(limit.try_acquire(1).await.retry_in(), Some(ms(200)));
    drop(dropped);
    assert_eq!(limit.try_acquire(1).await, later);
    limit.acquire_one().await;
    assert_eq!(since(start), 300);
}

#[tokio::test(start_paused = true)]
async fn every_handle_has_the_same_methods() {
    check(EVERY.shared()).await;
    check(EVERY.keyed().at("ann")).await;
    check(Observed::new(EVERY.shared(), |_: Event| {})).await;
    check(Switched::new(EVERY.shared(), Switch::new())).await;
    let observed = Observed::new(EVERY.keyed().at("ann"), |_: Event| {});
    check(Switched::new(observed, Switch::new())).await;
}

#[tokio::test(start_paused = true)]
async fn a_handle_of_one_key_answers_at_once() {
    let start = now();
    let limits = EVERY.keyed();
    let ann = limits.at("ann");
    assert!(ann.try_acquire(1).is_pass());
    assert!(
        !limits.try_acquire(&"ann", 1).is_pass(),
        "it is the same limit"
    );
    let too_late = ann.acquire_within(1, ms(99)).await.unwrap_err();
    assert!(too_late.is_too_late());
    assert_eq!(since(start), 0);
    limits.acquire_one("bob").await;
    limits.acquire_one("ann").await;
    assert_eq!(since(start), 100);
}

#[tokio::test(start_paused = true)]
async fn a_future_is_of_its_own_and_joins_the_queue_when_it_is_first_polled() {
    let limit = EVERY.shared();
    let (first, second) = (limit.acquire_one(), limit.acquire_one());
    drop(limit.clone());
    let second = tokio::spawn(second);
    tokio::task::yield_now().await;
    assert!(second.is_finished());
    assert!(first.now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "polled after it was ready")]
async fn a_finished_request_is_not_made_again() {
    let mut request = Driven::new(EVERY.shared().acquire_one());
    assert!(request.poll().is_ready());
    let _ = request.poll();
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_is_chosen_while_the_program_runs_is_asked_by_a_function_over_any() {
    async fn call<L: Limiter<Error = std::convert::Infallible> + Clone + Unpin>(limit: &L) {
        limit.acquire_one().await;
    }
    let start = now();
    let limit = EVERY.shared();
    call(&limit).await;
    call(&limit).await;
    assert_eq!(since(start), 100);
}
