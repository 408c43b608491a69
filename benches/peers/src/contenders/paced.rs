//! What keeps emissions an interval apart, and the tape that it leaves.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt};

/// A contender that keeps emissions apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paced {
    pub(crate) name: &'static str,
    /// Emits one unit each interval until the tape is full.
    pub(crate) run: fn(Duration, Tape) -> Running,
}

pub(crate) type Running = Pin<Box<dyn Future<Output = Tape> + Send>>;

/// When something was emitted.
#[derive(Debug)]
pub(crate) struct Tape {
    pub(crate) stamps: Vec<Instant>,
    most: usize,
    /// `None`: as long as it takes.
    until: Option<Instant>,
}

impl Tape {
    /// A tape that is full after `most` emissions or after `during`, but never before the third emission.
    pub(crate) fn new(most: usize, during: Duration) -> Self {
        Self {
            stamps: Vec::with_capacity(most),
            most,
            until: Instant::now().checked_add(during),
        }
    }

    /// A tape that is full after `count` emissions.
    pub(crate) fn of(count: usize) -> Self {
        Self {
            stamps: Vec::with_capacity(count),
            most: count,
            until: None,
        }
    }

    /// Whether there is room for more.
    pub(crate) fn goes_on_after_emission(&mut self) -> bool {
        let now = Instant::now();
        self.stamps.push(now);
        self.stamps.len() < self.most
            && (self.until.is_none_or(|until| now < until) || self.stamps.len() < 3)
    }
}

/// Runs a stream until the tape is full.
pub(crate) async fn drain<S: Stream>(stream: S, mut tape: Tape) -> Tape {
    let mut stream = std::pin::pin!(stream);
    while stream.next().await.is_some() && tape.goes_on_after_emission() {}
    tape
}

/// What is to be paced: units without end, always there.
pub(crate) fn source() -> impl Stream<Item = ()> + Unpin + Send + 'static {
    futures::stream::repeat(())
}
