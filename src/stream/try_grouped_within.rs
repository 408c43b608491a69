use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;

use futures_core::stream::FusedStream;
use futures_core::{Stream, TryStream};
use pin_project_lite::pin_project;

use crate::batch::Window;
use crate::time::{OutOfRange, Tick};

use super::collector::{Accumulator, Collector};
use super::grouped_within::GroupBy;
use super::input::{Input, with_held};

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
        collector: Collector<S, TryGroupBy<S::Ok, S::Error, F>>,
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
        let groups = TryGroupBy::new(GroupBy::try_new(max, window)?);
        Ok(Self {
            collector: Collector::new(stream, groups),
        })
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
        let groups = TryGroupBy::new(GroupBy::try_weighing(max, window, weigh)?);
        Ok(Self {
            collector: Collector::new(stream, groups),
        })
    }

    /// Where the windows start; the default is [`Window::FirstItem`]. Call it before the first poll.
    pub fn window(self, window: Window) -> Self {
        Self {
            collector: self.collector.map(|groups| TryGroupBy {
                groups: groups.groups.with_window(window),
                ..groups
            }),
        }
    }

    /// What an error does to the group that is being collected; the default is [`OnError::Flush`].
    pub fn on_error(self, on_error: OnError) -> Self {
        Self {
            collector: self
                .collector
                .map(|groups| TryGroupBy { on_error, ..groups }),
        }
    }

    /// How many items were dropped because of an error.
    pub const fn dropped_count(&self) -> u64 {
        self.collector.accumulator().dropped
    }

    /// Keeps the memory of a group for a later one, as [`PaceBatches::recycle`](super::PaceBatches::recycle) does, so that
    /// groups need no allocation. Drops the items that are still in it.
    pub fn recycle(self: Pin<&mut Self>, group: Vec<S::Ok>) {
        self.project()
            .collector
            .accumulator_mut()
            .groups
            .recycle(group);
    }

    /// The input, and what has not left: the items of a group, or an error whose group has left.
    #[expect(
        clippy::type_complexity,
        reason = "these are the input's own items, and a name would hide that"
    )]
    pub fn into_parts(self) -> (S, Vec<Result<S::Ok, S::Error>>) {
        let (stream, groups) = self.collector.into_parts();
        let items = groups.groups.into_items().into_iter().map(Ok);
        (stream, items.chain(groups.error.map(Err)).collect())
    }
}

impl<S, F> Stream for TryGroupedWithin<S, F>
where
    S: TryStream,
    F: FnMut(&S::Ok) -> u64,
{
    type Item = Result<Vec<S::Ok>, S::Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let collector = self.project().collector;
        collector.poll_complete(cx, Input::poll_try_next)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.collector.size_hint()
    }
}

impl<S, F> FusedStream for TryGroupedWithin<S, F>
where
    S: TryStream,
    F: FnMut(&S::Ok) -> u64,
{
    fn is_terminated(&self) -> bool {
        self.collector.is_terminated()
    }
}

/// Does not print the items and the error held: they may be secret, and they may be large.
impl<S: TryStream + fmt::Debug, F> fmt::Debug for TryGroupedWithin<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TryGroupedWithin")
            .field("collector", &self.collector)
            .finish()
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

/// Groups, and the error that leaves after its group.
struct TryGroupBy<T, E, F> {
    groups: GroupBy<T, F>,
    on_error: OnError,
    error: Option<E>,
    dropped: u64,
}

impl<T, E, F> TryGroupBy<T, E, F> {
    const fn new(groups: GroupBy<T, F>) -> Self {
        Self {
            groups,
            on_error: OnError::Flush,
            error: None,
            dropped: 0,
        }
    }
}

impl<T, E, F: FnMut(&T) -> u64> TryGroupBy<T, E, F> {
    /// Takes an error in. Returns the group that leaves before it, or the error.
    fn push_error(&mut self, error: E, now: Tick) -> Result<Vec<T>, E> {
        let flushes = self.on_error == OnError::Flush || self.groups.is_due(now);
        match self.groups.take(now) {
            Some(group) if flushes => {
                self.error = Some(error);
                return Ok(group);
            }
            Some(group) => {
                let count = u64::try_from(group.len()).unwrap_or(u64::MAX);
                self.dropped = self.dropped.saturating_add(count);
            }
            None => {}
        }
        Err(error)
    }
}

impl<T, E, F: FnMut(&T) -> u64> Accumulator for TryGroupBy<T, E, F> {
    type Item = Result<T, E>;
    type Complete = Result<Vec<T>, E>;

    fn begin(&mut self, now: Tick) {
        self.groups.begin(now);
    }

    fn push(&mut self, item: Result<T, E>, now: Tick) -> Option<Result<Vec<T>, E>> {
        match item {
            Ok(item) => self.groups.push(item, now).map(Ok),
            Err(error) => Some(self.push_error(error, now)),
        }
    }

    fn due(&self) -> Option<Tick> {
        self.groups.due()
    }

    fn is_due(&self, now: Tick) -> bool {
        self.error.is_some() || self.groups.is_due(now)
    }

    fn take(&mut self, now: Tick) -> Option<Result<Vec<T>, E>> {
        match self.error.take() {
            Some(error) => Some(Err(error)),
            None => self.groups.take(now).map(Ok),
        }
    }

    fn is_empty(&self) -> bool {
        self.error.is_none() && self.groups.is_empty()
    }

    fn size_hint(&self, input: (usize, Option<usize>)) -> (usize, Option<usize>) {
        let groups = self.groups.size_hint(input);
        with_held(groups, usize::from(self.error.is_some()))
    }
}

/// Does not ask `E: Debug`, and does not print the error.
impl<T, E, F> fmt::Debug for TryGroupBy<T, E, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TryGroupBy")
            .field("groups", &self.groups)
            .field("on_error", &self.on_error)
            .field("error", &usize::from(self.error.is_some()))
            .field("dropped", &self.dropped)
            .finish()
    }
}
