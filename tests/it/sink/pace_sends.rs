use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::channel::mpsc;
use futures::{FutureExt, Sink, SinkExt, StreamExt, stream};
use paceline::limiter::Shared;
use paceline::policy::{Decision, Interval, TokenBucket};
use paceline::prelude::*;
use paceline::sink::PaceSends;
use paceline::time::Rate;
use testkit::clock::jump;
use testkit::probe::{self, Broken};
use testkit::wakes::Driven;

use super::driven::{Steps, Told, taken_ms};
use crate::timed::{ms, now, since, sleep};

type Paced = PaceSends<probe::Sink<char>, Shared<Interval>, char>;
type PollOfAnyKind = fn(&mut Driven<Paced>) -> Poll<Result<(), Broken>>;

const OK: Poll<Result<(), Broken>> = Poll::Ready(Ok(()));

#[tokio::test(start_paused = true)]
async fn over_a_channel_that_is_full() {
    let start = now();
    let (outlet, mut calls) = mpsc::channel(0); // room for one item of one sender
    let sink = outlet.pace_sends(Interval::every(ms(100)).owned());
    let sending = tokio::spawn(stream::iter(1..=4).map(Ok).forward(sink));

    let mut left = Vec::new();
    sleep(50).await;
    while let Some(item) = calls.next().await {
        left.push((since(start), item));
        sleep(if item == 2 { 250 } else { 0 }).await;
    }
    sending.await.unwrap().unwrap();
    // The second item leaves at 100 and the third at 200. There is room for the fourth at 350.
    assert_eq!(left, [(50, 1), (100, 2), (350, 3), (350, 4)]);
}

#[tokio::test(start_paused = true)]
async fn takes_no_permit_before_the_inner_sink_can_take_the_item() {
    let (handle, sink) = probe::sink();
    let sink = sink.pace_sends(Interval::every(ms(200)).owned());
    let sending = tokio::spawn(stream::iter(1..=4).map(Ok).forward(sink));
    sleep(0).await;

    handle.accept(1);
    sleep(550).await; // the slot at 200 is open, and nobody can use it
    handle.accept_all();
    sending.await.unwrap().unwrap();
    assert_eq!(taken_ms(&handle), [(0, 1), (550, 2), (750, 3), (950, 4)]);
    assert!(!handle.sent_when_not_ready());
}

#[tokio::test(start_paused = true)]
async fn the_item_held_leaves_when_the_inner_sink_is_ready_and_the_next_counts_from_there() {
    let (handle, sink) = probe::sink();
    let limit = Interval::every(ms(100)).shared();
    let mut sink = Driven::new(sink.pace_sends(limit.clone()));
    handle.accept(1);
    assert_eq!(sink.ready(), OK);
    assert!(limit.try_acquire(1).is_pass());
    sink.start('a').unwrap();

    jump(ms(150)).await;
    assert_eq!(sink.flush(), OK);
    assert_eq!(taken_ms(&handle), [(150, 'a')]);
    assert_eq!(
        limit.peek(1),
        Decision::Wait { retry_in: ms(100) },
        "counted from the send"
    );
}

#[tokio::test(start_paused = true)]
async fn a_ready_sink_may_send_late_and_the_slots_count_from_the_send() {
    let (handle, sink) = probe::sink();
    handle.accept_all();
    let mut sink = Driven::new(sink.pace_sends(Interval::every(ms(100)).owned()));
    assert_eq!(sink.ready(), OK);
    jump(ms(250)).await;
    sink.start(1).unwrap();
    jump(ms(99)).await;
    assert!(sink.ready().is_pending());
    jump(ms(1)).await;
    assert_eq!(sink.ready(), OK);
    assert_eq!(taken_ms(&handle), [(250, 1)]);
}

#[tokio::test(start_paused = true)]
async fn holds_one_item_if_another_handle_took_the_slot_since_and_any_poll_sends_it() {
    let polls: [PollOfAnyKind; 3] = [Steps::ready, Steps::flush, Steps::close];
    for poll in polls {
        let (handle, sink) = probe::sink();
        handle.accept_all();
        let limit = Interval::every(ms(100)).shared();
        let mut sink = Driven::new(sink.pace_sends(limit.clone()));
        assert_eq!(sink.ready(), OK);
        assert!(limit.try_acquire(1).is_pass());
        sink.start('a').unwrap();
        assert_eq!(taken_ms(&handle), []);

        assert!(poll(&mut sink).is_pending());
        assert!(sink.is_waker_kept() && !handle.is_closed());
        jump(ms(100)).await;
        let _ = poll(&mut sink);
        assert_eq!(taken_ms(&handle), [(100, 'a')]);
    }
}

