use core::fmt;
use core::mem;
use core::pin::Pin;
use core::task::{Context, Poll, Waker, ready};
use core::time::Duration;

use futures_sink::Sink;
use pin_project_lite::pin_project;

use crate::batch::{Group, Window};
use crate::time::Clock;

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
    /// * **Accepts** an item while no group has to leave. A full group leaves in the instant of its last item if the inner
    ///   sink is ready; one whose window is over, at the next poll or with the next item, which belongs to the next group.
    ///   Nothing fires a window while nobody polls.
    /// * **Waits** on the inner sink, and only when a group has to leave.
    /// * **Flushes** all there is, then the inner sink. `send` flushes after each item; `feed` and `send_all` let groups grow.
    /// * **Closes** likewise.
    /// * **Fails** when the inner sink does. What is held stays held, unless the inner sink failed when it was given it.
    /// * **Holds** at most `max` items, which [`into_parts`](Self::into_parts) gives back.
    /// * **Cancel safety**: to drop a `flush()` or `close()` that waits loses nothing; the items stay held.
    ///
    /// **Window bound**: none, since a full group leaves at once; make the inner sink one that
    /// [`pace_sends`](super::PaceSinkExt::pace_sends) the groups for one.
    ///
    /// # Panics
    ///
    /// If an item is sent while a group has to leave, which `poll_ready` would not have allowed.
    #[must_use = "sinks do nothing unless polled"]
    pub struct GroupSends<S, Item> {
        #[pin]
        sink: S,
        group: Group<Item>,
        // Has to leave first. Empty if there is none.
        complete: Vec<Item>,
        clock: Clock,
        // Whether the windows are counted already.
        begun: bool,
    }
}

impl<S, Item> GroupSends<S, Item> {
    #[track_caller]
    pub(super) const fn new(sink: S, max: usize, window: Duration) -> Self {
        Self {
            sink,
            group: Group::new(max, window, Window::FirstItem),
            complete: Vec::new(),
            clock: Clock::new(),
            begun: false,
        }
    }

    /// Where the windows start; [`Window::FirstItem`] if nothing is said. To be called before the first poll.
    pub fn window(self, window: Window) -> Self {
        Self {
            group: self.group.with_window(window),
            ..self
        }
    }

    /// The inner sink, and the items that were waiting to leave, in order.
    pub fn into_parts(self) -> (S, Vec<Item>) {
        let mut held = self.complete;
        held.extend(self.group.into_items());
        (self.sink, held)
    }
}

impl<S: Sink<Vec<Item>>, Item> GroupSends<S, Item> {
    /// Sends the groups that have to leave: what is complete, or all there is.
    fn poll_send(
        mut self: Pin<&mut Self>,
        what: What,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), S::Error>> {
        loop {
            ready!(self.as_mut().poll_send_complete(cx))?;
            let this = self.as_mut().project();
            if this.group.is_empty() && *this.begun {
                return Poll::Ready(Ok(()));
            }
            let now = this.clock.now();
            this.group.begin(now);
            *this.begun = true;
            let leaves = match what {
                What::Complete => this.group.is_due(now),
                What::All => !this.group.is_empty(),
            };
            if !leaves {
                return Poll::Ready(Ok(()));
            }
            *this.complete = this.group.take(now);
        }
    }

    /// The inner sink may stand in a line of its own, so it is not asked before there is something to send.
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
        self.poll_send(What::Complete, cx)
    }

    fn start_send(mut self: Pin<&mut Self>, item: Item) -> Result<(), S::Error> {
        let this = self.as_mut().project();
        assert!(
            this.complete.is_empty(),
            "an item was sent before the sink was ready"
        );
        *this.complete = this.group.push(item, this.clock.now()).unwrap_or_default();
        // Nobody is to be woken: whatever comes next asks again, with the waker of its task.
        match self.poll_send_complete(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(sent) => sent,
            Poll::Pending => Ok(()),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        ready!(self.as_mut().poll_send(What::All, cx))?;
        self.project().sink.poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        ready!(self.as_mut().poll_send(What::All, cx))?;
        self.project().sink.poll_close(cx)
    }
}

/// Which groups leave.
#[derive(Clone, Copy)]
enum What {
    Complete,
    All,
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
