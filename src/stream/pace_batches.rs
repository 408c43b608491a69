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
use crate::time::{Clock, OutOfRange, Tick};

use super::input::{Input, in_groups, poll_taken};

/// How long an input that is never pending is read before the batch may leave.
const MAX_READING: Duration = Duration::from_millis(1);

pin_project! {
    /// Stream for the [`pace_batches`](super::PaceStreamExt::pace_batches) method: one batch a permit, with all items that
    /// have arrived.
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
    #[doc = include_str!("marbles/pace_batches.svg")]
    ///
    /// * **Emits** a batch as soon as it has at least one item and the limiter grants one permit. The batch has all items that
    ///   have arrived by then, at most `max`, and is never empty. It does not wait to be full.
    /// * **Waits** on the input and the limiter; when the batch is full, on the limiter only.
    /// * **Ends** when the input has ended and the last batch has left.
    /// * **Holds** at most `max` items, which `size_hint` counts and [`into_parts`](Self::into_parts) returns. An input that is
    ///   never pending is read until the batch is full, or for about a millisecond if a permit is available. While none is, it
    ///   is read on, so choose a `max` that fits in memory.
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
    /// The same as [`pace_batches`](super::PaceStreamExt::pace_batches), for a size from a configuration.
    ///
    /// # Errors
    ///
    /// If `max` is zero.
    pub fn try_new(stream: S, limiter: L, max: usize) -> Result<Self, OutOfRange> {
        if max == 0 {
            return Err(OutOfRange::new(
                "max",
                "a batch needs room for at least 1 item, got 0",
            ));
        }
        Ok(Self {
            input: Input::new(stream),
            gate: Gate::new(limiter),
            max,
            batch: GroupBuffer::new(),
            clock: Clock::new(),
            reading_since: None,
        })
    }

    /// Keeps the memory of a batch for a later one, so that batches need no allocation. Drops the items that are still in it.
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

    /// The input, and the items that were waiting for a permit.
    pub fn into_parts(self) -> (S, Vec<S::Item>) {
        (self.input.into_inner(), self.batch.into_vec())
    }

    /// Takes the items that have arrived, up to `max`. Pending: there may be more, and the task is woken already.
    fn poll_collect(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        let mut taken = 0;
        while this.batch.len() < *this.max {
            let Poll::Ready(Some(item)) = this.input.as_mut().poll_next(cx) else {
                break;
            };
            this.batch.push(item);
            if poll_taken(&mut taken, cx).is_pending() {
                let now = this.clock.now();
                let since = *this.reading_since.get_or_insert(now);
                if now.since(since) < MAX_READING {
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
        in_groups(self.input.size_hint(), self.batch.len(), self.max)
    }
}

impl<S: Stream, L: Limiter> FusedStream for PaceBatches<S, L>
where
    Self: Stream,
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
