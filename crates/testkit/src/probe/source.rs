//! A stream driven by hand.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll, Waker},
};

use futures_core::{FusedStream, Stream};

use super::lock;

/// A stream of the items that its handle sends.
pub fn source<T>() -> (SourceHandle<T>, Source<T>) {
    let state = Arc::new(Mutex::new(State {
        queue: VecDeque::new(),
        progress: Progress::Open,
        waker: None,
        polls: 0,
    }));
    let source = Source {
        state: Arc::clone(&state),
    };
    (SourceHandle { state }, source)
}

#[derive(Debug)]
struct State<T> {
    queue: VecDeque<T>,
    progress: Progress,
    waker: Option<Waker>,
    polls: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Progress {
    Open,
    Ending,
    Ended,
}

/// The test's half of a [`source`].
#[derive(Debug)]
pub struct SourceHandle<T> {
    state: Arc<Mutex<State<T>>>,
}

impl<T> SourceHandle<T> {
    /// The source emits this item, after those sent before.
    ///
    /// # Panics
    ///
    /// After [`end`](Self::end).
    #[track_caller]
    pub fn send(&self, item: T) {
        let mut state = lock(&self.state);
        assert!(
            state.progress == Progress::Open,
            "a source gives nothing after its end"
        );
        state.queue.push_back(item);
        Self::wake(state);
    }

    /// The source ends, after the items sent before.
    pub fn end(&self) {
        let mut state = lock(&self.state);
        if state.progress == Progress::Open {
            state.progress = Progress::Ending;
        }
        Self::wake(state);
    }

    /// How often the source was polled.
    #[must_use]
    pub fn polls(&self) -> usize {
        lock(&self.state).polls
    }

    /// Wakes with the lock released, because a task that is woken may poll at once.
    fn wake(mut state: MutexGuard<'_, State<T>>) {
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The adapter's half of a [`source`].
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
pub struct Source<T> {
    state: Arc<Mutex<State<T>>>,
}

impl<T> Stream for Source<T> {
    type Item = T;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = lock(&self.state);
        state.polls += 1;
        if let Some(item) = state.queue.pop_front() {
            return Poll::Ready(Some(item));
        }
        if state.progress == Progress::Open {
            state.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        state.progress = Progress::Ended;
        Poll::Ready(None)
    }

    /// Counts the items that were sent.
    fn size_hint(&self) -> (usize, Option<usize>) {
        let state = lock(&self.state);
        let sent = state.queue.len();
        (sent, (state.progress != Progress::Open).then_some(sent))
    }
}

impl<T> FusedStream for Source<T> {
    fn is_terminated(&self) -> bool {
        lock(&self.state).progress == Progress::Ended
    }
}
