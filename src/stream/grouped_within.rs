use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;

use futures_core::Stream;
use futures_core::stream::FusedStream;
use pin_project_lite::pin_project;

use crate::batch::{Group, Window};

use super::collector::Collector;
use super::input::Input;

pin_project! {
    /// Stream for the [`grouped_within`](super::PaceStreamExt::grouped_within) method: groups by count or time, whichever
    /// comes first.
    ///
    /// ```
    /// # use {testkit::marble, paceline::stream::PaceStreamExt};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// // at most three items, at most four ticks
    /// let input  = "a b c     - d - - - -   e f |";
    /// let output = "- - [abc] - - - - - [d] - - ([ef]|)";
    /// # let d = marble::TICK * 4;
    /// # marble::check(|s| s.grouped_within(3, d), input, output).await;
    /// # }
    /// ```
    ///
    /// * **Emits** a group in the instant in which it becomes full, or in which its window ends; never an empty one. The
    ///   window holds even if the input is never pending. An item that arrives in the instant in which the window ends
    ///   belongs to the next group.
    /// * **Waits** on the input, and on the window while it holds something.
    /// * **Ends** when the input does; what is held leaves in the same instant, before it.
    /// * **Holds** at most `max` items, which `size_hint` counts and [`into_parts`](Self::into_parts) gives back. A group
    ///   that nobody asked for at the end of its window leaves at the next poll.
    /// * **Cancel safety**: dropping `next()` loses nothing; the group stays held.
    ///
    /// **Window bound**: none, since a full group leaves at once; [`pace`](super::PaceStreamExt::pace) the groups for one.
    #[must_use = "streams do nothing unless polled"]
    pub struct GroupedWithin<S: Stream> {
        #[pin]
        input: Input<S>,
        collector: Collector<Group<S::Item>>,
    }
}

impl<S: Stream> GroupedWithin<S> {
    #[track_caller]
    pub(super) const fn new(stream: S, max: usize, window: Duration) -> Self {
        Self {
            input: Input::new(stream),
            collector: Collector::new(Group::new(max, window, Window::FirstItem)),
        }
    }

    /// Where the windows start; [`Window::FirstItem`] if nothing is said. To be called before the first poll.
    pub fn window(self, window: Window) -> Self {
        Self {
            collector: self.collector.with_window(window),
            ..self
        }
    }

    /// Keeps the memory of a group for one to come, so that no group needs any of its own: as
    /// [`PaceBatches::recycle`](super::PaceBatches::recycle). What is still in it is dropped.
    pub fn recycle(self: Pin<&mut Self>, group: Vec<S::Item>) {
        self.project().collector.get_mut().recycle(group);
    }

    /// Waits to the microsecond: see [`Timer::precise`](crate::time::Timer::precise).
    #[cfg(feature = "precise")]
    pub fn precise(mut self) -> Self {
        self.collector.be_precise();
        self
    }

    /// The input, and the items that were waiting for their group to be complete.
    pub fn into_parts(self) -> (S, Vec<S::Item>) {
        (
            self.input.into_inner(),
            self.collector.into_inner().into_items(),
        )
    }
}

impl<S: Stream> Stream for GroupedWithin<S> {
    type Item = Vec<S::Item>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Vec<S::Item>>> {
        let mut this = self.project();
        this.collector
            .poll_complete(cx, |cx| this.input.as_mut().poll_next(cx), Group::push)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let group = self.collector.get();
        self.input.size_hint_in_groups(group.len(), group.max())
    }
}

impl<S: Stream> FusedStream for GroupedWithin<S> {
    fn is_terminated(&self) -> bool {
        self.input.is_ended() && self.collector.get().is_empty()
    }
}

/// Does not print the items held: they may be secret, and they may be large.
impl<S: Stream + fmt::Debug> fmt::Debug for GroupedWithin<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupedWithin")
            .field("input", &self.input)
            .field("group", self.collector.get())
            .finish_non_exhaustive()
    }
}
