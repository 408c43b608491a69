use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;

use futures_core::stream::FusedStream;
use futures_core::{Stream, TryStream};
use pin_project_lite::pin_project;

use crate::batch::{Group, Window};
use crate::time::OutOfRange;

use super::collector::Collector;
use super::grouped_within::poll_weighed;
use super::input::{in_groups, with_held};

pin_project! {
    /// Stream for the [`try_grouped_within`](super::PaceTryStreamExt::try_grouped_within) method: groups of the items that
    /// are `Ok`, and the errors between them.
    ///
    /// ```
    /// # use {testkit::marble, paceline::stream::PaceTryStreamExt};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// // at most three items, at most four ticks
    /// let input  = "a b c     d X      - e - - - -   |";
    /// let output = "- - [abc] - ([d]X) - - - - - [e] |";
    /// # let d = marble::TICK * 4;
    /// # marble::try_check(|s| s.try_grouped_within(3, d), input, output).await;
    /// # }
    /// ```
    ///
    #[doc = include_str!("marbles/try_grouped_within.svg")]
    ///
    /// * **Emits** a group as [`GroupedWithin`](super::GroupedWithin) does, and an error in the instant in which it arrives.
    /// * **Waits** on the input, and on the window while it holds items.
    /// * **Ends** with the input. A group that is held then is emitted first, in the same instant. An error is not the end.
    /// * **Fails** with each error of the input. The group that was being collected leaves before it in the same instant. With
    ///   [`OnError::Discard`] it is dropped instead, and [`dropped_count`](Self::dropped_count) counts its items.
    /// * **Holds** at most `max` items, or an error whose group has just left, which `size_hint` counts and
    ///   [`into_parts`](Self::into_parts) returns. If the stream is not polled when the window ends, the group leaves at the
    ///   next poll.
    /// * **Cancel safety**: dropping `next()` loses nothing; the group stays held.
    ///
    /// **Window bound**: none, because a full group leaves at once. To limit the groups, [`pace`](super::PaceStreamExt::pace)
    /// them.
    ///
    /// [`TryGroupedWeightedWithin`] is this type with a weight function `F`. Here each item weighs 1.
    #[must_use = "streams do nothing unless polled"]
    pub struct TryGroupedWithin<S: TryStream, F = fn(&<S as TryStream>::Ok) -> u64> {
        #[pin]
        collector: Collector<S, Group<S::Ok>>,
        weigh: F,
        unweighed: Option<S::Ok>,
        // The largest number of items in a group.
        max_items: usize,
        on_error: OnError,
        // An error that leaves after its group.
        error: Option<S::Error>,
        dropped: u64,
    }
}

/// Stream for the [`try_grouped_weighted_within`](super::PaceTryStreamExt::try_grouped_weighted_within) method: groups by
/// weight of the items that are `Ok`, and the errors between them.
///
/// ```
/// # use {testkit::marble, paceline::stream::PaceTryStreamExt};
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// // a weight of at most 5, at most four ticks; each item weighs its number
/// let input  = "2 2 2    X      - 1 9         - |";
/// let output = "- - [22] ([2]X) - - ([1][9]) - |";
/// # let d = marble::TICK * 4;
/// # let weigh = |item: &char| u64::from(item.to_digit(10).unwrap());
/// # marble::try_check(|s| s.try_grouped_weighted_within(5, d, weigh), input, output).await;
/// # }
/// ```
///
#[doc = include_str!("marbles/try_grouped_weighted_within.svg")]
///
/// It does what [`TryGroupedWithin`] does, with groups as those of
/// [`GroupedWeightedWithin`](super::GroupedWeightedWithin). An error weighs nothing.
pub type TryGroupedWeightedWithin<S, F> = TryGroupedWithin<S, F>;

impl<S: TryStream> TryGroupedWithin<S> {
    /// The same as [`try_grouped_within`](super::PaceTryStreamExt::try_grouped_within), for values from a configuration.
    ///
    /// # Errors
    ///
    /// If `max` or `window` is zero.
    pub fn try_new(stream: S, max: usize, window: Duration) -> Result<Self, OutOfRange> {
        let group = Group::try_new(max, window, Window::FirstItem)?;
        Ok(Self::new(stream, group, |_| 1, max))
    }
}

impl<S: TryStream, F> TryGroupedWithin<S, F> {
    /// The same as [`try_grouped_weighted_within`](super::PaceTryStreamExt::try_grouped_weighted_within), for values from a
    /// configuration.
    ///
    /// # Errors
    ///
    /// If `max` or `window` is zero.
    pub fn try_weighing(stream: S, max: u64, window: Duration, weigh: F) -> Result<Self, OutOfRange>
    where
        F: FnMut(&S::Ok) -> u64,
    {
        let group = Group::try_weighing(max, window, Window::FirstItem)?;
        // Items may weigh nothing.
        Ok(Self::new(stream, group, weigh, usize::MAX))
    }

