//! Streams drained into rows, and rows compared.

use std::{future::Future, panic::Location, pin::pin, time::Duration};

use futures_core::Stream;

use super::{
    Mark, Row, Source, TrySource,
    parse::parse_demand,
    row::draw,
    source::{source, try_source},
};
use crate::{
    clock::{Stopwatch, sleep_until},
    patience::Patience,
};

/// Drains the stream, and draws what happened, timed from the first poll.
///
/// If nothing happens for an hour of virtual time the stream hangs: the row then ends in `…`. So does one that is
/// polled 20,000 times for nothing, `… (spins)`, or gives 10,000 items, `… (goes on)`. The stream is not polled again
/// after its end.
pub async fn run<S>(stream: S) -> Row
where
    S: Stream<Item: Mark>,
{
    drain(stream, Stopwatch::start(), &[]).await
}

/// Checks that a stream built over the row `input` does as drawn in `output`.
///
/// Both rows are timed from the first poll of what `build` returns. When the stream does not do as drawn, the panic names the
/// caller's line, and shows the rows aligned.
#[track_caller]
pub fn check<S>(
    build: impl FnOnce(Source) -> S,
    input: &str,
    output: &str,
) -> impl Future<Output = ()>
where
    S: Stream<Item: Mark>,
{
    Expected::new(input, output).check(source(input), Vec::new(), build)
}

/// Like [`check`], over a [`TrySource`]: an `X` in `input` is an error.
#[track_caller]
pub fn try_check<S>(
    build: impl FnOnce(TrySource) -> S,
    input: &str,
    output: &str,
) -> impl Future<Output = ()>
where
    S: Stream<Item: Mark>,
{
    Expected::new(input, output).check(try_source(input), Vec::new(), build)
}

/// Like [`check`], with a consumer that comes only now and then.
///
/// At each `?` of the row `demand` it asks for one item, and stays until it gets it; at `-` it does nothing. If it
/// still waits when the next `?` is due, it asks again as soon as it was served. From the tick after the row on it asks
/// all the time. All three rows are timed from the first tick of `demand`, whether the stream is polled then or not.
#[track_caller]
pub fn check_on_demand<S>(
    build: impl FnOnce(Source) -> S,
    input: &str,
    demand: &str,
    output: &str,
) -> impl Future<Output = ()>
where
    S: Stream<Item: Mark>,
{
    Expected::new(input, output).check(source(input), parse_demand(demand), build)
}

/// Asks at each of `asks`, then all the time.
async fn drain<S>(stream: S, watch: Stopwatch, asks: &[Duration]) -> Row
where
    S: Stream<Item: Mark>,
{
    let mut stream = pin!(stream);
    let mut patience = Patience::default();
    let mut asks = asks.iter();
    let mut row = Row::default();
    loop {
        if let Some(ask) = asks.next() {
            sleep_until(watch.started() + *ask).await;
        }
        match patience.next(stream.as_mut()).await {
            Ok(Some(item)) => row.push(watch.elapsed(), item.mark()),
            Ok(None) => {
                row.end(watch.elapsed());
                return row;
            }
            Err(stuck) => {
                row.stick(stuck);
                return row;
            }
        }
    }
}

/// The rows of a check, with their labels.
struct Expected {
    input: Row,
    output: Row,
    caller: &'static Location<'static>,
}

impl Expected {
    #[track_caller]
    fn new(input: &str, output: &str) -> Self {
        Self {
            input: Row::new(input),
            output: Row::new(output),
            caller: Location::caller(),
        }
    }

    async fn check<T, S>(
        self,
        source: Source<T>,
        asks: Vec<Duration>,
        build: impl FnOnce(Source<T>) -> S,
    ) where
        S: Stream<Item: Mark>,
    {
        let watch = Stopwatch::start();
        let stream = build(source.started_at(watch.started()));
        let actual = drain(stream, watch, &asks).await;
        if actual == self.output {
            return;
        }
        let lines = draw(&[&self.input, &self.output, &actual]);
        panic!(
            "not as drawn at {}\n   input  {}\nexpected  {}\n  actual  {}",
            self.caller, lines[0], lines[1], lines[2]
        );
    }
}
