use futures::{FutureExt, StreamExt, stream};
use paceline::policy::{Interval, TokenBucket};
use paceline::prelude::*;
use paceline::time::Rate;

use crate::timed::{arriving, assert_left, drained, ms};

#[tokio::test(start_paused = true)]
async fn answers_at_once_and_says_how_long_it_would_have_been() {
    let limit = Interval::every(ms(100)).owned();
    let input = arriving([(0, 'a'), (30, 'b'), (100, 'c'), (199, 'd')], 300);
    let left = drained(
        input
            .enforce(limit)
            .map(|item| item.map_err(|refused| (refused.retry_in(), refused.into_item()))),
    );
    let too_soon = |by, item| Err((Some(ms(by)), item));
    let expected = [
        (0, Ok('a')),
        (30, too_soon(70, 'b')),
        (100, Ok('c')),
        (199, too_soon(1, 'd')),
    ];
    assert_left(&left.await, expected, 300);
}

#[tokio::test(start_paused = true)]
async fn a_refused_item_would_have_waited_behind_the_queue() {
    let limit = TokenBucket::new(Rate::new(1, ms(100)), 2).shared();
    limit.acquire(1).await.unwrap();
    let mut dear = limit.acquire(2);
    assert!((&mut dear).now_or_never().is_none());

    let mut enforced = stream::iter([1, 2]).enforce(limit.clone());
    let refused = enforced.next().await.unwrap().unwrap_err();
    let the_dear_one_first_then_a_token_more = Some(ms(200));
    assert_eq!(refused.retry_in(), the_dear_one_first_then_a_token_more);
    dear.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_error_reads_well_and_keeps_its_secret() {
    let limit = Interval::every(ms(100)).owned();
    let mut enforced = stream::iter(["a", "hush"]).enforce(limit);
    assert_eq!(enforced.next().await, Some(Ok("a")));
    let refused = enforced.next().await.unwrap().unwrap_err();

    assert_eq!(refused.to_string(), "rate limit exceeded, retry in 100ms");
    let debug = "Exceeded { retry_in: Some(100ms), .. }";
    assert_eq!(format!("{refused:?}"), debug);
    assert_eq!(refused.into_item(), "hush");
}
