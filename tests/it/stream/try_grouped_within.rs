use futures::{FutureExt, StreamExt, stream};
use paceline::prelude::*;
use paceline::stream::{OnError, Window};
use testkit::marble::{self, TICK};

use super::rows;
use crate::timed::{assert_left, drained, ms};

/// At most three items, and four ticks.
const WITH_EITHER_RULE: &str = "
without errors groups are as ever
  a b c     - d - - - -   e |
  - - [abc] - - - - - [d] - ([e]|)
an error with nothing before it leaves alone
  X - X |
  X - X |
  (XX|)
  (XX|)
  a b c     X |
  - - [abc] X |
an error that comes with the end of the window finds the group gone
  a - - - X |
  - - - - ([a]X) |
";

const FLUSH: &str = "
an error flushes the group and follows it in the same instant
  a b X       - - |
  - - ([ab]X) - - |
  (abXcX|)
  ([ab]X[c]X|)
an error is not the end
  a X      b X      |
  - ([a]X) - ([b]X) |
";

const DISCARD: &str = "
an error discards the group
  a b X - c - - - - |
  - - X - - - - - [c] |
";

#[tokio::test(start_paused = true)]
async fn errors_and_groups_are_as_drawn() {
    for (rule, timelines) in [
        (OnError::Flush, WITH_EITHER_RULE),
        (OnError::Discard, WITH_EITHER_RULE),
        (OnError::default(), FLUSH),
        (OnError::Flush, FLUSH),
        (OnError::Discard, DISCARD),
    ] {
        let group = |s: marble::TrySource| s.try_grouped_within(3, TICK * 4).with_on_error(rule);
        for (input, output) in rows(timelines) {
            marble::try_check(group, input, output).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn items_that_an_error_discards_are_counted() {
    let input = stream::iter([Ok(1), Ok(2), Err("no"), Ok(3)]);
    let groups = input.try_grouped_within(9, ms(50));
    let mut groups = groups.with_on_error(OnError::Discard);
    assert_eq!(groups.next().await, Some(Err("no")));
    assert_eq!(groups.dropped_count(), 2);
    assert_eq!(groups.next().await, Some(Ok(vec![3])));
    assert_eq!(groups.next().await, None);
    assert_eq!(groups.dropped_count(), 2);
}

/// The window ended before the error arrived, or as it did, although there was no poll in between.
#[tokio::test(start_paused = true)]
async fn an_error_of_a_slow_poll_finds_the_group_gone() {
    for late in [10, 20] {
        let input = stream::iter([(0, Ok(1)), (late, Err("no")), (0, Ok(2))]);
        let slow = input.map(|(gap, result)| {
            // `advance` moves the clock at its first poll.
            let _ = tokio::time::advance(ms(gap)).now_or_never();
            result
        });
        let groups = slow.try_grouped_within(9, ms(10));
        let mut groups = Box::pin(groups.with_on_error(OnError::Discard));
        let left = drained(groups.by_ref()).await;
        let expected = [(late, Ok(vec![1])), (late, Err("no")), (late, Ok(vec![2]))];
        assert_left(&left, expected, late);
        assert_eq!(groups.dropped_count(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_with_nothing_before_it_starts_no_window() {
    let group = |s: marble::TrySource| {
        let groups = s.try_grouped_within(9, TICK * 4);
        groups.with_window(Window::LastGroup)
    };
    marble::try_check(group, "- X a - - - |", "- X - - [a] - |").await;
}
