use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;

use futures_core::Stream;
use futures_core::stream::FusedStream;
use pin_project_lite::pin_project;

use crate::time::{Clock, OutOfRange, Tick};

use super::input::{Input, poll_taken};

pin_project! {
    /// Stream for the [`throttle_first`](super::PaceStreamExt::throttle_first) method: emits an item, then drops items for a
    /// while.
    ///
    /// ```
    /// # use {testkit::marble, paceline::stream::PaceStreamExt};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// // none for three ticks
    /// let input  = "a b c d - - - e f |";
    /// let output = "a - - d - - - e - |";
    /// # let d = marble::TICK * 3;
    /// # marble::check(|s| s.throttle_first(d), input, output).await;
    /// # }
    /// ```
    ///
    #[doc = include_str!("marbles/throttle_first.svg")]
    ///
    /// * **Emits** an item in the instant of its arrival, if the last emission was at least `quiet` ago. Other items are
    ///   dropped, and [`dropped_count`](Self::dropped_count) counts them. Every item that arrived is emitted or dropped.
    /// * **Waits** on the input only.
    /// * **Ends** with the input.
    /// * **Holds** nothing.
    /// * **Cancel safety**: dropping `next()` loses no item, apart from those that are counted.
    ///
    /// **Window bound**: a half-open window of m times `quiet` has at most m emissions, even if polls are late. The adapter
    /// measures emissions, not when an item was put into a channel before it.
    #[derive(Debug)]
    #[must_use = "streams do nothing unless polled"]
    pub struct ThrottleFirst<S> {
        #[pin]
        input: Input<S>,
        quiet: Duration,
        clock: Clock,
        // Items are dropped until then. `None` before the first emission.
        closed_until: Option<Tick>,
        dropped: u64,
    }
}

impl<S> ThrottleFirst<S> {
    /// The same as [`throttle_first`](super::PaceStreamExt::throttle_first), for a quiet time from a configuration.
    ///
    /// # Errors
    ///
    /// If `quiet` is zero.
    pub fn try_new(stream: S, quiet: Duration) -> Result<Self, OutOfRange> {
        if quiet.is_zero() {
            return Err(OutOfRange::new(
                "quiet",
                "`throttle_first` needs a quiet time of at least 1 ns, got 0",
            ));
        }
        Ok(Self {
            input: Input::new(stream),
            quiet,
            clock: Clock::new(),
            closed_until: None,
            dropped: 0,
        })
    }

    /// How many items were dropped.
    pub const fn dropped_count(&self) -> u64 {
        self.dropped
    }

    /// The input. No item was held.
    pub fn into_inner(self) -> S {
        self.input.into_inner()
    }
}

impl<S: Stream> Stream for ThrottleFirst<S> {
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let mut this = self.project();
        let mut taken = 0;
        while let Some(item) = ready!(this.input.as_mut().poll_next(cx)) {
            let now = this.clock.now();
            if this.closed_until.is_none_or(|until| until <= now) {
                *this.closed_until = Some(now.after(*this.quiet));
                return Poll::Ready(Some(item));
            }
            *this.dropped = this.dropped.saturating_add(1);
            ready!(poll_taken(&mut taken, cx));
        }
        Poll::Ready(None)
    }

    /// Only the very first item is certain to leave.
    fn size_hint(&self) -> (usize, Option<usize>) {
        let (lower, upper) = self.input.size_hint();
        (lower.min(usize::from(self.closed_until.is_none())), upper)
    }
}

impl<S: Stream> FusedStream for ThrottleFirst<S> {
    fn is_terminated(&self) -> bool {
        self.input.is_ended()
    }
}