    const fn new(stream: S, group: Group<S::Ok>, weigh: F, max_items: usize) -> Self {
        Self {
            collector: Collector::new(stream, group),
            weigh,
            unweighed: None,
            max_items,
            on_error: OnError::Flush,
            error: None,
            dropped: 0,
        }
    }

    /// Where the windows start; the default is [`Window::FirstItem`]. Call it before the first poll.
    pub fn with_window(mut self, window: Window) -> Self {
        self.collector.accumulator = self.collector.accumulator.with_window(window);
        self
    }

    /// What an error does to the group that is being collected; the default is [`OnError::Flush`].
    pub fn with_on_error(self, on_error: OnError) -> Self {
        Self { on_error, ..self }
    }

    /// How many items were dropped because of an error.
    pub const fn dropped_count(&self) -> u64 {
        self.dropped
    }

    /// Keeps the memory of a group for a later one, as [`PaceBatches::recycle`](super::PaceBatches::recycle) does, so that
    /// groups need no allocation. Drops the items that are still in it.
    pub fn recycle(self: Pin<&mut Self>, group: Vec<S::Ok>) {
        let collector = self.project().collector.project();
        collector.accumulator.recycle(group);
    }

    /// The input, and what has not left: the items of a group, or an error whose group has left.
    #[expect(
        clippy::type_complexity,
        reason = "these are the input's own items, and a name would hide that"
    )]
    pub fn into_parts(self) -> (S, Vec<Result<S::Ok, S::Error>>) {
        let (stream, group) = self.collector.into_parts();
        let items = group.into_items().into_iter().chain(self.unweighed);
        (stream, items.map(Ok).chain(self.error.map(Err)).collect())
    }

    /// What leaves because the input has ended or failed: the group, unless the error discards it, and then the error.
    fn end(self: Pin<&mut Self>) -> Option<Result<Vec<S::Ok>, S::Error>> {
        let mut this = self.project();
        let discards = this.error.is_some()
            && *this.on_error == OnError::Discard
            && !this.collector.as_mut().is_due();
        match this.collector.end() {
            Some(group) if discards => {
                let count = u64::try_from(group.len()).unwrap_or(u64::MAX);
                *this.dropped = this.dropped.saturating_add(count);
            }
            Some(group) => return Some(Ok(group)),
            None => {}
        }
        this.error.take().map(Err)
    }
}

impl<S, F> Stream for TryGroupedWithin<S, F>
where
    S: TryStream,
    F: FnMut(&S::Ok) -> u64,
{
    type Item = Result<Vec<S::Ok>, S::Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut this = self.as_mut().project();
        if let Some(error) = this.error.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let complete = this.collector.as_mut().poll_complete(cx, |input, cx| {
            poll_weighed(this.unweighed, this.weigh, || {
                let next = ready!(input.poll_unless_ended(|stream| stream.try_poll_next(cx)));
                let next = next.transpose().unwrap_or_else(|error| {
                    *this.error = Some(error);
                    None
                });
                Poll::Ready(next)
            })
        });
        Poll::Ready(ready!(complete).map(Ok).or_else(|| self.end()))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let unweighed = usize::from(self.unweighed.is_some());
        let items = with_held(self.collector.input.size_hint(), unweighed);
        let groups = in_groups(items, self.collector.accumulator.len(), self.max_items);
        with_held(groups, usize::from(self.error.is_some()))
    }
}

impl<S: TryStream, F> FusedStream for TryGroupedWithin<S, F>
where
    Self: Stream,
{
    fn is_terminated(&self) -> bool {
        self.collector.is_terminated() && self.error.is_none()
    }
}

/// Does not print the items and the error held: they may be secret, and they may be large.
impl<S: TryStream + fmt::Debug, F> fmt::Debug for TryGroupedWithin<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TryGroupedWithin")
            .field("collector", &self.collector)
            .field("on_error", &self.on_error)
            .field("error", &usize::from(self.error.is_some()))
            .field("dropped", &self.dropped)
            .finish_non_exhaustive()
    }
}

/// What an error in the input does to the group that is being collected.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum OnError {
    /// The group leaves first, and the error in the same instant.
    #[default]
    Flush,
    /// The group is dropped, and its items are counted. A group whose window has ended when the error arrives is not dropped
    /// but leaves first.
    Discard,
}
