use std::time::Duration;

use futures::{FutureExt, Stream, StreamExt, TryStreamExt, stream};
use paceline::prelude::*;
use paceline::stream::{OnError, Window};
use testkit::clock::jump;
use testkit::marble::{self, TICK};

use crate::timed::{arriving, assert_left, drained, ms, now, since, sleep};

const WINDOWS: [Window; 3] = [Window::FirstItem, Window::LastGroup, Window::Grid];

/// At most three items, at most four ticks.
async fn check(rule: OnError, input: &str, output: &str) {
    let group = |s: marble::TrySource| s.try_grouped_within(3, TICK * 4).with_on_error(rule);
    marble::try_check(group, input, output).await;
}

#[tokio::test(start_paused = true)]
async fn without_errors_groups_are_as_ever() {
    for rule in [OnError::Flush, OnError::Discard] {
        check(
            rule,
            "a b c     - d - - - -   e |",
            "- - [abc] - - - - - [d] - ([e]|)",
        )
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_flushes_the_group_and_follows_it_in_the_same_instant() {
    check(OnError::default(), "a b X - - |", "- - ([ab]X) - - |").await;
    check(OnError::Flush, "(abXcX|)", "([ab]X[c]X|)").await;
}

#[tokio::test(start_paused = true)]
async fn an_error_discards_the_group_with_on_error_discard() {
    check(
        OnError::Discard,
        "a b X - c - - - - |",
        "- - X - - - - - [c] |",
    )
    .await;

    let input = stream::iter([Ok(1), Ok(2), Err("no"), Ok(3)]);
    let mut groups = input
        .try_grouped_within(9, ms(50))
        .with_on_error(OnError::Discard);
    assert_eq!(groups.next().await, Some(Err("no")));
    assert_eq!(groups.dropped_count(), 2);
    assert_eq!(groups.next().await, Some(Ok(vec![3])));
    assert_eq!(groups.next().await, None);
    assert_eq!(groups.dropped_count(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_error_with_nothing_before_it_leaves_alone() {
    for rule in [OnError::Flush, OnError::Discard] {
        check(rule, "X - X |", "X - X |").await;
        check(rule, "(XX|)", "(XX|)").await;
        check(rule, "a b c     X |", "- - [abc] X |").await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_is_not_the_end() {
    check(OnError::Flush, "a X      b X      |", "- ([a]X) - ([b]X) |").await;
}

#[tokio::test(start_paused = true)]
async fn an_error_that_comes_with_the_end_of_the_window_finds_the_group_gone() {
    for rule in [OnError::Flush, OnError::Discard] {
        check(rule, "a - - - X |", "- - - - ([a]X) |").await;
    }
    let input = arriving([(0, Ok(1)), (100, Err("no"))], 200);
    let groups = input.try_grouped_within(9, ms(100));
    let mut groups = Box::pin(groups.with_on_error(OnError::Discard));
    let left = drained(groups.by_ref()).await;
    assert_left(&left, [(100, Ok(vec![1])), (100, Err("no"))], 200);
    assert_eq!(groups.dropped_count(), 0);
}

/// The window ended before the error arrived, although there was no poll in between.
#[tokio::test(start_paused = true)]
async fn an_error_of_a_slow_poll_finds_the_group_gone() {
    let input = stream::iter([(0, Ok(1)), (20, Err("no")), (0, Ok(2))]).map(|(gap, result)| {
        // `advance` moves the clock at its first poll.
        let _ = tokio::time::advance(ms(gap)).now_or_never();
        result
    });
    let groups = input
        .try_grouped_within(9, ms(10))
        .with_on_error(OnError::Discard);
    let left = drained(groups).await;
    let expected = [(20, Ok(vec![1])), (20, Err("no")), (20, Ok(vec![2]))];
    assert_left(&left, expected, 20);
}

#[tokio::test(start_paused = true)]
async fn an_error_with_nothing_before_it_starts_no_window() {
    let group = |s: marble::TrySource| {
        s.try_grouped_within(9, TICK * 4)
            .with_window(Window::LastGroup)
    };
    marble::try_check(group, "- X a - - - |", "- X - - [a] - |").await;
}

#[tokio::test(start_paused = true)]
async fn the_windows_are_those_of_groups_without_errors() {
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
        let input = arriving([(900, 'a'), (950, 'b'), (2_100, 'c')], 5_000).map(Ok::<_, ()>);
        let groups = input.try_grouped_within(10, ms(1_000)).with_window(window);
        let expected = expected.map(|(at, group)| (at, Ok(group)));
        assert_left(&drained(groups).await, expected, 5_000);
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_timer_costs_neither_group_nor_error() {
    for rule in [OnError::Flush, OnError::Discard] {
        let start = now();
        let input = arriving([(0, Ok('a')), (150, Err("no"))], 200);
        let mut groups = Box::pin(input.try_grouped_within(9, ms(100)).with_on_error(rule));
        assert!(groups.next().now_or_never().is_none());
        jump(ms(170)).await;
        assert_eq!(groups.next().await, Some(Ok(vec!['a'])));
        assert_eq!(groups.next().await, Some(Err("no")));
        assert_eq!(since(start), 170);
        assert_eq!(groups.next().await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_behind_its_group_is_held_and_counted() {
    let input = stream::iter([Ok(1), Err("no"), Ok(2)]);
    let mut groups = input.try_grouped_within(9, ms(50));
    assert_eq!(groups.next().await, Some(Ok(vec![1])));
    assert_eq!(groups.size_hint(), (2, Some(2)));

    sleep(70).await;
    assert_eq!(groups.next().await, Some(Err("no")));
    assert_eq!(groups.size_hint(), (1, Some(1)));
}

#[tokio::test(start_paused = true)]
async fn into_parts_returns_results_as_in_the_input() {
    let input = stream::iter([Ok(1), Ok(2), Err("no"), Ok(3)]);
    let mut groups = input.try_grouped_within(9, ms(50));
    assert_eq!(groups.next().await, Some(Ok(vec![1, 2])));
    let (rest, held) = groups.into_parts();
    assert_eq!(held, [Err("no")]);
    assert_eq!(rest.collect::<Vec<_>>().await, [Ok(3)]);

    let input = stream::iter([Ok::<_, ()>(1), Ok(2)]).chain(stream::pending());
    let mut groups = input.try_grouped_within(9, ms(50));
    assert!(groups.next().now_or_never().is_none());
    assert_eq!(groups.into_parts().1, [Ok(1), Ok(2)]);
}

#[tokio::test(start_paused = true)]
async fn can_be_used_with_a_question_mark() {
    let input = stream::iter([Ok(1), Ok(2), Err("no")]);
    let mut groups = input.try_grouped_within(2, ms(50));
    assert_eq!(groups.try_next().await, Ok(Some(vec![1, 2])));
    assert_eq!(groups.try_next().await, Err("no"));
}

#[tokio::test(start_paused = true)]
async fn the_largest_group_and_the_longest_window_work() {
    for window in WINDOWS {
        let input = arriving([(0, Ok::<_, ()>(1)), (1_000_000, Ok(2))], 2_000_000);
        let groups = input
            .try_grouped_within(usize::MAX, Duration::MAX)
            .with_window(window);
        let expected = [(2_000_000, Ok(vec![1, 2]))];
        assert_left(&drained(groups).await, expected, 2_000_000);
    }
}
