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
    /// Stream for the [`debounce`](super::PaceStreamExt::debounce) method: emits the last item of each burst once the input
    /// is quiet.
    ///
    /// ```
    /// # use {testkit::marble, paceline::stream::PaceStreamExt};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// // quiet for three ticks
    /// let input  = "a b - - - - c - - - d |";
    /// let output = "- - - - b - - - - c - (d|)";
    /// # let d = marble::TICK * 3;
    /// # marble::check(|s| s.debounce(d), input, output).await;
    /// # }
    /// ```
    ///
    #[doc = include_str!("marbles/debounce.svg")]
    ///
    /// * **Emits** an item `delay` after its arrival, unless a newer item arrives strictly before that. Then the older one is
    ///   dropped, and [`dropped_count`](Self::dropped_count) counts it. The delay holds even if the input is never pending.
    ///   Every item that arrived is emitted, dropped or held.
    /// * **Waits** on the input, and on the delay while it holds an item.
    /// * **Ends** with the input. An item that is held then is emitted first, in the same instant, so the last item is never
    ///   lost.
    /// * **Holds** at most one item, which `size_hint` counts and [`into_parts`](Self::into_parts) returns. If the stream is
    ///   polled late, it emits that item before it reads the input again.
    /// * **Cancel safety**: dropping `next()` loses no item, apart from those that are counted. The item held stays held.
    ///
    /// **Window bound**: a half-open window of m delays has at most m emissions, even if some are late, and one more for the
    /// item that leaves with the end.
    #[derive(Debug)]
    #[must_use = "streams do nothing unless polled"]
    pub struct Debounce<S: Stream> {
        #[pin]
        collector: LatestCollector<S>,
    }
}

impl<S: Stream> Debounce<S> {
    /// The same as [`debounce`](super::PaceStreamExt::debounce), for a delay from a configuration.
    ///
    /// # Errors
    ///
    /// If `delay` is zero.
    pub fn try_new(stream: S, delay: Duration) -> Result<Self, OutOfRange> {
        if delay.is_zero() {
            return Err(OutOfRange::new(
                "delay",
                "`debounce` needs a delay of at least 1 ns, got 0",
            ));
        }
        Ok(Self {
            collector: Collector::new(stream, LatestItem::new(delay, Window::FirstItem, true)),
        })
    }

    /// How many items were dropped.
    pub const fn dropped_count(&self) -> u64 {
        self.collector.accumulator.dropped
    }

    /// The input, and the item that was waiting for the delay, if there was one.
    pub fn into_parts(self) -> (S, Option<S::Item>) {
        let (stream, latest) = self.collector.into_parts();
        (stream, latest.held)
    }
}

impl<S: Stream> Stream for Debounce<S> {
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        self.project().collector.poll_next(cx, Input::poll_next)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.collector.size_hint()
    }
}

impl<S: Stream> FusedStream for Debounce<S> {
    fn is_terminated(&self) -> bool {
        self.collector.is_terminated()
    }
}
