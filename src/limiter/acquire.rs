use core::convert::Infallible;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;

use crate::policy::Decision;
use crate::time::Timer;

use super::{AcquireError, Gate, Limiter, PassError, TooCostly};

/// Future of [`Shared::acquire`](super::Shared::acquire) and [`Keyed::acquire`](super::Keyed::acquire).
#[derive(Debug)]
#[must_use = "futures do nothing unless you `.await` or poll them"]
pub struct Acquire<L: Limiter> {
    /// Gone when it is done, and with it the position in the queue.
    gate: Option<Gate<L>>,
    cost: u32,
}

impl<L: Limiter> Acquire<L> {
    pub(super) const fn new(limiter: L, cost: u32) -> Self {
        Self {
            gate: Some(Gate::new(limiter)),
            cost,
        }
    }

    /// Polling again would cost again, which no caller means that polls a finished future.
    fn gate(&mut self) -> &mut Gate<L> {
        self.gate.as_mut().expect("polled after it was ready")
    }
}

impl<L: Limiter<Error = Infallible> + Unpin> Future for Acquire<L> {
    type Output = Result<(), TooCostly>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let cost = self.cost;
        let passed = ready!(self.gate().poll_pass(cost, cx));
        self.gate = None;
        Poll::Ready(passed.map_err(PassError::into_too_costly))
    }
}

/// Future of [`Shared::acquire_within`](super::Shared::acquire_within) and
/// [`Keyed::acquire_within`](super::Keyed::acquire_within).
#[derive(Debug)]
#[must_use = "futures do nothing unless you `.await` or poll them"]
pub struct AcquireWithin<L: Limiter> {
    acquire: Acquire<L>,
    within: Duration,
    /// Armed while it waits.
    deadline: Option<Timer>,
    /// How long such a request has to wait if it is queued now, at the least.
    estimate: fn(&L, u32) -> Decision,
    count_refusal: fn(&L),
}

impl<L: Limiter> AcquireWithin<L> {
    pub(super) const fn new(
        limiter: L,
        cost: u32,
        within: Duration,
        estimate: fn(&L, u32) -> Decision,
        count_refusal: fn(&L),
    ) -> Self {
        Self {
            acquire: Acquire::new(limiter, cost),
            within,
            deadline: None,
            estimate,
            count_refusal,
        }
    }

    /// When a request that is queued now could pass.
    fn estimate(&mut self) -> Decision {
        let cost = self.acquire.cost;
        (self.estimate)(self.acquire.gate().limiter(), cost)
    }

    /// Without a `known` estimate it makes one after it has left the queue: a retry does not wait behind this request.
    fn too_late(&mut self, known: Option<Decision>) -> Poll<Result<(), AcquireError>> {
        (self.count_refusal)(self.acquire.gate().limiter());
        self.acquire.gate().limiter_mut().give_up();
        let estimate = known.unwrap_or_else(|| self.estimate());
        self.acquire.gate = None;
        let refused = AcquireError::too_late(self.within);
        Poll::Ready(Err(refused.with_estimate(estimate)))
    }
}

impl<L: Limiter<Error = Infallible> + Unpin> Future for AcquireWithin<L> {
    type Output = Result<(), AcquireError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.deadline.is_none() {
            let estimate = self.estimate();
            if estimate.retry_in() > Some(self.within) {
                return self.too_late(Some(estimate));
            }
        }
        if let Poll::Ready(passed) = Pin::new(&mut self.acquire).poll(cx) {
            return Poll::Ready(passed.map_err(AcquireError::from));
        }
        if self.deadline.is_none() {
            let resolution = self.acquire.gate().limiter().resolution();
            let mut timer = Timer::new().with_resolution(resolution);
            timer.arm(self.within);
            self.deadline = Some(timer);
        }
        if let Some(deadline) = &mut self.deadline {
            ready!(deadline.poll_elapsed(cx));
        }
        self.too_late(None)
    }
}
