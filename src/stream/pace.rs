use core::convert::Infallible;
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_core::stream::FusedStream;
use pin_project_lite::pin_project;

use crate::limiter::{Gate, Limiter, Owned};
use crate::policy::Policy;

use super::input::Input;

pin_project! {
    /// Stream for the [`pace`](super::PaceStreamExt::pace) method: late rather than never.
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
    /// * **Emits** an item when it has one and the limiter lets it pass.
    /// * **Waits** on the limiter while it holds an item, leaving the input alone; on the input otherwise.
    /// * **Ends** when the input does. It is never late to end.
    /// * **Holds** at most one item, which `size_hint` counts and [`into_parts`](Self::into_parts) gives back.
    /// * **Cancel safety**: dropping `next()` loses nothing; the item stays held.
    ///
    /// **Window bound**: that of the limiter's policy, counted in emissions.
    #[must_use = "streams do nothing unless polled"]
    pub struct Pace<S: Stream, L: Limiter> {
        #[pin]
        input: Input<S>,
        gate: Gate<L>,
        held: Option<S::Item>,
        counts: Counts,
    }
}

/// When an emission is counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Counts {
    AtOnce,
    AtNextPoll,
    /// The last one is not counted yet.
    Now,
}

impl<S: Stream, L: Limiter> Pace<S, L> {
    pub(super) const fn new(stream: S, limiter: L) -> Self {
        Self {
            input: Input::new(stream),
            gate: Gate::new(limiter),
            held: None,
            counts: Counts::AtOnce,
        }
    }

    /// Waits to the microsecond: see [`Timer::precise`](crate::time::Timer::precise).
    #[cfg(feature = "precise")]
    pub fn precise(mut self) -> Self {
        self.gate.be_precise();
        self
    }

    /// The input, and the item that was waiting to pass, if there was one.
    pub fn into_parts(self) -> (S, Option<S::Item>) {
        (self.input.into_inner(), self.held)
    }
}

impl<S: Stream, P: Policy> Pace<S, Owned<P>> {
    /// Counts each emission when the next item is asked for: for intervals of less than a millisecond that must not look too
    /// short to the consumer either.
    ///
    /// An item is emitted when this stream hands it over. What the consumer's clock says when it has the item is a little
    /// later, once in a while a lot: its thread may be suspended in between. Then the next item, on time, seems to come too
    /// soon. Who asks for the next item certainly has the last one; so, counted from there, no two items are closer than the
    /// limit says by any clock. It costs the time until the consumer asks again, next to nothing if that is at once; who
    /// works on the item first adds that time to each interval.
    ///
    /// Only with a limit of its own: under one that others share, they could pass in between. An item after which nobody asks
    /// is not counted.
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
    /// let mut paced = stream::iter(0..3).min_interval(every).from_next_poll();
    ///
    /// while let Some(_) = paced.next().await {
    ///     tokio::time::sleep(Duration::from_millis(30)).await; // the work
    /// }
    /// assert_eq!(start.elapsed(), Duration::from_millis(30 + 100 + 30 + 100 + 30));
    /// # }
    /// ```
    pub fn from_next_poll(mut self) -> Self {
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
        let this = self.project();
        this.gate.begin(cx);

        if *this.counts == Counts::Now {
            let Ok(()) = ready!(this.gate.poll_one(cx));
            *this.counts = Counts::AtNextPoll;
        }
        if this.held.is_none() {
            *this.held = ready!(this.input.poll_next(cx));
        }
        if this.held.is_some() {
            let Ok(()) = ready!(poll_emit(this.gate, this.counts, cx));
        }
        Poll::Ready(this.held.take())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.input.size_hint_with(usize::from(self.held.is_some()))
    }
}

/// Whether an item may leave.
#[inline]
fn poll_emit<L: Limiter>(
    gate: &mut Gate<L>,
    counts: &mut Counts,
    cx: &mut Context<'_>,
) -> Poll<Result<(), L::Error>> {
    if *counts == Counts::AtOnce {
        return gate.poll_one(cx);
    }
    let open = ready!(gate.poll_open(cx));
    *counts = Counts::Now;
    Poll::Ready(open)
}

impl<S, L> FusedStream for Pace<S, L>
where
    S: Stream,
    L: Limiter<Error = Infallible>,
{
    fn is_terminated(&self) -> bool {
        self.input.is_ended() && self.held.is_none()
    }
}

/// Does not print the item held: it may be secret, and it may be large.
impl<S, L> fmt::Debug for Pace<S, L>
where
    S: Stream + fmt::Debug,
    L: Limiter + fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pace")
            .field("input", &self.input)
            .field("gate", &self.gate)
            .field("held", &usize::from(self.held.is_some()))
            .field("counts", &self.counts)
            .finish()
    }
}
