//! A small right adapter, of a stream or a sink, and the same with one thing wrong.

#![expect(
    clippy::disallowed_methods,
    reason = "the testkit does not know paceline's clock and timer"
)]

use std::{
    mem,
    pin::Pin,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use futures::{Future, Sink, Stream, stream::FusedStream};
use testkit::conformance::sink::InnerError;
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
    LosesTheHeldInAnotherTask,
    WaitsAgainAtEveryPoll,
    ForgetsTheHeldInParts,
    KeepsToAGrid,
    LosesWhatIsLate,

    PollsItsInputAfterTheEnd,
    EndsOneIntervalLate,
    IsNeverTerminated,
    IsTerminatedWhileItHolds,
    HintsWithoutTheHeld,
    HintsOneTooMany,

    DoesNotAsk,
    SpendsWhenAsked,
    SpendsWhenItIsLeft,
    TakesThePermitBeforeTheRoom,
    FlushWaitsForASlot,
    CloseWaitsForASlot,
    FlushForgetsTheHeld,
    FlushForgetsTheInner,
    ClosesBeforeTheHeldIsSent,
    CloseForgetsTheInner,
    ClosesTwice,
    SwallowsAnError,
    TellsAnErrorLate,
    LosesTheHeldWhenTheInnerFails,
    HangsAfterAnError,
}

/// Emits or sends items at least [`INTERVAL`] apart, counted from the actual emission. A sink takes an item when the inner sink
/// could, and holds it until its slot is open.
pub(crate) struct Paced<I> {
    /// The input of a stream, or the inner sink.
    inner: I,
    held: Option<u32>,
    open_at: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
    given: usize,
    first_task: Option<Waker>,
    latest_task: Option<Waker>,
    has_ended: bool,
    is_terminated: bool,
    /// A permit taken before there was room for the item, and when.
    permit: Option<Instant>,
    is_paid_for: bool,
    error: Option<InnerError>,
    fault: Fault,
}

impl<I> Paced<I> {
    pub(crate) fn new(inner: I, fault: Fault) -> Self {
        Self {
            inner,
            held: None,
            open_at: None,
            sleep: None,
            given: 0,
            first_task: None,
            latest_task: None,
            has_ended: false,
            is_terminated: false,
            permit: None,
            is_paid_for: false,
            error: None,
            fault,
        }
    }

    pub(crate) fn into_parts(self) -> (I, Option<u32>) {
        let forgets = self.fault == Fault::ForgetsTheHeldInParts;
        (self.inner, self.held.filter(|_| !forgets))
    }

    /// What is wrong however it is polled. Returns the task to wake.
    fn poll_wrong(&mut self, cx: &Context<'_>) -> Poll<Waker> {
        let latest = cx.waker().clone();
        if self.fault == Fault::DropsTheWaker {
            return Poll::Ready(latest);
        }
        let first = self
            .first_task
            .get_or_insert_with(|| latest.clone())
            .clone();
        self.latest_task = Some(latest.clone());
        match self.fault {
            Fault::WakesItsFirstTask => return Poll::Ready(first),
            Fault::LosesTheHeldInAnotherTask if !first.will_wake(&latest) => self.held = None,
            Fault::HangsAfterTwo if self.given == 2 => return Poll::Pending,
            Fault::HangsAfterAnError if self.error.is_some() => return Poll::Pending,
            Fault::SpinsAfterTwo if self.given == 2 => {
                latest.wake();
                return Poll::Pending;
            }
            _ => {}
        }
        Poll::Ready(latest)
    }

    fn is_open(&self) -> bool {
        self.open_at.is_none_or(|at| Instant::now() >= at)
    }

    /// Waits for the slot. Returns when the slot was due, if there was a wait.
    fn poll_slot(&mut self, cx: &mut Context<'_>) -> Poll<Option<Instant>> {
        if self.is_open() {
            let waited = self.sleep.take();
            return Poll::Ready(waited.and(self.open_at));
        }
        match self.fault {
            Fault::DropsTheWaker => return Poll::Pending,
            Fault::WaitsAgainAtEveryPoll => self.close_slot(Instant::now()),
            _ => {}
        }
        let at = self.open_at.unwrap_or_else(Instant::now);
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(at)));
        sleep.as_mut().poll(cx).map(|()| Some(at))
    }

    /// The next slot is an interval later.
    fn close_slot(&mut self, from: Instant) {
        self.open_at = Some(from + INTERVAL);
        self.sleep = None;
    }

    /// Uses a slot. Returns what is given for the item, which is the item.
    fn give(&mut self, item: u32, waited: Option<Instant>) -> Vec<u32> {
        let now = Instant::now();
        let from = match (self.fault, waited) {
            (Fault::KeepsToAGrid, Some(due)) => due,
            _ => self.permit.take().unwrap_or(now),
        };
        self.close_slot(from);
        self.held = None;
        self.given += 1;
        match (self.fault, self.given) {
            (Fault::LosesTheThird, 3) => vec![],
            (Fault::LosesWhatIsLate, _) if waited.is_some_and(|due| now > due) => vec![],
            (Fault::DoublesTheThird, 3) => vec![item; 2],
            (Fault::SwapsTheFirstTwo, 1 | 2) => vec![item ^ 1],
            _ => vec![item],
        }
    }
}

impl<S: Stream<Item = u32> + Unpin> Paced<S> {
    fn poll_paced(&mut self, cx: &mut Context<'_>) -> Poll<Option<u32>> {
        loop {
            if self.held.is_none() && !self.has_ended {
                self.held = ready!(Pin::new(&mut self.inner).poll_next(cx));
            }
            let Some(item) = self.held else {
                return self.poll_end(cx).map(|()| None);
            };
            let waited = ready!(self.poll_slot(cx));
            if let [given, again @ ..] = self.give(item, waited).as_slice() {
                self.held = again.first().copied();
                return Poll::Ready(Some(*given));
            }
        }
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.fault == Fault::EndsOneIntervalLate {
            if !mem::replace(&mut self.has_ended, true) {
                self.close_slot(Instant::now());
            }
            ready!(self.poll_slot(cx));
        }
        self.is_terminated = true;
        Poll::Ready(())
    }
}

