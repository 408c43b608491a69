use core::convert::Infallible;
use core::fmt;
use core::mem;
use core::task::{Context, Poll, ready};
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::limiter::contained_in_unwind;
use crate::time::{Clock, Resolution, Tick};
use crate::wait::Flow;

use super::future::{AcquirePermitFrom, AcquirePermitWithin};
use super::{Admit, Admitted, Controller, Outcome, Permit, Permits};

/// Permits with a number that follows a controller. Clones share both.
///
/// Each call reports how it ended. The controller takes it in, and the number of permits becomes its limit. How long a call
/// took is measured here.
///
/// ```
/// use paceline::concurrency::{Adaptive, Aimd};
/// use std::time::Duration;
///
/// /// The server answers 6 calls at once and refuses the seventh.
/// async fn call(at_once: u32) -> Result<(), ()> {
///     tokio::time::sleep(Duration::from_millis(10)).await;
///     if at_once <= 6 { Ok(()) } else { Err(()) }
/// }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let adaptive = Adaptive::new(Aimd::new(1, 100));
/// let calls = (0..100).map(|_| {
///     let adaptive = adaptive.clone();
///     tokio::spawn(async move {
///         let permit = adaptive.acquire().await;
///         let at_once = adaptive.permits().in_use();
///         match call(at_once).await {
///             Ok(()) => permit.success(),
///             Err(()) => permit.dropped(),
///         }
///         at_once
///     })
/// });
/// let at_once = futures::future::join_all(calls.collect::<Vec<_>>()).await;
/// let most = at_once.into_iter().map(|at_once| at_once.unwrap()).max();
/// assert_eq!(most, Some(7)); // one more than the server can take; then the limit falls to 3
/// # }
/// ```
///
/// **Waits** as [`Permits`](Permits#the-queue) do: first come, first served. A lower limit takes effect as permits come back.
///
/// **Start**: the limit is that of the controller from the first request on. A start is a choice and not a finding, so a burst
/// that comes before anything was observed should wait, and be queued behind a few calls that find out. To refuse what is above
/// such a limit needs a start that the server bears: [`Aimd::with_start`](super::Aimd::with_start). There is no phase without a
/// limit, since each restart would send the whole burst to a server of which nothing is known.
///
/// **Window bound**: at most the [limit](Permits::limit) at that instant is granted at any instant.
///
/// **Under a lock**: the controller is called under the lock of the permits, as a policy is under that of its limit. It must not use
/// these permits. A limit of zero counts as 1, since without calls nothing more would be observed.
#[doc(alias("adaptive concurrency limit", "gradient", "vegas", "AIMD"))]
pub struct Adaptive<C> {
    /// With the position of this handle in the queue.
    permits: Permits,
    control: Arc<Control<C>>,
}

impl<C: Controller> Adaptive<C> {
    /// As many permits as the controller allows.
    #[must_use]
    pub fn new(controller: C) -> Self {
        let permits = Permits::new(limit_of(&controller));
        let control = Control {
            permits: permits.clone(),
            watched: Mutex::new((Clock::new(), controller)),
        };
        Self {
            permits,
            control: Arc::new(control),
        }
    }

    /// Waits for a permit, behind every request that came before.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the queue; nothing was taken, and nothing is reported.
    pub fn acquire(&self) -> AcquirePermitFrom<Self> {
        AcquirePermitFrom::new(self.clone())
    }

    /// Waits for a permit, if it can be had `within` this time; see [`Permits::acquire_within`].
    ///
    /// ```
    /// use paceline::concurrency::{Adaptive, Aimd};
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let adaptive = Adaptive::new(Aimd::new(1, 100));
    /// let _permit = adaptive.acquire_within(Duration::ZERO).await.unwrap();
    ///
    /// let refused = adaptive.acquire_within(Duration::from_millis(50)).await;
    /// assert!(refused.unwrap_err().is_too_late());
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`is_too_late`](crate::limiter::AcquireError::is_too_late).
    ///
    /// # Panics
    ///
    /// If it has to wait outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the queue; nothing was taken, and nothing is reported.
    pub fn acquire_within(&self, within: Duration) -> AcquirePermitWithin<Self> {
        let unknown = |_: &Self| Duration::ZERO;
        AcquirePermitWithin::new(self.clone(), within, Resolution::default(), unknown)
    }

    /// A permit, if one is free and no request waits for it. It never overtakes a waiter.
    ///
    /// ```
    /// use paceline::concurrency::{Adaptive, Aimd};
    ///
    /// let adaptive = Adaptive::new(Aimd::new(1, 100));
    /// let permit = adaptive.try_acquire().unwrap();
    /// assert!(adaptive.try_acquire().is_none());
    ///
    /// permit.success();
    /// assert_eq!(adaptive.permits().limit(), 2);
    /// ```
    #[must_use = "a permit that is dropped at once limits nothing"]
    pub fn try_acquire(&self) -> Option<AdaptivePermit<C>> {
        self.permits.try_acquire().map(|permit| self.begin(permit))
    }

    /// The permits, to read their limit, how many are in use, and what they did.
    ///
    /// A permit that is taken from them directly reports nothing, and a [`resize`](Permits::resize) lasts until the next report.
    #[must_use]
    pub const fn permits(&self) -> &Permits {
        &self.permits
    }

    /// A copy of the controller as it is now.
    ///
    /// ```
    /// use paceline::concurrency::{Adaptive, Gradient};
    ///
    /// let adaptive = Adaptive::new(Gradient::new(10, 1_000));
    /// assert_eq!(adaptive.controller().limit(), 10);
    /// ```
    #[must_use]
    pub fn controller(&self) -> C
    where
        C: Clone,
    {
        self.control.lock().1.clone()
    }

    /// A handle that waits in the queue of this flow.
    pub(super) fn in_flow(&self, flow: Flow) -> Self {
        Self {
            permits: self.permits.in_flow(flow),
            control: Arc::clone(&self.control),
        }
    }

    /// The call begins: what it waited for the permit does not count.
    fn begin(&self, permit: Permit) -> AdaptivePermit<C> {
        AdaptivePermit {
            since: self.control.now(),
            is_reported: false,
            control: Arc::clone(&self.control),
            _permit: permit,
        }
    }
}

