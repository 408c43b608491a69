use core::pin::Pin;
use core::task::{Context, Poll, ready};

use futures_core::Stream;
use pin_project_lite::pin_project;

use crate::batch::LatestItem;
use crate::time::{Clock, Tick, Timer};

use super::input::{Input, PollBudget, with_held};

/// Holds items until something is complete. It is given the time and has no clock.
pub(super) trait Accumulator {
    /// What goes in: an item, or the `Result` of a stream of `Result`s.
    type Item;
    /// What comes out: a group, or an item.
    type Complete;

    /// The adapter is polled for the first time, or again.
    fn begin(&mut self, now: Tick);
    /// Takes an item in. Returns what is complete because of it.
    fn push(&mut self, item: Self::Item, now: Tick) -> Option<Self::Complete>;
    /// When what is held has to leave, if time alone decides that.
    fn due(&self) -> Option<Tick>;
    fn is_due(&self, now: Tick) -> bool;
    /// What leaves `now`, if anything is held.
    fn take(&mut self, now: Tick) -> Option<Self::Complete>;
    /// What leaves with the end of the input.
    fn end(&mut self, now: Tick) -> Option<Self::Complete> {
        self.take(now)
    }
    fn is_empty(&self) -> bool;
    /// The `size_hint` of the adapter, given that of its input.
    fn size_hint(&self, input: (usize, Option<usize>)) -> (usize, Option<usize>);
}

pin_project! {
    /// An input whose items are collected over time.
    ///
    /// Its loop is the only one that collects: it takes what arrives and waits for what is due. What is due leaves on time
    /// even if the input is never pending, and before an item that arrives in the same instant.
    #[derive(Debug)]
    pub(super) struct Collector<S, A> {
        #[pin]
        input: Input<S>,
        accumulator: A,
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

    /// The same collector with an accumulator that was configured.
    pub(super) fn map(self, configure: impl FnOnce(A) -> A) -> Self {
        Self {
            accumulator: configure(self.accumulator),
            ..self
        }
    }

    pub(super) const fn accumulator(&self) -> &A {
        &self.accumulator
    }

    pub(super) fn accumulator_mut(self: Pin<&mut Self>) -> &mut A {
        self.project().accumulator
    }

    pub(super) fn into_parts(self) -> (S, A) {
        (self.input.into_inner(), self.accumulator)
    }
}

impl<S, A: Accumulator> Collector<S, A> {
    pub(super) fn is_terminated(&self) -> bool {
        self.input.is_ended() && self.accumulator.is_empty()
    }

    /// How much is still to come, with what is held.
    pub(super) fn size_hint(&self) -> (usize, Option<usize>)
    where
        S: Stream,
    {
        self.accumulator.size_hint(self.input.size_hint())
    }

    /// Collects until something is complete. `None`: the input has ended and nothing is left.
    pub(super) fn poll_complete(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        poll_next: impl Fn(Pin<&mut Input<S>>, &mut Context<'_>) -> Poll<Option<A::Item>>,
    ) -> Poll<Option<A::Complete>> {
        let mut budget = PollBudget::new();
        let mut now = self.as_mut().project().clock.now();
        self.as_mut().accumulator_mut().begin(now);
        while !self.accumulator.is_due(now) {
            let this = self.as_mut().project();
            match poll_next(this.input, cx) {
                Poll::Ready(None) => return Poll::Ready(this.accumulator.end(this.clock.now())),
                Poll::Ready(Some(item)) => {
                    now = this.clock.now();
                    if let Some(complete) = this.accumulator.push(item, now) {
                        return Poll::Ready(Some(complete));
                    }
                    ready!(budget.poll_spend(cx));
                }
                Poll::Pending => now = ready!(self.as_mut().poll_due(cx)),
            }
        }
        Poll::Ready(self.accumulator_mut().take(now))
    }

    /// Waits until what is held is due. Pending for ever if nothing is held.
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

impl<T> Accumulator for LatestItem<T> {
    type Item = T;
    type Complete = T;

    fn begin(&mut self, now: Tick) {
        self.begin(now);
    }

    fn push(&mut self, item: T, now: Tick) -> Option<T> {
        self.push(item, now)
    }

    fn due(&self) -> Option<Tick> {
        self.due()
    }

    fn is_due(&self, now: Tick) -> bool {
        self.is_due(now)
    }

    fn take(&mut self, _: Tick) -> Option<T> {
        self.take()
    }

    fn end(&mut self, now: Tick) -> Option<T> {
        self.end(now)
    }

    fn is_empty(&self) -> bool {
        self.is_empty()
    }

    /// Only the last item is certain to leave, and that only if the end of the input does not drop it.
    fn size_hint(&self, input: (usize, Option<usize>)) -> (usize, Option<usize>) {
        let (lower, upper) = with_held(input, usize::from(!self.is_empty()));
        (lower.min(usize::from(self.keeps_last())), upper)
    }
}
