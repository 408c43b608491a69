use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_core::stream::FusedStream;
use pin_project_lite::pin_project;

use crate::concurrency::{AcquirePermit, Missed, Permit, Permits};

use super::flights::Flights;
use super::input::{Input, Turn};

pin_project! {
    /// Stream for the [`concurrent`](super::PaceStreamExt::concurrent) method: so many at once, over all that share the
    /// permits.
    ///
    /// ```
    /// # use {testkit::marble, paceline::{concurrency::Permits, stream::PaceStreamExt}};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let work = |item| async move { tokio::time::sleep(marble::TICK * 3).await; item };
    /// // two at once, three ticks each
    /// let input  = "a b c d - - - - |";
    /// let output = "- - - a b - c d |";
    /// # marble::check(|s| s.concurrent(Permits::new(2), work), input, output).await;
    /// # }
    /// ```
    ///
    /// * **Emits** the output of a future when it is done; the order is that of completion.
    /// * **Waits** on the futures; on the input, unless it holds an item; on a permit while it holds one. Its place in line it
    ///   takes when others wait, or when no future is done.
    /// * **Ends** when the input has ended, nothing is held and all futures are done.
    /// * **Holds** at most one item: the one for which it waits for a permit. [`into_parts`](Self::into_parts) gives it
    ///   back. An idle input takes no permit and no place in line. Besides, it holds the futures under way, each with its
    ///   permit until it is done or dropped; those **cannot be given back**: `into_parts` drops them, as does dropping
    ///   the stream, and what they had done by then is done. `size_hint` counts both.
    /// * **Cancel safety**: dropping `next()` loses nothing; item, place in line and futures stay.
    ///
    /// Futures make progress only while this stream is polled, as with `buffer_unordered`, and keep their permits
    /// meanwhile. So does a place in line. Streams that share permits therefore belong in tasks of their own, or in one
    /// `select`; whoever waits for one of them and leaves another alone may wait for ever.
    ///
    /// **Window bound**: that of the [`Permits`], over all that share them: never more than their limit at once, and with
    /// a cool-down never more than that many arrivals in any window, if each future makes one request.
    ///
    /// A future that tries again makes a second request under its one permit; and one that acquires another of the same permits
    /// while it holds its own may wait for itself. Retries belong in a loop that takes a permit for each.
    ///
    /// **Cost**: a future that was woken is polled, the others are not. However many are under way, about 0.03 µs an item more
    /// than `buffer_unordered`, and 0.3 µs for an item that has to stand in line. A box for each future that is under way at
    /// once, used again; no allocation an item, unless it waits for a permit that cools down.
    #[must_use = "streams do nothing unless polled"]
    pub struct Concurrent<S: Stream, F, Fut> {
        #[pin]
        input: Input<S>,
        permits: Permits,
        start: F,
        held: Option<S::Item>,
        waiting: Option<AcquirePermit>,
        flights: Flights<Fut>,
    }
}

impl<S, F, Fut> Concurrent<S, F, Fut>
where
    S: Stream,
    F: FnMut(S::Item) -> Fut,
    Fut: Future,
{
    pub(super) fn new(stream: S, permits: Permits, start: F) -> Self {
        Self {
            input: Input::new(stream),
            permits,
            start,
            held: None,
            waiting: None,
            flights: Flights::new(),
        }
    }

    /// Waits to the microsecond for a cool-down to be over: see [`Timer::precise`](crate::time::Timer::precise).
    #[cfg(feature = "precise")]
    pub fn precise(self) -> Self {
        Self {
            permits: self.permits.precise(),
            ..self
        }
    }

    /// The input, and the item that was waiting for a permit, if there was one. Futures under way are dropped.
    pub fn into_parts(self) -> (S, Option<S::Item>) {
        (self.input.into_inner(), self.held)
    }

    /// Starts what can be started now. Pending: there will be more to start.
    fn poll_start(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut turn = Turn::new();
        loop {
            let mut this = self.as_mut().project();
            if this.held.is_none() {
                *this.held = ready!(this.input.as_mut().poll_next(cx));
            }
            if this.held.is_none() {
                return Poll::Ready(());
            }
            let permit = ready!(self.as_mut().poll_permit(cx));
            self.as_mut().begin(permit);
            ready!(turn.poll_go_on(cx));
        }
    }

    /// Asks for a permit, and stands in line if others do.
    fn poll_permit(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Permit> {
        let this = self.project();
        if this.waiting.is_none() {
            match this.permits.try_one() {
                Ok(permit) => return Poll::Ready(permit),
                Err(Missed::NoneFree) => return Poll::Pending,
                Err(Missed::OthersWait) => {}
            }
        }
        let waiting = this.waiting.get_or_insert_with(|| this.permits.acquire());
        Pin::new(waiting).poll(cx)
    }

    /// Stands in line for the item held, if there is one. Ready: it was begun.
    fn poll_stand(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.as_mut().project();
        if this.held.is_none() || this.waiting.is_some() {
            return Poll::Pending;
        }
        let waiting = this.waiting.insert(this.permits.acquire());
        let permit = ready!(Pin::new(waiting).poll(cx));
        self.begin(permit);
        Poll::Ready(())
    }

    /// Starts the future of the item held.
    fn begin(self: Pin<&mut Self>, permit: Permit) {
        let this = self.project();
        *this.waiting = None;
        if let Some(item) = this.held.take() {
            this.flights.push((this.start)(item), permit);
        }
    }
}

impl<S, F, Fut> Stream for Concurrent<S, F, Fut>
where
    S: Stream,
    F: FnMut(S::Item) -> Fut,
    Fut: Future,
{
    type Item = Fut::Output;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Fut::Output>> {
        loop {
            let started = self.as_mut().poll_start(cx);
            let this = self.as_mut().project();
            if started.is_ready() && this.flights.is_empty() {
                return Poll::Ready(None);
            }
            if let Poll::Ready(output) = this.flights.poll_done(cx) {
                return Poll::Ready(Some(output));
            }
            // Who has something to give is not in line yet, and in nobody's way while that is worked on.
            ready!(self.as_mut().poll_stand(cx));
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let held = usize::from(self.held.is_some());
        self.input.size_hint_with(held + self.flights.len())
    }
}

impl<S, F, Fut> FusedStream for Concurrent<S, F, Fut>
where
    S: Stream,
    F: FnMut(S::Item) -> Fut,
    Fut: Future,
{
    fn is_terminated(&self) -> bool {
        self.input.is_ended() && self.held.is_none() && self.flights.is_empty()
    }
}

/// Does not print items and futures: they may be secret, and they may be large.
impl<S: Stream + fmt::Debug, F, Fut> fmt::Debug for Concurrent<S, F, Fut> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Concurrent")
            .field("input", &self.input)
            .field("permits", &self.permits)
            .field("held", &usize::from(self.held.is_some()))
            .field("flights", &self.flights)
            .finish_non_exhaustive()
    }
}
