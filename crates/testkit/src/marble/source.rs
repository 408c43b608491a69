//! Rows played as streams.

use std::{
    error::Error,
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use futures_core::{FusedStream, Stream};
use tokio::time::Instant;

use super::parse::{Drawn, Thing, parse, reject};
use crate::script::Script;

/// Plays a row as a stream of its letters, timed from its first poll.
///
/// A row without `|` never ends. Its `size_hint` is exact if it ends, and has no upper bound otherwise.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// use futures::StreamExt;
/// use testkit::{clock::Stopwatch, marble};
///
/// let watch = Stopwatch::start();
/// let letters: String = marble::source("a - (bc) - |").collect().await;
///
/// assert_eq!((letters.as_str(), watch.elapsed()), ("abc", marble::TICK * 4));
/// # }
/// ```
///
/// # Panics
///
/// When the row is not drawn right, and at an `X` or a group, which are not letters.
#[track_caller]
pub fn source(row: &str) -> Source {
    let letter = |mark: char, position| match mark {
        'X' => reject(row, position, "errors, `X`, are for `try_source`"),
        letter => letter,
    };
    Source {
        script: script(row, letter),
    }
}

/// Plays a row as a stream of results, timed from its first poll: an `X` is a [`Failure`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// use futures::StreamExt;
/// use testkit::marble::{self, Failure};
///
/// let results: Vec<_> = marble::try_source("a X |").collect().await;
///
/// assert_eq!(results, [Ok('a'), Err(Failure)]);
/// # }
/// ```
///
/// # Panics
///
/// When the row is not drawn right, and at a group, which is not one letter.
#[track_caller]
pub fn try_source(row: &str) -> TrySource {
    let result = |mark, _| match mark {
        'X' => Err(Failure),
        letter => Ok(letter),
    };
    TrySource {
        script: script(row, result),
    }
}

#[track_caller]
fn script<T>(row: &str, item: impl Fn(char, usize) -> T) -> Script<T> {
    let mut items = Vec::new();
    let mut end = None;
    for Drawn {
        at,
        thing,
        position,
    } in parse(row)
    {
        match thing {
            Thing::End => end = Some(at),
            Thing::Item(mark) => items.push((at, item(letter(row, &mark, position), position))),
        }
    }
    Script::new(items, end)
}

#[track_caller]
fn letter(row: &str, mark: &str, position: usize) -> char {
    let mut letters = mark.chars();
    match (letters.next(), letters.next()) {
        (Some(letter), None) => letter,
        _ => reject(row, position, "groups are for outputs; an input has `(ab)`"),
    }
}

/// Stream for the [`source`] function: the letters of a row, each at its tick.
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
pub struct Source {
    script: Script<char>,
}

impl Source {
    pub(super) fn started_at(mut self, start: Instant) -> Self {
        self.script.start_at(start);
        self
    }
}

impl Stream for Source {
    type Item = char;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<char>> {
        self.script.poll_next(cx)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.script.size_hint()
    }
}

impl FusedStream for Source {
    fn is_terminated(&self) -> bool {
        self.script.has_ended()
    }
}

/// Stream for the [`try_source`] function: the letters of a row, and a [`Failure`] for each `X`.
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
pub struct TrySource {
    script: Script<Result<char, Failure>>,
}

impl TrySource {
    pub(super) fn started_at(mut self, start: Instant) -> Self {
        self.script.start_at(start);
        self
    }
}

impl Stream for TrySource {
    type Item = Result<char, Failure>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.script.poll_next(cx)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.script.size_hint()
    }
}

impl FusedStream for TrySource {
    fn is_terminated(&self) -> bool {
        self.script.has_ended()
    }
}

/// What an `X` in the row of a [`try_source`] fails with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(clippy::exhaustive_structs, reason = "there is nothing more to an `X`")]
pub struct Failure;

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an `X` in the row")
    }
}

impl Error for Failure {}
