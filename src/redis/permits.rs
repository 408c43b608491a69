use core::fmt;
use core::future::pending;
use core::pin::pin;
use core::time::Duration;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::config::OutagePolicy;
use super::connection::{Connection, within};
use super::error::{CallError, ConfigError, Failure, ServerError};
use super::lease_pool::{ClassConfig, LeasePool};
use super::lease_table::LeaseKey;

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
        connection: Arc<Connection>,
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

/// A permit in Redis for a limited time. Dropping this guard releases it.
///
/// [`RedisPermits`] and [`FleetUsage`](super::FleetUsage) grant it. While the guard lives, a task renews the lease whenever a
/// third of its time is over. (The task runs in the runtime of one of the callers. If that runtime ends, the next caller that
/// asks for a lease or waits for [`lost`](Self::lost) starts it again.) If the process dies, the lease expires by itself, and
/// another holder gets in. (The idea is from C. Gray and D. Cheriton, *Leases: an efficient fault-tolerant mechanism for
/// distributed file cache consistency*, SOSP 1989.)
///
/// # It can be lost
///
/// The lease is **lost** if Redis cannot be reached until its time is over, if Redis has forgotten it (it was flushed, or a
/// replica without the lease took over), or if the process was suspended for that long. Another holder may have it then.
/// [`is_lost`](Self::is_lost) says so, and [`lost`](Self::lost) waits for it. A lost lease stays lost.
///
/// **The holder has to stop when its lease is lost.** Otherwise it runs beside the next holder, and more leases are in use than
/// the limit allows. The time of a lease starts before the call that granted or renewed it was sent, so the holder knows no
/// later than Redis forgets, whatever the network does. The holder cannot notice two events at once: Redis lost its data, or the
/// server's clock jumped forward. It learns of them with the next renewal, after a third of the lease's time at the latest. On a
/// machine that is suspended, the clock may not count the time of the suspension.
///
/// ```
/// use paceline::redis::{OutagePolicy, Redis};
/// use std::time::Duration;
///
/// # async fn convert() {}
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # // Where the tests run there is a server.
/// # if std::env::var_os("REDIS_URL").is_none() { return Ok(()); }
/// let redis = Redis::open(&std::env::var("REDIS_URL")?, OutagePolicy::closed())?;
/// let permits = redis.permits("conversions", 3, Duration::from_secs(10))?;
///
/// let lease = permits.acquire().await?;
/// tokio::select! {
///     () = convert() => println!("done"),
///     () = lease.lost() => println!("stopped: another process may convert now"),
/// }
/// # assert!(redis.is_up());
/// # Ok(())
/// # }
/// ```
///
/// # Release
///
/// Dropping the guard does not wait. A task sends the release; all guards dropped meanwhile share one call. A release that fails
/// is tried twice more, which is harmless if Redis had applied it, and then the lease expires by itself. A program that ends
/// right after the drop also ends that task: [`release`](Self::release) waits until Redis has applied the release. The lease of
/// a leaked guard is renewed until the process ends.
#[must_use = "a lease that is dropped at once limits nothing"]
pub struct Lease {
    pool: Arc<LeasePool>,
    class: usize,
    /// `None` if the lease is not in Redis.
    key: Option<LeaseKey>,
    is_released: bool,
}

impl Lease {
    pub(super) const fn new(pool: Arc<LeasePool>, class: usize, key: Option<LeaseKey>) -> Self {
        Self {
            pool,
            class,
            key,
            is_released: false,
        }
    }

    /// Whether the lease is not in Redis: the [outage policy](crate::redis::OutagePolicy) granted it.
    ///
    /// Such a lease has no end, is never lost, and stays local after the outage. Until it is dropped, only this process knows of
    /// it, and counts it when it asks Redis for more.
    #[must_use]
    pub const fn is_local(&self) -> bool {
        self.key.is_none()
    }

    /// Whether another holder may have this permit by now.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.key
            .is_some_and(|key| self.pool.time_left(key).is_none())
    }

    /// Waits until the lease is lost: for ever if it never is.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing; the next call has the same result.
    pub async fn lost(&self) {
        let Some(key) = self.key else {
            return pending().await;
        };
        while let Some((left, lost)) = self.pool.time_left(key) {
            self.pool.notify_task();
            let mut lost = pin!(lost.notified());
            lost.as_mut().enable();
            // The notification may have been sent in between.
            if self.pool.time_left(key).is_some() {
                let _ = within(left, lost).await;
            }
        }
    }

    /// Releases the lease, and waits until Redis has applied it, up to the deadline.
    ///
    /// # Errors
    ///
    /// If Redis did not answer in time. The lease is released all the same, or expires by itself.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// The lease is released even if the future is dropped, or never polled.
    pub async fn release(mut self) -> Result<(), CallError> {
        self.is_released = true;
        let (done, is_done) = oneshot::channel();
        self.pool.release(self.key, self.class, Some(done));
        match within(self.pool.connection.deadline(), is_done).await {
            Some(Ok(())) => Ok(()),
            _ => Err(CallError::failed(Failure::Timeout)),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.is_released {
            self.pool.release(self.key, self.class, None);
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("is_local", &self.is_local())
            .field("is_lost", &self.is_lost())
            .finish_non_exhaustive()
    }
}
