//! A small right sink adapter, and the same with one thing wrong.

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

use futures::{Future, Sink};
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
    DoesNotAsk,
    SpendsWhenAsked,
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
    LosesTheHeldInAnotherTask,
    WaitsAgainAtEveryPoll,
    SpendsWhenItIsLeft,
    ForgetsTheHeldInParts,
    KeepsToAGrid,
    LosesWhatIsLate,
}

/// Sends items at least [`INTERVAL`] apart, counted from the actual send. It takes one when the inner sink could, and holds it
/// until its slot is open.
pub(crate) struct Paced<S: Sink<u32>> {
    sink: S,
    held: Option<u32>,
    open_at: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
    /// A permit taken before there was room for the item, and when.
    permit: Option<Instant>,
    is_paid_for: bool,
    sent: usize,
    error: Option<S::Error>,
    has_failed: bool,
    first_task: Option<Waker>,
    latest_task: Option<Waker>,
    fault: Fault,
}

type Polled<S> = Poll<Result<(), <S as Sink<u32>>::Error>>;

impl<S: Sink<u32> + Unpin> Paced<S> {
    pub(crate) fn new(sink: S, fault: Fault) -> Self {
        Self {
            sink,
            held: None,
            open_at: None,
            sleep: None,
            permit: None,
            is_paid_for: false,
            sent: 0,
            error: None,
            has_failed: false,
            first_task: None,
            latest_task: None,
            fault,
        }
    }

    pub(crate) fn into_parts(self) -> (S, Option<u32>) {
        let forgets = self.fault == Fault::ForgetsTheHeldInParts;
        (self.sink, self.held.filter(|_| !forgets))
    }

    fn inner(&mut self) -> Pin<&mut S> {
        Pin::new(&mut self.sink)
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
            Fault::WaitsAgainAtEveryPoll => {
                self.open_at = Some(Instant::now() + INTERVAL);
                self.sleep = None;
            }
            _ => {}
        }
        let at = self.open_at.unwrap_or_else(Instant::now);
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(at)));
        sleep.as_mut().poll(cx).map(|()| Some(at))
    }

    /// Whether the inner sink can take an item.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Polled<S> {
        if self.fault == Fault::DoesNotAsk {
            return Poll::Ready(Ok(()));
        }
        self.inner().poll_ready(cx)
    }

    fn poll_held(&mut self, cx: &mut Context<'_>) -> Polled<S> {
        let Some(item) = self.held else {
            return Poll::Ready(Ok(()));
        };
        ready!(self.poll_room(cx))?;
        let waited = ready!(self.poll_slot(cx));
        self.held = None;
        if self.fault == Fault::LosesWhatIsLate && waited.is_some_and(|due| Instant::now() > due) {
            return Poll::Ready(Ok(()));
        }
        Poll::Ready(self.give(item, waited))
    }

    fn give(&mut self, item: u32, waited: Option<Instant>) -> Result<(), S::Error> {
        let now = Instant::now();
        let from = match (self.fault, waited) {
            (Fault::KeepsToAGrid, Some(due)) => due,
            _ => self.permit.take().unwrap_or(now),
        };
        self.open_at = Some(from + INTERVAL);
        self.sleep = None;
        self.sent += 1;
        let sent = self.sent;
        match (self.fault, sent) {
            (Fault::LosesTheThird, 3) => return Ok(()),
            (Fault::DoublesTheThird, 3) => self.inner().start_send(item)?,
            _ => {}
        }
        let swaps = self.fault == Fault::SwapsTheFirstTwo && sent <= 2;
        self.inner().start_send(item ^ u32::from(swaps))
    }

    /// What is wrong whichever way it is polled.
    fn poll_wrong(&mut self, cx: &mut Context<'_>) -> Polled<S> {
        if self.fault == Fault::DropsTheWaker {
            return Poll::Ready(Ok(()));
        }
        let first = self.first_task.get_or_insert_with(|| cx.waker().clone());
        let is_elsewhere = !first.will_wake(cx.waker());
        self.latest_task = Some(cx.waker().clone());
        match self.fault {
            Fault::LosesTheHeldInAnotherTask if is_elsewhere => self.held = None,
            Fault::HangsAfterTwo if self.sent == 2 => return Poll::Pending,
            Fault::HangsAfterAnError if self.has_failed => return Poll::Pending,
            Fault::SpinsAfterTwo if self.sent == 2 => {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Fault::TellsAnErrorLate => {
                if let Some(error) = self.error.take() {
                    return Poll::Ready(Err(error));
                }
            }
            _ => {}
        }
        Poll::Ready(Ok(()))
    }

    fn poll_open(&mut self, cx: &mut Context<'_>) -> Polled<S> {
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

    fn poll_flushed(&mut self, cx: &mut Context<'_>) -> Polled<S> {
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

    fn poll_closed(&mut self, cx: &mut Context<'_>) -> Polled<S> {
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
        poll: fn(&mut Self, &mut Context<'_>) -> Polled<S>,
        cx: &mut Context<'_>,
    ) -> Polled<S> {
        ready!(self.poll_wrong(cx))?;
        let polled = match self.first_task.clone() {
            Some(first) if self.fault == Fault::WakesItsFirstTask => {
                poll(self, &mut Context::from_waker(&first))
            }
            _ => poll(self, cx),
        };
        if let Poll::Ready(Err(_)) = polled {
            self.has_failed = true;
            if self.fault == Fault::LosesTheHeldWhenTheInnerFails {
                self.held = None;
            }
        }
        polled
    }
}

impl<S: Sink<u32> + Unpin> Unpin for Paced<S> {}

impl<S: Sink<u32> + Unpin> Sink<u32> for Paced<S> {
    type Error = S::Error;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled<S> {
        self.poll(Self::poll_open, cx)
    }

    fn start_send(mut self: Pin<&mut Self>, item: u32) -> Result<(), S::Error> {
        if self.is_open() || mem::take(&mut self.is_paid_for) {
            return self.give(item, None);
        }
        self.held = Some(item);
        Ok(())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled<S> {
        self.poll(Self::poll_flushed, cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled<S> {
        self.poll(Self::poll_closed, cx)
    }
}
