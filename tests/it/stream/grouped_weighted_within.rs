use futures::{Stream, StreamExt, stream};
use paceline::prelude::*;
use paceline::stream::Window;
use testkit::marble::{self, TICK};

use super::grouped_within::WINDOWS;
use super::rows;
use crate::timed::{ms, now, since, sleep};

/// Items weigh what they show, at most 5 in a group, and four ticks.
const IN_EACH_WINDOW: &str = "
reaching the maximum exactly closes the group
  2 3    - 1 4    |
  - [23] - - [14] |
  5   5   |
  [5] [5] |
a group without room restarts its windows as a full one does
  3 - 3    - - - - - |
  - - [3]  - - - [3] - |
an item that is too heavy leaves alone with no empty group before it
  9   - 9   |
  [9] - [9] |
an item that completes two groups sends both in its instant
  2 9        - - 3 |
  - ([2][9]) - - - ([3]|)
  2 5        - - |
  - ([2][5]) - - |
  (2929|)
  ([2][9][2][9]|)
an item that arrives as the window ends is in the next group
  2 - - - 2   - - - |
  - - - - [2] - - - ([2]|)
  2 - - - 9          - |
  - - - - ([2][9])   - |
";

const FROM_THE_FIRST_ITEM: &str = "
an item that does not fit starts the next group
  3 3   2    |
  - [3] [32] |
items without weight wait for the window
  0 0 0 - - |
  - - - - [000] |
  0 0 9 - |
  - - ([00][9]) - |
  5   0 - |
  [5] - - ([0]|)
";

#[tokio::test(start_paused = true)]
async fn groups_by_weight_are_as_drawn() {
    let in_each = WINDOWS.map(|window| (window, IN_EACH_WINDOW));
    let all = in_each.into_iter();
    for (window, timelines) in all.chain([(Window::FirstItem, FROM_THE_FIRST_ITEM)]) {
        let group = |s: marble::Source| {
            let weigh = |digit: &char| digit.to_digit(10).unwrap().into();
            let groups = s.grouped_weighted_within(5, TICK * 4, weigh);
            groups.with_window(window)
        };
        for (input, output) in rows(timelines) {
            marble::check(group, input, output).await;
        }
    }
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
