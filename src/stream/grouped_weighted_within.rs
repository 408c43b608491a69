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
    /// Stream for the [`grouped_weighted_within`](super::PaceStreamExt::grouped_weighted_within) method: groups by weight
    /// or time, whichever comes first.
    ///
    /// ```
    /// # use {testkit::marble, paceline::stream::PaceStreamExt};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// // a weight of at most 5, at most four ticks; each item weighs its number
    /// let input  = "2 2 2   3    - 1 9         - 1 - - - -   |";
    /// let output = "- - [22] [23] - - ([1][9]) - - - - - [1] |";
    /// # let d = marble::TICK * 4;
    /// # let weigh = |item: &char| u64::from(item.to_digit(10).unwrap());
    /// # marble::check(|s| s.grouped_weighted_within(5, d, weigh), input, output).await;
    /// # }
    /// ```
    ///
    /// * **Emits** a group in the instant in which it weighs `max_weight`, in which an item arrives that has no room beside
    ///   it, or in which its window ends; never an empty one. The item without room is the first of the next group; one
    ///   that weighs `max_weight` or more leaves in the same instant, alone. So only a group of one weighs more than
    ///   `max_weight`. The window holds even if the input is never pending. An item that arrives in the instant in which
    ///   the window ends belongs to the next group.
    /// * **Waits** on the input, and on the window while it holds something.
    /// * **Ends** when the input does; what is held leaves in the same instant, before it.
    /// * **Holds** items of at most `max_weight` together, or one that is heavier, which `size_hint` counts and
    ///   [`into_parts`](Self::into_parts) gives back. Items that weigh nothing only wait for the window, however many they
    ///   are. A group that nobody asked for at the end of its window leaves at the next poll.
    /// * **Cancel safety**: dropping `next()` loses nothing; the group stays held.
    ///
    /// **Window bound**: none, since a full group leaves at once; [`pace`](super::PaceStreamExt::pace) the groups for one.
    #[must_use = "streams do nothing unless polled"]
    pub struct GroupedWeightedWithin<S: Stream, F> {
        #[pin]
        input: Input<S>,
        weigh: F,
        collector: Collector<Group<S::Item>>,
    }
}

impl<S: Stream, F> GroupedWeightedWithin<S, F> {
    #[track_caller]
    pub(super) const fn new(stream: S, max_weight: u64, window: Duration, weigh: F) -> Self {
        Self {
            input: Input::new(stream),
            weigh,
            collector: Collector::new(Group::weighing(max_weight, window, Window::FirstItem)),
        }
    }

    /// Where the windows start; [`Window::FirstItem`] if nothing is said. To be called before the first poll.
    ///
    /// A group that was closed for want of room starts a grid anew, as a full one does.
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

impl<S, F> Stream for GroupedWeightedWithin<S, F>
where
    S: Stream,
    F: FnMut(&S::Item) -> u64,
{
    type Item = Vec<S::Item>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Vec<S::Item>>> {
        let mut this = self.project();
        this.collector.poll_complete(
            cx,
            |cx| this.input.as_mut().poll_next(cx),
            |group, item, now| {
                let weight = (this.weigh)(&item);
                group.push_weighing(item, weight, now)
            },
        )
    }

    /// All that is to come may weigh nothing, and leave as one group.
    fn size_hint(&self) -> (usize, Option<usize>) {
        let held = self.collector.get().len();
        self.input.size_hint_in_groups(held, u64::MAX)
    }
}

impl<S, F> FusedStream for GroupedWeightedWithin<S, F>
where
    S: Stream,
    F: FnMut(&S::Item) -> u64,
{
    fn is_terminated(&self) -> bool {
        self.input.is_ended() && self.collector.get().is_empty()
    }
}

/// Does not print the items held: they may be secret, and they may be large.
impl<S: Stream + fmt::Debug, F> fmt::Debug for GroupedWeightedWithin<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupedWeightedWithin")
            .field("input", &self.input)
            .field("group", self.collector.get())
            .finish_non_exhaustive()
    }
}
