//! Several sinks and other users of one limit.

use std::task::Poll;

use futures::channel::mpsc;
use futures::sink::Drain;
use futures::{FutureExt, SinkExt, StreamExt, stream};
use paceline::limiter::Shared;
use paceline::policy::Interval;
use paceline::prelude::*;
use paceline::sink::PaceSends;
use testkit::clock::jump;
use testkit::probe;
use testkit::wakes::Driven;

use super::driven::{Steps, taken_ms};
use crate::timed::{ms, now, since};

type Waiting<'a> = PaceSends<Drain<u8>, &'a mut Shared<Interval>, u8>;
type End = fn(Waiting<'_>) -> Option<Waiting<'_>>;

/// Sends `items` times, as fast as the limit allows, in a task of its own.
fn greedy(
    name: char,
    items: usize,
    limit: &Shared<Interval>,
    outlet: &mpsc::UnboundedSender<char>,
) {
    let sink = outlet.clone().pace_sends(limit.clone());
    let items = stream::iter(vec![name; items]);
    tokio::spawn(items.map(Ok).forward(sink));
}

/// The sender of each slot of 10 ms, from the start on.
async fn turns(calls: mpsc::UnboundedReceiver<char>) -> String {
    let start = now();
    let mut slot = 0;
    let turns = calls.map(move |name| {
        assert_eq!(since(start), slot * 10, "no slot is wasted or doubled");
        slot += 1;
        name
    });
    turns.collect().await
}

#[tokio::test(start_paused = true)]
async fn sinks_streams_and_plain_calls_take_turns() {
    let limit = Interval::every(ms(10)).shared();
    let (outlet, calls) = mpsc::unbounded();
    greedy('a', 4, &limit, &outlet);
    let paced = stream::iter(['s'; 4]).pace(limit.clone());
    tokio::spawn(paced.map(Ok).forward(outlet.clone()));
    let plain = outlet.clone();
    let line = limit.clone();
    tokio::spawn(async move {
        for _ in 0..4 {
            line.acquire(1).await.unwrap();
            plain.unbounded_send('p').unwrap();
        }
    });
    greedy('b', 4, &limit, &outlet);
    drop(outlet);
    assert_eq!(turns(calls).await, "aaspbaspbaspbspb");
}

#[tokio::test(start_paused = true)]
async fn a_ready_sink_that_never_sends_holds_up_no_waiter() {
    let limit = Interval::every(ms(10)).shared();
    let mut idle = Driven::new(futures::sink::drain::<char>().pace_sends(limit.clone()));
    assert!(idle.ready().is_ready());
    limit.acquire(1).await.unwrap();
    assert!(idle.ready().is_pending(), "queued");
    let waits = tokio::spawn(limit.acquire_owned(1));
    tokio::task::yield_now().await;

    let start = now();
    idle.woken().await;
    assert!(idle.ready().is_ready(), "its turn, and it does not send");
    waits.await.unwrap().unwrap();
    assert_eq!(since(start), 10);
    limit.acquire(1).await.unwrap();
    assert_eq!(since(start), 20);
}

#[tokio::test(start_paused = true)]
async fn an_item_that_is_sent_later_overtakes_no_queued_waiter() {
    let limit = Interval::every(ms(10)).shared();
    let (handle, sink) = probe::sink();
    handle.accept_all();
    let mut sink = Driven::new(sink.pace_sends(limit.clone()));
    assert!(sink.ready().is_ready());
    limit.acquire(1).await.unwrap();
    let mut waits = limit.acquire(1);
    assert!((&mut waits).now_or_never().is_none());

    jump(ms(10)).await;
    sink.start('a').unwrap();
    assert!(handle.taken().is_empty(), "a waiter is queued");
    assert!(sink.flush().is_pending());
    waits.now_or_never().unwrap().unwrap();
    assert!(sink.flush().is_pending());
    jump(ms(10)).await;
    assert_eq!(sink.flush(), Poll::Ready(Ok(())));
    assert_eq!(taken_ms(&handle), [(20, 'a')]);
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_queued_until_it_was_ready_does_not_queue_again() {
    let limit = Interval::every(ms(10)).shared();
    let (handle, sink) = probe::sink();
    handle.accept_all();
    let mut sink = Driven::new(sink.pace_sends(limit.clone()));
    limit.acquire(1).await.unwrap();
    assert!(sink.ready().is_pending());
    let mut behind: Vec<_> = (0..3).map(|_| Driven::new(limit.acquire(1))).collect();
    assert!(behind.iter_mut().all(|waits| waits.poll().is_pending()));

    jump(ms(10)).await;
    assert!(sink.ready().is_ready());
    assert!(behind[0].is_woken(), "it holds up no waiter");
    assert!(behind[0].poll().is_ready());
    sink.start('a').unwrap(); // the slot is gone: held
    assert!(sink.flush().is_pending());
    jump(ms(10)).await;
    assert!(behind[1].poll().is_pending());
    assert!(sink.flush().is_ready());

    assert!(sink.ready().is_pending(), "behind the queued waiters");
    for (n, waits) in behind[1..].iter_mut().enumerate() {
        waits.woken().await;
        assert!(waits.poll().is_ready(), "{n}");
    }
    sink.woken().await;
    assert!(sink.ready().is_ready());
    sink.start('b').unwrap();
    assert_eq!(taken_ms(&handle), [(20, 'a'), (50, 'b')]);
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_holds_an_item_and_is_not_polled_holds_up_no_waiter() {
    let start = now();
    let limit = Interval::every(ms(10)).shared();
    let mut sink = Driven::new(futures::sink::drain().pace_sends(limit.clone()));
    assert!(sink.ready().is_ready());
    limit.acquire(1).await.unwrap();
    sink.start('a').unwrap();
    limit.acquire(1).await.unwrap();
    assert_eq!(since(start), 10);
    assert_eq!(sink.into_inner().into_parts().1, Some('a'));
}

/// A sink that waits for a slot may be dropped, closed or taken apart. A limiter that was lent is free then.
#[tokio::test(start_paused = true)]
async fn a_sink_that_goes_leaves_the_line() {
    let start = now();
    let mut lent = Interval::every(ms(10)).shared();
    let limit = lent.clone();
    let is_dropped: End = |_| None;
    let is_taken_apart: End = |sink| {
        assert_eq!(sink.into_parts().1, None);
        None
    };
    let is_closed: End = |mut sink| {
        sink.close().now_or_never().unwrap().unwrap();
        Some(sink)
    };
    for (end, at) in [(is_dropped, 10), (is_taken_apart, 30), (is_closed, 50)] {
        let mut sink = futures::sink::drain().pace_sends(&mut lent);
        sink.send(1).await.unwrap();
        assert!(sink.send(2).now_or_never().is_none());
        let closed = end(sink);
        limit.acquire(1).await.unwrap();
        assert_eq!(since(start), at);
        drop(closed);
    }
}
