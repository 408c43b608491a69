use core::convert::Infallible;
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, ready};

use futures_sink::Sink;
use pin_project_lite::pin_project;

use crate::limiter::{Exceeded, Limiter};

use super::{EnforceSends, SendError};

pin_project! {
    /// Sink for the [`shed_sends`](super::PaceSinkExt::shed_sends) method: an item that comes too soon is dropped and counted.
    ///
    /// * **Accepts** an item when the inner sink is ready. The item is passed on if the limiter grants a permit in that instant
    ///   and no waiter is queued for the same limit. Other items are dropped, and [`shed_count`](Self::shed_count) counts them.
    /// * **Waits** on the inner sink only (and on the answer of a limit that is not in memory).
    /// * **Flushes** and **closes** with the inner sink.
    /// * **Fails** when the inner sink does.
    /// * **Holds** nothing over a limit in memory. Over another limit it holds one item while the request is under way, which
    ///   [`into_parts`](Self::into_parts) returns. The next poll of any kind asks again.
    /// * **Cancel safety**: dropping a `send()` that waits counts nothing, unless its item was sent.
    ///
    /// **Window bound**: that of the limiter's policy, counted in items that the inner sink is given.
    ///
    /// # Panics
    ///
    /// If an item is sent while one is held, without waiting for `poll_ready`.
    #[must_use = "sinks do nothing unless polled"]
    pub struct ShedSends<S, L: Limiter, Item> {
        // Refuses items; this type drops and counts them.
        #[pin]
        enforced: EnforceSends<S, L, Item>,
        dropped: u64,
    }
}

impl<S, L: Limiter, Item> ShedSends<S, L, Item> {
    pub(super) const fn new(sink: S, limiter: L) -> Self {
        Self {
            enforced: EnforceSends::new(sink, limiter),
            dropped: 0,
        }
    }

    /// How many items were dropped.
    pub const fn shed_count(&self) -> u64 {
        self.dropped
    }

    /// The inner sink, and the item that was waiting for its answer, if there was one.
    pub fn into_parts(self) -> (S, Option<Item>) {
        self.enforced.into_parts()
    }
}

impl<S, L, Item> ShedSends<S, L, Item>
where
    S: Sink<Item>,
    L: Limiter<Error = Infallible>,
{
    /// Polls again after a refusal. At most one item was held, so at most one is refused.
    fn poll_counting(
        self: Pin<&mut Self>,
        poll: impl Fn(
            Pin<&mut EnforceSends<S, L, Item>>,
            &mut Context<'_>,
        ) -> Poll<Sent<S::Error, Item>>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), S::Error>> {
        let mut this = self.project();
        loop {
            match ready!(poll(this.enforced.as_mut(), cx)) {
                Ok(()) => return Poll::Ready(Ok(())),
                Err(SendError::Inner(error)) => return Poll::Ready(Err(error)),
                Err(SendError::Refused(_)) => *this.dropped = this.dropped.saturating_add(1),
            }
        }
    }
}

impl<S, L, Item> Sink<Item> for ShedSends<S, L, Item>
where
    S: Sink<Item>,
    L: Limiter<Error = Infallible>,
{
    type Error = S::Error;

    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.poll_counting(EnforceSends::poll_ready, cx)
    }

    fn start_send(self: Pin<&mut Self>, item: Item) -> Result<(), S::Error> {
        let this = self.project();
        match this.enforced.start_send(item) {
            Ok(()) => Ok(()),
            Err(SendError::Inner(error)) => Err(error),
            Err(SendError::Refused(_)) => {
                *this.dropped = this.dropped.saturating_add(1);
                Ok(())
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.poll_counting(EnforceSends::poll_flush, cx)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.poll_counting(EnforceSends::poll_close, cx)
    }
}

/// Does not print the item held: it may be secret, and it may be large.
impl<S, L, Item> fmt::Debug for ShedSends<S, L, Item>
where
    S: fmt::Debug,
    L: Limiter + fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShedSends")
            .field("enforced", &self.enforced)
            .field("dropped", &self.dropped)
            .finish()
    }
}

type Sent<E, Item> = Result<(), SendError<E, Exceeded<Item>>>;
