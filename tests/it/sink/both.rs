//! A type that is both a stream and a sink: each side can be adapted, together or alone.

use futures::{SinkExt, StreamExt, stream};
use paceline::policy::Interval;
use paceline::prelude::*;
use tokio::io::{DuplexStream, duplex};
use tokio_util::codec::{Framed, LinesCodec};

use crate::timed::{ms, now, since};

type Lines = Framed<DuplexStream, LinesCodec>;

fn pipe() -> (Lines, Lines) {
    let (here, there) = duplex(64);
    let lines = |end| Framed::new(end, LinesCodec::new());
    (lines(here), lines(there))
}

#[tokio::test(start_paused = true)]
async fn one_type_takes_the_methods_of_both_traits() {
    let limit = Interval::every(ms(100)).shared();
    let (here, there) = pipe();
    let mut sink = here.pace_sends(limit.clone());
    let mut stream = there.pace(limit);

    let start = now();
    sink.send("a").await.unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap(), "a");
    assert_eq!(since(start), 100, "one limit for both");
}

#[tokio::test(start_paused = true)]
async fn its_halves_are_adapted_apart() {
    let (here, there) = pipe();
    let (sink, stream) = here.split();
    let sink = sink.pace_sends(Interval::every(ms(100)).owned());
    let echo = tokio::spawn(async move {
        let (sink, stream) = there.split();
        stream.forward(sink).await
    });

    let start = now();
    let sending = stream::iter(["a", "b", "c"]).map(Ok).forward(sink);
    let answers = stream
        .map(|line| (since(start), line.unwrap()))
        .collect::<Vec<_>>();
    let (sent, answers) = futures::join!(sending, answers);
    sent.unwrap();
    echo.await.unwrap().unwrap();
    let expected = [(0, "a"), (100, "b"), (200, "c")];
    assert_eq!(answers, expected.map(|(at, line)| (at, line.to_owned())));
}
