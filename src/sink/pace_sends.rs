use core::convert::Infallible;
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll};

use futures_sink::Sink;
use pin_project_lite::pin_project;

use crate::limiter::{Limiter, TooCostly};

use super::SendError;
use super::paced_sink::PacedSink;

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
        sink: PacedSink<S, L, Item>,
    }
}

impl<S, L: Limiter, Item> PaceSends<S, L, Item> {
    pub(super) const fn new(sink: S, limiter: L) -> Self {
        Self {
            sink: PacedSink::new(sink, limiter),
        }
    }

    /// The inner sink, and the item that was waiting for a permit, if there was one.
    pub fn into_parts(self) -> (S, Option<Item>) {
        self.sink.into_parts()
    }
}

impl<S, L, Item> Sink<Item> for PaceSends<S, L, Item>
where
    S: Sink<Item>,
    L: Limiter<Error = Infallible>,
{
    type Error = S::Error;

    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.project().sink.poll_open(cx).map_err(never_refused)
    }

    fn start_send(self: Pin<&mut Self>, item: Item) -> Result<(), S::Error> {
        let sink = self.project().sink;
        sink.start_send(item, 1).map_err(never_refused)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.project().sink.poll_flush(cx).map_err(never_refused)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.project().sink.poll_close(cx).map_err(never_refused)
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
            .finish()
    }
}

/// The error without a refusal: no limit refuses one permit for ever.
fn never_refused<E, Item>(error: SendError<E, TooCostly<Item>>) -> E {
    match error {
        SendError::Inner(error) => error,
        SendError::Refused(never) => {
            panic!("a limiter must let cost 1 pass in the end, but: {never}")
        }
    }
}
