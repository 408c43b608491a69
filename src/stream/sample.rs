use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;

use futures_core::Stream;
use futures_core::stream::FusedStream;
use pin_project_lite::pin_project;

use crate::batch::{LatestItem, Window};
use crate::time::OutOfRange;

use super::collector::{Collector, LatestCollector};
use super::input::Input;

pin_project! {
    /// Stream for the [`sample`](super::PaceStreamExt::sample) method: emits the latest item at each tick of a grid.
    ///
    /// ```
    /// # use {testkit::marble, paceline::stream::PaceStreamExt};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// // a grid of three ticks
    /// let input  = "a b - c - - - - d e |";
    /// let output = "- - - b - - c - - d |";
    /// # let d = marble::TICK * 3;
    /// # marble::check(|s| s.sample(d), input, output).await;
    /// # }
    /// ```
    ///
    #[doc = include_str!("marbles/sample.svg")]
    ///
    /// * **Emits** at each tick the latest item that arrived since the tick before, if there is one. The ticks are whole
    ///   periods from the first poll. Earlier items are dropped, and [`dropped_count`](Self::dropped_count) counts them. An
    ///   item that arrives in the instant of a tick waits for the next tick. The grid holds even if the input is never
    ///   pending, and late polls do not move it. Every item that arrived is emitted, dropped or held.
    /// * **Waits** on the input, and on the next tick while it holds an item.
    /// * **Ends** with the input. An item that is held then is dropped and counted, unless [`with_keep_last`](Self::with_keep_last)
    ///   was called.
    /// * **Holds** at most one item, which the upper bound of `size_hint` counts and [`into_parts`](Self::into_parts)
    ///   returns. If the stream is polled late, it emits that item before it reads the input again; what it reads then waits
    ///   for the next tick.
    /// * **Cancel safety**: dropping `next()` loses no item, apart from those that are counted. The item held stays held.
    ///
    /// **Window bound**: a half-open window of m periods has at most m emissions if none is late, else at most one more, and
    /// one more for the item that leaves with the end. For a minimum distance use [`pace`](super::PaceStreamExt::pace): it
    /// holds even if polls are late.
    #[derive(Debug)]
    #[must_use = "streams do nothing unless polled"]
    pub struct Sample<S: Stream> {
        #[pin]
        collector: LatestCollector<S>,
    }
}

impl<S: Stream> Sample<S> {
    /// The same as [`sample`](super::PaceStreamExt::sample), for a period from a configuration.
    ///
    /// # Errors
    ///
    /// If `period` is zero.
    pub fn try_new(stream: S, period: Duration) -> Result<Self, OutOfRange> {
        if period.is_zero() {
            return Err(OutOfRange::new(
                "period",
                "`sample` needs a period of at least 1 ns, got 0",
            ));
        }
        Ok(Self {
            collector: Collector::new(stream, LatestItem::new(period, Window::Grid, false)),
        })
    }

    /// Emits the item that is held when the input ends, at once, instead of dropping it.
    pub fn with_keep_last(mut self) -> Self {
        self.collector.accumulator.keeps_last = true;
        self
    }

    /// How many items were dropped.
    pub const fn dropped_count(&self) -> u64 {
        self.collector.accumulator.dropped
    }

    /// The input, and the item that was waiting for a tick, if there was one.
    pub fn into_parts(self) -> (S, Option<S::Item>) {
        let (stream, latest) = self.collector.into_parts();
        (stream, latest.held)
    }
}

impl<S: Stream> Stream for Sample<S> {
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        self.project().collector.poll_next(cx, Input::poll_next)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.collector.size_hint()
    }
}

impl<S: Stream> FusedStream for Sample<S> {
    fn is_terminated(&self) -> bool {
        self.collector.is_terminated()
    }
}
