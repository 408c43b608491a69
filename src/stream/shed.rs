use core::convert::Infallible;
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_core::stream::FusedStream;
use pin_project_lite::pin_project;

use crate::limiter::{Gate, Limiter};

use super::input::{Input, Turn};

pin_project! {
    /// Stream for the [`shed`](super::PaceStreamExt::shed) method: in time, or dropped and counted.
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
    /// * **Emits** an item in the instant in which it arrives, if the limiter lets it pass then and nobody waits for the
    ///   same limit; the others are dropped, and [`shed_count`](Self::shed_count) counts them.
    /// * **Waits** on the input only (and on the answer of a limit that is not in memory).
    /// * **Ends** when the input does.
    /// * **Holds** nothing over a limit in memory; else one item while its answer is under way, which the upper bound of
    ///   `size_hint` counts and [`into_parts`](Self::into_parts) gives back.
    /// * **Cancel safety**: dropping `next()` loses nothing that is not counted.
    ///
    /// **Window bound**: that of the limiter's policy, counted in emissions.
    #[must_use = "streams do nothing unless polled"]
    pub struct Shed<S: Stream, L: Limiter> {
        #[pin]
        input: Input<S>,
        gate: Gate<L>,
        held: Option<S::Item>,
        dropped: u64,
    }
}

impl<S: Stream, L: Limiter> Shed<S, L> {
    pub(super) const fn new(stream: S, limiter: L) -> Self {
        Self {
            input: Input::new(stream),
            gate: Gate::new(limiter),
            held: None,
            dropped: 0,
        }
    }

    /// How many items were dropped.
    pub const fn shed_count(&self) -> u64 {
        self.dropped
    }

    /// The input, and the item whose answer was under way, if there was one.
    pub fn into_parts(self) -> (S, Option<S::Item>) {
        (self.input.into_inner(), self.held)
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

        let mut turn = Turn::new();
        loop {
            if this.held.is_none() {
                *this.held = ready!(this.input.as_mut().poll_next(cx));
            }
            if this.held.is_none() {
                return Poll::Ready(None);
            }
            let Ok(decision) = ready!(this.gate.limiter_mut().poll_try(1, cx));
            let item = this.held.take();
            if decision.is_pass() {
                return Poll::Ready(item);
            }
            *this.dropped = this.dropped.saturating_add(1);
            ready!(turn.poll_go_on(cx));
        }
    }

    /// None of what is to come is certain to pass.
    fn size_hint(&self) -> (usize, Option<usize>) {
        let held = usize::from(self.held.is_some());
        (0, self.input.size_hint_with(held).1)
    }
}

impl<S, L> FusedStream for Shed<S, L>
where
    S: Stream,
    L: Limiter<Error = Infallible>,
{
    fn is_terminated(&self) -> bool {
        self.input.is_ended() && self.held.is_none()
    }
}

/// Does not print the item held: it may be secret, and it may be large.
impl<S, L> fmt::Debug for Shed<S, L>
where
    S: Stream + fmt::Debug,
    L: Limiter + fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shed")
            .field("input", &self.input)
            .field("limiter", self.gate.limiter())
            .field("held", &usize::from(self.held.is_some()))
            .field("dropped", &self.dropped)
            .finish()
    }
}
