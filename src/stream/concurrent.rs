use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_core::stream::FusedStream;
use pin_project_lite::pin_project;

use crate::concurrency::future::AcquirePermit;
use crate::concurrency::{Missed, Permit, Permits};

use super::future_set::FutureSet;
use super::input::{PeekableInput, poll_taken, with_held};

pin_project! {
    /// Stream for the [`concurrent`](super::PaceStreamExt::concurrent) method: runs a future for each item, as many at once as
    /// there are permits. Other streams and tasks may share the permits.
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
    #[doc = include_str!("marbles/concurrent.svg")]
    ///
    /// * **Emits** the output of a future when the future is done, in order of completion.
    /// * **Waits** on the futures; on the input, unless it holds an item; on a permit while it holds one. It joins the queue for
    ///   permits when others are queued there, or when no future is done.
    /// * **Ends** when the input has ended, no item is held and all futures are done.
    /// * **Holds** at most one item: the one that waits for a permit. [`into_parts`](Self::into_parts) returns it. While the
    ///   input is pending, the stream takes no permit and no place in the queue. Besides, it holds the futures that run, each
    ///   with its permit until the future is done or dropped. Futures **cannot be returned**: `into_parts` drops them, as does
    ///   dropping the stream, and the work that they did before is done. `size_hint` counts the item and the futures.
    /// * **Cancel safety**: dropping `next()` loses nothing; the item, its place in the queue and the futures stay.
    ///
    /// As with `buffer_unordered`, futures make progress only while this stream is polled, and keep their permits meanwhile. A
    /// place in the queue is kept likewise. So streams that share permits belong in tasks of their own, or in one `select`. A
    /// task that waits for one of them and does not poll the other may wait for ever.
    ///
    /// **Window bound**: that of the [`Permits`], over all users of them: never more futures than the limit at once; with a
    /// cool-down never more than the limit of arrivals in any window, if each future makes one request.
    ///
    /// A future that retries makes a second request under one permit. A future that acquires another of the same permits while
    /// it holds its own may wait for itself. [`retry`](Self::retry) takes a permit for each attempt, and bounds the retries.
    ///
    /// # With a rate
    ///
    /// The permit first, and the rate inside of the future, so that the rate counts when the call begins. Behind
    /// `.pace(limit)` an item that has passed can wait here for its permit, and then its call begins close to the next one.
    ///
    /// Permits are first come, first served. A limit inside that orders [by deadline](crate::limiter::Shared::by_deadline) sees only the
    /// items that have a permit. So take as many permits as messages can wait, or order first, with
    /// [`pace_by_deadline`](super::PaceStreamExt::pace_by_deadline).
    ///
    /// Several connections can share one input. Each takes the next item when it has room, and has limits of its own:
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use futures::{StreamExt, stream};
    /// use paceline::concurrency::Permits;
    /// use paceline::prelude::*;
    /// use tokio::sync::Mutex;
    ///
    /// # async fn send(_: u32) { tokio::time::sleep(Duration::from_millis(90)).await }
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let messages = Arc::new(Mutex::new(stream::iter(0..100_u32)));
    /// let connections = [(20, 2), (30, 5)].map(|(rate, at_once)| {
    ///     let messages = stream::unfold(messages.clone(), async |messages| {
    ///         let message = messages.lock().await.next().await?;
    ///         Some((message, messages))
    ///     });
    ///     let limit = Interval::from_rate(Rate::per_second(rate)).shared();
    ///     let sent = messages.concurrent(Permits::new(at_once), move |message| {
    ///         let limit = limit.clone();
    ///         async move {
    ///             limit.acquire_one().await;
    ///             send(message).await;
    ///         }
    ///     });
    ///     sent.count()
    /// });
    /// let sent = futures::future::join_all(connections).await;
    /// assert_eq!(sent, [40, 60]);
    /// # }
    /// ```
    ///
    /// **Cost**: only futures that were woken are polled. However many run, an item costs about 0.03 µs more than with
    /// `buffer_unordered`, and 0.3 µs more if it has to queue for its permit. There is one box for each future that runs at
    /// once, used again for later ones; an item needs no allocation, unless it waits for a permit that cools down.
    #[must_use = "streams do nothing unless polled"]
    pub struct Concurrent<S: Stream, F, Fut> {
        #[pin]
        pub(super) input: PeekableInput<S>,
        pub(super) permits: Permits,
        pub(super) start: F,
        pub(super) waiting: Option<AcquirePermit<'static>>,
        pub(super) futures: FutureSet<Fut>,
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
            input: PeekableInput::new(stream),
            permits,
            start,
            waiting: None,
            futures: FutureSet::new(),
        }
    }

    /// The input, and the item that was waiting for a permit, if there was one. The futures are dropped.
    pub fn into_parts(self) -> (S, Option<S::Item>) {
        self.input.into_parts()
    }

    /// Starts as many futures as it can. Ready: the input has ended.
    fn poll_start(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut taken = 0;
        loop {
            let this = self.as_mut().project();
            if ready!(this.input.poll_peek(cx)).is_none() {
                return Poll::Ready(());
            }
            let permit = ready!(self.as_mut().poll_permit(cx));
            let this = self.as_mut().project();
            *this.waiting = None;
            if let Some(item) = this.input.take() {
                this.futures.push((this.start)(item), permit);
            }
            ready!(poll_taken(&mut taken, cx));
        }
    }

    /// Takes a permit if one is free, and joins the queue if others are queued.
    pub(super) fn poll_permit(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Permit> {
        let this = self.project();
        if this.waiting.is_none() {
            match this.permits.try_one() {
                Ok(permit) => return Poll::Ready(permit),
                Err(Missed::NoneFree) => return Poll::Pending,
                Err(Missed::OthersWait) => {}
            }
        }
        let waiting = this
            .waiting
            .get_or_insert_with(|| this.permits.acquire_owned());
        Pin::new(waiting).poll(cx)
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
            if started.is_ready() && this.futures.is_empty() {
                return Poll::Ready(None);
            }
            if let Poll::Ready((_, output)) = this.futures.poll_done(cx) {
                return Poll::Ready(Some(output));
            }
            if !this.input.is_holding() || this.waiting.is_some() {
                return Poll::Pending;
            }
            // Only now: while the consumer works on an output, this stream is not polled and would hold up the queue.
            *this.waiting = Some(this.permits.acquire_owned());
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        with_held(self.input.size_hint(), self.futures.len())
    }
}

impl<S: Stream, F, Fut> FusedStream for Concurrent<S, F, Fut>
where
    Self: Stream,
{
    fn is_terminated(&self) -> bool {
        self.input.is_terminated() && self.futures.is_empty()
    }
}

/// Does not print items and futures: they may be secret, and they may be large.
impl<S: Stream + fmt::Debug, F, Fut> fmt::Debug for Concurrent<S, F, Fut> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Concurrent")
            .field("input", &self.input)
            .field("permits", &self.permits)
            .field("under_way", &self.futures.len())
            .finish_non_exhaustive()
    }
}
