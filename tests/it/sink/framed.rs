//! A real codec on a real pipe: the tests check when the lines come out at the other end.

use futures::{SinkExt, StreamExt, stream};
use paceline::policy::Interval;
use paceline::prelude::*;
use tokio::io::{DuplexStream, duplex};
use tokio_util::codec::{Framed, LinesCodec};

use crate::timed::{ms, now, since, sleep};

fn pipe(
    room: usize,
) -> (
    Framed<DuplexStream, LinesCodec>,
    Framed<DuplexStream, LinesCodec>,
) {
    let (here, there) = duplex(room);
    (
        Framed::new(here, LinesCodec::new()),
        Framed::new(there, LinesCodec::new()),
    )
}

/// The lines that come out, with their instants.
async fn arrivals(mut there: Framed<DuplexStream, LinesCodec>) -> Vec<(u64, String)> {
    let start = now();
    let mut arrived = Vec::new();
    while let Some(line) = there.next().await {
        arrived.push((since(start), line.unwrap()));
    }
    arrived
}

fn lines(expected: &[(u64, &str)]) -> Vec<(u64, String)> {
    let owned = expected.iter().map(|(at, line)| (*at, (*line).to_owned()));
    owned.collect()
}

/// A codec has a buffer. Without a flush while the adapter waits, all lines would arrive together at the end.
#[tokio::test(start_paused = true)]
async fn lines_arrive_as_far_apart_as_they_were_sent() {
    let (here, there) = pipe(64);
    let sink = here.pace_sends(Interval::every(ms(100)).owned());
    let arrived = tokio::spawn(arrivals(there));
    stream::iter(["a", "b", "c"])
        .map(Ok)
        .forward(sink)
        .await
        .unwrap();
    assert_eq!(
        arrived.await.unwrap(),
        lines(&[(0, "a"), (100, "b"), (200, "c")])
    );
}

#[tokio::test(start_paused = true)]
async fn lines_that_pay_by_length_arrive_when_they_are_paid() {
    let (here, there) = pipe(64);
    let limit = Interval::every(ms(100)).owned();
    let length = |line: &&str| u32::try_from(line.len()).unwrap();
    let sink = here.pace_sends_by_cost(limit, length);
    let arrived = tokio::spawn(arrivals(there));
    stream::iter(["abc", "de", "f"])
        .map(Ok)
        .forward(sink)
        .await
        .unwrap();
    assert_eq!(
        arrived.await.unwrap(),
        lines(&[(0, "abc"), (300, "de"), (500, "f")])
    );
}

/// The pipe has room for four bytes, and the reader starts at 350 ms.
#[tokio::test(start_paused = true)]
async fn a_pipe_that_is_full_delays_and_loses_nothing() {
    let (here, there) = pipe(4);
    let mut sink = here.pace_sends(Interval::every(ms(100)).owned());
    let arrived = tokio::spawn(async move {
        sleep(350).await;
        arrivals(there).await
    });
    let start = now();
    for line in ["one", "two", "three"] {
        sink.send(line).await.unwrap();
    }
    assert_eq!(
        since(start),
        350,
        "the second, of 100, was in the buffer until then"
    );
    sink.close().await.unwrap();
    drop(sink);
    let arrived = arrived.await.unwrap();
    let texts: Vec<_> = arrived.iter().map(|(_, line)| line.as_str()).collect();
    assert_eq!(texts, ["one", "two", "three"]);
}

#[tokio::test(start_paused = true)]
async fn refused_lines_do_not_arrive() {
    let (here, there) = pipe(64);
    let mut enforced = here.enforce_sends(Interval::every(ms(100)).owned());
    let arrived = tokio::spawn(arrivals(there));
    enforced.send("a").await.unwrap();
    enforced.send("b").await.unwrap_err();
    sleep(100).await;
    enforced.send("c").await.unwrap();
    drop(enforced);
    assert_eq!(arrived.await.unwrap(), lines(&[(0, "a"), (100, "c")]));
}
