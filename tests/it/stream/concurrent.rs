use std::cell::Cell;
use std::future::{poll_fn, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::task::{Context, Poll};

use futures::stream::{self, FusedStream};
use futures::{FutureExt, Stream as _, StreamExt};
use paceline::concurrency::Permits;
use paceline::prelude::*;
use testkit::probe;
use testkit::wakes::{Driven, count_polls, counter};

use crate::timed::{assert_left, drained, ms, sleep};

/// A future that takes this many milliseconds and returns them.
async fn take(millis: u64) -> u64 {
    sleep(millis).await;
    millis
}

#[tokio::test(start_paused = true)]
async fn outputs_come_as_they_are_done() {
    let four = [(5, 5), (10, 10), (20, 20), (30, 30)];
    let two = [(10, 10), (30, 30), (35, 25), (35, 5)];
    let one_keeps_the_order = [(30, 30), (40, 10), (60, 20)];
    let one_that_cools_down_delays_the_next_start = [(30, 30), (140, 10), (260, 20)];
    let cooling = Permits::new(1).with_cooldown(ms(100));
    for (permits, millis, expected) in [
        (Permits::new(4), &[30, 10, 20, 5][..], &four[..]),
        (Permits::new(2), &[30, 10, 25, 5], &two),
        (Permits::new(1), &[30, 10, 20], &one_keeps_the_order),
        (
            cooling,
            &[30, 10, 20],
            &one_that_cools_down_delays_the_next_start,
        ),
    ] {
        let end = expected.last().unwrap().0;
        let input = stream::iter(millis.iter().copied());
        let left = drained(input.concurrent(permits, take)).await;
        assert_left(&left, expected.iter().copied(), end);
    }
}

#[tokio::test(start_paused = true)]
async fn never_more_than_the_permits_over_two_streams() {
    let permits = Permits::new(3);
    let (now, most) = (&Cell::new(0), &Cell::new(0));
    let work = |millis| async move {
        now.set(now.get() + 1);
        most.set(most.get().max(now.get()));
        let taken = take(millis).await;
        now.set(now.get() - 1);
        taken
    };
    let a = stream::iter((0..50).map(|n| n * 7 % 20)).concurrent(permits.clone(), work);
    let b = stream::iter((0..50).map(|n| n * 3 % 20)).concurrent(permits.clone(), work);

    assert_eq!(stream::select(a, b).count().await, 100);
    assert_eq!(most.get(), 3);
    assert_eq!(permits.in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn streams_that_share_permits_are_served_as_their_items_come() {
    let permits = Permits::new(1);
    let a = stream::iter(["a"; 3]).concurrent(permits.clone(), |name| take(10).map(move |_| name));
    let b = stream::iter(["b"; 3]).concurrent(permits, |name| take(10).map(move |_| name));

    let order: String = stream::select(a, b).collect().await;
    assert_eq!(
        order, "aababb",
        "the second item of the first stream was queued before the other stream came"
    );
}

#[tokio::test(start_paused = true)]
async fn an_idle_input_takes_no_permit() {
    let permits = Permits::new(1);
    let mut idle = Driven::new(stream::pending::<u64>().concurrent(permits.clone(), take));
    assert!(idle.poll_next().is_pending());
    assert!(permits.try_acquire().is_some());
}

#[tokio::test(start_paused = true)]
async fn takes_one_item_ahead_of_its_permit_and_gives_it_back() {
    let (handle, source) = probe::source();
    let permits = Permits::new(1);
    (1..=5).for_each(|n| handle.send(n));
    handle.end();
    let mut calls = Driven::new(source.concurrent(permits.clone(), take));
    assert!(calls.poll_next().is_pending());
    assert_eq!(permits.in_use(), 1);
    let polls = handle.polls();
    assert!(calls.poll_next().is_pending());
    assert_eq!(handle.polls(), polls, "it leaves the input alone");

    let (rest, held) = calls.into_inner().into_parts();
    assert_eq!(held, Some(2));
    assert_eq!(permits.in_use(), 0, "the futures are dropped");
    assert_eq!(rest.collect::<Vec<_>>().await, [3, 4, 5]);
    drop(permits.acquire().await);
}

#[test]
fn it_joins_no_queue_while_an_output_is_ready() {
    let permits = Permits::new(1);
    let mut calls = Driven::new(stream::iter(1..=3).concurrent(permits.clone(), ready));

    assert_eq!(calls.poll_next(), Poll::Ready(Some(1)));
    let other = permits.try_acquire();
    assert!(other.is_some(), "the second item is held, and not queued");
    assert!(calls.poll_next().is_pending());
    assert!(permits.try_acquire().is_none());

    drop(other);
    assert!(calls.is_woken());
    assert!(permits.try_acquire().is_none(), "now it is queued");
    assert_eq!(calls.poll_next(), Poll::Ready(Some(2)));
    assert_eq!(calls.poll_next(), Poll::Ready(Some(3)));
}

#[test]
fn where_others_wait_it_takes_its_place_although_it_has_something_to_give() {
    let permits = Permits::new(2);
    let mut calls = Driven::new(stream::iter(1..=3).concurrent(permits.clone(), ready));
    assert_eq!(calls.poll_next(), Poll::Ready(Some(1)));
    let mut before = Driven::new(permits.acquire_many(2));
    assert!(before.poll().is_pending());

    assert_eq!(calls.poll_next(), Poll::Ready(Some(2)));
    let mut behind = Driven::new(permits.acquire());
    assert!(behind.poll().is_pending());
    assert!(before.poll().is_ready());
    assert!(behind.poll().is_pending(), "the third item is queued");

    assert_eq!(calls.poll_next(), Poll::Ready(Some(3)));
    assert!(behind.poll().is_ready());
}

#[tokio::test(start_paused = true)]
async fn size_hint_counts_the_item_held_and_the_futures() {
    let mut calls = stream::iter([10, 20, 30, 40]).concurrent(Permits::new(2), take);
    assert_eq!(calls.size_hint(), (4, Some(4)));
    assert!(calls.next().now_or_never().is_none());
    assert_eq!(calls.size_hint(), (4, Some(4)));
    assert!(!calls.is_terminated());

    assert_eq!(calls.next().await, Some(10));
    assert_eq!(calls.size_hint(), (3, Some(3)));
    assert_eq!(calls.by_ref().count().await, 3);
    assert_eq!(calls.size_hint(), (0, Some(0)));
    assert!(calls.is_terminated());
    assert_eq!(calls.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn only_those_that_were_woken_are_polled() {
    let polls = Rc::new(Cell::new(0));
    let start = |millis: u64| {
        let counted = count_polls(take(millis));
        let (count, polls) = (counted.polls(), Rc::clone(&polls));
        async move {
            counted.await;
            polls.set(polls.get() + count.count());
        }
    };
    let calls = stream::iter(1..=1_000).concurrent(Permits::new(1_000), start);
    assert_eq!(calls.count().await, 1_000);
    assert_eq!(polls.get(), 2_000, "once to begin and once to end");
}

#[tokio::test(start_paused = true)]
async fn one_that_wakes_itself_does_not_keep_the_thread() {
    let spin = |()| {
        poll_fn(|cx| {
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        })
    };
    let mut calls = Driven::new(stream::iter([()]).concurrent(Permits::new(1), spin));
    assert!(calls.poll_next().is_pending());
    assert!(calls.is_woken(), "and does not forget it either");
}

#[test]
fn a_future_that_panics_gives_its_permit_back_and_the_others_go_on() {
    let permits = Permits::new(2);
    let work = |n| async move {
        assert!(n != 1, "on purpose");
        n
    };
    let mut calls = Driven::new(stream::iter([1, 2, 3]).concurrent(permits.clone(), work));
    let panicked = catch_unwind(AssertUnwindSafe(|| calls.poll_next()));
    assert!(panicked.is_err());
    assert_eq!(permits.in_use(), 1);

    assert_eq!(calls.poll_next(), Poll::Ready(Some(2)));
    assert_eq!(calls.poll_next(), Poll::Ready(Some(3)));
    assert_eq!(calls.poll_next(), Poll::Ready(None));
    assert_eq!(permits.in_use(), 0);
}

#[test]
fn a_waker_that_outlives_it_keeps_no_task_alive() {
    let kept = Rc::new(Cell::new(None));
    let keep = |()| {
        let kept = Rc::clone(&kept);
        poll_fn(move |cx| {
            kept.set(Some(cx.waker().clone()));
            Poll::<()>::Pending
        })
    };
    let (waker, counted) = counter();
    let mut calls = stream::iter([()]).concurrent(Permits::new(1), keep);
    let polled = calls.poll_next_unpin(&mut Context::from_waker(&waker));
    assert!(polled.is_pending() && counted.is_kept());

    drop(calls);
    assert!(!counted.is_kept());
    kept.take().unwrap().wake();
    assert_eq!(counted.count(), 0);
}

/// A stream that is not polled keeps its permits, because its futures make no progress.
#[tokio::test(start_paused = true)]
async fn a_stream_that_is_not_polled_keeps_its_permits() {
    let permits = Permits::new(1);
    let mut idle = stream::iter([10, 10]).concurrent(permits.clone(), take);
    assert!(idle.next().now_or_never().is_none());
    let other = permits.acquire();
    assert!(tokio::time::timeout(ms(1_000_000), other).await.is_err());
    assert_eq!(idle.count().await, 2);
}
