use futures::{FutureExt, Stream, StreamExt, stream};
use paceline::policy::{Interval, TokenBucket};
use paceline::prelude::*;
use paceline::time::Rate;
use testkit::marble::{self, TICK};

use crate::timed::{arriving, assert_left, drained, ms};

fn every(millis: u64) -> paceline::limiter::Owned<Interval> {
    Interval::every(ms(millis)).owned()
}

#[tokio::test(start_paused = true)]
async fn takes_all_that_has_arrived_at_each_slot_up_to_its_maximum() {
    let input = arriving([(0, 1), (150, 2), (160, 3), (500, 4)], 500);
    let left = drained(input.pace_batches(every(100), 2)).await;
    let expected = [(0, vec![1]), (150, vec![2]), (250, vec![3]), (500, vec![4])];
    assert_left(&left, expected, 500);

    let bucket = TokenBucket::new(Rate::new(1, ms(100)), 2).owned();
    let left = drained(stream::iter(1..=7).pace_batches(bucket, 2)).await;
    let expected = [
        (0, vec![1, 2]),
        (0, vec![3, 4]),
        (100, vec![5, 6]),
        (200, vec![7]),
    ];
    assert_left(&left, expected, 200);
}

#[tokio::test(start_paused = true)]
async fn a_late_consumer_finds_all_that_arrived_and_no_two_slots() {
    marble::check_on_demand(
        |s| s.pace_batches(Interval::every(TICK * 2).owned(), 9),
        "a b c d e f g |",
        "? ? - - - ? ? ?",
        "[a] - [bc] - - [def] - ([g]|)",
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_any_size_is_collected_from_an_input_that_is_never_pending() {
    let left = drained(stream::iter(0..10_000).pace_batches(every(100), usize::MAX)).await;
    assert_left(&left, [(0, (0..10_000).collect())], 0);
}

/// Each item takes a tenth of a millisecond of the clock, and none of them is pending.
#[tokio::test(start_paused = true)]
async fn a_slot_is_not_missed_though_the_input_is_never_pending() {
    let input = stream::repeat(1).map(|item| {
        // `advance` moves the clock at its first poll.
        let _ = tokio::time::advance(ms(1) / 10).now_or_never();
        item
    });
    let mut batches = input.pace_batches(every(100), usize::MAX);
    let start = std::pin::pin!(batches.next()).await.unwrap().len();
    assert!((10..1_000).contains(&start), "{start} items at once");
    let next = batches.next().await.unwrap().len();
    assert!(
        (1_000 - 256..1_000 + 256).contains(&next),
        "{next} in an interval"
    );
}

#[tokio::test(start_paused = true)]
async fn the_items_held_are_counted_in_the_size_hint_as_batches() {
    let mut batches = stream::iter(1..=9).pace_batches(every(100), 3);
    batches.next().await;
    assert!(batches.next().now_or_never().is_none());
    assert_eq!(batches.size_hint(), (2, Some(4)));
}
