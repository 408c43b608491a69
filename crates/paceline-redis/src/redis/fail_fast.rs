use core::task::{Context, Poll};

use crate::remote::{Decided, ServerError, WaitMode};
use paceline::limiter::Limiter;
use paceline::policy::Status;

use super::limiter::RedisLimiter;
use super::policy::RedisPolicy;

impl<P: RedisPolicy> RedisLimiter<P> {
    /// The same limit as a limiter that fails if the server refuses the call, for
    /// [`try_pace`](paceline::stream::PaceStreamExt::try_pace). An outage is no error: [`OutagePolicy`](crate::OutagePolicy) decides. With
    /// [`always_open`](crate::OutagePolicy::always_open) nothing is.
    ///
    /// ```
    /// use futures::TryStreamExt;
    /// use paceline::policy::SlidingLog;
    /// use paceline::prelude::*;
    /// use paceline_redis::{OutagePolicy, Redis};
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # // Where the tests run there is a server.
    /// # if std::env::var_os("REDIS_URL").is_none() { return Ok(()); }
    /// let redis = Redis::open(&std::env::var("REDIS_URL")?, OutagePolicy::closed())?;
    /// # // A busy machine may be late.
    /// # let redis = redis.with_deadline(std::time::Duration::from_secs(2))?;
    /// let limit = redis.limit("fail_fast", SlidingLog::new(10, Duration::from_millis(100)))?;
    ///
    /// let mut calls = futures::stream::iter(1..=3).try_pace(limit.fail_fast());
    /// while let Some(call) = calls.try_next().await? {
    ///     println!("call {call}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn fail_fast(self) -> FailFast<P> {
        FailFast { limiter: self }
    }
}

/// A limit in Redis that fails if the server refuses the call. Made by [`RedisLimiter::fail_fast`].
///
/// Such a fault lasts until an operator mends it: a wrong password, a missing permission, a key of another type. It is an error at
/// once, and for a second after Redis was asked.
#[derive(Clone, Debug)]
pub struct FailFast<P: RedisPolicy> {
    limiter: RedisLimiter<P>,
}

impl<P: RedisPolicy> Limiter for FailFast<P> {
    type Error = ServerError;

    fn poll_decide(&mut self, cost: u32, cx: &mut Context<'_>) -> Poll<Decided> {
        self.limiter
            .handle
            .poll_ask(cost, WaitMode::WaitFailFast, cx)
    }

    fn poll_try(&mut self, cost: u32, cx: &mut Context<'_>) -> Poll<Decided> {
        self.limiter.handle.poll_ask(cost, WaitMode::Try, cx)
    }

    fn give_up(&mut self) {
        self.limiter.give_up();
    }

    fn status(&self) -> Option<Status> {
        self.limiter.status()
    }

    fn is_out_of_reach(&self) -> bool {
        self.limiter.is_out_of_reach()
    }
}
