//! The input that the suite hands to an adapter.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures_core::{FusedStream, Stream};
use pin_project_lite::pin_project;
use tokio::time::Instant;

use super::schedule::Schedule;
use crate::script::Script;

/// The input of every rule: the numbers from 0 on, each at its scheduled instant, then the end.
///
/// It counts its polls, and those after its end. It is `Unpin`, so that an adapter over it can be taken apart after it
/// was polled; [`Unmovable`] is the one that is not.
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
pub struct Input {
    script: Script<u32>,
    hint: Hint,
    log: Arc<Log>,
}

impl Input {
    pub(super) fn new(schedule: &Schedule, hint: Hint, start: Instant) -> Self {
        let items = schedule.items.iter().copied().zip(0..);
        let mut script = Script::new(items, Some(schedule.end));
        script.start_at(start);
        Self {
            script,
            hint,
            log: Arc::default(),
        }
    }

    /// How often it was polled.
    #[must_use]
    pub fn polls(&self) -> usize {
        self.log.polls.load(Ordering::SeqCst)
    }

    /// How often it was polled after it returned `None`.
    #[must_use]
    pub fn polls_after_end(&self) -> usize {
        self.log.polls_after_end()
    }

    pub(super) fn log(&self) -> Arc<Log> {
        Arc::clone(&self.log)
    }

    /// The items that it has not emitted yet.
    pub(super) fn into_rest(self) -> impl Iterator<Item = u32> {
        self.script.into_rest()
    }
}

impl Stream for Input {
    type Item = u32;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<u32>> {
        self.log.polls.fetch_add(1, Ordering::SeqCst);
        if self.script.has_ended() {
            self.log.polls_after_end.fetch_add(1, Ordering::SeqCst);
        }
        self.script.poll_next(cx)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let (left, _) = self.script.size_hint();
        match self.hint {
            Hint::Exact => (left, Some(left)),
            Hint::AtMost => (0, Some(left)),
            Hint::AtLeast => (left, None),
            Hint::Nothing => (0, None),
        }
    }
}

impl FusedStream for Input {
    fn is_terminated(&self) -> bool {
        self.script.has_ended()
    }
}

/// How precise the `size_hint` of an input is. It is always true.
#[derive(Clone, Copy, Debug)]
pub(super) enum Hint {
    Exact,
    AtMost,
    AtLeast,
    Nothing,
}

impl Hint {
    pub(super) const ALL: [Self; 4] = [Self::Exact, Self::AtMost, Self::AtLeast, Self::Nothing];
}

/// The record of calls on an input, which can be read while the adapter owns the input.
#[derive(Debug, Default)]
pub(super) struct Log {
    polls: AtomicUsize,
    polls_after_end: AtomicUsize,
}

impl Log {
    pub(super) fn polls_after_end(&self) -> usize {
        self.polls_after_end.load(Ordering::SeqCst)
    }
}

pin_project! {
    /// An [`Input`] that is not `Unpin`: see [`check_unmovable`](super::check_unmovable).
    ///
    /// ```compile_fail,E0277
    /// fn move_it<T: Unpin>() {}
    ///
    /// move_it::<testkit::conformance::Unmovable>();
    /// ```
    #[derive(Debug)]
    #[must_use = "streams do nothing unless polled"]
    #[project(!Unpin)]
    pub struct Unmovable {
        #[pin]
        input: Input,
    }
}

impl Unmovable {
    /// Four items at once, and the end a little later.
    pub(super) fn new(start: Instant) -> Self {
        let schedule = Schedule {
            items: vec![Duration::ZERO; 4],
            end: Duration::from_millis(10),
        };
        Self {
            input: Input::new(&schedule, Hint::Exact, start),
        }
    }
}

impl Stream for Unmovable {
    type Item = u32;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<u32>> {
        self.project().input.poll_next(cx)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.input.size_hint()
    }
}

impl FusedStream for Unmovable {
    fn is_terminated(&self) -> bool {
        self.input.is_terminated()
    }
}
