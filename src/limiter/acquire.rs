use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;
use std::convert::Infallible;

use crate::policy::Policy;
use crate::time::Timer;

use super::forecast::retry_in;
use super::{AcquireError, Gate, Limiter, PassError, Shared, TooCostly};

/// Future of [`Shared::acquire`].
#[derive(Debug)]
#[must_use = "futures do nothing unless you `.await` or poll them"]
pub struct Acquire<P: Policy> {
    passage: Passage<Shared<P>>,
}

impl<P: Policy> Acquire<P> {
    pub(super) fn new(limit: Shared<P>, cost: u32) -> Self {
        let precision = limit.precision;
        Self {
            passage: Passage::new(Gate::waiting(limit, precision), cost),
        }
    }
}

impl<P: Policy> Future for Acquire<P> {
    type Output = Result<(), TooCostly>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.passage.poll(cx)
    }
}

/// Future of [`Shared::acquire_within`].
#[derive(Debug)]
#[must_use = "futures do nothing unless you `.await` or poll them"]
pub struct AcquireWithin<P: Policy> {
    passage: PassageInTime<Shared<P>>,
}

impl<P: Policy> AcquireWithin<P> {
    pub(super) fn new(limit: Shared<P>, cost: u32, within: Duration) -> Self {
        let precision = limit.precision;
        Self {
            passage: PassageInTime::new(Gate::waiting(limit, precision), cost, within),
        }
    }
}

impl<P: Policy> Future for AcquireWithin<P> {
    type Output = Result<(), AcquireError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.passage.poll(cx)
    }
}

#[cfg(feature = "precise")]
impl<P: Policy> Shared<P> {
    /// Waits to the microsecond in [`acquire`](Self::acquire) and [`acquire_within`](Self::acquire_within), through this handle
    /// and its clones: see [`Timer::precise`](crate::time::Timer::precise). An adapter has a method of its own for that.
    ///
    /// ```
    /// use paceline::limiter::PolicyExt;
    /// use paceline::policy::Interval;
    /// use std::time::{Duration, Instant};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let start = Instant::now();
    /// let limit = Interval::every(Duration::from_micros(200)).shared().precise();
    ///
    /// for _ in 0..11 {
    ///     limit.acquire(1).await.unwrap();
    /// }
    /// assert!(start.elapsed() >= Duration::from_millis(2));
    /// # }
    /// ```
    #[must_use]
    pub fn precise(mut self) -> Self {
        self.be_precise();
        self
    }
}

/// A way through a gate, to be gone once.
#[derive(Debug)]
pub(super) struct Passage<L: Limiter> {
    /// Gone, and with it the place in line, when it is done.
    gate: Option<Gate<L>>,
    cost: u32,
}

impl<L: Limiter<Error = Infallible>> Passage<L> {
    pub(super) const fn new(gate: Gate<L>, cost: u32) -> Self {
        Self {
            gate: Some(gate),
            cost,
        }
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TooCostly>> {
        let cost = self.cost;
        let passed = ready!(self.gate().poll_pass(cost, cx));
        self.gate = None;
        Poll::Ready(passed.map_err(PassError::into_too_costly))
    }

    /// To ask once more would cost once more, which nobody means who polls a future again.
    fn gate(&mut self) -> &mut Gate<L> {
        self.gate.as_mut().expect("polled after it was ready")
    }
}

/// A [`Passage`] that is given up when it takes too long.
#[derive(Debug)]
pub(super) struct PassageInTime<L: Limiter> {
    passage: Passage<L>,
    within: Duration,
    /// Armed while it waits.
    deadline: Option<Timer>,
}

impl<L: Limiter<Error = Infallible> + Foresee> PassageInTime<L> {
    pub(super) const fn new(gate: Gate<L>, cost: u32, within: Duration) -> Self {
        Self {
            passage: Passage::new(gate, cost),
            within,
            deadline: None,
        }
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), AcquireError>> {
        if self.is_hopeless() {
            return self.too_late();
        }
        if let Poll::Ready(passed) = self.passage.poll(cx) {
            return Poll::Ready(passed.map_err(AcquireError::from));
        }
        let deadline = self.deadline.get_or_insert_with(|| {
            let mut timer = Timer::new();
            timer.arm(self.within);
            timer
        });
        ready!(deadline.poll_elapsed(cx));
        self.too_late()
    }

    /// Whether it is known before it begins to wait that it would be too long.
    fn is_hopeless(&mut self) -> bool {
        let cost = self.passage.cost;
        let is_new = self.deadline.is_none();
        is_new && self.passage.gate().limiter().forecast(cost) > self.within
    }

    fn too_late(&mut self) -> Poll<Result<(), AcquireError>> {
        self.passage.gate().limiter().was_too_late();
        self.passage.gate = None;
        Poll::Ready(Err(AcquireError::too_late(self.within)))
    }
}

/// A limiter that can look ahead.
pub(super) trait Foresee {
    /// How long `cost` would have to wait if it joined the line now, at the least.
    fn forecast(&self, cost: u32) -> Duration;

    /// Somebody gave up because it took too long.
    fn was_too_late(&self);
}

impl<P: Policy> Foresee for Shared<P> {
    fn forecast(&self, cost: u32) -> Duration {
        retry_in(self.peek(cost))
    }

    fn was_too_late(&self) {
        self.locked(|desk, _| desk.refused());
    }
}
