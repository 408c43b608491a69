use core::convert::Infallible;
use core::pin::Pin;
use core::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_core::stream::FusedStream;
use pin_project_lite::pin_project;

use crate::limiter::{Gate, Limiter, Owned};
use crate::policy::Policy;

use super::input::PeekableInput;

pin_project! {
    /// Stream for the [`pace`](super::PaceStreamExt::pace) method: an item that comes too soon is emitted late.
    ///
    /// ```
    /// # use {testkit::marble, paceline::{limiter::PolicyExt, policy::Interval, stream::PaceStreamExt}};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let limit = Interval::every(marble::TICK * 2).owned();
    /// // at least two ticks apart
    /// let input  = "a b c - - - - - - d |";
    /// let output = "a - b - c - - - - d |";
    /// # marble::check(|s| s.pace(limit), input, output).await;
    /// # }
    /// ```
    ///
    #[doc = include_str!("marbles/pace.svg")]
    ///
    /// * **Emits** an item as soon as there is one and the limiter grants a permit.
    /// * **Waits** on the input; while it holds an item, on the limiter only.
    /// * **Ends** with the input. The end itself is never delayed.
    /// * **Holds** at most one item, which `size_hint` counts and [`into_parts`](Self::into_parts) returns.
    /// * **Cancel safety**: dropping `next()` loses nothing; the item stays held.
    ///
    /// **Window bound**: that of the limiter's policy, counted in emissions.
    #[derive(Debug)]
    #[must_use = "streams do nothing unless polled"]
    pub struct Pace<S: Stream, L: Limiter> {
        #[pin]
        input: PeekableInput<S>,
        gate: Gate<L>,
        counts: Counts,
    }
}

/// When an emission is counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Counts {
    AtOnce,
    AtNextPoll,
    /// At the next poll, and there was an emission that is not counted yet.
    Now,
}

impl<S: Stream, L: Limiter> Pace<S, L> {
    pub(super) const fn new(stream: S, limiter: L) -> Self {
        Self {
            input: PeekableInput::new(stream),
            gate: Gate::new(limiter),
            counts: Counts::AtOnce,
        }
    }

    /// The input, and the item that was waiting for a permit, if there was one.
    pub fn into_parts(self) -> (S, Option<S::Item>) {
        self.input.into_parts()
    }
}

impl<S: Stream, P: Policy> Pace<S, Owned<P>> {
    /// Counts each emission when the next item is asked for. Use it for intervals of less than a millisecond that must not
    /// look too short to the consumer either.
    ///
    /// An emission is the instant at which this stream returns the item. The consumer reads its own clock a little later,
    /// sometimes much later, because its thread may be suspended in between. Then the next item, which is on time, looks too
    /// early to the consumer. When the consumer asks for the next item it certainly has the last one. Counted from there, no
    /// two items are closer than the limit by any clock.
    ///
    /// The cost is the time until the consumer asks again: next to nothing if it asks at once. A consumer that works on the
    /// item first adds that time to each interval.
    ///
    /// It needs a limit of its own: users of a shared limit could pass in between. The last item is not counted if the
    /// consumer does not ask for another.
    ///
    /// ```
    /// use futures::{StreamExt, stream};
    /// use paceline::stream::PaceStreamExt;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let start = tokio::time::Instant::now();
    /// let every = Duration::from_millis(100);
    /// let mut paced = stream::iter(0..3).min_interval(every).with_count_from_next_poll();
    ///
    /// while let Some(_) = paced.next().await {
    ///     tokio::time::sleep(Duration::from_millis(30)).await; // the work
    /// }
    /// assert_eq!(start.elapsed(), Duration::from_millis(30 + 100 + 30 + 100 + 30));
    /// # }
    /// ```
    pub fn with_count_from_next_poll(mut self) -> Self {
        if self.counts == Counts::AtOnce {
            self.counts = Counts::AtNextPoll;
        }
        self
    }
}

impl<S, L> Stream for Pace<S, L>
where
    S: Stream,
    L: Limiter<Error = Infallible>,
{
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let mut this = self.project();
        this.gate.begin(cx);

        if *this.counts == Counts::Now {
            let Ok(()) = ready!(this.gate.poll_one(cx));
            *this.counts = Counts::AtNextPoll;
        }
        if ready!(this.input.as_mut().poll_peek(cx)).is_some() {
            if *this.counts == Counts::AtOnce {
                let Ok(()) = ready!(this.gate.poll_one(cx));
            } else {
                let Ok(()) = ready!(this.gate.poll_open(cx));
                *this.counts = Counts::Now;
            }
        }
        Poll::Ready(this.input.take())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.input.size_hint()
    }
}

impl<S: Stream, L: Limiter> FusedStream for Pace<S, L>
where
    Self: Stream,
{
    fn is_terminated(&self) -> bool {
        self.input.is_terminated()
    }
}
