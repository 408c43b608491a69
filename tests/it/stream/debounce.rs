use futures::{FutureExt, StreamExt};
use paceline::prelude::*;
use testkit::marble::{self, TICK};

use crate::timed::{arriving, assert_left, drained, ms, sleep};

#[tokio::test(start_paused = true)]
async fn a_newer_one_takes_its_place_unless_it_comes_with_the_instant() {
    for (newer, expected, dropped) in [
        (99, [(199, 2)].as_slice(), 1),
        (100, &[(100, 1), (200, 2)], 0),
    ] {
        let mut debounced = Box::pin(arriving([(0, 1), (newer, 2)], 500).debounce(ms(100)));
        let left = drained(debounced.by_ref()).await;
        assert_left(&left, expected.iter().copied(), 500);
        assert_eq!(debounced.dropped_count(), dropped);
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_emits_the_waiting_one_at_once() {
    let debounce = |s: marble::Source| s.debounce(TICK * 3);
    marble::check(debounce, "(ab|)", "(b|)").await;
    marble::check(debounce, "- - |", "- - |").await;
    marble::check(debounce, "a - - |", "- - - (a|)").await;
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
