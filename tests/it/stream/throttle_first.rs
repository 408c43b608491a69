use futures::{FutureExt, Stream, StreamExt, stream};
use paceline::prelude::*;

use crate::timed::{arriving, assert_left, drained, ms, now, since, sleep};

#[tokio::test(start_paused = true)]
async fn emits_and_then_ignores_until_the_time_is_over() {
    let arrivals = [(0, 1), (0, 2), (99, 3), (100, 4), (250, 5), (349, 6)];
    let mut first = Box::pin(arriving(arrivals, 400).throttle_first(ms(100)));
    let left = drained(first.by_ref()).await;
    assert_left(&left, [(0, 1), (100, 4), (250, 5)], 400);
    assert_eq!(first.dropped_count(), 3);
}

/// The consumer asks late for the second item. Items within the time after *that* emission are dropped.
#[tokio::test(start_paused = true)]
async fn the_time_counts_from_the_emission() {
    let (handle, source) = testkit::probe::source();
    let start = now();
    let mut first = source.throttle_first(ms(100));
    handle.send('a');
    first.next().await;
    handle.send('b');
    sleep(170).await;
    assert_eq!(first.next().await, Some('b'));
    assert_eq!(since(start), 170);

    sleep(99).await;
    handle.send('c');
    assert!(first.next().now_or_never().is_none(), "269 is too soon");
    sleep(1).await;
    handle.send('d');
    assert_eq!(first.next().now_or_never(), Some(Some('d')));
    assert_eq!(first.dropped_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn only_the_very_first_is_certain() {
    let mut first = stream::iter(1..=3).throttle_first(ms(100));
    assert_eq!(first.size_hint(), (1, Some(3)));
    first.next().await;
    assert_eq!(first.size_hint(), (0, Some(2)));
    assert_eq!(first.into_inner().collect::<Vec<_>>().await, [2, 3]);
}
