//! A limiter whose type is chosen at run time.
#![expect(
    clippy::disallowed_methods,
    reason = "tests measure on tokio's paused clock"
)]

use std::time::Duration;

use futures::{StreamExt, stream};
use paceline::limiter::{DynLimiter, KeyedAt, Limiter, Mode, Switch, Switched};
use paceline::policy::{Decision, FixedWindow, Interval, TokenBucket, Unlimited};
use paceline::prelude::*;
use paceline::time::{Rate, Resolution};
use tokio::time::Instant;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn is_free<T: Clone + Send + Sync + Unpin + 'static>() {}

#[tokio::test(start_paused = true)]
async fn limiters_of_any_type_are_one_type() {
    is_free::<DynLimiter>();
    let per_user = Interval::every(ms(100)).keyed();
    let ann: KeyedAt<&str, _> = per_user.at("ann");
    let off = Switched::new(
        Interval::every(ms(100)).shared(),
        Switch::new().with_mode(Mode::Off),
    );
    let limits = [
        DynLimiter::new(Interval::every(ms(100)).shared()),
        DynLimiter::new(ann),
        DynLimiter::new(off),
        DynLimiter::new(Unlimited.shared()),
    ];
    let mut took = vec![];
    for limit in &limits {
        let start = Instant::now();
        limit.acquire(2).await.unwrap();
        limit.acquire_one().await;
        took.push(start.elapsed().as_millis());
    }
    assert_eq!(took, [200, 200, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn each_clone_has_a_position_of_its_own_in_one_queue() {
    let start = Instant::now();
    let limit = DynLimiter::new(Interval::every(ms(100)).shared());
    let tasks = [0; 4].map(|_| {
        let limit = limit.clone();
        tokio::spawn(async move {
            limit.acquire_one().await;
            start.elapsed().as_millis()
        })
    });
    let mut passed = vec![];
    for task in tasks {
        passed.push(task.await.unwrap());
    }
    assert_eq!(passed, [0, 100, 200, 300]);
}

#[tokio::test(start_paused = true)]
async fn a_clone_of_a_waiting_handle_is_not_queued_and_one_that_is_dropped_leaves() {
    let shared = Interval::every(ms(100)).shared();
    let mut limit = DynLimiter::new(shared.clone());
    limit.acquire_one().await;

    let asked = futures::poll!(std::future::poll_fn(|cx| limit.poll_decide(1, cx)));
    assert_eq!(
        asked,
        std::task::Poll::Ready(Ok(Decision::Wait { retry_in: ms(100) }))
    );
    assert_eq!(shared.waiting(), 1);
    let clone = limit.clone();
    assert_eq!(shared.waiting(), 1);
    drop(clone);
    assert_eq!(shared.waiting(), 1);
    limit.give_up();
    assert_eq!(shared.waiting(), 0);

    let _ = futures::poll!(std::future::poll_fn(|cx| limit.poll_decide(1, cx)));
    assert_eq!(shared.waiting(), 1);
    drop(limit);
    assert_eq!(shared.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn everything_is_forwarded() {
    let shared = FixedWindow::new(10, ms(1_000)).shared();
    let limit = DynLimiter::new(shared.clone().with_resolution(Resolution::Millis));
    assert_eq!(limit.resolution(), Resolution::Millis);
    assert!(limit.try_acquire(8).await.is_pass());
    assert_eq!(limit.status(), shared.status());
    assert_eq!(limit.status().unwrap().remaining, 2);
    assert_eq!(limit.least_wait(2), Duration::ZERO);
    assert_eq!(limit.least_wait(3), ms(1_000));
    assert_eq!(
        limit.try_acquire(11).await,
        Decision::Never { capacity: 10 }
    );
    let late = limit.acquire_within(3, ms(999)).await.unwrap_err();
    assert!(!late.is_too_costly());

    let shadow = Switch::new().with_mode(Mode::Shadow);
    let mut limit = DynLimiter::new(shared.clone().switched(&shadow));
    let asked = std::future::poll_fn(|cx| limit.poll_try(5, cx)).await;
    assert_eq!(asked, Ok(Decision::Pass));
    let wait = Decision::Wait {
        retry_in: ms(1_000),
    };
    assert_eq!(limit.shadowed(), Some(wait));
    assert!(!limit.is_out_of_reach());
    assert!(DynLimiter::new(shared).for_one_request().is_some());
    let open = std::future::poll_fn(|cx| limit.poll_open(1, cx)).await;
    assert_eq!(open, Ok(Decision::Pass));
}

#[tokio::test(start_paused = true)]
async fn it_paces_a_stream() {
    let start = Instant::now();
    let limit = DynLimiter::new(TokenBucket::new(Rate::per_second(10), 2).shared());
    let calls = stream::iter(0..4).pace(limit);
    let passed: Vec<_> = calls.map(|_| start.elapsed().as_millis()).collect().await;
    assert_eq!(passed, [0, 0, 100, 200]);
}
