use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::sync::Arc;
use std::task::Wake;
use std::thread::{self, Thread};

use crate::policy::Decision;
use crate::time::Clock;

use super::{AcquireError, Limiter};

/// A queued thread asks again after this time, since it may be that all waiters are threads, and the head of the queue a future
/// that is never polled.
const LOOKS_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Waits for `cost` permits as a thread, which parks while it waits. Its request is queued like that of a task.
pub(super) fn acquire<L: Limiter>(
    mut limiter: L,
    cost: u32,
    within: Duration,
) -> Result<(), AcquireError<L::Error>> {
    let least_wait = limiter.least_wait(cost);
    if least_wait > within {
        return Err(AcquireError::too_late(within, Some(least_wait)));
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let cx = &mut Context::from_waker(&waker);
    let mut clock = Clock::new();
    let end = clock.now().after(within);
    loop {
        let wait = match limiter.poll_decide(cost, cx) {
            Poll::Ready(Ok(Decision::Pass)) => return Ok(()),
            Poll::Ready(Ok(Decision::Never { capacity })) => {
                return Err(limiter.too_costly(cost, capacity).into());
            }
            Poll::Ready(Err(error)) => {
                return Err(AcquireError::of_limit(error));
            }
            Poll::Ready(Ok(Decision::Wait { retry_in })) => retry_in,
            Poll::Pending => LOOKS_AGAIN_AFTER,
        };
        let left = end.since(clock.now());
        if left.is_zero() {
            limiter.give_up();
            let least_wait = limiter.least_wait(cost);
            let retry_in = Some(least_wait).filter(|wait| !wait.is_zero());
            return Err(AcquireError::too_late(within, retry_in));
        }
        thread::park_timeout(wait.min(left));
    }
}

/// Wakes a thread. One that is woken before it parks does not park.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