#[tokio::test(start_paused = true)]
async fn flushes_the_inner_sink_while_it_waits_for_a_slot() {
    let (handle, sink) = probe::sink();
    handle.accept_all();
    let limit = Interval::every(ms(100)).shared();
    let mut sink = Driven::new(sink.pace_sends(limit.clone()));
    assert_eq!(sink.ready(), OK);
    sink.start('a').unwrap();
    assert_eq!(handle.flushes(), 0);
    assert!(sink.ready().is_pending());
    assert_eq!(handle.flushes(), 1, "before an item is there to be sent");

    jump(ms(100)).await;
    assert_eq!(sink.ready(), OK);
    assert!(limit.try_acquire(1).is_pass());
    sink.start('b').unwrap();
    assert!(sink.flush().is_pending());
    assert_eq!(handle.flushes(), 2, "while one is held");
}

#[tokio::test(start_paused = true)]
async fn an_item_held_when_the_inner_sink_fails_stays_held_and_is_given_back() {
    let (handle, sink) = probe::sink();
    handle.accept_all();
    let limit = Interval::every(ms(100)).shared();
    let mut sink = Driven::new(sink.pace_sends(limit.clone()));
    assert_eq!(sink.ready(), OK);
    assert!(limit.try_acquire(1).is_pass());
    sink.start('a').unwrap();

    for _ in 0..2 {
        handle.fail_next();
        assert_eq!(
            sink.flush(),
            Poll::Ready(Err(Broken)),
            "asked whether it is ready"
        );
    }
    jump(ms(100)).await;
    handle.fail_next();
    assert_eq!(sink.ready(), Poll::Ready(Err(Broken)));
    assert!(
        limit.peek(1).is_pass(),
        "no permit is taken for a broken sink"
    );
    let (_, held) = sink.into_inner().into_parts();
    assert_eq!(held, Some('a'));
}

/// Accepts every item, and fails when it is flushed.
struct Clogged;

impl Sink<char> for Clogged {
    type Error = Broken;

    fn poll_ready(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        OK
    }

