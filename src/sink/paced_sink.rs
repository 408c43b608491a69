use core::convert::Infallible;
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, Waker, ready};

use futures_sink::Sink;
use pin_project_lite::pin_project;

use crate::limiter::{Gate, Limiter, PassError, TooCostly};
use crate::policy::Decision;

use super::SendError;

pin_project! {
    /// What the adapters that wait have in common: the inner sink, its gate, and the one item that waits for permits.
    pub(super) struct PacedSink<S, L: Limiter, Item> {
        #[pin]
        sink: S,
        gate: Gate<L>,
        held: Option<(Item, u32)>,
    }
}

/// The result of a send or a poll.
pub(super) type Sent<E, Item> = Result<(), SendError<E, TooCostly<Item>>>;

impl<S, L: Limiter, Item> PacedSink<S, L, Item> {
    pub(super) const fn new(sink: S, limiter: L) -> Self {
        Self {
            sink,
            gate: Gate::new(limiter),
            held: None,
        }
    }

    pub(super) fn into_parts(self) -> (S, Option<Item>) {
        (self.sink, self.held.map(|(item, _)| item))
    }
}

impl<S, L, Item> PacedSink<S, L, Item>
where
    S: Sink<Item>,
    L: Limiter<Error = Infallible>,
{
    /// Sends the item held, if there is one, then waits until the inner sink is ready.
    pub(super) fn poll_ready(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Sent<S::Error, Item>> {
        ready!(self.as_mut().poll_send_held(cx))?;
        self.poll_sink(cx).map_err(SendError::Inner)
    }

    /// Waits until nothing is held, the inner sink is ready and the limiter has a permit, which is not taken yet.
    pub(super) fn poll_open(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Sent<S::Error, Item>> {
        ready!(self.as_mut().poll_ready(cx))?;
        let open = self.as_mut().project().gate.poll_open(cx);
        let Ok(()) = ready!(self.poll_or_flush(open, cx)).map_err(SendError::Inner)?;
        Poll::Ready(Ok(()))
    }

    /// Sends the item, or holds it if the limiter does not grant its cost yet.
    pub(super) fn start_send(self: Pin<&mut Self>, item: Item, cost: u32) -> Sent<S::Error, Item> {
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
                let never = TooCostly::new(cost, capacity);
                Err(SendError::Refused(never.with_item(item)))
            }
            Poll::Ready(Ok(Decision::Wait { .. })) | Poll::Pending => {
                *this.held = Some((item, cost));
                Ok(())
            }
        }
    }

    /// Sends the item held, then flushes.
    pub(super) fn poll_flush(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Sent<S::Error, Item>> {
        ready!(self.as_mut().poll_send_held(cx))?;
        self.project().sink.poll_flush(cx).map_err(SendError::Inner)
    }

    /// Sends the item held, then closes.
    pub(super) fn poll_close(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Sent<S::Error, Item>> {
        ready!(self.as_mut().poll_send_held(cx))?;
        let this = self.project();
        // A `poll_ready` before this may have joined the queue. There is no send to wait for any more.
        this.gate.give_up();
        this.sink.poll_close(cx).map_err(SendError::Inner)
    }

    /// Sends the item held. The permit is taken last, in the instant in which the inner sink takes the item.
    fn poll_send_held(
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
            Err(never) => Err(refused(never, item)),
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

fn refused<E, Item>(never: PassError<Infallible>, item: Item) -> SendError<E, TooCostly<Item>> {
    SendError::Refused(never.into_too_costly().with_item(item))
}

/// Does not print the item held: it may be secret, and it may be large.
impl<S, L, Item> fmt::Debug for PacedSink<S, L, Item>
where
    S: fmt::Debug,
    L: Limiter + fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacedSink")
            .field("sink", &self.sink)
            .field("gate", &self.gate)
            .field("held", &usize::from(self.held.is_some()))
            .finish()
    }
}
