//! Streams in milliseconds: what arrives when, what left when.
#![expect(
    clippy::disallowed_methods,
    reason = "a source and a consumer of their own, which share nothing with the timers under test"
)]

use std::fmt::Debug;

use futures::{FutureExt, Stream, StreamExt, stream};
use tokio::time::Instant;

pub(crate) use testkit::clock::ms;

/// Items that are there at so many milliseconds from the first poll, and the end at `end`.
pub(crate) fn arriving<T, I>(items: I, end: u64) -> impl Stream<Item = T>
where
    I: IntoIterator<Item = (u64, T)>,
{
    let state = (None, items.into_iter());
    stream::unfold(state, move |(start, mut items)| async move {
        let start = start.unwrap_or_else(Instant::now);
        let Some((at, item)) = items.next() else {
            sleep_until(start + ms(end)).await;
            return None;
        };
        sleep_until(start + ms(at)).await;
        Some((item, (Some(start), items)))
    })
}

/// The numbers from 1 on, each after so many milliseconds of the clock, and never pending.
pub(crate) fn busy(gaps: impl IntoIterator<Item = u64>) -> impl Stream<Item = u64> {
    let numbered = (1..).zip(gaps).collect::<Vec<_>>();
    stream::iter(numbered).map(|(n, gap)| {
        // `advance` moves the clock at its first poll.
        let _ = tokio::time::advance(ms(gap)).now_or_never();
        n
    })
}

/// What came out, and when.
#[derive(Debug, PartialEq)]
pub(crate) struct Left<T> {
    pub(crate) items: Vec<(u64, T)>,
    pub(crate) end: u64,
}

/// Takes everything, as fast as it comes, and writes down the milliseconds from the first poll.
pub(crate) async fn drained<S: Stream>(stream: S) -> Left<S::Item> {
    let start = Instant::now();
    let items = stream.map(|item| (since(start), item)).collect().await;
    Left {
        items,
        end: since(start),
    }
}

/// Asserts what left when.
#[track_caller]
pub(crate) fn assert_left<T: Debug + PartialEq>(
    left: &Left<T>,
    items: impl IntoIterator<Item = (u64, T)>,
    end: u64,
) {
    assert_left_by("it", left, items, end);
}

/// The same of an adapter with a name.
#[track_caller]
pub(crate) fn assert_left_by<T: Debug + PartialEq>(
    name: &str,
    left: &Left<T>,
    items: impl IntoIterator<Item = (u64, T)>,
    end: u64,
) {
    let items: Vec<_> = items.into_iter().collect();
    assert_eq!(left.items, items, "{name}");
    assert_eq!(left.end, end, "the end of {name}");
}

pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Whole milliseconds since then; anything in between is a mistake in a test.
#[track_caller]
pub(crate) fn since(start: Instant) -> u64 {
    let elapsed = start.elapsed();
    assert_eq!(elapsed.subsec_nanos() % 1_000_000, 0, "{elapsed:?}");
    u64::try_from(elapsed.as_millis()).unwrap()
}

pub(crate) async fn sleep_until(at: Instant) {
    tokio::time::sleep_until(at).await;
}

pub(crate) async fn sleep(millis: u64) {
    tokio::time::sleep(ms(millis)).await;
}
