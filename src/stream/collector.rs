use core::task::{Context, Poll, ready};

use crate::batch::{Group, LatestItem, Window};
#[cfg(feature = "precise")]
use crate::time::Precision;
use crate::time::{Clock, Tick, Timer};

use super::input::Turn;

/// What collects items until they are complete, given the time.
pub(super) trait Accumulator {
    /// What leaves: a group, or an item.
    type Complete;

    fn begin(&mut self, now: Tick);
    fn due(&self) -> Option<Tick>;
    fn is_due(&self, now: Tick) -> bool;
    /// What leaves `now`, if anything is held.
    fn take(&mut self, now: Tick) -> Option<Self::Complete>;
    /// What leaves with the end of the input.
    fn end(&mut self, now: Tick) -> Option<Self::Complete>;
}

/// The only loop that collects over time: take what arrives, wait for what is due.
///
/// The instant holds even if the input is never pending, and comes before what arrives with it.
#[derive(Debug)]
pub(super) struct Collector<A> {
    accumulator: A,
    clock: Clock,
    timer: Timer,
    /// What the timer is set to.
    armed: Option<Tick>,
}

impl<A> Collector<A> {
    pub(super) const fn new(accumulator: A) -> Self {
        Self {
            accumulator,
            clock: Clock::new(),
            timer: Timer::new(),
            armed: None,
        }
    }

    pub(super) fn map(self, change: impl FnOnce(A) -> A) -> Self {
        Self {
            accumulator: change(self.accumulator),
            ..self
        }
    }

    #[cfg(feature = "precise")]
    pub(super) fn be_precise(&mut self) {
        self.timer = Precision::BEST.timer();
    }

    pub(super) const fn get(&self) -> &A {
        &self.accumulator
    }

    pub(super) const fn get_mut(&mut self) -> &mut A {
        &mut self.accumulator
    }

    pub(super) fn into_inner(self) -> A {
        self.accumulator
    }
}

impl<T> Collector<Group<T>> {
    pub(super) fn with_window(self, window: Window) -> Self {
        self.map(|group| group.with_window(window))
    }
}

impl<A: Accumulator> Collector<A> {
    /// Adds what `next` gives until something is complete: `add` says so, or it is due, or the input has ended. `None`: it
    /// has, and nothing is left.
    pub(super) fn poll_complete<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut next: impl FnMut(&mut Context<'_>) -> Poll<Option<T>>,
        mut add: impl FnMut(&mut A, T, Tick) -> Option<A::Complete>,
    ) -> Poll<Option<A::Complete>> {
        let mut turn = Turn::new();
        let mut now = self.clock.now();
        self.accumulator.begin(now);
        while !self.accumulator.is_due(now) {
            match next(cx) {
                Poll::Ready(None) => return Poll::Ready(self.accumulator.end(self.clock.now())),
                Poll::Ready(Some(item)) => {
                    now = self.clock.now();
                    if let Some(complete) = add(&mut self.accumulator, item, now) {
                        return Poll::Ready(Some(complete));
                    }
                    ready!(turn.poll_go_on(cx));
                }
                Poll::Pending => now = ready!(self.poll_due(cx)),
            }
        }
        Poll::Ready(self.accumulator.take(now))
    }

    /// Waits for what is held to be due; for ever if there is nothing.
    fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<Tick> {
        let Some(due) = self.accumulator.due() else {
            self.timer.disarm();
            self.armed = None;
            return Poll::Pending;
        };
        if self.armed.replace(due) != Some(due) {
            self.timer.arm(due.since(self.clock.now()));
        }
        ready!(self.timer.poll_elapsed(cx));
        self.armed = None;
        Poll::Ready(self.clock.now())
    }
}

impl<T> Accumulator for Group<T> {
    type Complete = Vec<T>;

    fn begin(&mut self, now: Tick) {
        self.begin(now);
    }

    fn due(&self) -> Option<Tick> {
        self.due()
    }

    fn is_due(&self, now: Tick) -> bool {
        self.is_due(now)
    }

    fn take(&mut self, now: Tick) -> Option<Vec<T>> {
        Some(self.take(now)).filter(|group| !group.is_empty())
    }

    fn end(&mut self, now: Tick) -> Option<Vec<T>> {
        Accumulator::take(self, now)
    }
}

impl<T> Accumulator for LatestItem<T> {
    type Complete = T;

    fn begin(&mut self, now: Tick) {
        self.begin(now);
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
}
