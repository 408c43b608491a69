use std::task::Poll;

use futures::{SinkExt, StreamExt, stream};
use paceline::limiter::Shared;
use paceline::policy::{Decision, TokenBucket};
use paceline::prelude::*;
use paceline::sink::{PaceSendsByCost, SendError};
use paceline::time::Rate;
use testkit::clock::jump;
use testkit::probe::{self, Broken, SinkHandle};
use testkit::wakes::Driven;

use super::driven::{Steps, over_all, taken_ms};
use crate::timed::ms;

/// One token each 100 ms, three at most.
const LIMIT: TokenBucket = TokenBucket::new(Rate::new(1, ms(100)), 3);

type Paced = PaceSendsByCost<probe::Sink<u32>, Shared<TokenBucket>, fn(&u32) -> u32, u32>;

/// Over an inner sink that accepts everything. Each item costs what it is.
fn paced() -> (SinkHandle<u32>, Shared<TokenBucket>, Driven<Paced>) {
    let limit = LIMIT.shared();
    let cost_of: fn(&u32) -> u32 = |cost| *cost;
    let (handle, _, sink) = over_all(|sink, _| sink.pace_sends_by_cost(limit.clone(), cost_of));
    (handle, limit, sink)
}

#[tokio::test(start_paused = true)]
async fn each_item_takes_as_many_permits_as_it_costs_and_is_asked_for_its_cost_once() {
    let (handle, sink) = probe::sink();
    handle.accept_all();
    let mut asked = 0;
    let sink = sink.pace_sends_by_cost(LIMIT.owned(), |cost| {
        asked += 1;
        *cost
    });
    let items = stream::iter([3, 2, 1, 0, 2]);
    items.map(Ok).forward(sink).await.unwrap();
    let expected = [(0, 3), (200, 2), (300, 1), (300, 0), (500, 2)];
    assert_eq!(taken_ms(&handle), expected);
    assert_eq!(asked, 5);
}

#[tokio::test(start_paused = true)]
async fn is_ready_when_nothing_is_held_and_the_inner_sink_is_ready() {
    let (handle, sink) = probe::sink();
    let mut sink = Driven::new(sink.pace_sends_by_cost(LIMIT.owned(), |cost| *cost));
    assert!(sink.ready().is_pending(), "the inner sink is not");
    handle.accept_all();
    for cost in [3, 2] {
        assert!(sink.ready().is_ready(), "whatever the next one costs");
        sink.start(cost).unwrap();
    }
    assert!(sink.ready().is_pending(), "the dear one is held");
    assert_eq!(taken_ms(&handle), [(0, 3)]);
    assert_eq!(handle.flushes(), 1, "the one before it is not kept back");

    jump(ms(200)).await;
    assert!(sink.ready().is_ready());
    assert_eq!(taken_ms(&handle), [(200, 2)]);
}

#[tokio::test(start_paused = true)]
async fn an_item_that_is_too_costly_is_returned_at_once_and_the_sink_goes_on() {
    let (handle, sink) = probe::sink();
    handle.accept_all();
    let cost = |text: &&str| u32::try_from(text.len()).unwrap();
    let mut sink = sink.pace_sends_by_cost(LIMIT.owned(), cost);
    sink.send("abc").await.unwrap();

    let error = sink.send("hush").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "a cost of 4 can never pass a limit of 3 at once"
    );
    assert!(!format!("{error:?}").contains("hush"));
    let SendError::Refused(never) = error else {
        panic!("the inner sink was not asked");
    };
    assert_eq!((never.cost(), never.capacity()), (4, 3));
    assert_eq!(never.into_item(), "hush");

    sink.send("de").await.unwrap();
    assert_eq!(taken_ms(&handle), [(0, "abc"), (200, "de")]);
}

#[tokio::test(start_paused = true)]
async fn an_item_held_that_a_retune_made_too_costly_comes_back_from_the_poll() {
    let (_, limit, mut sink) = paced();
    assert!(limit.try_acquire(1).is_pass());
    assert!(sink.ready().is_ready());
    sink.start(3).unwrap();
    assert!(sink.flush().is_pending());

    limit.retune(TokenBucket::new(Rate::new(1, ms(100)), 2));
    assert!(sink.is_woken());
    match sink.flush() {
        Poll::Ready(Err(SendError::Refused(never))) => assert_eq!(never.into_item(), 3),
        other => panic!("{other:?}"),
    }
    assert!(sink.flush().is_ready() && sink.ready().is_ready());
}

#[tokio::test(start_paused = true)]
async fn close_sends_the_item_held_first_and_keeps_it_if_the_inner_sink_fails() {
    let (handle, limit, mut sink) = paced();
    for cost in [3, 2] {
        assert!(sink.ready().is_ready());
        sink.start(cost).unwrap();
    }
    assert!(sink.close().is_pending() && !handle.is_closed());
    handle.fail_next();
    let failed = sink.close();
    assert!(matches!(failed, Poll::Ready(Err(SendError::Inner(Broken)))));
    jump(ms(200)).await;
    assert!(limit.peek(2).is_pass(), "it left the queue with nothing");
    assert!(sink.close().is_ready() && handle.is_closed());
    assert_eq!(taken_ms(&handle), [(0, 3), (200, 2)]);
    assert_eq!(sink.into_inner().into_parts().1, None);
}

#[tokio::test(start_paused = true)]
async fn queues_for_its_whole_cost() {
    let (_, limit, mut sink) = paced();
    assert!(limit.try_acquire(3).is_pass());
    assert!(sink.ready().is_ready());
    sink.start(3).unwrap();
    assert!(sink.flush().is_pending());
    jump(ms(100)).await;
    let behind_it = Decision::Wait { retry_in: ms(300) };
    assert_eq!(limit.try_acquire(1), behind_it);
}