    fn start_send(self: Pin<&mut Self>, _: char) -> Result<(), Broken> {
        Ok(())
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        Poll::Ready(Err(Broken))
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        self.poll_flush(cx)
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_while_it_waits_is_reported_and_it_leaves_the_queue() {
    let limit = Interval::every(ms(100)).shared();
    let mut sink = Driven::new(Clogged.pace_sends(limit.clone()));
    assert_eq!(sink.ready(), OK);
    sink.start('a').unwrap();
    assert_eq!(sink.ready(), Poll::Ready(Err(Broken)));
    jump(ms(100)).await;
    assert!(limit.try_acquire(1).is_pass(), "no waiter is queued");
}

/// Ready on the first call, or on every call, as the test decides.
struct Fickle(std::rc::Rc<std::cell::Cell<bool>>);

impl Sink<char> for Fickle {
    type Error = Broken;

    fn poll_ready(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        if self.0.get() { OK } else { Poll::Pending }
    }

    fn start_send(self: Pin<&mut Self>, _: char) -> Result<(), Broken> {
        Ok(())
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        OK
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        OK
    }
}

#[tokio::test(start_paused = true)]
async fn leaves_the_line_while_the_inner_sink_can_take_nothing() {
    let is_ready = std::rc::Rc::new(std::cell::Cell::new(true));
    let limit = Interval::every(ms(100)).shared();
    let mut sink = Driven::new(Fickle(is_ready.clone()).pace_sends(limit.clone()));
    assert!(limit.try_acquire(1).is_pass());
    assert!(sink.ready().is_pending(), "queued");
    is_ready.set(false);
    assert!(sink.ready().is_pending());

    let start = now();
    limit.acquire(1).await.unwrap();
    assert_eq!(since(start), 100, "no waiter is queued before it");
}

#[tokio::test(start_paused = true)]
async fn takes_no_permit_for_the_item_held_while_the_inner_sink_is_full() {
    let is_ready = std::rc::Rc::new(std::cell::Cell::new(true));
    let limit = Interval::every(ms(100)).shared();
    let mut sink = Driven::new(Fickle(is_ready.clone()).pace_sends(limit.clone()));
    assert_eq!(sink.ready(), OK);
    assert!(limit.try_acquire(1).is_pass());
    sink.start('a').unwrap();
    is_ready.set(false);
    jump(ms(150)).await;
    assert!(sink.ready().is_pending() && sink.flush().is_pending() && sink.close().is_pending());
    assert!(limit.peek(1).is_pass());

    is_ready.set(true);
    assert_eq!(sink.flush(), OK);
    assert_eq!(limit.peek(1), Decision::Wait { retry_in: ms(100) });
}

#[tokio::test(start_paused = true)]
async fn dropping_a_send_midway_costs_nothing() {
    let (handle, sink) = probe::sink();
    handle.accept_all();
    let limit = Interval::every(ms(100)).shared();
    let mut sink = sink.pace_sends(limit.clone());
    sink.send('a').await.unwrap();
    assert!(
        sink.send('b').now_or_never().is_none(),
        "not begun: b is dropped with it"
    );
    jump(ms(100)).await;
    sink.send('c').await.unwrap();
    assert_eq!(taken_ms(&handle), [(0, 'a'), (100, 'c')]);

    jump(ms(100)).await;
    assert_eq!(
        futures::future::poll_fn(|cx| sink.poll_ready_unpin(cx)).await,
        Ok(())
    );
    assert!(limit.try_acquire(1).is_pass());
    assert!(
        sink.send('d').now_or_never().is_none(),
        "the slot was gone when it asked"
    );
    sink.close().await.unwrap();
    assert_eq!(taken_ms(&handle), []);
}

#[tokio::test(start_paused = true)]
async fn dropping_a_send_whose_item_is_held_loses_nothing() {
    let (handle, sink) = probe::sink();
    handle.accept_all();
    // It answers that a permit is available, because it cannot peek.
    let limit = Told::default();
    limit.set(Some(Decision::Wait { retry_in: ms(100) }));
    let mut sink = sink.pace_sends(limit.clone());
    assert!(sink.send('a').now_or_never().is_none());

    limit.set(Some(Decision::Pass));
    sink.flush().await.unwrap();
    assert_eq!(handle.taken(), ['a']);
}

#[tokio::test(start_paused = true)]
async fn over_a_limiter_that_cannot_look_the_item_is_held_instead() {
    let limit = Told::default();
    for answer in [Some(Decision::Wait { retry_in: ms(100) }), None] {
        limit.set(answer);
        let (handle, sink) = probe::sink();
        handle.accept_all();
        let mut sink = Driven::new(sink.pace_sends(limit.clone()));
        assert_eq!(sink.ready(), OK);
        sink.start('a').unwrap();
        assert!(sink.ready().is_pending() && sink.flush().is_pending());
        limit.set(Some(Decision::Pass));
        assert_eq!(sink.close(), OK);
        assert_eq!(handle.taken(), ['a']);
    }
}

#[tokio::test(start_paused = true)]
async fn a_delayed_interval_counts_from_the_first_poll_of_any_kind() {
    let (handle, sink) = probe::sink();
    handle.accept_all();
    let mut sink = sink.pace_sends(Interval::every(ms(100)).with_delayed_start().owned());
    sleep(77).await; // built, and not polled yet
    sink.flush().await.unwrap();
    sleep(30).await;
    sink.send('a').await.unwrap();
    assert_eq!(taken_ms(&handle), [(100, 'a')]);
}

#[tokio::test(start_paused = true)]
async fn feels_a_retune_at_once() {
    let (handle, sink) = probe::sink();
    handle.accept_all();
    let limit = Interval::every(ms(3_600_000)).shared();
    let sink = sink.pace_sends(limit.clone());
    let sending = tokio::spawn(stream::iter([1, 2]).map(Ok).forward(sink));
    sleep(1_000).await;
    limit.retune(Interval::every(ms(5_000)));
    sending.await.unwrap().unwrap();
    assert_eq!(taken_ms(&handle), [(0, 1), (5_000, 2)]);
}

#[tokio::test(start_paused = true)]
async fn the_item_it_holds_is_not_printed() {
    let limit = Told::default();
    let mut sink = Driven::new(futures::sink::drain().pace_sends(limit));
    let _ = sink.ready();
    assert!(format!("{sink:?}").contains("held: 0"));
    sink.start("hush").unwrap();
    let shown = format!("{sink:?}");
    assert!(
        shown.contains("held: 1") && !shown.contains("hush"),
        "{shown}"
    );
}

#[test]
#[should_panic(expected = "an item was sent before the sink was ready")]
fn panics_rather_than_lose_an_item_that_is_sent_without_poll_ready() {
    let mut sink = Driven::new(futures::sink::drain().pace_sends(Told::default()));
    let _ = sink.start('a');
    let _ = sink.start('b');
}

#[test]
#[should_panic(expected = "a limiter must let cost 1 pass in the end")]
fn names_the_law_that_a_foreign_limiter_breaks() {
    let limit = Told::default();
    limit.set(Some(Decision::Never { capacity: 0 }));
    let _ = Driven::new(futures::sink::drain().pace_sends(limit)).start('a');
}
