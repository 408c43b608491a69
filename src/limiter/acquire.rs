use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;

use crate::policy::Policy;
use crate::time::Timer;

use super::{AcquireError, Gate, PassError, Shared, TooCostly};

/// Future of [`Shared::acquire`].
#[derive(Debug)]
#[must_use = "futures do nothing unless you `.await` or poll them"]
pub struct Acquire<P: Policy> {
    /// Gone, and with it the place in line, when it is done.
    gate: Option<Gate<Shared<P>>>,
    cost: u32,
}

impl<P: Policy> Acquire<P> {
    pub(super) const fn new(limit: Shared<P>, cost: u32) -> Self {
        Self {
            gate: Some(Gate::new(limit)),
            cost,
        }
    }
}

impl<P: Policy> Future for Acquire<P> {
    type Output = Result<(), TooCostly>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let passed = ready!(unfinished(&mut this.gate).poll_pass(this.cost, cx));
        this.gate = None;
        Poll::Ready(passed.map_err(PassError::into_too_costly))
    }
}

/// Future of [`Shared::acquire_within`].
#[derive(Debug)]
#[must_use = "futures do nothing unless you `.await` or poll them"]
pub struct AcquireWithin<P: Policy> {
    /// Gone, and with it the place in line, when it is done.
    gate: Option<Gate<Shared<P>>>,
    cost: u32,
    within: Duration,
    /// Armed while it waits.
    deadline: Option<Timer>,
}

impl<P: Policy> AcquireWithin<P> {
    pub(super) const fn new(limit: Shared<P>, cost: u32, within: Duration) -> Self {
        Self {
            gate: Some(Gate::new(limit)),
            cost,
            within,
            deadline: None,
        }
    }

    fn poll_in_time(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), AcquireError>> {
        let gate = unfinished(&mut self.gate);
        let too_late = Err(AcquireError::too_late(self.within));
        if self.deadline.is_none() && gate.limiter().forecast(self.cost) > self.within {
            return Poll::Ready(too_late);
        }
        if let Poll::Ready(passed) = gate.poll_pass(self.cost, cx) {
            return Poll::Ready(passed.map_err(|never| never.into_too_costly().into()));
        }
        let deadline = self.deadline.get_or_insert_with(|| {
            let mut timer = Timer::new();
            timer.arm(self.within);
            timer
        });
        deadline.poll_elapsed(cx).map(|()| too_late)
    }
}

impl<P: Policy> Future for AcquireWithin<P> {
    type Output = Result<(), AcquireError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let passed = ready!(self.poll_in_time(cx));
        if passed.as_ref().is_err_and(AcquireError::is_too_late) {
            unfinished(&mut self.gate).limiter().was_too_late();
        }
        self.gate = None;
        Poll::Ready(passed)
    }
}

/// To ask once more would cost once more, which nobody means who polls a future again.
fn unfinished<P: Policy>(gate: &mut Option<Gate<Shared<P>>>) -> &mut Gate<Shared<P>> {
    gate.as_mut().expect("polled after it was ready")
}
