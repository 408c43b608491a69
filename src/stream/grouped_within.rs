use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;

use futures_core::Stream;
use futures_core::stream::FusedStream;
use pin_project_lite::pin_project;

use crate::batch::{Group, Window};
use crate::time::OutOfRange;

use super::collector::Collector;
use super::input::{in_groups, with_held};

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
    #[doc = include_str!("marbles/grouped_within.svg")]
    ///
    /// * **Emits** a group in the instant in which it becomes full, or in which its window ends; never an empty one. The
    ///   window ends on time even if the input is never pending. An item that arrives in the instant in which the window ends
    ///   belongs to the next group.
    /// * **Waits** on the input, and on the window while it holds items.
    /// * **Ends** with the input. A group that is held then is emitted first, in the same instant.
    /// * **Holds** at most `max` items, which `size_hint` counts and [`into_parts`](Self::into_parts) returns. If the stream
    ///   is not polled when the window ends, the group leaves at the next poll.
    /// * **Cancel safety**: dropping `next()` loses nothing; the group stays held.
    ///
    /// **Window bound**: none, because a full group leaves at once. To limit the groups, [`pace`](super::PaceStreamExt::pace)
    /// them.
    ///
    /// [`GroupedWeightedWithin`] is this type with a weight function `F`. Here each item weighs 1.
    #[must_use = "streams do nothing unless polled"]
    pub struct GroupedWithin<S: Stream, F = fn(&<S as Stream>::Item) -> u64> {
        #[pin]
        collector: Collector<S, Group<S::Item>>,
        weigh: F,
        unweighed: Option<S::Item>,
        // The largest number of items in a group.
        max_items: usize,
    }
}

/// Stream for the [`grouped_weighted_within`](super::PaceStreamExt::grouped_weighted_within) method: groups by weight or
/// time, whichever comes first.
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
#[doc = include_str!("marbles/grouped_weighted_within.svg")]
///
/// It does what [`GroupedWithin`] does, but for two points:
///
/// * **Emits** a group in the instant in which it weighs `max_weight`, in which an item arrives that does not fit beside
///   the items held, or in which its window ends. The item that does not fit is the first of the next group. An item that
///   weighs `max_weight` or more leaves at once, alone, so only a group of one item weighs more than `max_weight`. A group
///   that was closed by an item that did not fit starts a [grid](Window::Grid) again, as a full group does.
/// * **Holds** items of at most `max_weight` together, or one item that is heavier. Items that weigh nothing only wait for
///   the window, however many they are.
pub type GroupedWeightedWithin<S, F> = GroupedWithin<S, F>;

impl<S: Stream> GroupedWithin<S> {
    /// The same as [`grouped_within`](super::PaceStreamExt::grouped_within), for values from a configuration.
    ///
    /// ```
    /// use futures::stream;
    /// use paceline::stream::GroupedWithin;
    /// use std::time::Duration;
    ///
    /// let max = 0; // from a configuration file
    /// let error = GroupedWithin::try_new(stream::iter(1..9), max, Duration::from_millis(20)).unwrap_err();
    /// assert_eq!(error.to_string(), "a group needs room for at least 1 item, got 0");
    /// ```
    ///
    /// # Errors
    ///
    /// If `max` or `window` is zero.
    pub fn try_new(stream: S, max: usize, window: Duration) -> Result<Self, OutOfRange> {
        let group = Group::try_new(max, window, Window::FirstItem)?;
        Ok(Self::new(stream, group, |_| 1, max))
    }
}

impl<S: Stream, F> GroupedWithin<S, F> {
    /// The same as [`grouped_weighted_within`](super::PaceStreamExt::grouped_weighted_within), for values from a
    /// configuration.
    ///
    /// # Errors
    ///
    /// If `max` or `window` is zero.
    pub fn try_weighing(stream: S, max: u64, window: Duration, weigh: F) -> Result<Self, OutOfRange>
    where
        F: FnMut(&S::Item) -> u64,
    {
        let group = Group::try_weighing(max, window, Window::FirstItem)?;
        // Items may weigh nothing.
        Ok(Self::new(stream, group, weigh, usize::MAX))
    }

    const fn new(stream: S, group: Group<S::Item>, weigh: F, max_items: usize) -> Self {
        Self {
            collector: Collector::new(stream, group),
            weigh,
            unweighed: None,
            max_items,
        }
    }

    /// Where the windows start; the default is [`Window::FirstItem`]. Call it before the first poll.
    pub fn with_window(mut self, window: Window) -> Self {
        self.collector.accumulator = self.collector.accumulator.with_window(window);
        self
    }

    /// Keeps the memory of a group for a later one, as [`PaceBatches::recycle`](super::PaceBatches::recycle) does, so that
    /// groups need no allocation. Drops the items that are still in it.
    pub fn recycle(self: Pin<&mut Self>, group: Vec<S::Item>) {
        let collector = self.project().collector.project();
        collector.accumulator.recycle(group);
    }

    /// The input, and the items that were waiting for their group to be complete.
    pub fn into_parts(self) -> (S, Vec<S::Item>) {
        let (stream, group) = self.collector.into_parts();
        let mut items = group.into_items();
        items.extend(self.unweighed);
        (stream, items)
    }
}

impl<S, F> Stream for GroupedWithin<S, F>
where
    S: Stream,
    F: FnMut(&S::Item) -> u64,
{
    type Item = Vec<S::Item>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Vec<S::Item>>> {
        let this = self.project();
        this.collector.poll_next(cx, |input, cx| {
            poll_weighed(this.unweighed, this.weigh, || input.poll_next(cx))
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let unweighed = usize::from(self.unweighed.is_some());
        let items = with_held(self.collector.input.size_hint(), unweighed);
        in_groups(items, self.collector.accumulator.len(), self.max_items)
    }
}

impl<S: Stream, F> FusedStream for GroupedWithin<S, F>
where
    Self: Stream,
{
    fn is_terminated(&self) -> bool {
        self.collector.is_terminated()
    }
}

/// Does not print the items held: they may be secret, and they may be large.
impl<S: Stream + fmt::Debug, F> fmt::Debug for GroupedWithin<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupedWithin")
            .field("collector", &self.collector)
            .finish_non_exhaustive()
    }
}

/// The next item with its weight. The item is in `unweighed` meanwhile, and stays there if `weigh` panics.
pub(super) fn poll_weighed<T>(
    unweighed: &mut Option<T>,
    weigh: &mut impl FnMut(&T) -> u64,
    poll_next: impl FnOnce() -> Poll<Option<T>>,
) -> Poll<Option<(T, u64)>> {
    if unweighed.is_none() {
        *unweighed = ready!(poll_next());
    }
    let weight = unweighed.as_ref().map(weigh);
    Poll::Ready(unweighed.take().zip(weight))
}