/// A handle of the same permits and of the same controller, which is not queued.
impl<C> Clone for Adaptive<C> {
    fn clone(&self) -> Self {
        Self {
            permits: self.permits.clone(),
            control: Arc::clone(&self.control),
        }
    }
}

/// A guard that is dropped without a report is [`Outcome::Ignored`]. So code that only holds its guard keeps the limit, and the
/// limit does not move. `paceline_tower::AdaptiveLayer` reports.
impl<C: Controller> Admit for Adaptive<C> {
    type Guard = AdaptivePermit<C>;
    type Error = Infallible;

    fn poll_admit(&mut self, (): (), cx: &mut Context<'_>) -> Admitted<AdaptivePermit<C>> {
        let Ok(permit) = ready!(self.permits.poll_admit((), cx));
        Poll::Ready(Ok(permit.map(|permit| self.begin(permit))))
    }

    fn poll_try_admit(&mut self, (): (), cx: &mut Context<'_>) -> Admitted<AdaptivePermit<C>> {
        let Ok(permit) = ready!(self.permits.poll_try_admit((), cx));
        Poll::Ready(Ok(permit.map(|permit| self.begin(permit))))
    }

    fn give_up(&mut self) {
        self.permits.give_up();
    }
}

impl<C> fmt::Debug for Adaptive<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adaptive")
            .field("permits", &self.permits)
            .finish_non_exhaustive()
    }
}

/// A permit of [`Adaptive`] for one call, which reports its outcome. Dropping it gives it back.
///
/// The first report counts. A permit that is dropped without one reports [`Outcome::Ignored`]: the call was cancelled, or failed
/// for a reason that says nothing about the capacity of the server.
///
/// ```
/// use paceline::concurrency::{Adaptive, Aimd};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let adaptive = Adaptive::new(Aimd::new(1, 100).with_start(20));
///
/// adaptive.acquire().await.dropped();
/// assert_eq!(adaptive.permits().limit(), 10);
///
/// drop(adaptive.acquire().await);
/// assert_eq!(adaptive.permits().limit(), 10);
/// # }
/// ```
#[must_use = "a permit that is dropped at once limits nothing: call it `_permit`, since `let _ =` drops it too"]
pub struct AdaptivePermit<C: Controller> {
    since: Tick,
    is_reported: bool,
    control: Arc<Control<C>>,
    /// Given back after the report.
    _permit: Permit,
}

impl<C: Controller> AdaptivePermit<C> {
    /// The time since the permit was granted, without the wait for it.
    #[must_use]
    pub fn latency(&self) -> Duration {
        self.control.now().since(self.since)
    }

    /// The call was answered, after the [latency](Self::latency) so far. The permit comes back.
    pub fn success(mut self) {
        let latency = self.latency();
        self.report(Outcome::Success { latency });
    }

    /// The server was overloaded: it refused the call or did not answer in time. The permit comes back.
    pub fn dropped(mut self) {
        self.report(Outcome::Dropped);
    }

    /// Reports the outcome before the call is over, and keeps the permit. A later report counts nothing.
    ///
    /// For an answer with a body that is still under way.
    pub fn report(&mut self, outcome: Outcome) {
        if !mem::replace(&mut self.is_reported, true) {
            self.control.observe(outcome);
        }
    }
}

impl<C: Controller> Drop for AdaptivePermit<C> {
    fn drop(&mut self) {
        contained_in_unwind(|| self.report(Outcome::Ignored));
    }
}

impl<C: Controller> fmt::Debug for AdaptivePermit<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdaptivePermit")
            .field("is_reported", &self.is_reported)
            .finish_non_exhaustive()
    }
}

/// What all handles share.
struct Control<C> {
    permits: Permits,
    watched: Mutex<(Clock, C)>,
}

impl<C: Controller> Control<C> {
    /// All in one step, so that no report of another thread comes between the observation and the new size.
    fn observe(&self, outcome: Outcome) {
        self.permits.resize_with(|in_use| {
            let mut watched = self.lock();
            let (clock, controller) = &mut *watched;
            controller.observe(clock.now(), in_use, outcome);
            limit_of(controller)
        });
    }
}

impl<C> Control<C> {
    fn now(&self) -> Tick {
        self.lock().0.now()
    }

    fn lock(&self) -> MutexGuard<'_, (Clock, C)> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn limit_of(controller: &impl Controller) -> u32 {
    controller.limit().max(1)
}
