//! A sink driven by hand: slow, full or failing.

use std::{
    error::Error,
    fmt, mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll, Waker},
    time::Duration,
};

use super::lock;
use crate::clock::Stopwatch;

/// A sink that accepts items when its handle allows it. At first it accepts none.
pub fn sink<T>() -> (SinkHandle<T>, Sink<T>) {
    let state = Arc::new(Mutex::new(State {
        room: Some(0),
        fails_next: false,
        is_ready: false,
        sent_when_not_ready: false,
        taken: Vec::new(),
        flushes: 0,
        is_closed: false,
        watch: None,
        waker: None,
    }));
    let sink = Sink {
        state: Arc::clone(&state),
    };
    (SinkHandle { state }, sink)
}

#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, told or asked by the test"
)]
struct State<T> {
    /// `None` is room for any number.
    room: Option<usize>,
    fails_next: bool,
    is_ready: bool,
    sent_when_not_ready: bool,
    taken: Vec<(Duration, T)>,
    flushes: usize,
    is_closed: bool,
    /// Started at the first poll.
    watch: Option<Stopwatch>,
    waker: Option<Waker>,
}

impl<T> State<T> {
    /// The first step of every call on the sink.
    fn begin(&mut self) -> Result<Duration, Broken> {
        let watch = self.watch.get_or_insert_with(Stopwatch::start);
        if mem::take(&mut self.fails_next) {
            return Err(Broken);
        }
        Ok(watch.elapsed())
    }
}

/// The test's half of a [`sink`].
#[derive(Debug)]
pub struct SinkHandle<T> {
    state: Arc<Mutex<State<T>>>,
}

impl<T> SinkHandle<T> {
    /// The sink accepts `more` items.
    pub fn accept(&self, more: usize) {
        let mut state = lock(&self.state);
        state.room = state.room.map(|room| room + more);
        Self::wake(state);
    }

    /// The sink accepts all items.
    pub fn accept_all(&self) {
        let mut state = lock(&self.state);
        state.room = None;
        Self::wake(state);
    }

    /// The next call on the sink fails, whichever method it is. Later calls do not.
    pub fn fail_next(&self) {
        let mut state = lock(&self.state);
        state.fails_next = true;
        Self::wake(state);
    }

    /// The items that the sink has accepted since the last call of this or of [`taken_at`](Self::taken_at).
    #[must_use]
    pub fn taken(&self) -> Vec<T> {
        self.taken_at().into_iter().map(|(_, item)| item).collect()
    }

    /// The same, with the time from the sink's first call to each item.
    #[must_use]
    pub fn taken_at(&self) -> Vec<(Duration, T)> {
        mem::take(&mut lock(&self.state).taken)
    }

    /// How often the sink was flushed.
    #[must_use]
    pub fn flushes(&self) -> usize {
        lock(&self.state).flushes
    }

    /// Whether the sink was closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        lock(&self.state).is_closed
    }

    /// Whether the sink was ever sent an item while it was not ready: a fault of the caller.
    #[must_use]
    pub fn sent_when_not_ready(&self) -> bool {
        lock(&self.state).sent_when_not_ready
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

/// The adapter's half of a [`sink`].
#[derive(Debug)]
#[must_use = "sinks do nothing unless polled"]
pub struct Sink<T> {
    state: Arc<Mutex<State<T>>>,
}

impl<T> futures_sink::Sink<T> for Sink<T> {
    type Error = Broken;

    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        let mut state = lock(&self.state);
        state.begin()?;
        state.is_ready = state.room != Some(0);
        if state.is_ready {
            return Poll::Ready(Ok(()));
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    fn start_send(self: Pin<&mut Self>, item: T) -> Result<(), Broken> {
        let mut state = lock(&self.state);
        let at = state.begin()?;
        if !mem::take(&mut state.is_ready) {
            state.sent_when_not_ready = true;
        }
        state.room = state.room.map(|room| room.saturating_sub(1));
        state.taken.push((at, item));
        Ok(())
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        let mut state = lock(&self.state);
        state.begin()?;
        state.flushes += 1;
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        let mut state = lock(&self.state);
        state.begin()?;
        state.is_closed = true;
        Poll::Ready(Ok(()))
    }
}

/// The error of a call on the sink after [`SinkHandle::fail_next`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(
    clippy::exhaustive_structs,
    reason = "there is nothing more to say about it"
)]
pub struct Broken;

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the sink was told to fail")
    }
}

impl Error for Broken {}
