//! A small right adapter, and the same with one thing wrong.

#![expect(
    clippy::disallowed_methods,
    reason = "the testkit does not know paceline's clock and timer"
)]

use std::{
    pin::Pin,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use futures::{Future, Stream, stream::FusedStream};
use tokio::time::{Instant, Sleep, sleep_until};

pub(crate) const INTERVAL: Duration = Duration::from_millis(20);

/// What is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    None,
    HangsAfterTwo,
    SpinsAfterTwo,
    DropsTheWaker,
    WakesItsFirstTask,
    LosesTheThird,
    DoublesTheThird,
    SwapsTheFirstTwo,
    PollsItsInputAfterTheEnd,
    EndsOneIntervalLate,
    IsNeverTerminated,
    IsTerminatedWhileItHolds,
    HintsWithoutTheHeld,
    HintsOneTooMany,
    LosesTheHeldInAnotherTask,
    WaitsAgainAtEveryPoll,
    ForgetsTheHeldInParts,
    KeepsToAGrid,
    LosesWhatIsLate,
}

/// Emits items at least [`INTERVAL`] apart, counted from the actual emission.
pub(crate) struct Paced<S: Stream> {
    input: S,
    held: Option<S::Item>,
    open_at: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
    ends_at: Option<Instant>,
    emitted: usize,
    is_terminated: bool,
    first_task: Option<Waker>,
    latest_task: Option<Waker>,
    fault: Fault,
}

impl<S: Stream> Paced<S> {
    pub(crate) fn new(input: S, fault: Fault) -> Self {
        Self {
            input,
            held: None,
            open_at: None,
            sleep: None,
            ends_at: None,
            emitted: 0,
            is_terminated: false,
            first_task: None,
            latest_task: None,
            fault,
        }
    }

    pub(crate) fn into_parts(self) -> (S, Option<S::Item>) {
        let forgets = self.fault == Fault::ForgetsTheHeldInParts;
        (self.input, self.held.filter(|_| !forgets))
    }

    fn first_task(&mut self, cx: &Context<'_>) -> Waker {
        let first = self.first_task.get_or_insert_with(|| cx.waker().clone());
        first.clone()
    }

    fn poll_until(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= at {
            return Poll::Ready(());
        }
        if self.fault == Fault::DropsTheWaker {
            return Poll::Pending;
        }
        if self.fault == Fault::WaitsAgainAtEveryPoll {
            let again = Instant::now() + INTERVAL;
            self.open_at = Some(again);
            self.sleep = Some(Box::pin(sleep_until(again)));
        }
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(at)));
        sleep.as_mut().poll(cx)
    }

    /// Waits for the slot. Returns when the slot was due, if there was a wait.
    fn poll_slot(&mut self, cx: &mut Context<'_>) -> Poll<Option<Instant>> {
        if let Some(at) = self.open_at {
            ready!(self.poll_until(at, cx));
        }
        let waited = self.sleep.take().and(self.open_at);
        Poll::Ready(waited)
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.fault == Fault::EndsOneIntervalLate {
            let at = *self
                .ends_at
                .get_or_insert_with(|| Instant::now() + INTERVAL);
            ready!(self.poll_until(at, cx));
        }
        self.is_terminated = true;
        Poll::Ready(())
    }
}

impl<S: Stream<Item = u32> + Unpin> Paced<S> {
    fn poll_held(&mut self, cx: &mut Context<'_>) -> Poll<Option<()>> {
        if self.held.is_none() && self.ends_at.is_none() {
            self.held = ready!(Pin::new(&mut self.input).poll_next(cx));
        }
        if self.held.is_none() {
            ready!(self.poll_end(cx));
        }
        Poll::Ready(self.held.map(|_| ()))
    }

    fn emit(&mut self, waited: Option<Instant>) -> Option<u32> {
        let now = Instant::now();
        let from = match (self.fault, waited) {
            (Fault::KeepsToAGrid, Some(due)) => due,
            _ => now,
        };
        self.open_at = Some(from + INTERVAL);
        self.emitted += 1;
        match (self.fault, self.emitted) {
            (Fault::DoublesTheThird, 3) => self.held,
            (Fault::SwapsTheFirstTwo, 1 | 2) => self.held.take().map(|item| item ^ 1),
            _ => self.held.take(),
        }
    }

    fn poll_paced(&mut self, cx: &mut Context<'_>) -> Poll<Option<u32>> {
        loop {
            if ready!(self.poll_held(cx)).is_none() {
                return Poll::Ready(None);
            }
            let waited = ready!(self.poll_slot(cx));
            let is_late = waited.is_some_and(|due| Instant::now() > due);
            let loses = match self.fault {
                Fault::LosesTheThird => self.emitted == 2,
                Fault::LosesWhatIsLate => is_late,
                _ => false,
            };
            let item = self.emit(waited);
            if !loses {
                return Poll::Ready(item);
            }
        }
    }
}

impl<S: Stream<Item = u32> + Unpin> Stream for Paced<S> {
    type Item = u32;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<u32>> {
        if self.is_terminated && self.fault != Fault::PollsItsInputAfterTheEnd {
            return Poll::Ready(None);
        }
        let fault = self.fault;
        match fault {
            Fault::WakesItsFirstTask => {
                let first = self.first_task(cx);
                self.latest_task = Some(cx.waker().clone());
                return self.poll_paced(&mut Context::from_waker(&first));
            }
            Fault::LosesTheHeldInAnotherTask if !self.first_task(cx).will_wake(cx.waker()) => {
                self.held = None;
            }
            Fault::HangsAfterTwo if self.emitted == 2 => {
                self.latest_task = Some(cx.waker().clone());
                return Poll::Pending;
            }
            Fault::SpinsAfterTwo if self.emitted == 2 => {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            _ => {}
        }
        self.poll_paced(cx)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let held = usize::from(self.held.is_some());
        let (lower, upper) = self.input.size_hint();
        match self.fault {
            Fault::HintsWithoutTheHeld => (lower, upper),
            Fault::HintsOneTooMany => (lower + held + 1, None),
            _ => (lower + held, upper.map(|upper| upper + held)),
        }
    }
}

impl<S: Stream<Item = u32> + Unpin> FusedStream for Paced<S> {
    fn is_terminated(&self) -> bool {
        match self.fault {
            Fault::IsNeverTerminated => false,
            Fault::IsTerminatedWhileItHolds => self.is_terminated || self.held.is_some(),
            _ => self.is_terminated,
        }
    }
}
