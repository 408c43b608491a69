use core::fmt;
use core::mem;
use core::pin::Pin;
use core::task::{Context, Poll, Waker, ready};
use core::time::Duration;

use futures_sink::Sink;
use pin_project_lite::pin_project;

use crate::batch::{Group, Window};
use crate::time::{Clock, OutOfRange, Tick};

pin_project! {
    /// Sink for the [`group_sends`](super::PaceSinkExt::group_sends) method: items in, groups out.
    ///
    /// ```
    /// use futures::{SinkExt, StreamExt};
    /// use paceline::prelude::*;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let (outlet, mut writes) = futures::channel::mpsc::channel(10);
    /// let mut rows = outlet.group_sends(3, Duration::from_millis(20));
    ///
    /// for row in 1..=4 {
    ///     rows.feed(row).await.unwrap();
    /// }
    /// assert_eq!(writes.next().await, Some(vec![1, 2, 3])); // full
    ///
    /// tokio::time::sleep(Duration::from_millis(20)).await;
    /// rows.feed(5).await.unwrap();
    /// assert_eq!(writes.next().await, Some(vec![4])); // its window was over when the next one came
    ///
    /// rows.close().await.unwrap();
    /// assert_eq!(writes.next().await, Some(vec![5]));
    /// # }
    /// ```
    ///
    /// * **Accepts** an item while no complete group is waiting. A full group leaves in the instant of its last item if the inner
    ///   sink is ready. A group whose window has ended leaves at the next poll, or with the next item, which belongs to the next
    ///   group. There is no timer: while the sink is not polled, the end of a window does nothing.
    /// * **Waits** on the inner sink, and only when a group has to leave.
    /// * **Flushes** all items, then the inner sink.
    /// * **Closes** likewise.
    /// * **Fails** when the inner sink does. The items held stay held, and an item whose send fails is not held: it can be sent
    ///   again. A group that the inner sink was given is lost: see
    ///   [when the inner sink fails](crate::sink#when-the-inner-sink-fails).
    /// * **Holds** at most `max` items, which [`into_parts`](Self::into_parts) returns.
    /// * **Cancel safety**: dropping a `flush()` or `close()` that waits loses nothing; the items stay held.
    ///
    /// **Window bound**: none, because a full group leaves at once. For a bound, call `group_sends` on a sink that
    /// [`pace_sends`](super::PaceSinkExt::pace_sends) the groups.
    ///
    /// # Which callers get groups
    ///
    /// Only `feed` lets groups grow whatever the source does. `send` flushes after each item. `send_all` and
    /// `StreamExt::forward` flush whenever their source is pending, so items that arrive one by one leave in groups of one:
    ///
    /// ```
    /// use futures::{SinkExt, StreamExt, stream};
    /// use paceline::prelude::*;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let rows = || stream::iter(1..=4).min_interval(Duration::from_millis(5));
    ///
    /// let (outlet, writes) = futures::channel::mpsc::unbounded();
    /// let grouped = outlet.group_sends(3, Duration::from_millis(100));
    /// rows().map(Ok).forward(grouped).await.unwrap();
    /// assert_eq!(writes.collect::<Vec<_>>().await, [[1], [2], [3], [4]]);
    ///
    /// // What to use instead: group the stream, and pace the groups.
    /// let limit = paceline::policy::Interval::every(Duration::from_millis(10)).owned();
    /// let writes = rows().grouped_within(3, Duration::from_millis(100)).pace(limit);
    /// assert_eq!(writes.collect::<Vec<_>>().await, [vec![1, 2, 3], vec![4]]);
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If an item is sent while a complete group is waiting, without waiting for `poll_ready`.
    #[must_use = "sinks do nothing unless polled"]
    pub struct GroupSends<S, Item> {
        #[pin]
        sink: S,
        group: Group<Item>,
        // The group that has to leave first. Empty if there is none.
        complete: Vec<Item>,
        clock: Clock,
    }
}

impl<S, Item> GroupSends<S, Item> {
    /// The same as [`group_sends`](super::PaceSinkExt::group_sends), for values from a configuration.
    ///
    /// # Errors
    ///
    /// If `max` or `window` is zero.
    pub fn try_new(sink: S, max: usize, window: Duration) -> Result<Self, OutOfRange> {
        Ok(Self {
            sink,
            group: Group::try_new(max, window, Window::FirstItem)?,
            complete: Vec::new(),
            clock: Clock::new(),
        })
    }

    /// Where the windows start; the default is [`Window::FirstItem`]. Call it before the first poll.
    pub fn with_window(self, window: Window) -> Self {
        Self {
            group: self.group.with_window(window),
            ..self
        }
    }

    /// The inner sink, and the items that have not left, in order.
    pub fn into_parts(self) -> (S, Vec<Item>) {
        let mut held = self.complete;
        held.extend(self.group.into_items());
        (self.sink, held)
    }
}

impl<S: Sink<Vec<Item>>, Item> GroupSends<S, Item> {
    /// Sends the complete group, and the group that is being collected if it `leaves`.
    fn poll_send(
        mut self: Pin<&mut Self>,
        leaves: impl Fn(&Group<Item>, Tick) -> bool,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), S::Error>> {
        loop {
            ready!(self.as_mut().poll_send_complete(cx))?;
            let this = self.as_mut().project();
            let now = this.clock.now();
            this.group.begin(now);
            if !leaves(this.group, now) {
                return Poll::Ready(Ok(()));
            }
            *this.complete = this.group.take(now);
        }
    }

    /// Sends the complete group, if there is one. Otherwise the inner sink is not polled: it may be an adapter that would join
    /// a queue.
    fn poll_send_complete(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), S::Error>> {
        let mut this = self.project();
        if this.complete.is_empty() {
            return Poll::Ready(Ok(()));
        }
        ready!(this.sink.as_mut().poll_ready(cx))?;
        Poll::Ready(this.sink.start_send(mem::take(this.complete)))
    }
}

impl<S: Sink<Vec<Item>>, Item> Sink<Item> for GroupSends<S, Item> {
    type Error = S::Error;

    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.poll_send(Group::is_due, cx)
    }

    fn start_send(self: Pin<&mut Self>, item: Item) -> Result<(), S::Error> {
        let mut this = self.project();
        assert!(
            this.complete.is_empty(),
            "an item was sent before the sink was ready"
        );
        let now = this.clock.now();
        let completes = this.group.is_due_with(1, now);
        // Asked before the item is taken, so that the caller still has it after an error. No waker is needed: the next poll of
        // any kind asks again, with the waker of its task.
        let is_ready = completes && {
            let ready = this
                .sink
                .as_mut()
                .poll_ready(&mut Context::from_waker(Waker::noop()));
            matches!(ready?, Poll::Ready(()))
        };
        *this.complete = this.group.push(item, now).unwrap_or_default();
        if is_ready {
            return this.sink.start_send(mem::take(this.complete));
        }
        Ok(())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        ready!(self.as_mut().poll_send(|group, _| !group.is_empty(), cx))?;
        self.project().sink.poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        ready!(self.as_mut().poll_send(|group, _| !group.is_empty(), cx))?;
        self.project().sink.poll_close(cx)
    }
}

/// Does not print the items held: they may be secret, and they may be large.
impl<S: fmt::Debug, Item> fmt::Debug for GroupSends<S, Item> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupSends")
            .field("sink", &self.sink)
            .field("group", &self.group)
            .field("complete", &self.complete.len())
            .finish_non_exhaustive()
    }
}
