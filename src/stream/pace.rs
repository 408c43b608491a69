use core::convert::Infallible;
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_core::stream::FusedStream;
use pin_project_lite::pin_project;

use crate::limiter::{Gate, Limiter};

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
    }
}

impl<S: Stream, L: Limiter> Pace<S, L> {
    pub(super) const fn new(stream: S, limiter: L) -> Self {
        Self {
            input: Input::new(stream),
            gate: Gate::new(limiter),
            held: None,
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

impl<S, L> Stream for Pace<S, L>
where
    S: Stream,
    L: Limiter<Error = Infallible>,
{
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let this = self.project();
        this.gate.begin(cx);

        if this.held.is_none() {
            *this.held = ready!(this.input.poll_next(cx));
        }
        if this.held.is_some() {
            let Ok(()) = ready!(this.gate.poll_one(cx));
        }
        Poll::Ready(this.held.take())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.input.size_hint_with(usize::from(self.held.is_some()))
    }
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
            .finish()
    }
}
