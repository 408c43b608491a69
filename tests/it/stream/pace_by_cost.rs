use std::cell::Cell;

use futures::{FutureExt, StreamExt, stream};
use paceline::policy::{Interval, TokenBucket};
use paceline::prelude::*;
use paceline::time::Rate;

use crate::timed::{arriving, drained, ms};

#[tokio::test(start_paused = true)]
async fn a_cost_waits_for_the_tokens_it_misses() {
    let limit = TokenBucket::new(Rate::new(1, ms(100)), 3).owned();

    let left = drained(stream::iter([3, 2, 1, 3]).pace_by_cost(limit, |cost| *cost)).await;
    let left: Vec<_> = left
        .items
        .into_iter()
        .map(|(at, item)| (at, item.unwrap()))
        .collect();
    assert_eq!(left, [(0, 3), (200, 2), (300, 1), (600, 3)]);
}

#[tokio::test(start_paused = true)]
async fn an_interval_is_bought_as_often_as_the_cost_says() {
    let limit = Interval::every(ms(100)).owned();

    let left = drained(stream::iter([3, 1, 2]).pace_by_cost(limit, |cost| *cost)).await;
    let at: Vec<_> = left.items.iter().map(|(at, _)| *at).collect();
    assert_eq!(at, [0, 300, 400]);
}

#[tokio::test(start_paused = true)]
async fn an_item_that_is_too_costly_is_returned_at_once_and_the_stream_goes_on() {
    let limit = TokenBucket::new(Rate::new(1, ms(100)), 3).owned();
    let input = stream::iter([("a", 3), ("dear", 4), ("b", 1)]);

    let mut left = drained(input.pace_by_cost(limit, |(_, cost)| *cost))
        .await
        .items
        .into_iter();
    assert_eq!(left.next(), Some((0, Ok(("a", 3)))));
    let (at, refused) = left.next().unwrap();
    let refused = refused.unwrap_err();
    assert_eq!((at, refused.cost(), refused.capacity()), (0, 4, 3));
    assert_eq!(
        refused.to_string(),
        "a cost of 4 can never pass a limit of 3 at once"
    );
    assert_eq!(
        format!("{refused:?}"),
        "TooCostly { cost: 4, capacity: 3, .. }"
    );
    assert_eq!(refused.into_item(), ("dear", 4));
    assert_eq!(left.next(), Some((100, Ok(("b", 1)))));
}

#[tokio::test(start_paused = true)]
async fn an_item_of_cost_0_passes_at_once_even_behind_queued_waiters() {
    let limit = Interval::every(ms(100)).shared();
    limit.acquire(1).await.unwrap();
    let mut waits = limit.acquire(1);
    assert!((&mut waits).now_or_never().is_none());

    let input = arriving([(0, Err("failure")), (0, Ok("item"))], 0);
    let cost_of = |item: &Result<_, _>| u32::from(item.is_ok());
    let mut paced = Box::pin(input.pace_by_cost(limit, cost_of));
    assert_eq!(
        paced.next().now_or_never().unwrap(),
        Some(Ok(Err("failure")))
    );
    assert!(paced.next().now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn the_cost_of_an_item_is_asked_for_once() {
    let asked = Cell::new(0);
    let limit = TokenBucket::new(Rate::new(1, ms(100)), 3).owned();
    let mut paced = stream::iter([3, 3]).pace_by_cost(limit, |cost| {
        asked.set(asked.get() + 1);
        *cost
    });
    assert!(paced.next().await.unwrap().is_ok());
    for _ in 0..3 {
        assert!(paced.next().now_or_never().is_none());
    }
    assert_eq!(asked.get(), 2);

    let (_, held) = paced.into_parts();
    assert_eq!(held, Some(3));
}

#[tokio::test(start_paused = true)]
async fn an_item_whose_cost_panics_is_not_lost() {
    let limit = Interval::every(ms(100)).owned();
    let panics = Cell::new(true);
    let mut paced = stream::iter([7]).pace_by_cost(limit, |_| {
        assert!(!panics.replace(false), "no cost yet");
        1
    });
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = paced.next().now_or_never();
    }));
    assert!(panicked.is_err());
    assert_eq!(paced.next().await, Some(Ok(7)));
}
