use core::time::Duration;
use std::sync::Arc;

use super::errand::Room;
use super::lease::Lease;
use super::pool::{Alone, Pool, Terms};
use crate::redis::error::{CallError, ConfigError, ServerError};
use crate::redis::keeper::Keeper;
use crate::redis::when_down::{Kind, OutagePolicy};

/// So many at once in a whole fleet: permits in Redis, held as [`Lease`]s. Made by [`Redis::permits`](crate::redis::Redis::permits).
///
/// Clones share one line. For permits in one process there is [`concurrency::Permits`](crate::concurrency::Permits).
///
/// ```
/// use paceline::redis::{Redis, OutagePolicy};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # // Where the tests run there is a server.
/// # if std::env::var_os("REDIS_URL").is_none() { return Ok(()); }
/// let redis = Redis::open(&std::env::var("REDIS_URL")?, OutagePolicy::closed())?;
/// let permits = redis.permits("conversions", 3, Duration::from_secs(10))?;
///
/// // Waits until fewer than 3 are at it, anywhere.
/// let lease = permits.acquire().await?;
/// println!("{} convert now", permits.in_use().await?);
/// drop(lease);
///
/// match permits.try_acquire().await? {
///     Some(_lease) => println!("one is free"),
///     None => println!("none is free"),
/// }
/// # assert!(redis.is_up());
/// # Ok(())
/// # }
/// ```
///
/// * **Bound**: Redis never knows more than n leases that have not ended, by its own clock: those of the processes do not
///   matter. There are more at once only where somebody goes on whose lease is [lost](Lease#it-can-be-lost), or with leases
///   that were granted without Redis.
/// * **Order**: first come, first served in one process. Between processes whoever asks first when there is one: if none is
///   free, the line asks again when a lease is given back here, and otherwise after 10 ms, then 20, 40 and so on, up to a second
///   or until the first lease ends.
/// * **Trips**: those who ask at the same time, those that are renewed and those that were dropped go on one trip together. One
///   trip is under way at a time.
/// * **While Redis does not answer**, no trip takes longer than the deadline, and [`OutagePolicy`] decides:
///   [`open`](OutagePolicy::open) gives a [local](Lease::is_local) lease to all; [`closed`](OutagePolicy::closed) gives none;
///   [`insured`](OutagePolicy::insured) gives local ones up to n / replicas, guards of leases that are lost counted, once the outage
///   has lasted as long as a lease: before, others may still hold all of them.
/// * **In Redis** there is one key, which is gone as soon as there are no leases. What is refused leaves nothing behind.
#[derive(Clone, Debug)]
pub struct RedisPermits {
    pool: Arc<Pool>,
    limit: u32,
}

impl RedisPermits {
    pub(in crate::redis) fn new(
        keeper: Arc<Keeper>,
        key: String,
        limit: u32,
        lease: Duration,
        when_down: OutagePolicy,
    ) -> Result<Self, ConfigError> {
        if limit == 0 {
            return Err(ConfigError::new("there must be at least 1 permit, got 0"));
        }
        let terms = Terms {
            key,
            room: Room {
                below: limit.into(),
                below_in_all: limit.into(),
            },
            alone: alone(limit, when_down)?,
        };
        let pool = Arc::new(Pool::new(keeper, lease, vec![terms])?);
        Ok(Self { pool, limit })
    }

    /// Waits for a lease, behind all in this process who came before.
    ///
    /// # Errors
    ///
    /// If the server refuses to answer, since the key holds something else or a permission is missing. That it cannot be
    /// reached is no error: then [`OutagePolicy`] decides.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the line. What was granted meanwhile is given back.
    pub async fn acquire(&self) -> Result<Lease, ServerError> {
        loop {
            // Who stands in line is told of nothing else.
            if let Some(lease) = self.pool.ask(0, true).await? {
                return Ok(lease);
            }
        }
    }

    /// A lease, if one is free. It never overtakes those who wait in this process.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// What was granted to one who has left is given back.
    pub async fn try_acquire(&self) -> Result<Option<Lease>, ServerError> {
        self.pool.ask(0, false).await
    }

    /// How many leases Redis knows now, of all processes.
    ///
    /// # Errors
    ///
    /// If Redis does not answer.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub async fn in_use(&self) -> Result<u32, CallError> {
        let in_use = self.pool.in_use().await?;
        Ok(in_use.into_iter().sum())
    }

    /// How many there may be.
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.limit
    }
}

/// How many of so many this process gives without Redis.
pub(super) fn alone(limit: u32, when_down: OutagePolicy) -> Result<Alone, ConfigError> {
    match when_down.kind() {
        Kind::Open => Ok(Alone::Open),
        Kind::Closed => Ok(Alone::Closed),
        Kind::Insured { replicas } => match limit.checked_div(replicas) {
            Some(share @ 1..) => Ok(Alone::Share(share)),
            _ => Err(ConfigError::new(format!(
                "{limit} permits cannot be divided among {replicas} replicas: each needs at least 1"
            ))),
        },
    }
}
