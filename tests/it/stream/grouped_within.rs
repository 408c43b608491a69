use std::time::Duration;

use futures::{StreamExt, stream};
use paceline::prelude::*;
use paceline::stream::Window;
use testkit::clock::jump;
use testkit::marble::{self, TICK};

use super::rows;
use crate::timed::{arriving, assert_left, drained, ms};

pub(super) const WINDOWS: [Window; 3] = [Window::FirstItem, Window::LastGroup, Window::Grid];

/// The same groups by count, by weight and of results.
#[tokio::test(start_paused = true)]
async fn windows_start_as_configured() {
    let items = || arriving([(900, 'a'), (950, 'b'), (2_100, 'c')], 5_000);
    let second = ms(1_000);
    let bounds_the_wait_of_every_item = (Window::FirstItem, [1_900, 3_100]);
    let emits_one_item_alone_after_a_pause = (Window::LastGroup, [1_000, 2_100]);
    let ends_at_whole_windows = (Window::Grid, [1_000, 3_000]);
    for (window, [first, last]) in [
        bounds_the_wait_of_every_item,
        emits_one_item_alone_after_a_pause,
        ends_at_whole_windows,
    ] {
        let groups = || [(first, vec!['a', 'b']), (last, vec!['c'])];
        let by_count = items().grouped_within(10, second).with_window(window);
        assert_left(&drained(by_count).await, groups(), 5_000);
        let by_weight = items().grouped_weighted_within(10, second, |_| 1);
        let by_weight = by_weight.with_window(window);
        assert_left(&drained(by_weight).await, groups(), 5_000);
        let tried = items().map(Ok::<_, ()>).try_grouped_within(10, second);
        let tried = tried.with_window(window).map(Result::unwrap);
        assert_left(&drained(tried).await, groups(), 5_000);
    }
}

/// At most two items, and four ticks.
const TIMELINES: &str = "
a full group leaves in the instant of its last item
  a - b    c - d    |
  - - [ab] - - [cd] |
an item that arrives with the end of the window is in the next group
  a - - - b   - - - |
  - - - - [a] - - - ([b]|)
the group held leaves with the end
  a b c - |
  - [ab] - - ([c]|)
  - - |
  - - |
";

#[tokio::test(start_paused = true)]
async fn groups_are_as_drawn() {
    for window in WINDOWS {
        let group = |s: marble::Source| s.grouped_within(2, TICK * 4).with_window(window);
        for (input, output) in rows(TIMELINES) {
            marble::check(group, input, output).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_group_starts_the_grid_anew() {
    let group = |s: marble::Source| s.grouped_within(2, TICK * 4).with_window(Window::Grid);
    marble::check(group, "a b c - - - - - |", "- [ab] - - - [c] - - |").await;
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
