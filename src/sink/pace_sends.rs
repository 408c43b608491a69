use core::convert::Infallible;
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, Waker, ready};

use futures_sink::Sink;
use pin_project_lite::pin_project;

use crate::limiter::{Gate, Limiter, TooCostly};
use crate::policy::Decision;

use super::SendError;

pin_project! {
    /// Sink for the [`pace_sends`](super::PaceSinkExt::pace_sends) method: an item that comes too soon is sent late.
    ///
    /// ```
    /// use futures::{SinkExt, StreamExt, stream};
    /// use paceline::policy::Interval;
    /// use paceline::prelude::*;
    /// use std::time::Duration;
    /// use tokio::time::Instant;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let start = Instant::now();
    /// let (outlet, calls) = futures::channel::mpsc::channel(10);
    /// let outlet = outlet.pace_sends(Interval::every(Duration::from_millis(100)).owned());
    ///
    /// let sending = tokio::spawn(stream::iter(["a", "b", "c"]).map(Ok).forward(outlet));
    /// let sent = calls.map(|call| (call, start.elapsed().as_millis()));
    /// assert_eq!(sent.collect::<Vec<_>>().await, [("a", 0), ("b", 100), ("c", 200)]);
    /// # sending.await.unwrap().unwrap();
    /// # }
    /// ```
    ///
    /// * **Accepts** an item when the inner sink is ready and the limiter has a permit. `poll_ready` takes no permit; sending
    ///   does. If another user of the limit took the permit in between, or is queued for it, the item is held.
    /// * **Waits** on the inner sink first, then on the limiter; meanwhile it flushes the inner sink.
    /// * **Flushes** the item held, when the limiter grants its permit, and then the inner sink.
    /// * **Closes** likewise. Neither waits for the limiter if nothing is held.
    /// * **Fails** when the inner sink does. An item held stays held, unless the inner sink failed in `start_send`, which
    ///   consumes the item: see [when the inner sink fails](crate::sink#when-the-inner-sink-fails).
    /// * **Holds** at most one item, which [`into_parts`](Self::into_parts) returns. The next poll of any kind sends it.
    /// * **Cancel safety**: dropping a `send()` that waits counts nothing. Its item is dropped with it, or was sent already, or
    ///   is held.
    ///
    /// **Window bound**: that of the limiter's policy, counted in items that the inner sink is given.
    ///
    /// # Panics
    ///
    /// If an item is sent while one is held, without waiting for `poll_ready`.
    #[must_use = "sinks do nothing unless polled"]
    pub struct PaceSends<S, L: Limiter, Item> {
        #[pin]
        sink: S,
        gate: Gate<L>,
        // The item that waits for permits, and its cost.
        held: Option<(Item, u32)>,
    }
}

impl<S, L: Limiter, Item> PaceSends<S, L, Item> {
    pub(super) const fn new(sink: S, limiter: L) -> Self {
        Self {
            sink,
            gate: Gate::new(limiter),
            held: None,
        }
    }

    /// The inner sink, and the item that was waiting for a permit, if there was one.
    pub fn into_parts(self) -> (S, Option<Item>) {
        (self.sink, self.held.map(|(item, _)| item))
    }
}

