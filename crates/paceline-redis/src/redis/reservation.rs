use core::time::Duration;

use crate::remote::{CallError, RemoteLimit, ServerError};
use paceline::limiter::AcquireError;

use super::connector::Connector;
use super::limiter::RedisLimiter;
use super::policy::RedisPolicy;

/// For requests whose cost is known when they are done.
impl<P: RedisPolicy> RedisLimiter<P> {
    /// Waits until the `estimate` passes, and spends it until it is [settled](RedisReservation::settle), for the whole fleet.
    ///
    /// ```
    /// use paceline::policy::TokenBucket;
    /// use paceline_redis::{OutagePolicy, Redis};
    /// use paceline::time::Rate;
    /// use std::time::Duration;
    ///
    /// # struct Answer { tokens: u32 }
    /// # async fn call(_: &str) -> Answer { Answer { tokens: 1_234 } }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # // Where the tests run there is a server.
    /// # if std::env::var_os("REDIS_URL").is_none() { return Ok(()); }
    /// let redis = Redis::open(&std::env::var("REDIS_URL")?, OutagePolicy::closed())?;
    /// # let redis = redis.with_deadline(Duration::from_secs(10))?;
    /// # let redis = redis.with_prefix(&format!("reserve:{}", std::process::id()))?;
    /// let tokens = redis.limit("tokens", TokenBucket::new(Rate::per_day(90_000), 90_000))?;
    ///
    /// let reserved = tokens.reserve(800).await?;
    /// let answer = call("how are you?").await;
    /// reserved.settle(answer.tokens).await?;
    ///
    /// let left = tokens.fetch_status().await?;
    /// assert_eq!(left.remaining, 90_000 - 1_234);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// It is what [`Settle::reserve`](paceline::limiter::Settle::reserve) does in memory; see there for what an estimate does. A
    /// [`Switch`](paceline::limiter::Switch) is asked before:
    ///
    /// ```
    /// # use paceline::limiter::{AcquireError, Mode, Switch};
    /// # use paceline::policy::TokenBucket;
    /// # use paceline_redis::{RedisLimiter, RedisReservation, ServerError};
    /// # use std::time::Duration;
    /// type Reserved = Option<RedisReservation<TokenBucket>>;
    ///
    /// async fn reserve(
    ///     tokens: &RedisLimiter<TokenBucket>,
    ///     switch: &Switch,
    /// ) -> Result<Reserved, AcquireError<ServerError>> {
    ///     Ok(match switch.mode() {
    ///         Mode::Active => Some(tokens.reserve(800).await?),
    ///         Mode::Shadow => tokens.reserve_within(800, Duration::from_millis(25)).await.ok(),
    ///         Mode::Off => None,
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub async fn reserve(
        &self,
        estimate: u32,
    ) -> Result<RedisReservation<P>, AcquireError<ServerError>> {
        let mut handle = self.handle.clone();
        handle.wait(estimate).await?;
        Ok(RedisReservation { handle, estimate })
    }

    /// Waits until the `estimate` passes, but no longer than `time`.
    ///
    /// # Errors
    ///
    /// As [`acquire_within`](Self::acquire_within).
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub async fn reserve_within(
        &self,
        estimate: u32,
        time: Duration,
    ) -> Result<RedisReservation<P>, AcquireError<ServerError>> {
        let mut handle = self.handle.clone();
        handle.wait_within(estimate, time).await?;
        Ok(RedisReservation { handle, estimate })
    }

    /// Counts `cost` permits that were used without having been asked for, whether or not the limit has them. Any excess
    /// becomes debt, as with [`Shared::charge`](paceline::limiter::Shared::charge).
    ///
    /// # Errors
    ///
    /// If the server refuses the call, or does not answer. The call is not repeated, because the server may have run it. An
    /// [insurance](crate::OutagePolicy::insured) has counted them in this process then.
    pub async fn charge(&self, cost: u32) -> Result<(), CallError> {
        self.handle.queue.charge(cost).await
    }
}

/// An estimate that is spent in Redis, until it is known what the request has cost. Made by [`RedisLimiter::reserve`].
///
/// **Dropped** without being settled, the estimate stays spent: the call may have been made, and the limit cannot know.
/// `settle(0)` gives all of it back.
#[derive(Debug)]
#[must_use = "settle it with what the request has cost; dropped, the estimate stays spent"]
pub struct RedisReservation<P: RedisPolicy> {
    handle: RemoteLimit<P, Connector>,
    estimate: u32,
}

impl<P: RedisPolicy> RedisReservation<P> {
    /// What is spent until it is settled.
    #[must_use]
    pub const fn estimate(&self) -> u32 {
        self.estimate
    }

    /// Corrects the estimate to what the request has cost: gives the difference back, or charges it, in one call.
    ///
    /// What comes back goes to the instant at which the estimate was counted. If its window is over, it makes no room in the next
    /// one. What is charged counts from now on. Of a request that passed
    /// without Redis, in an outage, nothing comes back.
    ///
    /// # Errors
    ///
    /// As [`RedisLimiter::charge`]. What was to come back stays spent then, unless the server has run the call.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it is ready, it may or may not have settled.
    pub async fn settle(self, actual: u32) -> Result<(), CallError> {
        self.handle.settle(self.estimate, actual).await
    }
}
