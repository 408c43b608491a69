//! Items at given instants: the base of every timed input of the testkit.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use tokio::time::{Instant, Sleep};

use crate::clock;

/// Plays items at given times after its start, which is its first poll unless it was started before.
#[derive(Debug)]
pub(crate) struct Script<T> {
    items: VecDeque<(Duration, T)>,
    end: Option<Duration>,
    start: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
    /// Keeps the waker while there is nothing to come and no end, so that the waker counts as kept.
    idle: Option<Waker>,
    ended: bool,
}

impl<T> Script<T> {
    /// The items in order of time; without an end it is pending for ever after them.
    pub(crate) fn new(
        items: impl IntoIterator<Item = (Duration, T)>,
        end: Option<Duration>,
    ) -> Self {
        Self {
            items: items.into_iter().collect(),
            end,
            start: None,
            sleep: None,
            idle: None,
            ended: false,
        }
    }

    /// Counts time from here, polled or not.
    pub(crate) fn start_at(&mut self, start: Instant) {
        self.start = Some(start);
    }

    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let Some(due) = self.items.front().map(|(due, _)| *due).or(self.end) else {
            self.idle = Some(cx.waker().clone());
            return Poll::Pending;
        };
        ready!(self.poll_due(due, cx));

        let item = self.items.pop_front().map(|(_, item)| item);
        self.ended = item.is_none();
        Poll::Ready(item)
    }

    /// Whether the end was returned.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Exact where there is an end.
    pub(crate) fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.items.len();
        (left, self.end.map(|_| left))
    }

    /// The items that were not emitted yet.
    pub(crate) fn into_rest(self) -> impl Iterator<Item = T> {
        self.items.into_iter().map(|(_, item)| item)
    }

    fn poll_due(&mut self, due: Duration, cx: &mut Context<'_>) -> Poll<()> {
        let at = *self.start.get_or_insert_with(clock::now) + due;
        if clock::now() < at {
            let sleep = self
                .sleep
                .get_or_insert_with(|| Box::pin(clock::sleep_until(at)));
            ready!(sleep.as_mut().poll(cx));
        }
        self.sleep = None;
        Poll::Ready(())
    }
}
