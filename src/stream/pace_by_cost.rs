use core::convert::Infallible;
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_core::stream::FusedStream;
use pin_project_lite::pin_project;

use crate::limiter::{Gate, Limiter, TooCostly};

use super::input::PeekableInput;

pin_project! {
    /// Stream for the [`pace_by_cost`](super::PaceStreamExt::pace_by_cost) method: each item takes as many permits as it
    /// costs.
    ///
    /// ```
    /// # use {testkit::marble, paceline::{limiter::PolicyExt, policy::TokenBucket, stream::PaceStreamExt, time::Rate}};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let limit = TokenBucket::new(Rate::new(1, marble::TICK), 3).owned();
    /// // one token a tick, three at most; an item costs as much as its digit says
    /// let input  = "(3212) - - - - - - 0 9 |";
    /// let output = " 3     - 2 1 - 2 - 0 X |";
    /// # let cost = |item: &char| item.to_digit(10).unwrap();
    /// # marble::check(|s| s.pace_by_cost(limit, cost), input, output).await;
    /// # }
    /// ```
    ///
    #[doc = include_str!("marbles/pace_by_cost.svg")]
    ///
    /// * **Emits** `Ok(item)` when the limiter grants its cost. An item of cost 0 is emitted at once.
    /// * **Waits** on the input; while it holds an item, on the limiter only.
    /// * **Ends** with the input.
    /// * **Fails** with [`TooCostly`] if an item costs more than the limiter can ever grant. The error takes the item's place
    ///   at once and contains the item. The stream goes on after it.
    /// * **Holds** at most one item, which `size_hint` counts and [`into_parts`](Self::into_parts) returns.
    /// * **Cancel safety**: dropping `next()` loses nothing; the item stays held. The cost function is called once an item,
    ///   and again after a panic.
    ///
    /// **Window bound**: that of the limiter's policy, counted in costs.
    #[must_use = "streams do nothing unless polled"]
    pub struct PaceByCost<S: Stream, L: Limiter, F> {
        #[pin]
        input: PeekableInput<S>,
        gate: Gate<L>,
        cost_of: F,
        // The cost of the item held, once the function has been called.
        cost: Option<u32>,
    }
}

impl<S: Stream, L: Limiter, F> PaceByCost<S, L, F> {
    pub(super) const fn new(stream: S, limiter: L, cost_of: F) -> Self {
        Self {
            input: PeekableInput::new(stream),
            gate: Gate::new(limiter),
            cost_of,
            cost: None,
        }
    }

    /// The input, and the item that was waiting for permits, if there was one.
    pub fn into_parts(self) -> (S, Option<S::Item>) {
        self.input.into_parts()
    }
}

impl<S, L, F> Stream for PaceByCost<S, L, F>
where
    S: Stream,
    L: Limiter<Error = Infallible>,
    F: FnMut(&S::Item) -> u32,
{
    type Item = Result<S::Item, TooCostly<S::Item>>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut this = self.project();
        this.gate.begin(cx);

        let Some(item) = ready!(this.input.as_mut().poll_peek(cx)) else {
            return Poll::Ready(None);
        };
        let cost = *this.cost.get_or_insert_with(|| (this.cost_of)(item));
        let passed = ready!(this.gate.poll_pass(cost, cx));
        *this.cost = None;
        Poll::Ready(this.input.take().map(|item| match passed {
            Ok(()) => Ok(item),
            Err(never) => Err(never.into_too_costly().with_item(item)),
        }))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.input.size_hint()
    }
}

impl<S: Stream, L: Limiter, F> FusedStream for PaceByCost<S, L, F>
where
    Self: Stream,
{
    fn is_terminated(&self) -> bool {
        self.input.is_terminated()
    }
}

/// Does not print the item held: it may be secret, and it may be large.
impl<S, L, F> fmt::Debug for PaceByCost<S, L, F>
where
    S: Stream + fmt::Debug,
    L: Limiter + fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PaceByCost")
            .field("input", &self.input)
            .field("gate", &self.gate)
            .finish_non_exhaustive()
    }
}
