use core::pin::Pin;
use core::task::{Context, Poll, ready};

use futures_core::Stream;
use pin_project_lite::pin_project;

use crate::batch::{Accumulator, LatestItem};
use crate::time::{Clock, Tick, Timer};

use super::input::{Input, poll_taken, with_held};

pin_project! {
    /// An input whose items are collected over time.
    ///
    /// Its loop is the only one that collects: it takes what arrives and waits for what is due. What is due leaves on time
    /// even if the input is never pending, and before an item that arrives in the same instant.
    #[derive(Debug)]
    pub(super) struct Collector<S, A> {
        #[pin]
        pub(super) input: Input<S>,
        pub(super) accumulator: A,
        clock: Clock,
        timer: Timer,
        // The instant that the timer is set to.
        armed: Option<Tick>,
    }
}

impl<S, A> Collector<S, A> {
    pub(super) const fn new(stream: S, accumulator: A) -> Self {
        Self {
            input: Input::new(stream),
            accumulator,
            clock: Clock::new(),
            timer: Timer::new(),
            armed: None,
        }
    }

    pub(super) fn into_parts(self) -> (S, A) {
        (self.input.into_inner(), self.accumulator)
    }
}

impl<S, A: Accumulator> Collector<S, A> {
    pub(super) fn is_terminated(&self) -> bool {
        self.input.is_ended() && self.accumulator.is_empty()
    }

    /// Collects until something is complete. `None`: the input has ended and nothing is left.
    pub(super) fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        poll_item: impl FnMut(Pin<&mut Input<S>>, &mut Context<'_>) -> Poll<Option<A::Item>>,
    ) -> Poll<Option<A::Complete>> {
        let complete = ready!(self.as_mut().poll_complete(cx, poll_item));
        Poll::Ready(complete.or_else(|| self.end()))
    }

    /// Collects until something is complete. `None`: `poll_item` has returned `None`.
    pub(super) fn poll_complete(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut poll_item: impl FnMut(Pin<&mut Input<S>>, &mut Context<'_>) -> Poll<Option<A::Item>>,
    ) -> Poll<Option<A::Complete>> {
        let mut taken = 0;
        let mut this = self.as_mut().project();
        let mut now = this.clock.now();
        this.accumulator.begin(now);
        while !this.accumulator.is_due(now) {
            match poll_item(this.input.as_mut(), cx) {
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(item)) => {
                    now = this.clock.now();
                    if let Some(complete) = this.accumulator.push(item, now) {
                        return Poll::Ready(Some(complete));
                    }
                    ready!(poll_taken(&mut taken, cx));
                }
                Poll::Pending => {
                    now = ready!(self.as_mut().poll_due(cx));
                    this = self.as_mut().project();
                }
            }
        }
        Poll::Ready(this.accumulator.take(now))
    }

    /// Whether the held items have to leave now.
    pub(super) fn is_due(self: Pin<&mut Self>) -> bool {
        let this = self.project();
        this.accumulator.is_due(this.clock.now())
    }

    /// What leaves with the end of the input.
    pub(super) fn end(self: Pin<&mut Self>) -> Option<A::Complete> {
        let this = self.project();
        this.accumulator.end(this.clock.now())
    }

    /// Waits until the held items are due. Pending for ever if nothing is held.
    fn poll_due(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Tick> {
        let this = self.project();
        let Some(due) = this.accumulator.due() else {
            this.timer.disarm();
            *this.armed = None;
            return Poll::Pending;
        };
        if this.armed.replace(due) != Some(due) {
            this.timer.arm(due.since(this.clock.now()));
        }
        ready!(this.timer.poll_elapsed(cx));
        *this.armed = None;
        Poll::Ready(this.clock.now())
    }
}

/// The collector of the adapters that emit the latest item and drop the others.
pub(super) type LatestCollector<S> = Collector<S, LatestItem<<S as Stream>::Item>>;

impl<S: Stream> LatestCollector<S> {
    /// Only the last item is certain to leave, and that only if the end of the input does not drop it.
    pub(super) fn size_hint(&self) -> (usize, Option<usize>) {
        let held = usize::from(!self.accumulator.is_empty());
        let (lower, upper) = with_held(self.input.size_hint(), held);
        (lower.min(usize::from(self.accumulator.keeps_last)), upper)
    }
}
