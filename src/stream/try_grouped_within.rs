use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;

use futures_core::stream::FusedStream;
use futures_core::{Stream, TryStream};
use pin_project_lite::pin_project;

use crate::batch::{Group, Window};

use super::collector::Collector;
use super::input::Input;
use super::on_error::{Errors, OnError};

pin_project! {
    /// Stream for the [`try_grouped_within`](super::PaceTryStreamExt::try_grouped_within) method: groups of what went well,
    /// and the errors between them.
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
    /// * **Waits** on the input, and on the window while it holds something.
    /// * **Ends** when the input does; what is held leaves in the same instant, before it. An error is not the end.
    /// * **Fails** with each error of the input. The group that was being collected leaves before it in the same instant; or
    ///   it is dropped, which [`dropped_count`](Self::dropped_count) counts, if [`on_error`](Self::on_error) says so.
    /// * **Holds** at most `max` items, or an error behind its group, which `size_hint` counts and
    ///   [`into_parts`](Self::into_parts) gives back. A group that nobody asked for at the end of its window leaves at the
    ///   next poll.
    /// * **Cancel safety**: dropping `next()` loses nothing; the group stays held.
    ///
    /// **Window bound**: none, since a full group leaves at once; [`pace`](super::PaceStreamExt::pace) the groups for one.
    #[must_use = "streams do nothing unless polled"]
    pub struct TryGroupedWithin<S: TryStream> {
        #[pin]
        input: Input<S>,
        collector: Collector<Group<S::Ok>>,
        errors: Errors<S::Error>,
    }
}

impl<S: TryStream> TryGroupedWithin<S> {
    #[track_caller]
    pub(super) const fn new(stream: S, max: usize, window: Duration) -> Self {
        Self {
            input: Input::new(stream),
            collector: Collector::new(Group::new(max, window, Window::FirstItem)),
            errors: Errors::new(),
        }
    }

    /// Where the windows start; [`Window::FirstItem`] if nothing is said. To be called before the first poll.
    pub fn window(self, window: Window) -> Self {
        Self {
            collector: self.collector.with_window(window),
            ..self
        }
    }

    /// What an error does to the group that was being collected; [`OnError::Flush`] if nothing is said.
    pub fn on_error(self, rule: OnError) -> Self {
        Self {
            errors: self.errors.with_rule(rule),
            ..self
        }
    }

    /// How many items were dropped for an error.
    pub const fn dropped_count(&self) -> u64 {
        self.errors.dropped_count()
    }

    /// Keeps the memory of a group for one to come, so that no group needs any of its own: as
    /// [`PaceBatches::recycle`](super::PaceBatches::recycle). What is still in it is dropped.
    pub fn recycle(self: Pin<&mut Self>, group: Vec<S::Ok>) {
        self.project().collector.get_mut().recycle(group);
    }

    /// Waits to the microsecond: see [`Timer::precise`](crate::time::Timer::precise).
    #[cfg(feature = "precise")]
    pub fn precise(mut self) -> Self {
        self.collector.be_precise();
        self
    }

    /// The input, and what was waiting: the items of a group, or an error whose group has left.
    #[expect(
        clippy::type_complexity,
        reason = "these are the input's own items, and a name would hide that"
    )]
    pub fn into_parts(self) -> (S, Vec<Result<S::Ok, S::Error>>) {
        let group = self.collector.into_inner();
        (self.input.into_inner(), self.errors.into_results(group))
    }
}

impl<S: TryStream> Stream for TryGroupedWithin<S> {
    type Item = Result<Vec<S::Ok>, S::Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut this = self.project();
        if let Some(error) = this.errors.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let complete = ready!(this.collector.poll_complete(
            cx,
            |cx| this.input.as_mut().poll_try_next(cx),
            |group, next, now| match next {
                Ok(item) => group.push(item, now),
                Err(error) => Some(this.errors.hold(error, group, now)),
            },
        ));
        Poll::Ready(this.errors.behind(complete))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let group = self.collector.get();
        let groups = self.input.size_hint_in_groups(group.len(), group.max());
        self.errors.size_hint_with(groups)
    }
}

impl<S: TryStream> FusedStream for TryGroupedWithin<S> {
    fn is_terminated(&self) -> bool {
        self.input.is_ended() && self.collector.get().is_empty() && self.errors.is_empty()
    }
}

/// Does not print what is held: it may be secret, and it may be large.
impl<S: TryStream + fmt::Debug> fmt::Debug for TryGroupedWithin<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TryGroupedWithin")
            .field("input", &self.input)
            .field("group", self.collector.get())
            .field("errors", &self.errors)
            .finish_non_exhaustive()
    }
}
