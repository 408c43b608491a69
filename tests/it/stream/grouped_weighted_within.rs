use std::time::Duration;

use futures::{FutureExt, Stream, StreamExt, stream};
use paceline::prelude::*;
use paceline::stream::Window;
use testkit::clock::jump;
use testkit::marble::{self, TICK};

use crate::timed::{arriving, assert_left, busy, drained, ms, now, since, sleep};

const WINDOWS: [Window; 3] = [Window::FirstItem, Window::LastGroup, Window::Grid];

/// The weight of a digit.
fn digit(item: char) -> u64 {
    item.to_digit(10).unwrap().into()
}

/// The items in the rows weigh what they show, at most 5 in a group.
async fn check(window: Window, input: &str, output: &str) {
    let group = |s: marble::Source| {
        s.grouped_weighted_within(5, TICK * 4, |item| digit(*item))
            .with_window(window)
    };
    marble::check(group, input, output).await;
}

#[tokio::test(start_paused = true)]
async fn reaching_the_maximum_exactly_closes_the_group() {
    for window in WINDOWS {
        check(window, "2 3 - 1 4 |", "- [23] - - [14] |").await;
        check(window, "5 5 |", "[5] [5] |").await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_item_that_does_not_fit_starts_the_next_group() {
    check(
        Window::FirstItem,
        "3 - 3    - - - - - |",
        "- - [3]  - - - [3] - |",
    )
    .await;
    check(Window::FirstItem, "3 3 2 |", "- [3] [32] |").await;
}

#[tokio::test(start_paused = true)]
async fn one_that_is_too_heavy_leaves_alone_with_no_empty_group_before_it() {
    for window in WINDOWS {
        check(window, "9 - 9 |", "[9] - [9] |").await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_completes_two_groups_sends_both_in_its_instant() {
    for window in WINDOWS {
        check(window, "2 9 - - 3 |", "- ([2][9]) - - - ([3]|)").await;
        check(window, "2 5 - - |", "- ([2][5]) - - |").await;
        check(window, "(2929|)", "([2][9][2][9]|)").await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_window_rules_are_those_of_groups_by_count() {
    for (window, expected) in [
        (
            Window::FirstItem,
            [(1_900, vec!['a', 'b']), (3_100, vec!['c'])],
        ),
        (
            Window::LastGroup,
            [(1_000, vec!['a', 'b']), (2_100, vec!['c'])],
        ),
        (Window::Grid, [(1_000, vec!['a', 'b']), (3_000, vec!['c'])]),
    ] {
        let input = arriving([(900, 'a'), (950, 'b'), (2_100, 'c')], 5_000);
        let groups = input
            .grouped_weighted_within(10, ms(1_000), |_| 1)
            .with_window(window);
        assert_left(&drained(groups).await, expected, 5_000);
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_without_room_restarts_its_windows_as_a_full_one_does() {
    for window in WINDOWS {
        check(window, "3 - 3    - - - - - |", "- - [3]  - - - [3] - |").await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_item_that_arrives_as_the_window_ends_is_in_the_next_group() {
    for window in WINDOWS {
        check(window, "2 - - - 2 - - - |", "- - - - [2] - - - ([2]|)").await;
        check(window, "2 - - - 9 - |", "- - - - ([2][9]) - |").await;
    }
}

#[tokio::test(start_paused = true)]
async fn items_without_weight_wait_for_the_window() {
    check(Window::FirstItem, "0 0 0 - - |", "- - - - [000] |").await;
    check(Window::FirstItem, "0 0 9 - |", "- - ([00][9]) - |").await;
    check(Window::FirstItem, "5 0 - |", "[5] - - ([0]|)").await;
}

#[tokio::test(start_paused = true)]
async fn all_that_is_to_come_may_leave_as_one_group() {
    let groups = stream::iter([0; 9]).grouped_weighted_within(2, ms(10), |item| *item);
    assert_eq!(groups.size_hint(), (1, Some(9)));
    assert_eq!(groups.count().await, 1);
}

#[tokio::test(start_paused = true)]
async fn the_weight_of_an_item_is_asked_for_once() {
    let mut asked = Vec::new();
    let groups = stream::iter([3, 3, 9, 9, 1]).grouped_weighted_within(5, ms(10), |item| {
        asked.push(*item);
        *item
    });
    assert_eq!(groups.count().await, 5);
    assert_eq!(asked, [3, 3, 9, 9, 1]);
}

#[tokio::test(start_paused = true)]
async fn the_largest_weights_do_not_overflow() {
    let most = u64::MAX - 1;
    let groups = stream::iter([most, most, 1, u64::MAX]).grouped_weighted_within(
        u64::MAX,
        Duration::MAX,
        |item| *item,
    );
    let left = drained(groups).await;
    let expected = [vec![most], vec![most, 1], vec![u64::MAX]];
    assert_left(&left, expected.map(|group| (0, group)), 0);
}

#[tokio::test(start_paused = true)]
async fn a_heavy_item_leaves_at_the_next_poll_if_the_stream_is_polled_late() {
    let start = now();
    let mut groups = stream::iter([1, 9]).grouped_weighted_within(5, ms(50), |item| *item);
    assert_eq!(groups.next().await, Some(vec![1]));
    assert_eq!(groups.size_hint(), (1, Some(1)));

    sleep(70).await;
    assert_eq!(groups.next().await, Some(vec![9]));
    assert_eq!(since(start), 70);
    assert_eq!(groups.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn into_parts_returns_the_heavy_item_held() {
    let mut groups = stream::iter([1, 9, 2]).grouped_weighted_within(5, ms(50), |item| *item);
    groups.next().await;

    let (rest, held) = groups.into_parts();
    assert_eq!(held, [9]);
    assert_eq!(rest.collect::<Vec<_>>().await, [2]);
}

#[tokio::test(start_paused = true)]
async fn a_late_timer_costs_no_item() {
    let start = now();
    let input = arriving([(0, 1), (150, 9)], 200);
    let mut groups = Box::pin(input.grouped_weighted_within(5, ms(100), |item| *item));
    assert!(groups.next().now_or_never().is_none());
    jump(ms(170)).await;
    assert_eq!(groups.next().await, Some(vec![1]));
    assert_eq!(groups.next().await, Some(vec![9]));
    assert_eq!(since(start), 170);
    assert_eq!(groups.next().await, None);
    assert_eq!(since(start), 200);
}

#[tokio::test(start_paused = true)]
async fn the_window_holds_though_the_input_is_never_pending() {
    let groups: Vec<_> = busy([1; 40])
        .grouped_weighted_within(u64::MAX, ms(10), |_| 1)
        .map(|group| group.len())
        .collect()
        .await;
    assert_eq!(groups, [10, 10, 10, 10]);
}
