//! A real codec on a real pipe, whose end is a stream and a sink: the tests check when lines come out at the other end.

use futures::{SinkExt, StreamExt, stream};
use paceline::policy::Interval;
use paceline::prelude::*;
use tokio::io::{DuplexStream, duplex};
use tokio_util::codec::{Framed, LinesCodec};

use crate::timed::{assert_left, drained, ms, now, since, sleep};

type Lines = Framed<DuplexStream, LinesCodec>;

fn pipe(room: usize) -> (Lines, Lines) {
    let (here, there) = duplex(room);
    let lines = |end| Framed::new(end, LinesCodec::new());
    (lines(here), lines(there))
}

/// A codec has a buffer. Without a flush while the adapter waits, all lines would arrive together at the end.
#[tokio::test(start_paused = true)]
async fn lines_arrive_as_far_apart_as_they_were_sent_or_when_they_are_paid() {
    let limit = || Interval::every(ms(100)).owned();
    let (here, there) = pipe(64);
    let sending = stream::iter(["a", "b", "c"])
        .map(Ok)
        .forward(here.pace_sends(limit()));
    let (left, sent) = futures::join!(drained(there.map(Result::unwrap)), sending);
    sent.unwrap();
    let expected = [(0, "a"), (100, "b"), (200, "c")];
    assert_left(&left, expected.map(owned), 200);

    let (here, there) = pipe(64);
    let by_length =
        here.pace_sends_by_cost(limit(), |line: &&str| u32::try_from(line.len()).unwrap());
    let sending = stream::iter(["abc", "de", "f"]).map(Ok).forward(by_length);
    let (left, sent) = futures::join!(drained(there.map(Result::unwrap)), sending);
    sent.unwrap();
    let expected = [(0, "abc"), (300, "de"), (500, "f")];
    assert_left(&left, expected.map(owned), 500);
}

fn owned((at, line): (u64, &str)) -> (u64, String) {
    (at, line.to_owned())
}

/// The pipe has room for four bytes, and the reader starts at 350 ms.
#[tokio::test(start_paused = true)]
async fn a_pipe_that_is_full_delays_and_loses_nothing() {
    let (here, there) = pipe(4);
    let mut sink = here.pace_sends(Interval::every(ms(100)).owned());
    let arrived = tokio::spawn(async move {
        sleep(350).await;
        there.map(Result::unwrap).collect::<Vec<_>>().await
    });
    let start = now();
    for line in ["one", "two", "three"] {
        sink.send(line).await.unwrap();
    }
    // The second, of 100, was in the buffer until then.
    assert_eq!(since(start), 350);
    sink.close().await.unwrap();
    drop(sink);
    assert_eq!(arrived.await.unwrap(), ["one", "two", "three"]);
}

#[tokio::test(start_paused = true)]
async fn one_type_takes_the_methods_of_both_traits() {
    let limit = Interval::every(ms(100)).shared();
    let (here, there) = pipe(64);
    let mut sink = here.pace_sends(limit.clone());
    let mut stream = there.pace(limit);

    let start = now();
    sink.send("a").await.unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap(), "a");
    assert_eq!(since(start), 100, "one limit for both");
}
