//! Adapters that collect items, or hold the latest, until a window ends.

use std::future::pending;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt, stream};
use paceline::prelude::*;
use paceline::stream::Window;
use testkit::clock::jump;

use crate::timed::{arriving, assert_left, drained, ms, now, since};

type Adapter = fn(BoxStream<'static, char>) -> BoxStream<'static, String>;

/// With a window of 100 ms from the first item, and with one of a grid.
const ADAPTERS: [(&str, u64, Adapter); 7] = [
    ("grouped_within", 270, |items| {
        let groups = items.grouped_within(9, ms(100));
        groups.map(String::from_iter).boxed()
    }),
    ("grouped_within, after the last group", 270, |items| {
        let groups = items.grouped_within(9, ms(100));
        let groups = groups.with_window(Window::LastGroup);
        groups.map(String::from_iter).boxed()
    }),
    ("grouped_within, on a grid", 200, |items| {
        let groups = items.grouped_within(9, ms(100)).with_window(Window::Grid);
        groups.map(String::from_iter).boxed()
    }),
    ("grouped_weighted_within", 270, |items| {
        let groups = items.grouped_weighted_within(9, ms(100), |_| 1);
        groups.map(String::from_iter).boxed()
    }),
    ("try_grouped_within", 270, |items| {
        let groups = items.map(Ok::<_, ()>).try_grouped_within(9, ms(100));
        groups
            .map(|group| String::from_iter(group.unwrap()))
            .boxed()
    }),
    ("debounce", 270, |items| {
        items.debounce(ms(100)).map(String::from).boxed()
    }),
    ("sample", 200, |items| {
        items.sample(ms(100)).map(String::from).boxed()
    }),
];

/// The second item is there when the adapter is polled, and came in time for the first window.
#[tokio::test(start_paused = true)]
async fn a_late_poll_emits_what_is_held_before_it_reads_the_input_and_the_next_window_is_whole() {
    for (name, next, adapter) in ADAPTERS {
        let start = now();
        let mut collected = adapter(arriving([(0, 'a'), (30, 'b')], 900).boxed());
        assert!(collected.next().now_or_never().is_none());
        jump(ms(170)).await;
        for (item, at) in [("a", 170), ("b", next)] {
            assert_eq!(collected.next().await.as_deref(), Some(item), "{name}");
            assert_eq!(since(start), at, "{name}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_longest_window_is_for_ever() {
    let ever = Duration::MAX;
    let end = 2_000_000;
    let items = || arriving([(0, 1), (1_000_000, 2)], end);
    for window in [Window::FirstItem, Window::LastGroup, Window::Grid] {
        let groups = items().grouped_within(usize::MAX, ever).with_window(window);
        assert_left(&drained(groups).await, [(end, vec![1, 2])], end);
    }
    let debounced = drained(items().debounce(ever)).await;
    assert_left(&debounced, [(end, 2)], end);
    let sampled = drained(items().sample(ever)).await;
    assert_left(&sampled, [], end);
    let with_last = drained(items().sample(ever).with_keep_last()).await;
    assert_left(&with_last, [(end, 2)], end);
    let first = drained(items().throttle_first(ever)).await;
    assert_left(&first, [(0, 1)], end);
}

/// The size hint of an adapter that has taken two items, when four are to come.
fn hint<S: Stream>(adapter: impl FnOnce(BoxStream<'static, u64>) -> S) -> (usize, Option<usize>) {
    let to_come = stream::iter(0..4).then(|_| pending());
    let mut adapter = Box::pin(adapter(stream::iter([0, 0]).chain(to_come).boxed()));
    assert!(adapter.next().now_or_never().is_none());
    adapter.size_hint()
}

#[tokio::test(start_paused = true)]
async fn the_size_hint_counts_what_is_held_as_what_leaves() {
    let day = ms(86_400_000);
    let groups = hint(|items| items.grouped_within(3, day));
    assert_eq!(groups, (2, Some(5)));
    let all_may_weigh_nothing = hint(|items| items.grouped_weighted_within(3, day, |n| *n));
    assert_eq!(all_may_weigh_nothing, (1, Some(5)));
    let tried = hint(|items| items.map(Ok::<_, ()>).try_grouped_within(3, day));
    assert_eq!(tried, (2, Some(5)));
    let tried = hint(|items| {
        let results = items.map(Ok::<_, ()>);
        results.try_grouped_weighted_within(3, day, |n| *n)
    });
    assert_eq!(tried, (1, Some(5)));
    assert_eq!(hint(|items| items.debounce(day)), (1, Some(5)));
    let the_end_drops_the_last = hint(|items| items.sample(day));
    assert_eq!(the_end_drops_the_last, (0, Some(5)));
    let keeps_last = hint(|items| items.sample(day).with_keep_last());
    assert_eq!(keeps_last, (1, Some(5)));
}
