use std::time::Duration;

use futures::{FutureExt, Stream, StreamExt, stream};
use paceline::prelude::*;
use testkit::clock::jump;
use testkit::marble::{self, TICK};

use crate::timed::{arriving, assert_left, busy, drained, ms, now, since, sleep};

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
async fn a_tick_comes_before_the_item_that_arrives_with_it() {
    check("a - - b - - - |", "- - - a - - b |").await;
    check("- - - a - - - |", "- - - - - - a |").await;
}

#[tokio::test(start_paused = true)]
async fn emits_no_item_twice() {
    check("a - - - - - - - - - |", "- - - a - - - - - - |").await;
}

#[tokio::test(start_paused = true)]
async fn the_end_drops_the_last_and_counts_it() {
    check("a - - b |", "- - - a |").await;

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
async fn an_end_that_comes_with_a_tick_comes_after_it() {
    check("a - - |", "- - - (a|)").await;
}

#[tokio::test(start_paused = true)]
async fn a_late_poll_emits_the_item_held_and_the_grid_stays() {
    let (handle, source) = testkit::probe::source();
    let start = now();
    let mut sampled = source.sample(ms(50));
    handle.send('a');
    assert!(sampled.next().now_or_never().is_none());
    sleep(20).await;
    handle.send('b');
    sleep(160).await;
    assert_eq!(sampled.next().await, Some('a'), "b was not looked at");
    assert_eq!(since(start), 180);
    assert_eq!(sampled.next().await, Some('b'));
    assert_eq!(since(start), 200);
    assert_eq!(sampled.dropped_count(), 0);
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

#[tokio::test(start_paused = true)]
async fn a_late_timer_does_not_move_the_grid() {
    let start = now();
    let input = arriving([(0, 'a'), (130, 'b')], 900);
    let mut sampled = Box::pin(input.sample(ms(100)));
    assert!(sampled.next().now_or_never().is_none());
    jump(ms(170)).await;
    assert_eq!(sampled.next().await, Some('a'));
    assert_eq!(since(start), 170);
    assert_eq!(sampled.next().await, Some('b'));
    assert_eq!(since(start), 200);
}

#[tokio::test(start_paused = true)]
async fn the_grid_holds_though_the_input_is_never_pending() {
    let mut sampled = busy([1; 35]).sample(ms(10));
    let left = drained(sampled.by_ref()).await;
    assert_left(&left, [(10, 9), (20, 19), (30, 29)], 35);
    assert_eq!(sampled.dropped_count(), 32);
}

/// The tick came before the end of the input, although there was no poll in between.
#[tokio::test(start_paused = true)]
async fn an_end_of_a_slow_poll_comes_after_the_tick() {
    let input = busy([1, 14]).filter(|n| std::future::ready(*n == 1));
    assert_left(&drained(input.sample(ms(10))).await, [(15, 1)], 15);
}

#[tokio::test(start_paused = true)]
async fn other_tasks_run_while_the_input_is_never_pending() {
    let mut sampled = stream::repeat(1).sample(ms(100));
    assert!(sampled.next().now_or_never().is_none());
    assert!(sampled.dropped_count() > 0);
}

#[tokio::test(start_paused = true)]
async fn the_widest_grid_has_no_tick() {
    let input = || arriving([(0, 1), (1_000_000, 2)], 2_000_000);
    assert_left(&drained(input().sample(Duration::MAX)).await, [], 2_000_000);
    let kept = drained(input().sample(Duration::MAX).with_keep_last()).await;
    assert_left(&kept, [(2_000_000, 2)], 2_000_000);
}

#[tokio::test(start_paused = true)]
async fn into_parts_returns_the_item_held() {
    let input = stream::iter(1..=2).chain(stream::pending());
    let mut sampled = input.sample(ms(50));
    assert!(sampled.next().now_or_never().is_none());
    assert_eq!(sampled.size_hint().0, 0, "the end would drop it");
    let mut sampled = sampled.with_keep_last();
    assert!(sampled.next().now_or_never().is_none());
    assert_eq!(sampled.size_hint().0, 1);

    let (_, held) = sampled.into_parts();
    assert_eq!(held, Some(2));
}
