use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use futures::{FutureExt, StreamExt, stream};
use paceline::policy::{Interval, TokenBucket};
use paceline::prelude::*;
use paceline::time::Rate;

use crate::timed::{arriving, assert_left, drained, ms};

#[tokio::test(start_paused = true)]
async fn an_item_that_is_too_costly_is_returned_at_once_and_the_stream_goes_on() {
    let limit = TokenBucket::new(Rate::new(1, ms(100)), 3).owned();
    let input = stream::iter([("a", 3), ("dear", 4), ("b", 1)]);
    let left = drained(input.pace_by_cost(limit, |(_, cost)| *cost).map(|item| {
        item.map_err(|refused| {
            assert_eq!((refused.cost(), refused.capacity()), (4, 3));
            let message = "a cost of 4 can never pass a limit of 3 at once";
            assert_eq!(refused.to_string(), message);
            let debug = "TooCostly { cost: 4, capacity: 3, .. }";
            assert_eq!(format!("{refused:?}"), debug);
            refused.into_item()
        })
    }));
    let expected = [
        (0, Ok(("a", 3))),
        (0, Err(("dear", 4))),
        (100, Ok(("b", 1))),
    ];
    assert_left(&left.await, expected, 100);
}

#[tokio::test(start_paused = true)]
async fn an_item_of_cost_0_passes_at_once_even_behind_queued_waiters() {
    let limit = Interval::every(ms(100)).shared();
    limit.acquire(1).await.unwrap();
    let mut waits = limit.acquire(1);
    assert!((&mut waits).now_or_never().is_none());

    let input = arriving([(0, Err("failure")), (0, Ok("item"))], 0);
    let cost_of = |item: &Result<_, _>| u32::from(item.is_ok());
    let mut paced = Box::pin(input.pace_by_cost(limit.clone(), cost_of));
    assert_eq!(
        paced.next().now_or_never().unwrap(),
        Some(Ok(Err("failure")))
    );
    assert!(paced.next().now_or_never().is_none());
}

/// The function is called once, unless it panics.
#[tokio::test(start_paused = true)]
async fn an_item_whose_cost_panics_is_not_lost() {
    let limit = Interval::every(ms(100)).owned();
    let asked = Cell::new(0);
    let mut paced = stream::iter([7, 8]).pace_by_cost(limit, |_| {
        asked.set(asked.get() + 1);
        assert!(asked.get() > 1, "no cost yet");
        1
    });
    let panicked = catch_unwind(AssertUnwindSafe(|| paced.next().now_or_never()));
    assert!(panicked.is_err());
    assert_eq!(paced.next().await, Some(Ok(7)));
    for _ in 0..3 {
        assert!(paced.next().now_or_never().is_none());
    }
    assert_eq!(paced.next().await, Some(Ok(8)));
    assert_eq!(asked.get(), 3);
}