impl<S, L, Item> PaceSends<S, L, Item>
where
    S: Sink<Item>,
    L: Limiter<Error = Infallible>,
{
    /// Sends the item held, if there is one, then waits until the inner sink is ready.
    pub(super) fn poll_sendable(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Sent<S::Error, Item>> {
        ready!(self.as_mut().poll_send_held(cx))?;
        self.poll_sink(cx).map_err(SendError::Inner)
    }

    /// Sends the item, or holds it if the limiter does not grant its cost yet.
    pub(super) fn send(self: Pin<&mut Self>, item: Item, cost: u32) -> Sent<S::Error, Item> {
        let this = self.project();
        assert!(
            this.held.is_none(),
            "an item was sent before the sink was ready"
        );
        // No waker is needed: the next poll of any kind asks again, with the waker of its task.
        let cx = &mut Context::from_waker(Waker::noop());
        match this.gate.limiter_mut().poll_try(cost, cx) {
            Poll::Ready(Ok(Decision::Pass)) => this.sink.start_send(item).map_err(SendError::Inner),
            Poll::Ready(Ok(Decision::Never { capacity })) => {
                let never = this.gate.limiter().too_costly(cost, capacity);
                Err(SendError::Refused(never.with_item(item)))
            }
            Poll::Ready(Ok(Decision::Wait { .. })) | Poll::Pending => {
                *this.held = Some((item, cost));
                Ok(())
            }
        }
    }

    /// Holds this item and its cost until they pass.
    pub(super) fn hold(self: Pin<&mut Self>, held: (Item, u32)) {
        *self.project().held = Some(held);
    }

    /// Sends the item held. The permit is taken last, in the instant in which the inner sink takes the item.
    pub(super) fn poll_send_held(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Sent<S::Error, Item>> {
        self.as_mut().project().gate.begin(cx);
        let Some((_, cost)) = self.held else {
            return Poll::Ready(Ok(()));
        };
        ready!(self.as_mut().poll_sink(cx)).map_err(SendError::Inner)?;
        let passed = self.as_mut().project().gate.poll_pass(cost, cx);
        let passed = ready!(self.as_mut().poll_or_flush(passed, cx)).map_err(SendError::Inner)?;

        let this = self.project();
        let sent = this.held.take().map(|(item, _)| match passed {
            Ok(()) => this.sink.start_send(item).map_err(SendError::Inner),
            Err(never) => {
                let never = never.into_too_costly().with_item(item);
                Err(SendError::Refused(never))
            }
        });
        Poll::Ready(sent.unwrap_or(Ok(())))
    }

    /// Polls whether the inner sink is ready. While it is not, this adapter leaves the queue, so that it does not hold up others.
    fn poll_sink(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        let this = self.project();
        let ready = this.sink.poll_ready(cx);
        if !matches!(ready, Poll::Ready(Ok(()))) {
            this.gate.give_up();
        }
        ready
    }

    /// Returns the answer of the gate. While it is pending, flushes the inner sink, so that earlier items leave its buffer.
    fn poll_or_flush<T>(
        self: Pin<&mut Self>,
        passed: Poll<T>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<T, S::Error>> {
        if passed.is_pending() {
            let this = self.project();
            if let Poll::Ready(Err(error)) = this.sink.poll_flush(cx) {
                this.gate.give_up();
                return Poll::Ready(Err(error));
            }
        }
        passed.map(Ok)
    }
}

impl<S, L, Item> Sink<Item> for PaceSends<S, L, Item>
where
    S: Sink<Item>,
    L: Limiter<Error = Infallible>,
{
    type Error = S::Error;

    /// Waits until nothing is held, the inner sink is ready and the limiter has a permit, which is not taken yet.
    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        ready!(self.as_mut().poll_sendable(cx)).map_err(never_refused)?;
        let open = self.as_mut().project().gate.poll_open(cx);
        let Ok(()) = ready!(self.poll_or_flush(open, cx))?;
        Poll::Ready(Ok(()))
    }

    fn start_send(self: Pin<&mut Self>, item: Item) -> Result<(), S::Error> {
        self.send(item, 1).map_err(never_refused)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        ready!(self.as_mut().poll_send_held(cx)).map_err(never_refused)?;
        self.project().sink.poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        ready!(self.as_mut().poll_send_held(cx)).map_err(never_refused)?;
        let this = self.project();
        // A `poll_ready` before this may have joined the queue. There is no send to wait for any more.
        this.gate.give_up();
        this.sink.poll_close(cx)
    }
}

/// Does not print the item held: it may be secret, and it may be large.
impl<S, L, Item> fmt::Debug for PaceSends<S, L, Item>
where
    S: fmt::Debug,
    L: Limiter + fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PaceSends")
            .field("sink", &self.sink)
            .field("gate", &self.gate)
            .field("held", &usize::from(self.held.is_some()))
            .finish()
    }
}

/// The result of a send or a poll that may be refused.
type Sent<E, Item> = Result<(), SendError<E, TooCostly<Item>>>;

/// The error without a refusal: no limit refuses one permit for ever.
fn never_refused<E, Item>(error: SendError<E, TooCostly<Item>>) -> E {
    match error {
        SendError::Inner(error) => error,
        SendError::Refused(never) => {
            panic!("a limiter must let cost 1 pass in the end, but: {never}")
        }
    }
}
