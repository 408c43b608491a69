use futures::{FutureExt, StreamExt, stream};
use paceline::policy::Interval;
use paceline::prelude::*;
use testkit::clock::jump;

use crate::timed::{arriving, assert_left, drained, ms};

#[tokio::test(start_paused = true)]
async fn drops_and_counts_items_that_come_too_soon() {
    let limit = Interval::every(ms(100)).owned();
    let arrivals = [
        (0, 1),
        (0, 2),
        (99, 3),
        (100, 4),
        (250, 5),
        (349, 6),
        (350, 7),
    ];
    let mut shed = Box::pin(arriving(arrivals, 400).shed(limit));

    let left = drained(shed.by_ref()).await;
    assert_left(&left, [(0, 1), (100, 4), (250, 5), (350, 7)], 400);
    assert_eq!(shed.shed_count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_item_takes_no_permit() {
    let limit = Interval::every(ms(100)).shared();
    let left = drained(stream::iter(0..1_000).shed(limit.clone())).await;
    assert_left(&left, [(0, 0)], 0);
    jump(ms(100)).await;
    assert!(limit.try_acquire(1).is_pass());
}

#[tokio::test(start_paused = true)]
async fn never_overtakes_a_queued_waiter() {
    let limit = Interval::every(ms(100)).shared();
    limit.acquire(1).await.unwrap();
    let mut waits = limit.acquire(1);
    assert!((&mut waits).now_or_never().is_none());
    jump(ms(150)).await;

    let mut shed = stream::iter(0..3).shed(limit);
    assert_eq!(shed.next().await, None);
    assert_eq!(shed.shed_count(), 3);
    waits.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn other_tasks_run_while_it_sheds_an_input_that_is_never_pending() {
    let limit = Interval::every(ms(100)).owned();
    let mut shed = stream::repeat(1).shed(limit);
    shed.next().await;
    assert!(shed.next().now_or_never().is_none());
    assert!(shed.shed_count() > 0);
}

#[test]
fn says_that_all_may_come_and_none_need() {
    let shed = stream::iter(0..3).shed(Interval::every(ms(100)).owned());
    assert_eq!(futures::Stream::size_hint(&shed), (0, Some(3)));
}
