use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::sync::Arc;
use std::task::Wake;
use std::thread::{self, Thread};

use crate::policy::Decision;
use crate::time::Clock;

use super::{Limiter, PassError};

/// Why a thread did not get its permits.
pub(super) enum Blocked<E> {
    /// Too costly, or out of reach.
    Refused(PassError<E>),
    /// How long it would still have to wait, if that is known.
    TooLate(Option<Duration>),
}

/// Waits for `cost` permits as a thread, which parks while it waits. Its request is queued like that of a task.
pub(super) fn acquire<L: Limiter>(
    mut limiter: L,
    cost: u32,
    within: Duration,
) -> Result<(), Blocked<L::Error>> {
    let least_wait = limiter.least_wait(cost);
    if least_wait > within {
        return Err(Blocked::TooLate(Some(least_wait)));
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let cx = &mut Context::from_waker(&waker);
    let mut clock = Clock::new();
    let end = clock.now().after(within);
    loop {
        let wait = match limiter.poll_decide(cost, cx) {
            Poll::Ready(Ok(Decision::Pass)) => return Ok(()),
            Poll::Ready(Ok(Decision::Never { capacity })) => {
                return Err(Blocked::Refused(PassError::too_costly(cost, capacity)));
            }
            Poll::Ready(Err(error)) => {
                return Err(Blocked::Refused(PassError::unreachable(error)));
            }
            Poll::Ready(Ok(Decision::Wait { retry_in })) => retry_in,
            Poll::Pending => Duration::MAX,
        };
        let left = if within == Duration::MAX {
            within
        } else {
            end.since(clock.now())
        };
        if left.is_zero() {
            limiter.give_up();
            let least_wait = limiter.least_wait(cost);
            return Err(Blocked::TooLate(
                (!least_wait.is_zero()).then_some(least_wait),
            ));
        }
        match wait.min(left) {
            Duration::MAX => thread::park(),
            time => thread::park_timeout(time),
        }
    }
}

/// Wakes a thread. One that is woken before it parks does not park.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}
