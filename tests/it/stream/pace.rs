use futures::{FutureExt, StreamExt, stream};
use paceline::policy::{All, FixedWindow, Interval, TokenBucket};
use paceline::prelude::*;
use paceline::stream::Pace;
use paceline::time::Rate;
use testkit::clock::jump;
use testkit::marble::{self, TICK};
use testkit::probe;
use testkit::wakes::Driven;

use crate::timed::{arriving, assert_left, drained, ms, now, since, sleep};

#[tokio::test(start_paused = true)]
async fn an_emission_may_count_from_the_next_poll() {
    let mut paced = stream::iter(0..4)
        .min_interval(ms(100))
        .with_count_from_next_poll();
    let start = now();
    assert_eq!(paced.next().await, Some(0));
    sleep(30).await;
    assert_eq!(paced.next().await, Some(1));
    assert_eq!(since(start), 130);
    jump(ms(250)).await;
    assert_eq!(paced.next().await, Some(2));
    assert_eq!(since(start), 480, "a pause is not saved up");
    assert_eq!(paced.next().await, Some(3));
    assert_eq!(paced.next().await, None);
    assert_eq!(since(start), 580, "the end does not wait");
}

#[tokio::test(start_paused = true)]
async fn calling_from_next_poll_twice_forgets_no_emission() {
    let start = now();
    let mut paced = stream::iter(0..3)
        .min_interval(ms(100))
        .with_count_from_next_poll();
    assert_eq!(paced.next().await, Some(0));
    let mut paced = paced.with_count_from_next_poll();
    assert_eq!(paced.next().await, Some(1));
    assert_eq!(since(start), 100);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_interval_and_an_empty_bucket_count_from_the_first_poll() {
    let limit = Interval::every(ms(100)).with_delayed_start();
    let bucket = TokenBucket::new(Rate::new(1, ms(100)), 5).with_empty_start();
    let late = || arriving([(30, 1), (30, 2)], 30);
    let full = arriving([(350, 1), (350, 2), (350, 3), (350, 4)], 350).pace(bucket.owned());
    let (owned, shared) = (late().pace(limit.owned()), late().pace(limit.shared()));
    let of_a_key = late().pace(limit.keyed().at('a'));
    sleep(77).await; // built, and not polled yet
    let expected = [(350, 1), (350, 2), (350, 3), (400, 4)];
    assert_left(&drained(full).await, expected, 400);
    assert_left(&drained(owned).await, [(100, 1), (200, 2)], 200);
    assert_left(&drained(shared).await, [(100, 1), (200, 2)], 200);
    assert_left(&drained(of_a_key).await, [(100, 1), (200, 2)], 200);
}

#[tokio::test(start_paused = true)]
async fn ends_with_its_input_not_one_delay_later() {
    for row in ["a |", "|"] {
        marble::check(|s| s.min_interval(TICK * 6_000), row, row).await;
    }
}

#[tokio::test(start_paused = true)]
async fn errors_are_items_like_any_other() {
    marble::try_check(|s| s.min_interval(TICK * 2), "a X b |", "a - X - (b|)").await;
}

#[tokio::test(start_paused = true)]
async fn leaves_the_input_alone_while_it_holds_an_item() {
    let (handle, source) = probe::source();
    let mut paced = Driven::new(source.min_interval(ms(100)));
    (1..=3).for_each(|n| handle.send(n));

    assert!(paced.poll_next().is_ready());
    assert!(paced.poll_next().is_pending());
    let polls = handle.polls();
    assert!(paced.poll_next().is_pending());
    assert_eq!(handle.polls(), polls);
}

#[tokio::test(start_paused = true)]
async fn lends_a_limiter_and_leaves_the_line_with_it() {
    let start = now();
    let mut lent = Interval::every(ms(100)).shared();
    let other = lent.clone();
    {
        let mut paced = stream::iter([1, 2]).pace(&mut lent);
        paced.next().await;
        assert!(paced.next().now_or_never().is_none());
    }
    other.acquire(1).await.unwrap();
    assert_eq!(since(start), 100, "no waiter is queued before it any more");
}

#[tokio::test(start_paused = true)]
async fn the_item_it_holds_is_not_printed() {
    let mut paced = stream::iter(["a", "hush"]).min_interval(ms(100));
    let shown = |paced: &Pace<_, _>| format!("{paced:?}");
    assert!(shown(&paced).contains("held: 0"));
    paced.next().await;
    assert!(paced.next().now_or_never().is_none());
    assert!(shown(&paced).contains("held: 1"));
}

#[tokio::test(start_paused = true)]
async fn a_second_limit_in_a_chain_undoes_the_spacing_of_the_first() {
    let window = FixedWindow::new(2, ms(1_000)).owned();
    let chained = stream::iter(1..=4).min_interval(ms(50)).pace(window);
    let left = drained(chained).await;
    assert_left(&left, [(0, 1), (50, 2), (1_000, 3), (1_000, 4)], 1_000);

    let both = All::new((Interval::every(ms(50)), FixedWindow::new(2, ms(1_000))));
    let left = drained(stream::iter(1..=4).pace(both.owned())).await;
    assert_left(&left, [(0, 1), (50, 2), (1_000, 3), (1_050, 4)], 1_050);
}
