use futures::{Stream, StreamExt, stream};
use paceline::prelude::*;
use paceline::stream::OnError;
use testkit::marble::{self, TICK};

use crate::timed::{ms, sleep};

/// The items in the rows weigh what they show, at most 5 in a group, at most four ticks.
async fn check(rule: OnError, input: &str, output: &str) {
    let group = |s: marble::TrySource| {
        let weigh = |item: &char| item.to_digit(10).unwrap().into();
        s.try_grouped_weighted_within(5, TICK * 4, weigh)
            .with_on_error(rule)
    };
    marble::try_check(group, input, output).await;
}

#[tokio::test(start_paused = true)]
async fn without_errors_groups_are_as_ever() {
    for rule in [OnError::Flush, OnError::Discard] {
        check(
            rule,
            "2 3    - 3 3   - 9         - 1 - - - -   |",
            "- [23] - - [3] - ([3][9]) - - - - - [1] |",
        )
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_flushes_the_group_or_discards_it() {
    check(OnError::Flush, "2 2 X - 1 |", "- - ([22]X) - - ([1]|)").await;
    check(OnError::Discard, "2 2 X - 1 |", "- - X - - ([1]|)").await;
}

#[tokio::test(start_paused = true)]
async fn two_groups_and_an_error_leave_in_one_instant() {
    for rule in [OnError::Flush, OnError::Discard] {
        check(rule, "2 (9X) - |", "- ([2][9]X) - |").await;
    }
}

/// The weight of a discarded group does not count in the next one.
#[tokio::test(start_paused = true)]
async fn an_error_leaves_no_weight_behind() {
    for (rule, dropped) in [(OnError::Flush, 0), (OnError::Discard, 1)] {
        let input = stream::iter([Ok(4), Err("no"), Ok(3), Ok(2)]);
        let groups = input.try_grouped_weighted_within(5, ms(50), |item| *item);
        let mut groups = groups.with_on_error(rule);
        let all: Vec<_> = groups.by_ref().collect().await;
        assert_eq!(all.last(), Some(&Ok(vec![3, 2])));
        assert_eq!(groups.dropped_count(), dropped);
    }
}

#[tokio::test(start_paused = true)]
async fn a_heavy_item_that_is_due_is_not_discarded() {
    let input = stream::iter([Ok(1), Ok(9), Err("no")]);
    let groups = input.try_grouped_weighted_within(5, ms(50), |item| *item);
    let mut groups = groups.with_on_error(OnError::Discard);
    assert_eq!(groups.next().await, Some(Ok(vec![1])));
    assert_eq!(groups.size_hint(), (1, Some(2)));

    sleep(70).await;
    assert_eq!(groups.next().await, Some(Ok(vec![9])));
    let (mut rest, held) = groups.into_parts();
    assert_eq!(held, []);
    assert_eq!(rest.next().await, Some(Err("no")));
}

#[tokio::test(start_paused = true)]
async fn all_that_is_to_come_may_leave_as_one_group() {
    let input = stream::iter([Ok::<_, ()>(0); 9]);
    let groups = input.try_grouped_weighted_within(2, ms(10), |item| *item);
    assert_eq!(groups.size_hint(), (1, Some(9)));
    assert_eq!(groups.count().await, 1);
}
