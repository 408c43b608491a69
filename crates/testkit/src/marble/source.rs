//! Items at given instants, and rows played so.

use std::{
    collections::VecDeque,
    error::Error,
    fmt,
    pin::Pin,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use futures_core::{FusedStream, Stream};
use tokio::time::Instant;

use super::parse::{Drawn, Thing, parse, reject};
use crate::clock::{Until, now};

/// Plays a row as a stream of its letters, timed from its first poll.
///
/// A row without `|` never ends. Its `size_hint` is exact if it ends, and has no upper bound otherwise.
#[track_caller]
pub fn source(row: &str) -> Source {
    play(row, |mark, position| match mark {
        'X' => reject(row, position, "errors, `X`, are for `try_source`"),
        letter => letter,
    })
}

/// Plays a row as a stream of results, timed from its first poll: an `X` is a [`Failure`].
#[track_caller]
pub fn try_source(row: &str) -> TrySource {
    play(row, |mark, _| match mark {
        'X' => Err(Failure),
        letter => Ok(letter),
    })
}

#[track_caller]
fn play<T>(row: &str, item: impl Fn(char, usize) -> T) -> Source<T> {
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
    Source::new(items, end)
}

#[track_caller]
fn letter(row: &str, mark: &str, position: usize) -> char {
    let mut letters = mark.chars();
    match (letters.next(), letters.next()) {
        (Some(letter), None) => letter,
        _ => reject(row, position, "groups are for outputs; an input has `(ab)`"),
    }
}

/// Stream for the [`source`] function: items, each at its instant after the first poll.
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
pub struct Source<T = char> {
    items: VecDeque<(Duration, T)>,
    end: Option<Duration>,
    start: Option<Instant>,
    wait: Option<Until>,
    /// Keeps the waker while there is nothing to come and no end, so that the waker counts as kept.
    idle: Option<Waker>,
    has_ended: bool,
}

/// Stream for the [`try_source`] function: the letters of a row, and a [`Failure`] for each `X`.
pub type TrySource = Source<Result<char, Failure>>;

impl<T> Source<T> {
    /// The items in order of time; without an end it is pending for ever after them.
    pub(crate) fn new(
        items: impl IntoIterator<Item = (Duration, T)>,
        end: Option<Duration>,
    ) -> Self {
        Self {
            items: items.into_iter().collect(),
            end,
            start: None,
            wait: None,
            idle: None,
            has_ended: false,
        }
    }

    /// Counts time from here, polled or not.
    pub(crate) fn started_at(mut self, start: Instant) -> Self {
        self.start = Some(start);
        self
    }

    /// Takes the items that were not emitted yet.
    pub(crate) fn take_rest(&mut self) -> Vec<T> {
        self.items.drain(..).map(|(_, item)| item).collect()
    }
}

impl<T: Unpin> Stream for Source<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let Some(due) = self.items.front().map(|(due, _)| *due).or(self.end) else {
            self.idle = Some(cx.waker().clone());
            return Poll::Pending;
        };
        let at = *self.start.get_or_insert_with(now) + due;
        let wait = self.wait.get_or_insert_with(|| Until::at(at));
        ready!(wait.poll(cx));
        self.wait = None;

        let item = self.items.pop_front().map(|(_, item)| item);
        self.has_ended = item.is_none();
        Poll::Ready(item)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.items.len();
        (left, self.end.map(|_| left))
    }
}

impl<T: Unpin> FusedStream for Source<T> {
    fn is_terminated(&self) -> bool {
        self.has_ended
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
