use std::time::Duration;

use futures::{FutureExt, Stream, StreamExt, stream};
use paceline::prelude::*;
use testkit::clock::jump;
use testkit::marble::{self, TICK};

use crate::timed::{arriving, assert_left, busy, drained, ms, now, since, sleep};

/// Quiet for three ticks.
async fn check(input: &str, output: &str) {
    marble::check(|s| s.debounce(TICK * 3), input, output).await;
}

#[tokio::test(start_paused = true)]
async fn emits_an_item_its_delay_after_it_arrived() {
    check("a - - - - - b - - - |", "- - - a - - - - - b |").await;
}

#[tokio::test(start_paused = true)]
async fn a_newer_one_that_came_strictly_before_takes_its_place() {
    let mut debounced = Box::pin(arriving([(0, 1), (99, 2)], 500).debounce(ms(100)));
    let left = drained(debounced.by_ref()).await;
    assert_left(&left, [(199, 2)], 500);
    assert_eq!(debounced.dropped_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_newer_one_that_comes_with_its_instant_is_too_late() {
    let mut debounced = Box::pin(arriving([(0, 1), (100, 2)], 500).debounce(ms(100)));
    let left = drained(debounced.by_ref()).await;
    assert_left(&left, [(100, 1), (200, 2)], 500);
    assert_eq!(debounced.dropped_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_burst_starts_the_delay_anew_with_each_item() {
    check("a b - c d - - - - |", "- - - - - - - d - |").await;
}

#[tokio::test(start_paused = true)]
async fn the_end_emits_the_waiting_one_at_once() {
    check("a b |", "- - (b|)").await;
    check("(ab|)", "(b|)").await;
    check("- - |", "- - |").await;
    check("a - - |", "- - - (a|)").await;
}

#[tokio::test(start_paused = true)]
async fn a_late_poll_emits_the_item_held_before_it_reads_the_input() {
    let (handle, source) = testkit::probe::source();
    let start = now();
    let mut debounced = source.debounce(ms(50));
    handle.send('a');
    assert!(debounced.next().now_or_never().is_none());
    sleep(20).await;
    handle.send('b');
    sleep(180).await;
    assert_eq!(debounced.next().await, Some('a'), "b was not looked at");
    assert_eq!(since(start), 200);
    assert_eq!(debounced.next().await, Some('b'));
    assert_eq!(since(start), 250);
    assert_eq!(debounced.dropped_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_delay_of_a_dropped_item_wakes_no_task() {
    let (handle, source) = testkit::probe::source();
    let mut debounced = source.debounce(ms(100));
    handle.send('a');
    assert!(debounced.next().now_or_never().is_none());
    sleep(50).await;
    handle.send('b');
    assert_eq!(debounced.next().await, Some('b'));
    assert_eq!(handle.polls(), 4, "each item, and that there is no other");
}

#[tokio::test(start_paused = true)]
async fn after_a_late_timer_the_next_is_a_whole_delay_away() {
    let start = now();
    let input = arriving([(0, 'a'), (130, 'b')], 900);
    let mut debounced = Box::pin(input.debounce(ms(100)));
    assert!(debounced.next().now_or_never().is_none());
    jump(ms(170)).await;
    assert_eq!(debounced.next().await, Some('a'));
    assert_eq!(since(start), 170);
    assert_eq!(debounced.next().await, Some('b'));
    assert_eq!(since(start), 270);
}

#[tokio::test(start_paused = true)]
async fn the_delay_holds_though_the_input_is_never_pending() {
    let left = drained(busy([1, 9, 10, 2, 11, 3]).debounce(ms(10))).await;
    assert_left(&left, [(20, 2), (33, 4), (36, 6)], 36);
}

#[tokio::test(start_paused = true)]
async fn other_tasks_run_while_the_input_is_never_pending() {
    let mut debounced = stream::repeat(1).debounce(ms(100));
    assert!(debounced.next().now_or_never().is_none());
    assert!(debounced.dropped_count() > 0);
}

#[tokio::test(start_paused = true)]
async fn the_longest_delay_is_for_ever() {
    let debounced = arriving([(0, 1), (1_000_000, 2)], 2_000_000).debounce(Duration::MAX);
    assert_left(&drained(debounced).await, [(2_000_000, 2)], 2_000_000);
}

#[tokio::test(start_paused = true)]
async fn into_parts_returns_the_item_held() {
    let input = stream::iter(1..=2).chain(stream::pending());
    let mut debounced = input.debounce(ms(50));
    assert!(debounced.next().now_or_never().is_none());
    assert_eq!(debounced.size_hint().0, 1);

    let (_, held) = debounced.into_parts();
    assert_eq!(held, Some(2));
}
