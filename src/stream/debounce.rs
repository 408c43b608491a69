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
    /// Stream for the [`debounce`](super::PaceStreamExt::debounce) method: the last item of each burst, when it is quiet.
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
    /// * **Emits** an item `delay` after it arrived, unless a newer one came strictly before that; then it is dropped, and
    ///   [`dropped_count`](Self::dropped_count) counts it. The delay holds even if the input is never pending. The items
    ///   emitted, dropped and held are those that arrived.
    /// * **Waits** on the input, and on the delay while it holds an item.
    /// * **Ends** when the input does; what is held leaves in the same instant, before it. So the last item is never lost.
    /// * **Holds** at most one item, which `size_hint` counts and [`into_parts`](Self::into_parts) gives back. One that
    ///   nobody asked for when it was due leaves at the next poll, and what the input has by then is newer.
    /// * **Cancel safety**: dropping `next()` loses nothing that is not counted; the item stays held.
    ///
    /// **Window bound**: a half-open window of m delays holds at most m emissions, whatever is late, and the one that leaves
    /// with the end.
    #[must_use = "streams do nothing unless polled"]
    pub struct Debounce<S: Stream> {
        #[pin]
        input: Input<S>,
        collector: Collector<LatestItem<S::Item>>,
    }
}

impl<S: Stream> Debounce<S> {
    #[track_caller]
    pub(super) const fn new(stream: S, delay: Duration) -> Self {
        assert!(
            !delay.is_zero(),
            "`debounce` needs a delay of at least 1 ns, got 0"
        );
        Self {
            input: Input::new(stream),
            collector: Collector::new(LatestItem::after(delay)),
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

    /// The input, and the item that was waiting for quiet, if there was one.
    pub fn into_parts(self) -> (S, Option<S::Item>) {
        (
            self.input.into_inner(),
            self.collector.into_inner().into_item(),
        )
    }
}

impl<S: Stream> Stream for Debounce<S> {
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let mut this = self.project();
        this.collector
            .poll_complete(cx, |cx| this.input.as_mut().poll_next(cx), LatestItem::push)
    }

    /// Of what is to come only the last is certain to leave.
    fn size_hint(&self) -> (usize, Option<usize>) {
        let held = usize::from(!self.collector.get().is_empty());
        let (lower, upper) = self.input.size_hint_with(held);
        (lower.min(1), upper)
    }
}

impl<S: Stream> FusedStream for Debounce<S> {
    fn is_terminated(&self) -> bool {
        self.input.is_ended() && self.collector.get().is_empty()
    }
}

/// Does not print the item held: it may be secret, and it may be large.
impl<S: Stream + fmt::Debug> fmt::Debug for Debounce<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Debounce")
            .field("input", &self.input)
            .field("newest", self.collector.get())
            .finish_non_exhaustive()
    }
}
