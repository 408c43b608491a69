use core::convert::Infallible;
use core::pin::Pin;
use core::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_core::stream::FusedStream;
use pin_project_lite::pin_project;

use crate::limiter::{Gate, Limiter};

use super::input::{PeekableInput, poll_taken};

pin_project! {
    /// Stream for the [`shed`](super::PaceStreamExt::shed) method: an item that comes too soon is dropped and counted.
    ///
    /// ```
    /// # use {testkit::marble, paceline::{limiter::PolicyExt, policy::Interval, stream::PaceStreamExt}};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let limit = Interval::every(marble::TICK * 3).owned();
    /// // at least three ticks apart
    /// let input  = "a b - c d - (ef) |";
    /// let output = "a - - c - - e    |";
    /// # marble::check(|s| s.shed(limit), input, output).await;
    /// # }
    /// ```
    ///
    #[doc = include_str!("marbles/shed.svg")]
    ///
    /// * **Emits** an item in the instant in which it arrives, if the limiter grants a permit then and no waiter is queued for
    ///   the same limit. Other items are dropped, and [`shed_count`](Self::shed_count) counts them.
    /// * **Waits** on the input only (and on the answer of a limit that is not in memory).
    /// * **Ends** with the input.
    /// * **Holds** nothing over a limit in memory. Over another limit it holds one item while the request is under way, which
    ///   the upper bound of `size_hint` counts and [`into_parts`](Self::into_parts) returns.
    /// * **Cancel safety**: dropping `next()` loses no item, apart from those that are counted.
    ///
    /// **Window bound**: that of the limiter's policy, counted in emissions.
    #[derive(Debug)]
    #[must_use = "streams do nothing unless polled"]
    pub struct Shed<S: Stream, L: Limiter> {
        #[pin]
        input: PeekableInput<S>,
        gate: Gate<L>,
        dropped: u64,
    }
}

impl<S: Stream, L: Limiter> Shed<S, L> {
    pub(super) const fn new(stream: S, limiter: L) -> Self {
        Self {
            input: PeekableInput::new(stream),
            gate: Gate::new(limiter),
            dropped: 0,
        }
    }

    /// How many items were dropped.
    pub const fn shed_count(&self) -> u64 {
        self.dropped
    }

    /// The input, and the item that was waiting for its answer, if there was one.
    pub fn into_parts(self) -> (S, Option<S::Item>) {
        self.input.into_parts()
    }
}

impl<S, L> Stream for Shed<S, L>
where
    S: Stream,
    L: Limiter<Error = Infallible>,
{
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let mut this = self.project();
        this.gate.begin(cx);

        let mut taken = 0;
        while ready!(this.input.as_mut().poll_peek(cx)).is_some() {
            let Ok(decision) = ready!(this.gate.poll_try(cx));
            let item = this.input.as_mut().take();
            if decision.is_pass() {
                return Poll::Ready(item);
            }
            *this.dropped = this.dropped.saturating_add(1);
            ready!(poll_taken(&mut taken, cx));
        }
        Poll::Ready(None)
    }

    /// No item is certain to leave.
    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, self.input.size_hint().1)
    }
}

impl<S: Stream, L: Limiter> FusedStream for Shed<S, L>
where
    Self: Stream,
{
    fn is_terminated(&self) -> bool {
        self.input.is_terminated()
    }
}
