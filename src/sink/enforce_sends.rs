use core::convert::Infallible;
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, Waker, ready};

use futures_sink::Sink;
use pin_project_lite::pin_project;

use crate::limiter::{Exceeded, Gate, Limiter, poll_turn};

use super::SendError;

pin_project! {
    /// Sink for the [`enforce_sends`](super::PaceSinkExt::enforce_sends) method: an item that comes too soon is returned in an
    /// error.
    ///
    /// * **Accepts** an item when the inner sink is ready. The item is passed on if the limiter grants a permit in that instant
    ///   and no waiter is queued for the same limit.
    /// * **Waits** on the inner sink only (and on the answer of a limit that is not in memory).
    /// * **Flushes** and **closes** with the inner sink.
    /// * **Fails** with [`SendError::Refused`] if an item is sent too soon. It has an [`Exceeded`] with the item, and the sink
    ///   can be used as before. Fails with [`SendError::Inner`] when the inner sink does.
    /// * **Holds** nothing over a limit in memory. Over another limit it holds one item while the request is under way, which
    ///   [`into_parts`](Self::into_parts) returns. The next poll of any kind asks again and may fail with that item.
    /// * **Cancel safety**: dropping a `send()` that waits counts nothing, unless its item was sent.
    ///
    /// **Window bound**: that of the limiter's policy, counted in items that the inner sink is given.
    ///
    /// # Panics
    ///
    /// If an item is sent while one is held, without waiting for `poll_ready`.
    #[must_use = "sinks do nothing unless polled"]
    pub struct EnforceSends<S, L: Limiter, Item> {
        #[pin]
        sink: S,
        gate: Gate<L>,
        held: Option<Item>,
    }
}

impl<S, L: Limiter, Item> EnforceSends<S, L, Item> {
    pub(super) const fn new(sink: S, limiter: L) -> Self {
        Self {
            sink,
            gate: Gate::new(limiter),
            held: None,
        }
    }

    /// The inner sink, and the item that was waiting for its answer, if there was one.
    pub fn into_parts(self) -> (S, Option<Item>) {
        (self.sink, self.held)
    }
}

impl<S, L, Item> EnforceSends<S, L, Item>
where
    S: Sink<Item>,
    L: Limiter<Error = Infallible>,
{
    /// Asks again for the item held, if there is one.
    fn poll_answer(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Sent<S::Error, Item>> {
        let this = self.as_mut().project();
        this.gate.begin(cx);
        if this.held.is_none() {
            return Poll::Ready(Ok(()));
        }
        ready!(this.sink.poll_ready(cx)).map_err(SendError::Inner)?;
        self.poll_decide(cx)
    }

    /// Sends the item held or refuses it, as the limiter decides.
    fn poll_decide(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Sent<S::Error, Item>> {
        let this = self.project();
        let Ok(decision) = ready!(this.gate.limiter_mut().poll_try(1, cx));
        let sent = this.held.take().map(|item| {
            if decision.is_pass() {
                return this.sink.start_send(item).map_err(SendError::Inner);
            }
            let refused = Exceeded::new(item, decision.retry_in());
            Err(SendError::Refused(refused))
        });
        Poll::Ready(sent.unwrap_or(Ok(())))
    }
}

impl<S, L, Item> Sink<Item> for EnforceSends<S, L, Item>
where
    S: Sink<Item>,
    L: Limiter<Error = Infallible>,
{
    type Error = SendError<S::Error, Exceeded<Item>>;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        ready!(poll_turn(cx));
        ready!(self.as_mut().poll_answer(cx))?;
        self.project().sink.poll_ready(cx).map_err(SendError::Inner)
    }

    fn start_send(mut self: Pin<&mut Self>, item: Item) -> Result<(), Self::Error> {
        let held = self.as_mut().project().held;
        assert!(held.is_none(), "an item was sent before the sink was ready");
        *held = Some(item);
        // No waker is needed: the next poll of any kind asks again, with the waker of its task.
        match self.poll_decide(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(sent) => sent,
            Poll::Pending => Ok(()),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        ready!(self.as_mut().poll_answer(cx))?;
        self.project().sink.poll_flush(cx).map_err(SendError::Inner)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        ready!(self.as_mut().poll_answer(cx))?;
        self.project().sink.poll_close(cx).map_err(SendError::Inner)
    }
}

/// Does not print the item held: it may be secret, and it may be large.
impl<S, L, Item> fmt::Debug for EnforceSends<S, L, Item>
where
    S: fmt::Debug,
    L: Limiter + fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnforceSends")
            .field("sink", &self.sink)
            .field("limiter", self.gate.limiter())
            .field("held", &usize::from(self.held.is_some()))
            .finish()
    }
}

type Sent<E, Item> = Result<(), SendError<E, Exceeded<Item>>>;
