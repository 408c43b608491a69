//! A limiter whose type is chosen at run time.

use std::future::poll_fn;
use std::time::Duration;

use futures::{StreamExt, stream};
use paceline::limiter::{DynLimiter, KeyedAt, Limiter, Mode, Switch};
use paceline::policy::{Decision, FixedWindow, Interval, Unlimited};
use paceline::prelude::*;
use paceline::time::Resolution;

use super::{used, wait};
use crate::timed::{ms, now, since};

fn is_free<T: Clone + Send + Sync + Unpin + 'static>() {}

#[tokio::test(start_paused = true)]
async fn limiters_of_any_type_are_one_type() {
    is_free::<DynLimiter>();
    let per_user = Interval::every(ms(100)).keyed();
    let ann: KeyedAt<&str, _> = per_user.at("ann");
    let off = Switch::new().with_mode(Mode::Off);
    let limits = [
        DynLimiter::new(Interval::every(ms(100)).shared()),
        DynLimiter::new(ann),
        DynLimiter::new(used(100).switched(&off)),
        DynLimiter::new(Unlimited.shared()),
    ];
    let mut took = vec![];
    for limit in limits {
        let start = now();
        limit.acquire(2).await.unwrap();
        assert_eq!(stream::iter([1]).pace(limit).count().await, 1);
        took.push(since(start));
    }
    assert_eq!(took, [200, 200, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_clone_of_a_waiting_handle_is_not_queued_and_one_that_is_dropped_leaves() {
    let shared = used(100);
    let mut limit = DynLimiter::new(shared.clone());
    let asked = poll_fn(|cx| limit.poll_decide(1, cx)).await;
    assert_eq!(asked, Ok(wait(100)));
    assert_eq!(shared.waiting(), 1);
    let clone = limit.clone();
    assert_eq!(shared.waiting(), 1);
    drop(clone);
    assert_eq!(shared.waiting(), 1);
    limit.give_up();
    assert_eq!(shared.waiting(), 0);

    let _ = poll_fn(|cx| limit.poll_decide(1, cx)).await;
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
    let asked = poll_fn(|cx| limit.poll_try(5, cx)).await;
    assert_eq!(asked, Ok(Decision::Pass));
    assert_eq!(limit.shadowed(), Some(wait(1_000)));
    assert!(!limit.is_out_of_reach());
    let mut left = None;
    assert_eq!(
        limit.try_once(1, true, &mut left),
        None,
        "a switch needs a handle"
    );
    let another = DynLimiter::new(shared.clone());
    assert_eq!(another.try_once(1, false, &mut left), Some(Decision::Pass));
    assert_eq!(left, None);
    assert_eq!(another.try_once(1, true, &mut left), Some(Decision::Pass));
    assert_eq!(left, shared.status());
    let open = poll_fn(|cx| limit.poll_open(1, cx)).await;
    assert_eq!(open, Ok(Decision::Pass));
}
