use futures::{Stream, StreamExt, stream};
use paceline::prelude::*;
use paceline::stream::OnError;
use testkit::marble::{self, TICK};

use super::rows;
use crate::timed::{ms, sleep};

/// Items weigh what they show, at most 5 in a group, and four ticks.
const WITH_EITHER_RULE: &str = "
without errors groups are as ever
  2 3    - 3 3   - 9         - 1 - - - -   |
  - [23] - - [3] - ([3][9]) - - - - - [1] |
two groups and an error leave in one instant
  2 (9X)        - |
  - ([2][9]X)   - |
";

const FLUSH: &str = "
an error flushes the group
  2 2 X       - 1 |
  - - ([22]X) - - ([1]|)
";

const DISCARD: &str = "
an error discards the group
  2 2 X - 1 |
  - - X - - ([1]|)
";

#[tokio::test(start_paused = true)]
async fn errors_and_groups_by_weight_are_as_drawn() {
    for (rule, timelines) in [
        (OnError::Flush, WITH_EITHER_RULE),
        (OnError::Discard, WITH_EITHER_RULE),
        (OnError::Flush, FLUSH),
        (OnError::Discard, DISCARD),
    ] {
        let group = |s: marble::TrySource| {
            let weigh = |digit: &char| digit.to_digit(10).unwrap().into();
            let groups = s.try_grouped_weighted_within(5, TICK * 4, weigh);
            groups.with_on_error(rule)
        };
        for (input, output) in rows(timelines) {
            marble::try_check(group, input, output).await;
        }
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
