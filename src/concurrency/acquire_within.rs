use core::convert::Infallible;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;

use crate::limiter::AcquireError;
use crate::time::{Resolution, Timer};

use super::Admit;

/// Future of [`Permits::acquire_within`](super::Permits::acquire_within) and
/// [`KeyedPermits::acquire_within`](super::KeyedPermits::acquire_within).
#[derive(Debug)]
#[must_use = "futures do nothing unless you `.await` or poll them"]
pub struct AcquirePermitWithin<A> {
    /// Gone when it is done, and with it the position in the queue.
    handle: Option<A>,
    within: Duration,
    deadline: Timer,
    /// Whether it was polled.
    has_begun: bool,
    /// How long a request would wait if it were queued now, as far as that is known or estimated; zero if not.
    expected_wait: fn(&A) -> Duration,
}

impl<A> AcquirePermitWithin<A> {
    pub(super) const fn new(
        handle: A,
        within: Duration,
        resolution: Resolution,
        expected_wait: fn(&A) -> Duration,
    ) -> Self {
        Self {
            handle: Some(handle),
            within,
            deadline: Timer::new().with_resolution(resolution),
            has_begun: false,
            expected_wait,
        }
    }
}

impl<A: Admit<Error = Infallible> + Unpin> Future for AcquirePermitWithin<A> {
    type Output = Result<A::Guard, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let handle = this.handle.as_mut().expect("polled after it was ready");
        let is_first = !core::mem::replace(&mut this.has_begun, true);
        let is_hopeless = is_first && (this.expected_wait)(handle) > this.within;
        let mut admitted = Poll::Pending;
        if !is_hopeless {
            admitted = handle.poll_admit((), cx);
        }
        if admitted.is_pending() {
            if is_first && !is_hopeless {
                this.deadline.arm(this.within);
            }
            ready!(this.deadline.poll_elapsed(cx));
            // It leaves the queue, and is counted as refused.
            admitted = handle.poll_try_admit((), cx);
        }
        let Ok(guard) = ready!(admitted);
        let refused = guard.ok_or_else(|| {
            let retry_in = Some((this.expected_wait)(handle)).filter(|wait| !wait.is_zero());
            AcquireError::too_late(this.within, retry_in)
        });
        this.handle = None;
        Poll::Ready(refused)
    }
}

/// Future of [`Adaptive::acquire`](super::Adaptive::acquire) and [`KeyedPermits::acquire`](super::KeyedPermits::acquire).
#[derive(Debug)]
#[must_use = "futures do nothing unless you `.await` or poll them"]
pub struct AcquirePermitFrom<A> {
    /// Gone when it is done, and with it the position in the queue.
    handle: Option<A>,
}

impl<A> AcquirePermitFrom<A> {
    pub(super) const fn new(handle: A) -> Self {
        Self {
            handle: Some(handle),
        }
    }
}

impl<A: Admit<Error = Infallible> + Unpin> Future for AcquirePermitFrom<A> {
    type Output = A::Guard;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<A::Guard> {
        let handle = self.handle.as_mut().expect("polled after it was ready");
        let Ok(guard) = ready!(handle.poll_admit((), cx));
        self.handle = None;
        Poll::Ready(guard.expect("permits have a queue"))
    }
}
