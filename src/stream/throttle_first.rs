use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;

use futures_core::Stream;
use futures_core::stream::FusedStream;
use pin_project_lite::pin_project;

use crate::time::{Clock, Tick};

use super::input::{Input, Turn};

pin_project! {
    /// Stream for the [`throttle_first`](super::PaceStreamExt::throttle_first) method: one item, then none for a while.
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
    /// * **Emits** an item in the instant in which it arrives, if the last emission is at least `quiet` ago; the others are
    ///   dropped, and [`dropped_count`](Self::dropped_count) counts them. The items emitted and dropped are those that
    ///   arrived.
    /// * **Waits** on the input only.
    /// * **Ends** when the input does.
    /// * **Holds** nothing.
    /// * **Cancel safety**: dropping `next()` loses nothing that is not counted.
    ///
    /// **Window bound**: a half-open window of m times `quiet` holds at most m emissions, whatever is late. What is measured
    /// is emissions: when the item was sent to a channel in between does not matter.
    #[must_use = "streams do nothing unless polled"]
    pub struct ThrottleFirst<S> {
        #[pin]
        input: Input<S>,
        quiet: Duration,
        clock: Clock,
        // Until when items are dropped, after the first emission.
        closed_until: Option<Tick>,
        dropped: u64,
    }
}

impl<S> ThrottleFirst<S> {
    #[track_caller]
    pub(super) const fn new(stream: S, quiet: Duration) -> Self {
        assert!(
            !quiet.is_zero(),
            "`throttle_first` needs a quiet time of at least 1 ns, got 0"
        );
        Self {
            input: Input::new(stream),
            quiet,
            clock: Clock::new(),
            closed_until: None,
            dropped: 0,
        }
    }

    /// How many items were dropped.
    pub const fn dropped_count(&self) -> u64 {
        self.dropped
    }

    /// The input. Nothing was held.
    pub fn into_inner(self) -> S {
        self.input.into_inner()
    }
}

impl<S: Stream> Stream for ThrottleFirst<S> {
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let mut this = self.project();
        let mut turn = Turn::new();
        while let Some(item) = ready!(this.input.as_mut().poll_next(cx)) {
            let now = this.clock.now();
            if this.closed_until.is_none_or(|until| until <= now) {
                *this.closed_until = Some(now.after(*this.quiet));
                return Poll::Ready(Some(item));
            }
            *this.dropped = this.dropped.saturating_add(1);
            ready!(turn.poll_go_on(cx));
        }
        Poll::Ready(None)
    }

    /// Of what is to come only the very first is certain to pass.
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

impl<S: fmt::Debug> fmt::Debug for ThrottleFirst<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThrottleFirst")
            .field("input", &self.input)
            .field("quiet", &self.quiet)
            .field("dropped", &self.dropped)
            .finish_non_exhaustive()
    }
}
