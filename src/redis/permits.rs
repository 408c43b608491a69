use core::time::Duration;
use std::sync::Arc;

use crate::remote::{CallError, Connection, OutagePolicy, ServerError};

use super::error::ConfigError;
use super::lease_pool::{ClassConfig, Lease, LeasePool};
use super::transport::Connector;

/// A number of leases at once in a whole fleet. Made by [`Redis::permits`](crate::redis::Redis::permits).
///
/// Clones share one queue. For permits in one process there is [`concurrency::Permits`](crate::concurrency::Permits).
///
/// ```
/// use paceline::redis::{OutagePolicy, Redis};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # // Where the tests run there is a server.
/// # if std::env::var_os("REDIS_URL").is_none() { return Ok(()); }
/// let redis = Redis::open(&std::env::var("REDIS_URL")?, OutagePolicy::closed())?;
/// let permits = redis.permits("conversions", 3, Duration::from_secs(10))?;
///
/// // Waits until fewer than 3 conversions run, in any process.
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
/// * **Bound**: Redis never has more than n leases that have not ended, by its own clock; the clocks of the processes do not
///   matter. More can be in use only if a holder continues after its lease is [lost](Lease#it-can-be-lost), or while leases
///   are granted without Redis.
/// * **Order**: first come, first served in one process. Between processes, a free permit goes to the process that asks first.
///   If none is free, the queue asks again when a lease of this process is released, and otherwise after 10 ms, then 20, 40 and
///   so on, up to a second or until the first lease ends.
/// * **Round trips**: requests, renewals and releases of the same time share one round trip. One is under way at a time.
/// * **During an outage**, no round trip takes longer than the deadline, and [`OutagePolicy`] decides:
///   [`open`](OutagePolicy::open) grants a [local](Lease::is_local) lease to every request; [`closed`](OutagePolicy::closed)
///   grants none; [`insured`](OutagePolicy::insured) grants local ones up to n / replicas, guards of lost leases counted, once
///   the outage has lasted as long as a lease: before that, others may still hold all of them.
/// * **In Redis** there is one key, which is deleted with the last lease. A refused request leaves nothing behind.
#[derive(Clone, Debug)]
pub struct RedisPermits {
    pool: Arc<LeasePool>,
    limit: u32,
}

impl RedisPermits {
    pub(super) fn new(
        connection: Arc<Connection<Connector>>,
        key: String,
        limit: u32,
        lease: Duration,
        outage_policy: OutagePolicy,
    ) -> Result<Self, ConfigError> {
        if limit == 0 {
            return Err(ConfigError::new("there must be at least 1 permit, got 0"));
        }
        let class = ClassConfig::new(key, limit, limit, outage_policy)?;
        let pool = Arc::new(LeasePool::new(connection, lease, vec![class])?);
        Ok(Self { pool, limit })
    }

    /// Waits for a lease, behind all earlier requests of this process.
    ///
    /// # Errors
    ///
    /// If the server refuses the call, because the key holds another type or a permission is missing. An outage is no error:
    /// [`OutagePolicy`] decides then.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue. A lease that was granted meanwhile is released.
    pub async fn acquire(&self) -> Result<Lease, ServerError> {
        loop {
            // A request that waits is never refused.
            if let Some(lease) = self.pool.ask(0, true).await? {
                return Ok(lease);
            }
        }
    }

    /// A lease, if one is free. It never overtakes a waiter of this process.
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
    /// A lease that was granted for a dropped future is released.
    pub async fn try_acquire(&self) -> Result<Option<Lease>, ServerError> {
        self.pool.ask(0, false).await
    }

    /// How many leases Redis has now, of all processes.
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

    /// The largest number of leases at once.
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.limit
    }
}
