use core::convert::Infallible;
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_core::stream::FusedStream;
use pin_project_lite::pin_project;

use crate::limiter::{Exceeded, Gate, Limiter};
use crate::policy::Decision;

use super::input::Input;

pin_project! {
    /// Stream for the [`enforce`](super::PaceStreamExt::enforce) method: in time, or an error that gives the item back.
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
    /// * **Emits** an item in the instant in which it arrives: `Ok` if the limiter lets it pass then and nobody waits for
    ///   the same limit.
    /// * **Waits** on the input only (and on the answer of a limit that is not in memory).
    /// * **Ends** when the input does.
    /// * **Fails** with [`Exceeded`] in the item's place, with the item in it. What comes after it goes on.
    /// * **Holds** nothing over a limit in memory; else one item while its answer is under way, which `size_hint` counts
    ///   and [`into_parts`](Self::into_parts) gives back.
    /// * **Cancel safety**: dropping `next()` loses nothing.
    ///
    /// **Window bound**: that of the limiter's policy, counted in `Ok`s.
    #[must_use = "streams do nothing unless polled"]
    pub struct Enforce<S: Stream, L: Limiter> {
        #[pin]
        input: Input<S>,
        gate: Gate<L>,
        held: Option<S::Item>,
    }
}

impl<S: Stream, L: Limiter> Enforce<S, L> {
    pub(super) const fn new(stream: S, limiter: L) -> Self {
        Self {
            input: Input::new(stream),
            gate: Gate::new(limiter),
            held: None,
        }
    }

    /// The input, and the item whose answer was under way, if there was one.
    pub fn into_parts(self) -> (S, Option<S::Item>) {
        (self.input.into_inner(), self.held)
    }
}

impl<S, L> Stream for Enforce<S, L>
where
    S: Stream,
    L: Limiter<Error = Infallible>,
{
    type Item = Result<S::Item, Exceeded<S::Item>>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.project();
        this.gate.begin(cx);

        if this.held.is_none() {
            *this.held = ready!(this.input.poll_next(cx));
        }
        if this.held.is_none() {
            return Poll::Ready(None);
        }
        let Ok(decision) = ready!(this.gate.limiter_mut().poll_try(1, cx));
        Poll::Ready(this.held.take().map(|item| match decision {
            Decision::Pass => Ok(item),
            Decision::Wait { retry_in } => Err(Exceeded::new(item, Some(retry_in))),
            Decision::Never { .. } => Err(Exceeded::new(item, None)),
        }))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.input.size_hint_with(usize::from(self.held.is_some()))
    }
}

impl<S, L> FusedStream for Enforce<S, L>
where
    S: Stream,
    L: Limiter<Error = Infallible>,
{
    fn is_terminated(&self) -> bool {
        self.input.is_ended() && self.held.is_none()
    }
}

/// Does not print the item held: it may be secret, and it may be large.
impl<S, L> fmt::Debug for Enforce<S, L>
where
    S: Stream + fmt::Debug,
    L: Limiter + fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Enforce")
            .field("input", &self.input)
            .field("limiter", self.gate.limiter())
            .field("held", &usize::from(self.held.is_some()))
            .finish()
    }
}
