use core::convert::Infallible;
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;

use futures_core::Stream;
use futures_core::stream::FusedStream;
use pin_project_lite::pin_project;

use crate::batch::GroupBuffer;
use crate::limiter::{Gate, Limiter};
use crate::time::{Clock, Tick};

use super::input::{Input, Turn};

/// How long an input that is never pending is read before what there is may leave.
const LONG_ENOUGH: Duration = Duration::from_millis(1);

pin_project! {
    /// Stream for the [`pace_batches`](super::PaceStreamExt::pace_batches) method: all that has arrived, at each permit.
    ///
    /// ```
    /// # use {testkit::marble, paceline::{limiter::PolicyExt, policy::Interval, stream::PaceStreamExt}};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let limit = Interval::every(marble::TICK * 3).owned();
    /// // at most three items, at least three ticks apart
    /// let input  = " a  b c  d    e -  -  - - f  |";
    /// let output = "[a] - - [bcd] - - [e] - - [f] |";
    /// # marble::check(|s| s.pace_batches(limit, 3), input, output).await;
    /// # }
    /// ```
    ///
    /// * **Emits** a batch when it has at least one item and the limiter lets one permit pass: all that has arrived by
    ///   then, at most `max`, never empty. It does not wait for a batch to fill.
    /// * **Waits** on the input and the limiter both; on the limiter alone when the batch is full.
    /// * **Ends** when the input does and the last batch has passed.
    /// * **Holds** at most `max` items, which `size_hint` counts and [`into_parts`](Self::into_parts) gives back. An input
    ///   that is never pending is read until the batch is full, or for about a millisecond if a permit is there; while there
    ///   is none it is read on, so choose a `max` that fits in memory.
    /// * **Cancel safety**: dropping `next()` loses nothing; the batch stays held.
    ///
    /// **Window bound**: that of the limiter's policy, counted in batches.
    #[must_use = "streams do nothing unless polled"]
    pub struct PaceBatches<S: Stream, L: Limiter> {
        #[pin]
        input: Input<S>,
        gate: Gate<L>,
        max: usize,
        batch: GroupBuffer<S::Item>,
        clock: Clock,
        // Since when an input that is never pending has been read for this batch.
        reading_since: Option<Tick>,
    }
}

impl<S: Stream, L: Limiter> PaceBatches<S, L> {
    #[track_caller]
    pub(super) const fn new(stream: S, limiter: L, max: usize) -> Self {
        assert!(max > 0, "a batch needs room for at least 1 item, got 0");
        Self {
            input: Input::new(stream),
            gate: Gate::new(limiter),
            max,
            batch: GroupBuffer::new(),
            clock: Clock::new(),
            reading_since: None,
        }
    }

    /// Waits to the microsecond: see [`Timer::precise`](crate::time::Timer::precise).
    #[cfg(feature = "precise")]
    pub fn precise(mut self) -> Self {
        self.gate.be_precise();
        self
    }

    /// Keeps the memory of a batch for one to come, so that no batch needs any of its own. What is still in it is dropped.
    ///
    /// ```
    /// use futures::{StreamExt, stream};
    /// use paceline::policy::Unlimited;
    /// use paceline::prelude::*;
    /// use std::pin::pin;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let mut batches = pin!(stream::iter(0..100).pace_batches(Unlimited.owned(), 10));
    /// while let Some(batch) = batches.next().await {
    ///     assert_eq!(batch.len(), 10);
    ///     batches.as_mut().recycle(batch);
    /// }
    /// # }
    /// ```
    pub fn recycle(self: Pin<&mut Self>, batch: Vec<S::Item>) {
        self.project().batch.recycle(batch);
    }

    /// The input, and the items that were waiting to pass.
    pub fn into_parts(self) -> (S, Vec<S::Item>) {
        (self.input.into_inner(), self.batch.into_vec())
    }

    /// Takes what has arrived, as far as there is room. Pending: there may be more, and the task is awake.
    fn poll_collect(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        let mut turn = Turn::new();
        while this.batch.len() < *this.max {
            let Poll::Ready(Some(item)) = this.input.as_mut().poll_next(cx) else {
                break;
            };
            this.batch.push(item);
            if turn.poll_go_on(cx).is_pending() {
                let now = this.clock.now();
                let since = *this.reading_since.get_or_insert(now);
                if now.since(since) < LONG_ENOUGH {
                    return Poll::Pending;
                }
                break;
            }
        }
        *this.reading_since = None;
        Poll::Ready(())
    }
}

impl<S, L> Stream for PaceBatches<S, L>
where
    S: Stream,
    L: Limiter<Error = Infallible>,
{
    type Item = Vec<S::Item>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Vec<S::Item>>> {
        self.as_mut().project().gate.begin(cx);
        ready!(self.as_mut().poll_collect(cx));

        let this = self.project();
        if !this.batch.is_empty() {
            let Ok(()) = ready!(this.gate.poll_one(cx));
            return Poll::Ready(Some(this.batch.take()));
        }
        if this.input.is_ended() {
            return Poll::Ready(None);
        }
        Poll::Pending
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.input
            .size_hint_in_groups(self.batch.len(), self.max as u64)
    }
}

impl<S, L> FusedStream for PaceBatches<S, L>
where
    S: Stream,
    L: Limiter<Error = Infallible>,
{
    fn is_terminated(&self) -> bool {
        self.input.is_ended() && self.batch.is_empty()
    }
}

/// Does not print the items held: they may be secret, and they may be large.
impl<S, L> fmt::Debug for PaceBatches<S, L>
where
    S: Stream + fmt::Debug,
    L: Limiter + fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PaceBatches")
            .field("input", &self.input)
            .field("gate", &self.gate)
            .field("max", &self.max)
            .field("held", &self.batch.len())
            .finish_non_exhaustive()
    }
}
