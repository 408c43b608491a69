use futures::{FutureExt, StreamExt};
use paceline::prelude::*;
use testkit::marble::{self, TICK};

use crate::timed::{arriving, assert_left, drained, ms, now, since, sleep};

/// A grid of three ticks.
async fn check(input: &str, output: &str) {
    marble::check(|s| s.sample(TICK * 3), input, output).await;
}

#[tokio::test(start_paused = true)]
async fn emits_the_newest_at_each_tick_of_a_grid_from_the_first_poll() {
    check("a b - - c - - - - |", "- - - b - - c - - |").await;

    let mut sampled = Box::pin(arriving([(0, 1), (10, 2), (350, 3)], 1_000).sample(ms(100)));
    sleep(70).await;
    let left = drained(sampled.by_ref()).await;
    assert_left(&left, [(100, 2), (400, 3)], 1_000);
    assert_eq!(sampled.dropped_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_tick_comes_before_the_item_or_the_end_that_arrives_with_it() {
    check("a - - b - - - |", "- - - a - - b |").await;
    check("- - - a - - - |", "- - - - - - a |").await;
    check("a - - |", "- - - (a|)").await;
}

#[tokio::test(start_paused = true)]
async fn the_end_drops_the_last_and_counts_it() {
    let mut sampled = Box::pin(arriving([(0, 1), (150, 2)], 180).sample(ms(100)));
    let left = drained(sampled.by_ref()).await;
    assert_left(&left, [(100, 1)], 180);
    assert_eq!(sampled.dropped_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_end_emits_the_last_at_once_if_it_is_to_be_kept() {
    let sample = |s: marble::Source| s.sample(TICK * 3).with_keep_last();
    marble::check(sample, "a - - b |", "- - - a (b|)").await;
    marble::check(sample, "(ab|)", "(b|)").await;
    marble::check(sample, "- |", "- |").await;
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_comes_back_waits_for_the_latest_item_of_the_next_tick() {
    let (handle, source) = testkit::probe::source();
    let start = now();
    let mut sampled = source.sample(ms(100));
    assert!(sampled.next().now_or_never().is_none());
    sleep(230).await;
    for item in 1..=3 {
        handle.send(item);
    }
    assert_eq!(sampled.next().await, Some(3));
    assert_eq!(since(start), 300);
    assert_eq!(sampled.dropped_count(), 2);
}
