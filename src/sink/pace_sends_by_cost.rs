use core::convert::Infallible;
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, ready};

use futures_sink::Sink;
use pin_project_lite::pin_project;

use crate::limiter::{Limiter, TooCostly, poll_turn};

use super::{PaceSends, SendError};

pin_project! {
    /// Sink for the [`pace_sends_by_cost`](super::PaceSinkExt::pace_sends_by_cost) method: each item takes as many permits as it
    /// costs.
    ///
    /// ```
    /// use futures::{SinkExt, StreamExt, stream};
    /// use paceline::policy::TokenBucket;
    /// use paceline::prelude::*;
    /// use paceline::time::Rate;
    /// use std::time::Duration;
    /// use tokio::time::Instant;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let start = Instant::now();
    /// let (outlet, calls) = futures::channel::mpsc::channel(10);
    /// // One token each 100 ms, three at most; an item costs as much as its number says.
    /// let limit = TokenBucket::new(Rate::new(1, Duration::from_millis(100)), 3).owned();
    /// let outlet = outlet.pace_sends_by_cost(limit, |cost| *cost);
    ///
    /// let sending = tokio::spawn(stream::iter([2, 2, 0, 3]).map(Ok).forward(outlet));
    /// let sent = calls.map(|cost| (cost, start.elapsed().as_millis()));
    /// assert_eq!(sent.collect::<Vec<_>>().await, [(2, 0), (2, 100), (0, 100), (3, 400)]);
    /// # sending.await.unwrap().unwrap();
    /// # }
    /// ```
    ///
    /// * **Accepts** an item when nothing is held and the inner sink is ready, since the cost of the item is not known before it
    ///   is sent. The item is passed on at once if the limiter grants its cost, and held otherwise. An item of cost 0 is passed
    ///   on at once.
    /// * **Waits** on the inner sink first, then on the limiter while it holds an item; meanwhile it flushes the inner sink.
    /// * **Flushes** the item held, when the limiter grants its cost, and then the inner sink.
    /// * **Closes** likewise. Neither waits for the limiter if nothing is held.
    /// * **Fails** with [`SendError::Refused`] at once if an item costs more than the limiter can ever grant. A poll fails like
    ///   that if the limit became too small for the item held. The error contains the item, and the sink can be used as before.
    ///   It fails with [`SendError::Inner`] when the inner sink does. An item held stays held, unless the inner sink failed in
    ///   `start_send`, which consumes the item: see
    ///   [when the inner sink fails](crate::sink#when-the-inner-sink-fails).
    /// * **Holds** at most one item, which [`into_parts`](Self::into_parts) returns. The next poll of any kind sends it.
    /// * **Cancel safety**: dropping a `send()` that waits counts nothing. Its item is dropped with it, or was sent already, or
    ///   is held. The cost function is called once an item, and again after a panic.
    ///
    /// **Window bound**: that of the limiter's policy, counted in costs of items that the inner sink is given.
    ///
    /// # Panics
    ///
    /// If an item is sent while one is held, without waiting for `poll_ready`.
    #[must_use = "sinks do nothing unless polled"]
    pub struct PaceSendsByCost<S, L: Limiter, F, Item> {
        #[pin]
        paced: PaceSends<S, L, Item>,
        cost_of: F,
        // The item whose cost is not known yet: the function runs, or it has panicked.
        uncosted: Option<Item>,
    }
}

impl<S, L: Limiter, F, Item> PaceSendsByCost<S, L, F, Item> {
    pub(super) const fn new(sink: S, limiter: L, cost_of: F) -> Self {
        Self {
            paced: PaceSends::new(sink, limiter),
            cost_of,
            uncosted: None,
        }
    }

    /// The inner sink, and the item that was waiting for permits, if there was one.
    pub fn into_parts(self) -> (S, Option<Item>) {
        let (sink, held) = self.paced.into_parts();
        (sink, held.or(self.uncosted))
    }

    /// Asks for the cost that a panic has left open, and hands the item to the paced sink, which is returned.
    fn settle_uncosted(self: Pin<&mut Self>) -> Pin<&mut PaceSends<S, L, Item>>
    where
        S: Sink<Item>,
        L: Limiter<Error = Infallible>,
        F: FnMut(&Item) -> u32,
    {
        let this = self.project();
        let cost = this.uncosted.as_ref().map(this.cost_of);
        let mut paced = this.paced;
        if let Some(held) = this.uncosted.take().zip(cost) {
            paced.as_mut().hold(held);
        }
        paced
    }
}

impl<S, L, F, Item> Sink<Item> for PaceSendsByCost<S, L, F, Item>
where
    S: Sink<Item>,
    L: Limiter<Error = Infallible>,
    F: FnMut(&Item) -> u32,
{
    type Error = SendError<S::Error, TooCostly<Item>>;

    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        ready!(poll_turn(cx));
        self.settle_uncosted().poll_sendable(cx)
    }

    fn start_send(self: Pin<&mut Self>, item: Item) -> Result<(), Self::Error> {
        let this = self.project();
        assert!(
            this.uncosted.is_none(),
            "an item was sent before the sink was ready"
        );
        let cost = (this.cost_of)(this.uncosted.insert(item));
        match this.uncosted.take() {
            Some(item) => this.paced.send(item, cost),
            None => Ok(()),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        let mut paced = self.settle_uncosted();
        ready!(paced.as_mut().poll_send_held(cx))?;
        paced.poll_flush(cx).map_err(SendError::Inner)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        let mut paced = self.settle_uncosted();
        ready!(paced.as_mut().poll_send_held(cx))?;
        paced.poll_close(cx).map_err(SendError::Inner)
    }
}

/// Does not print the item held: it may be secret, and it may be large.
impl<S, L, F, Item> fmt::Debug for PaceSendsByCost<S, L, F, Item>
where
    S: fmt::Debug,
    L: Limiter + fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PaceSendsByCost")
            .field("paced", &self.paced)
            .finish_non_exhaustive()
    }
}
