use core::convert::Infallible;
use core::fmt;
use core::task::Context;
use core::time::Duration;

use crate::policy::{Decision, Policy, Status};
use crate::time::Resolution;

use super::{Answer, Limiter, Shared, forward_all};

/// A limiter in memory whose type is chosen at run time. It can be cloned: each clone is a handle of its own on the same limit.
///
/// For a field or an argument that takes a [`Shared`](super::Shared) of any policy, one key of a [`Keyed`](super::Keyed), a
/// [`Switched`](super::Switched) limiter and so on. It goes where a limiter goes, and
/// [`LimiterExt`](super::LimiterExt) has the methods to ask it by hand:
///
/// ```
/// use futures::{StreamExt, stream};
/// use paceline::limiter::DynLimiter;
/// use paceline::policy::{Interval, TokenBucket};
/// use paceline::prelude::*;
/// use paceline::time::Rate;
/// use std::time::Duration;
///
/// struct Client {
///     limit: DynLimiter,
/// }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let start = tokio::time::Instant::now();
/// let spaced = Interval::every(Duration::from_millis(100)).shared();
/// let bursty = TokenBucket::new(Rate::per_second(10), 5).shared();
/// let clients = [DynLimiter::new(spaced), DynLimiter::new(bursty)].map(|limit| Client { limit });
///
/// for client in &clients {
///     client.limit.acquire(3).await.unwrap();
/// }
/// assert_eq!(start.elapsed(), Duration::ZERO);
///
/// let calls = stream::iter(0..2).pace(clients[0].limit.clone());
/// assert_eq!(calls.collect::<Vec<_>>().await, [0, 1]);
/// assert_eq!(start.elapsed(), Duration::from_millis(400));
/// # }
/// ```
///
/// A limiter that is not cloned needs no more than a `Box<dyn Limiter<Error = Infallible>>`.
///
/// # Cancel safety
///
/// That of the limiter inside. A handle that is dropped leaves the queue.
#[doc(alias("BoxLimiter", "dyn RateLimiter", "BoxCloneService"))]
pub struct DynLimiter {
    limiter: Box<dyn Handle>,
}

impl DynLimiter {
    /// A handle on the limit of `limiter`.
    #[must_use]
    pub fn new<L>(limiter: L) -> Self
    where
        L: Limiter<Error = Infallible> + Clone + Send + Sync + 'static,
    {
        Self {
            limiter: Box::new(limiter),
        }
    }
}

impl<P> From<Shared<P>> for DynLimiter
where
    P: Policy<State: Send> + Send + 'static,
{
    fn from(limit: Shared<P>) -> Self {
        Self::new(limit)
    }
}

impl Limiter for DynLimiter {
    type Error = Infallible;

    forward_all!(self => self.limiter);
}

/// Another handle of the same limit, which is not queued.
impl Clone for DynLimiter {
    fn clone(&self) -> Self {
        let limiter = self.limiter.another();
        Self { limiter }
    }
}

impl fmt::Debug for DynLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynLimiter").finish_non_exhaustive()
    }
}

/// What a [`DynLimiter`] needs of a limiter whose type it does not know.
trait Handle: Limiter<Error = Infallible> + Send + Sync {
    fn another(&self) -> Box<dyn Handle>;
}

impl<L> Handle for L
where
    L: Limiter<Error = Infallible> + Clone + Send + Sync + 'static,
{
    fn another(&self) -> Box<dyn Handle> {
        Box::new(self.clone())
    }
}
