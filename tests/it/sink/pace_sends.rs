use std::task::Poll;

use futures::SinkExt;
use paceline::limiter::Shared;
use paceline::policy::{Decision, Interval};
use paceline::prelude::*;
use paceline::sink::PaceSends;
use testkit::clock::jump;
use testkit::probe::{self, Broken, SinkHandle};
use testkit::wakes::Driven;

use super::driven::{Does, Fickle, Steps, Told, over_all, taken_ms};
use crate::timed::{ms, now, since, sleep};

type Paced = PaceSends<probe::Sink<char>, Shared<Interval>, char>;
type PollOfAnyKind = fn(&mut Driven<Paced>) -> Poll<Result<(), Broken>>;

const OK: Poll<Result<(), Broken>> = Poll::Ready(Ok(()));
const WAIT: Decision = Decision::Wait { retry_in: ms(100) };

/// A sink that holds an item, because another handle took the slot in between.
fn holding() -> (SinkHandle<char>, Shared<Interval>, Driven<Paced>) {
    let (handle, limit, mut sink) = over_all(probe::Sink::pace_sends);
    assert_eq!(sink.ready(), OK);
    assert!(limit.try_acquire(1).is_pass());
    sink.start('a').unwrap();
    assert_eq!(taken_ms(&handle), []);
    (handle, limit, sink)
}

#[tokio::test(start_paused = true)]
async fn a_ready_sink_may_send_late_and_the_slots_count_from_the_send() {
    let (handle, _, mut sink) = over_all(probe::Sink::pace_sends);
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
async fn any_poll_sends_the_item_held_when_its_slot_is_open_and_the_next_counts_from_there() {
    let queues_again: (PollOfAnyKind, _) = (Steps::ready, 200);
    for (poll, next) in [queues_again, (Steps::flush, 100), (Steps::close, 100)] {
        let (handle, limit, mut sink) = holding();
        assert!(poll(&mut sink).is_pending());
        assert!(sink.is_waker_kept() && !handle.is_closed());
        jump(ms(150)).await;
        let _ = poll(&mut sink);
        assert_eq!(taken_ms(&handle), [(150, 'a')]);
        let counted_from_the_send = Decision::Wait { retry_in: ms(next) };
        assert_eq!(limit.peek(1), counted_from_the_send);
    }
}

#[tokio::test(start_paused = true)]
async fn flushes_the_inner_sink_while_it_waits_for_a_slot() {
    let (handle, limit, mut sink) = over_all(probe::Sink::pace_sends);
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
async fn a_failure_while_it_waits_is_reported_and_it_leaves_the_queue() {
    let inner = Fickle::default();
    inner.0.set(Does::FailsToFlush);
    let limit = Interval::every(ms(100)).shared();
    let mut sink = Driven::new(inner.pace_sends(limit.clone()));
    assert_eq!(sink.ready(), OK);
    sink.start('a').unwrap();
    assert_eq!(sink.ready(), Poll::Ready(Err(Broken)));
    jump(ms(100)).await;
    assert!(limit.try_acquire(1).is_pass(), "no waiter is queued");
}

#[tokio::test(start_paused = true)]
async fn leaves_the_line_while_the_inner_sink_can_take_nothing() {
    let inner = Fickle::default();
    let limit = Interval::every(ms(100)).shared();
    let sink: PaceSends<_, _, char> = inner.clone().pace_sends(limit.clone());
    let mut sink = Driven::new(sink);
    assert!(limit.try_acquire(1).is_pass());
    assert!(sink.ready().is_pending(), "queued");
    inner.0.set(Does::TakesNone);
    assert!(sink.ready().is_pending());

    let start = now();
    limit.acquire(1).await.unwrap();
    assert_eq!(since(start), 100, "no waiter is queued before it");
}

#[tokio::test(start_paused = true)]
async fn takes_no_permit_for_the_item_held_while_the_inner_sink_is_full() {
    let inner = Fickle::default();
    let limit = Interval::every(ms(100)).shared();
    let mut sink = Driven::new(inner.clone().pace_sends(limit.clone()));
    assert_eq!(sink.ready(), OK);
    assert!(limit.try_acquire(1).is_pass());
    sink.start('a').unwrap();
    inner.0.set(Does::TakesNone);
    jump(ms(150)).await;
    assert!(sink.ready().is_pending() && sink.flush().is_pending() && sink.close().is_pending());
    assert!(limit.peek(1).is_pass());

    inner.0.set(Does::TakesAll);
    assert_eq!(sink.flush(), OK);
    assert_eq!(limit.peek(1), WAIT);
}

/// It answers that a permit is available, because it cannot peek.
#[tokio::test(start_paused = true)]
async fn over_a_limiter_that_cannot_look_the_item_is_held_instead() {
    let limit = Told::default();
    for answer in [Some(WAIT), None] {
        limit.set(answer);
        let (handle, _, mut sink) = over_all(|sink, _| sink.pace_sends(limit.clone()));
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