impl<S: Stream<Item = u32> + Unpin> Stream for Paced<S> {
    type Item = u32;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<u32>> {
        if self.is_terminated && self.fault != Fault::PollsItsInputAfterTheEnd {
            return Poll::Ready(None);
        }
        let task = ready!(self.poll_wrong(cx));
        self.poll_paced(&mut Context::from_waker(&task))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let held = usize::from(self.held.is_some());
        let (lower, upper) = self.inner.size_hint();
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

type Polled = Poll<Result<(), InnerError>>;

impl<S: Sink<u32, Error = InnerError> + Unpin> Paced<S> {
    fn inner(&mut self) -> Pin<&mut S> {
        Pin::new(&mut self.inner)
    }

    /// Whether the inner sink can take an item.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Polled {
        if self.fault == Fault::DoesNotAsk {
            return Poll::Ready(Ok(()));
        }
        self.inner().poll_ready(cx)
    }

    fn poll_held(&mut self, cx: &mut Context<'_>) -> Polled {
        let Some(item) = self.held else {
            return Poll::Ready(Ok(()));
        };
        ready!(self.poll_room(cx))?;
        let waited = ready!(self.poll_slot(cx));
        Poll::Ready(self.send(item, waited))
    }

    fn send(&mut self, item: u32, waited: Option<Instant>) -> Result<(), InnerError> {
        for given in self.give(item, waited) {
            self.inner().start_send(given)?;
        }
        Ok(())
    }

    fn poll_open(&mut self, cx: &mut Context<'_>) -> Polled {
        ready!(self.poll_held(cx))?;
        if self.fault == Fault::TakesThePermitBeforeTheRoom && self.permit.is_none() {
            ready!(self.poll_slot(cx));
            self.permit = Some(Instant::now());
        }
        ready!(self.poll_room(cx))?;
        match self.fault {
            // There was room at once.
            Fault::TakesThePermitBeforeTheRoom if self.permit == Some(Instant::now()) => {
                self.permit = None;
            }
            Fault::SpendsWhenAsked => {
                ready!(self.poll_slot(cx));
                self.open_at = Some(Instant::now() + INTERVAL);
                self.is_paid_for = true;
            }
            Fault::SpendsWhenItIsLeft if !self.is_open() => {
                let left = self.first_task.as_ref();
                if left.is_some_and(|left| !left.will_wake(cx.waker())) {
                    self.open_at = self.open_at.map(|at| at + INTERVAL);
                    self.first_task = Some(cx.waker().clone());
                }
            }
            _ => {}
        }
        Poll::Ready(Ok(()))
    }

    fn poll_flushed(&mut self, cx: &mut Context<'_>) -> Polled {
        if self.fault != Fault::FlushForgetsTheHeld {
            ready!(self.poll_held(cx))?;
        }
        match self.fault {
            Fault::FlushWaitsForASlot => {
                ready!(self.poll_slot(cx));
            }
            Fault::FlushForgetsTheInner => return Poll::Ready(Ok(())),
            Fault::SwallowsAnError => return self.inner().poll_flush(cx).map(|_| Ok(())),
            Fault::TellsAnErrorLate => {
                let flushed = ready!(self.inner().poll_flush(cx));
                self.error = flushed.err();
                return Poll::Ready(Ok(()));
            }
            _ => {}
        }
        self.inner().poll_flush(cx)
    }

    fn poll_closed(&mut self, cx: &mut Context<'_>) -> Polled {
        match self.fault {
            Fault::ClosesBeforeTheHeldIsSent => {
                ready!(self.inner().poll_close(cx))?;
                return self.poll_held(cx);
            }
            Fault::CloseForgetsTheInner => return self.poll_flushed(cx),
            _ => {}
        }
        ready!(self.poll_held(cx))?;
        match self.fault {
            Fault::CloseWaitsForASlot => {
                ready!(self.poll_slot(cx));
            }
            Fault::ClosesTwice => ready!(self.inner().poll_close(cx))?,
            _ => {}
        }
        self.inner().poll_close(cx)
    }

    /// Polls in one of the three ways.
    fn poll(
        &mut self,
        poll: fn(&mut Self, &mut Context<'_>) -> Polled,
        cx: &Context<'_>,
    ) -> Polled {
        let task = ready!(self.poll_wrong(cx));
        if let Some(late) = self.error.take() {
            return Poll::Ready(Err(late));
        }
        let polled = poll(self, &mut Context::from_waker(&task));
        match (self.fault, polled) {
            (Fault::HangsAfterAnError, Poll::Ready(Err(error))) => self.error = Some(error),
            (Fault::LosesTheHeldWhenTheInnerFails, Poll::Ready(Err(_))) => self.held = None,
            _ => {}
        }
        polled
    }
}

impl<S: Sink<u32, Error = InnerError> + Unpin> Sink<u32> for Paced<S> {
    type Error = InnerError;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled {
        self.poll(Self::poll_open, cx)
    }

    fn start_send(mut self: Pin<&mut Self>, item: u32) -> Result<(), InnerError> {
        if self.is_open() || mem::take(&mut self.is_paid_for) {
            return self.send(item, None);
        }
        self.held = Some(item);
        Ok(())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled {
        self.poll(Self::poll_flushed, cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled {
        self.poll(Self::poll_closed, cx)
    }
}
