use core::convert::Infallible;
use core::pin::Pin;
use core::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_core::stream::FusedStream;
use pin_project_lite::pin_project;

use crate::limiter::{Exceeded, Gate, Limiter};

use super::input::PeekableInput;

pin_project! {
    /// Stream for the [`enforce`](super::PaceStreamExt::enforce) method: an item that comes too soon becomes an error that
    /// contains it.
    ///
    /// ```
    /// # use {testkit::marble, paceline::{limiter::PolicyExt, policy::Interval, stream::PaceStreamExt}};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let limit = Interval::every(marble::TICK * 3).owned();
    /// // at least three ticks apart
    /// let input  = "a b - c d - (ef) |";
    /// let output = "a X - c X - (eX) |";
    /// # marble::check(|s| s.enforce(limit), input, output).await;
    /// # }
    /// ```
    ///
    #[doc = include_str!("marbles/enforce.svg")]
    ///
    /// * **Emits** an item in the instant in which it arrives: `Ok` if the limiter grants a permit then and no waiter is
    ///   queued for the same limit.
    /// * **Waits** on the input only (and on the answer of a limit that is not in memory).
    /// * **Ends** with the input.
    /// * **Fails** with [`Exceeded`] in the item's place. The error contains the item. The stream goes on after it.
    /// * **Holds** nothing over a limit in memory. Over another limit it holds one item while the request is under way, which
    ///   `size_hint` counts and [`into_parts`](Self::into_parts) returns.
    /// * **Cancel safety**: dropping `next()` loses nothing.
    ///
    /// **Window bound**: that of the limiter's policy, counted in `Ok`s.
    #[derive(Debug)]
    #[must_use = "streams do nothing unless polled"]
    pub struct Enforce<S: Stream, L: Limiter> {
        #[pin]
        input: PeekableInput<S>,
        gate: Gate<L>,
    }
}

impl<S: Stream, L: Limiter> Enforce<S, L> {
    pub(super) const fn new(stream: S, limiter: L) -> Self {
        Self {
            input: PeekableInput::new(stream),
            gate: Gate::new(limiter),
        }
    }

    /// The input, and the item that was waiting for its answer, if there was one.
    pub fn into_parts(self) -> (S, Option<S::Item>) {
        self.input.into_parts()
    }
}

impl<S, L> Stream for Enforce<S, L>
where
    S: Stream,
    L: Limiter<Error = Infallible>,
{
    type Item = Result<S::Item, Exceeded<S::Item>>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut this = self.project();
        this.gate.begin(cx);

        if ready!(this.input.as_mut().poll_peek(cx)).is_none() {
            return Poll::Ready(None);
        }
        let Ok(decision) = ready!(this.gate.poll_try(cx));
        Poll::Ready(this.input.take().map(|item| {
            if decision.is_pass() {
                return Ok(item);
            }
            Err(Exceeded::new(item, decision.retry_in()))
        }))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.input.size_hint()
    }
}

impl<S: Stream, L: Limiter> FusedStream for Enforce<S, L>
where
    Self: Stream,
{
    fn is_terminated(&self) -> bool {
        self.input.is_terminated()
    }
}
