use std::time::Duration;

use futures::{FutureExt, Stream, StreamExt, stream};
use paceline::prelude::*;
use paceline::stream::Window;
use testkit::clock::jump;
use testkit::marble::{self, TICK};

use crate::timed::{arriving, assert_left, busy, drained, ms, now, since, sleep};

/// An input for which the three kinds of window give different groups.
async fn grouped(window: Window) -> crate::timed::Left<Vec<char>> {
    let input = arriving([(900, 'a'), (950, 'b'), (2_100, 'c')], 5_000);
    drained(input.grouped_within(10, ms(1_000)).with_window(window)).await
}

#[tokio::test(start_paused = true)]
async fn a_window_from_the_first_item_bounds_the_wait_of_every_item() {
    let left = grouped(Window::FirstItem).await;
    assert_left(&left, [(1_900, vec!['a', 'b']), (3_100, vec!['c'])], 5_000);
}

#[tokio::test(start_paused = true)]
async fn after_a_pause_a_window_from_the_last_group_emits_one_item_alone() {
    let left = grouped(Window::LastGroup).await;
    assert_left(&left, [(1_000, vec!['a', 'b']), (2_100, vec!['c'])], 5_000);
}

#[tokio::test(start_paused = true)]
async fn a_window_on_a_grid_ends_at_whole_windows() {
    let left = grouped(Window::Grid).await;
    assert_left(&left, [(1_000, vec!['a', 'b']), (3_000, vec!['c'])], 5_000);
}

#[tokio::test(start_paused = true)]
async fn a_full_group_leaves_in_the_instant_of_its_last_item() {
    for window in [Window::FirstItem, Window::LastGroup, Window::Grid] {
        marble::check(
            |s| s.grouped_within(2, TICK * 9).with_window(window),
            "a - b c - d |",
            "- - [ab] - - [cd] |",
        )
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_group_starts_the_grid_anew() {
    marble::check(
        |s| s.grouped_within(2, TICK * 4).with_window(Window::Grid),
        "a b c - - - - - |",
        "- [ab] - - - [c] - - |",
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_item_that_arrives_with_the_end_of_the_window_is_in_the_next_group() {
    for window in [Window::FirstItem, Window::LastGroup, Window::Grid] {
        marble::check(
            |s| s.grouped_within(9, TICK * 3).with_window(window),
            "a - - b - - - |",
            "- - - [a] - - [b] |",
        )
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_group_held_leaves_with_the_end() {
    for window in [Window::FirstItem, Window::LastGroup, Window::Grid] {
        let group = |s: marble::Source| s.grouped_within(9, TICK * 9).with_window(window);
        marble::check(group, "a b |", "- - ([ab]|)").await;
        marble::check(group, "- - |", "- - |").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_leaves_at_the_next_poll_if_the_stream_is_polled_late() {
    let (handle, source) = testkit::probe::source();
    let start = now();
    let mut groups = source.grouped_within(9, ms(50));
    handle.send('a');
    assert!(groups.next().now_or_never().is_none());
    sleep(200).await;
    handle.send('b');
    assert_eq!(
        groups.next().await,
        Some(vec!['a']),
        "b came after the window"
    );
    assert_eq!(since(start), 200);
    assert_eq!(groups.next().await, Some(vec!['b']));
    assert_eq!(since(start), 250);
}

#[tokio::test(start_paused = true)]
async fn a_late_timer_costs_no_item_and_no_window() {
    let start = now();
    let input = arriving([(0, 'a'), (170, 'b'), (175, 'c')], 175);
    let mut groups = Box::pin(input.grouped_within(9, ms(100)).with_window(Window::Grid));
    assert!(groups.next().now_or_never().is_none());
    jump(ms(172)).await;
    assert_eq!(groups.next().await, Some(vec!['a']));
    assert_eq!(since(start), 172);
    assert_eq!(groups.next().await, Some(vec!['b', 'c']));
    assert_eq!(since(start), 175);
}

#[tokio::test(start_paused = true)]
async fn the_window_holds_though_the_input_is_never_pending() {
    let groups: Vec<_> = busy([1; 40])
        .grouped_within(usize::MAX, ms(10))
        .map(|group| group.len())
        .collect()
        .await;
    assert_eq!(groups, [10, 10, 10, 10]);
}

#[tokio::test(start_paused = true)]
async fn the_largest_group_and_the_longest_window_work() {
    for window in [Window::FirstItem, Window::LastGroup, Window::Grid] {
        let input = arriving([(0, 1), (1_000_000, 2)], 2_000_000);
        let groups = input
            .grouped_within(usize::MAX, Duration::MAX)
            .with_window(window);
        assert_left(&drained(groups).await, [(2_000_000, vec![1, 2])], 2_000_000);
    }
}

/// A paused clock leaps to the next instant that is due, even if that is in thirty years.
#[tokio::test(start_paused = true)]
async fn a_window_longer_than_any_timer_does_not_spin() {
    let input = stream::iter(['a']).chain(stream::pending());
    let mut groups = input.grouped_within(9, Duration::MAX);
    let forty_years = Duration::from_secs(40 * 365 * 86_400);
    let waited = tokio::time::timeout(forty_years, groups.next()).await;
    assert!(waited.is_err());
}

#[tokio::test(start_paused = true)]
async fn the_timer_of_a_window_that_was_replaced_is_never_heard_again() {
    let (handle, source) = testkit::probe::source();
    let mut groups = testkit::wakes::Driven::new(source.grouped_within(2, ms(100)));
    handle.send('a');
    assert!(groups.poll_next().is_pending());
    handle.send('b');
    assert!(groups.poll_next().is_ready());
    assert!(groups.poll_next().is_pending());
    jump(ms(200)).await;
    tokio::task::yield_now().await;
    assert!(!groups.is_woken());
}

#[tokio::test(start_paused = true)]
async fn into_parts_returns_the_group_held() {
    let mut groups = stream::iter(1..=2)
        .chain(stream::pending())
        .grouped_within(9, ms(50));
    assert!(groups.next().now_or_never().is_none());
    assert_eq!(groups.size_hint().0, 1);

    let (_, held) = groups.into_parts();
    assert_eq!(held, [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn the_memory_of_a_group_that_is_given_back_is_used_for_the_next() {
    let mut groups = std::pin::pin!(stream::iter(0..50).grouped_within(10, ms(100)));
    let first = groups.next().await.unwrap();
    let address = first.as_ptr();
    groups.as_mut().recycle(first);
    let mut count = 1;
    while let Some(group) = groups.next().await {
        assert_eq!(group.as_ptr(), address);
        assert_eq!(group[0], 10 * count);
        groups.as_mut().recycle(group);
        count += 1;
    }
    assert_eq!(count, 5);
}
