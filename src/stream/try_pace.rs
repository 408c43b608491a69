use core::pin::Pin;
use core::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_core::stream::FusedStream;
use pin_project_lite::pin_project;

use crate::limiter::{Gate, Limiter};

use super::input::PeekableInput;

pin_project! {
    /// Stream for the [`try_pace`](super::PaceStreamExt::try_pace) method: as [`Pace`](super::Pace), for a limiter that can fail.
    ///
    /// ```
    /// # use core::task::{Context, Poll, ready};
    /// # use {testkit::marble, paceline::{limiter::*, policy::*, stream::PaceStreamExt}};
    /// # struct FailsThirdTime(Owned<Interval>, u32);
    /// # impl Limiter for FailsThirdTime {
    /// #     type Error = &'static str;
    /// #     fn poll_decide(&mut self, cost: u32, cx: &mut Context<'_>) -> Poll<Result<Decision, &'static str>> {
    /// #         let Ok(decision) = ready!(self.0.poll_decide(cost, cx));
    /// #         self.1 += u32::from(decision.is_pass() && cost > 0);
    /// #         Poll::Ready(if self.1 < 3 { Ok(decision) } else { Err("refused") })
    /// #     }
    /// #     fn give_up(&mut self) {}
    /// # }
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let limit = FailsThirdTime(Interval::every(marble::TICK * 2).owned(), 0);
    /// // at least two ticks apart, until the limiter fails
    /// let input  = "a b c d - - e |";
    /// let output = "a - b - (X|)";
    /// # marble::check(|s| s.try_pace(limit), input, output).await;
    /// # }
    /// ```
    ///
    #[doc = include_str!("marbles/try_pace.svg")]
    ///
    /// * **Emits** `Ok(item)` as soon as there is one and the limiter grants a permit.
    /// * **Waits** on the input; while it holds an item, on the limiter only.
    /// * **Ends** with the input. The end itself is never delayed.
    /// * **Fails** with the error of the limiter, as soon as there is one. Then it ends. The items that were not emitted stay, and
    ///   [`into_parts`](Self::into_parts) returns them.
    /// * **Holds** at most one item, which `size_hint` counts before an error, and `into_parts` returns.
    /// * **Cancel safety**: dropping `next()` loses nothing; the item stays held.
    ///
    /// **Window bound**: that of the limiter's policy, counted in `Ok`s.
    #[derive(Debug)]
    #[must_use = "streams do nothing unless polled"]
    pub struct TryPace<S: Stream, L: Limiter> {
        #[pin]
        input: PeekableInput<S>,
        gate: Gate<L>,
        has_failed: bool,
    }
}

impl<S: Stream, L: Limiter> TryPace<S, L> {
    pub(super) const fn new(stream: S, limiter: L) -> Self {
        Self {
            input: PeekableInput::new(stream),
            gate: Gate::new(limiter),
            has_failed: false,
        }
    }

    /// The input, and the item that was waiting for a permit, if there was one.
    pub fn into_parts(self) -> (S, Option<S::Item>) {
        self.input.into_parts()
    }
}

impl<S: Stream, L: Limiter> Stream for TryPace<S, L> {
    type Item = Result<S::Item, L::Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut this = self.project();
        if *this.has_failed {
            return Poll::Ready(None);
        }
        this.gate.begin(cx);

        if ready!(this.input.as_mut().poll_peek(cx)).is_some() {
            if let Err(error) = ready!(this.gate.poll_one(cx)) {
                *this.has_failed = true;
                return Poll::Ready(Some(Err(error)));
            }
        }
        Poll::Ready(this.input.take().map(Ok))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match (self.has_failed, self.input.size_hint()) {
            (true, _) => (0, Some(0)),
            // An error may take the place of the other items.
            (false, (lower, upper)) => (lower.min(1), upper),
        }
    }
}

impl<S: Stream, L: Limiter> FusedStream for TryPace<S, L> {
    fn is_terminated(&self) -> bool {
        self.has_failed || self.input.is_terminated()
    }
}
