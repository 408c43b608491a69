use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;

use futures_core::Stream;
use futures_core::stream::FusedStream;
use pin_project_lite::pin_project;

use crate::batch::LatestItem;

use super::collector::Collector;
use super::input::Input;

pin_project! {
    /// Stream for the [`sample`](super::PaceStreamExt::sample) method: the newest item at each tick of a grid.
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
    /// * **Emits** at each whole `period` from the first poll the newest item that arrived since the one before, if there
    ///   is one. The others are dropped, and [`dropped_count`](Self::dropped_count) counts them. An item that arrives in
    ///   the instant of a tick waits for the next. The grid holds even if the input is never pending, and stays where it
    ///   is, whatever is late. The items emitted, dropped and held are those that arrived.
    /// * **Waits** on the input, and on the next tick while it holds an item.
    /// * **Ends** when the input does; what is held is dropped then, and counted, unless [`keep_last`](Self::keep_last)
    ///   says otherwise.
    /// * **Holds** at most one item, which the upper bound of `size_hint` counts and [`into_parts`](Self::into_parts) gives
    ///   back. One that nobody asked for at its tick leaves at the next poll, and what the input has by then waits for the
    ///   next tick.
    /// * **Cancel safety**: dropping `next()` loses nothing that is not counted; the item stays held.
    ///
    /// **Window bound**: a half-open window of m periods holds at most m emissions if none is late, else one more, and the
    /// one that leaves with the end; [`pace`](super::PaceStreamExt::pace) keeps a distance, whatever is late.
    #[must_use = "streams do nothing unless polled"]
    pub struct Sample<S: Stream> {
        #[pin]
        input: Input<S>,
        collector: Collector<LatestItem<S::Item>>,
    }
}

impl<S: Stream> Sample<S> {
    #[track_caller]
    pub(super) const fn new(stream: S, period: Duration) -> Self {
        assert!(
            !period.is_zero(),
            "`sample` needs a period of at least 1 ns, got 0"
        );
        Self {
            input: Input::new(stream),
            collector: Collector::new(LatestItem::on_grid(period)),
        }
    }

    /// Emits what is held when the input ends, at once, instead of dropping it.
    pub fn keep_last(self) -> Self {
        Self {
            collector: self.collector.map(LatestItem::keep_last),
            ..self
        }
    }

    /// How many items were dropped.
    pub const fn dropped_count(&self) -> u64 {
        self.collector.get().dropped_count()
    }

    /// Waits to the microsecond: see [`Timer::precise`](crate::time::Timer::precise).
    #[cfg(feature = "precise")]
    pub fn precise(mut self) -> Self {
        self.collector.be_precise();
        self
    }

    /// The input, and the item that was waiting for a tick, if there was one.
    pub fn into_parts(self) -> (S, Option<S::Item>) {
        (
            self.input.into_inner(),
            self.collector.into_inner().into_item(),
        )
    }
}

impl<S: Stream> Stream for Sample<S> {
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let mut this = self.project();
        this.collector
            .poll_complete(cx, |cx| this.input.as_mut().poll_next(cx), LatestItem::push)
    }

    /// Of what is to come only the last is certain to leave, and that only if it is kept.
    fn size_hint(&self) -> (usize, Option<usize>) {
        let newest = self.collector.get();
        let (lower, upper) = self.input.size_hint_with(usize::from(!newest.is_empty()));
        (lower.min(usize::from(newest.keeps_last())), upper)
    }
}

impl<S: Stream> FusedStream for Sample<S> {
    fn is_terminated(&self) -> bool {
        self.input.is_ended() && self.collector.get().is_empty()
    }
}

/// Does not print the item held: it may be secret, and it may be large.
impl<S: Stream + fmt::Debug> fmt::Debug for Sample<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sample")
            .field("input", &self.input)
            .field("newest", self.collector.get())
            .finish_non_exhaustive()
    }
}
