use core::fmt;
use core::task::{Context, Poll};
use core::time::Duration;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::remote::{
    CallError, ClassConfig, Lease, LeaseAnswer, LeasePool, LeaseRequest, ServerError, within,
};
use paceline::concurrency::Admit;
use paceline::limiter::{AcquireError, Event, Limits, Observer, Reporter};

use super::config::{Redis, tagged};
use super::connector::Connector;
use paceline::config::ConfigError;

type PoolsByKey = HashMap<Box<str>, Weak<LeasePool<Connector>>>;

/// A number of leases at once in a whole fleet. Made by [`Redis::permits`](crate::Redis::permits).
///
/// Clones share one queue. For permits in one process there is [`concurrency::Permits`](paceline::concurrency::Permits).
///
/// ```
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
///   are held that were granted without Redis: when it is back, the process that asks first may get all n beside those of others.
///   If the server's clock goes back, the lease of a dead process ends later: by that step, and at most by the time of a lease.
/// * **Order**: first come, first served in one process. Processes [take turns](#turns). `try_acquire` overtakes no waiter of any
///   process.
/// * **Round trips**: requests, renewals and releases of the same time share one round trip. One is under way at a time.
/// * **During an outage**, no round trip takes longer than the deadline, and [`OutagePolicy`](crate::OutagePolicy) decides:
///   [`open`](crate::OutagePolicy::open) grants a [local](Lease::is_local) lease to every request; [`closed`](crate::OutagePolicy::closed)
///   grants none; [`insured`](crate::OutagePolicy::insured) grants local ones up to n / replicas, guards of lost leases counted, once
///   the outage has lasted as long as a lease: before that, others may still hold all of them.
/// * **In Redis** there are two keys, in one slot of a cluster: the leases, and the marks of waiting processes. Each is deleted
///   with its last entry, and expires. A refused `try_acquire` leaves nothing behind.
///
/// # Turns
///
/// A process whose requests wait has a mark in Redis: its turn, and how many requests wait. Free permits are reserved for earlier
/// turns. One turn takes n / (number of waiting processes) permits, rounded up. Then the process goes to the back. A process that
/// releases a permit and asks for another at once does not come before earlier turns. So each of several processes that always
/// wait gets about an equal number of leases. (Two pools of one name in one process count as two processes.)
///
/// * **Pauses**: a process asks again when it releases a lease. Otherwise the next in turn asks every 2 ms, the second every 4 ms,
///   the third every 6 ms, and so on. If its place does not change for longer, a process asks less often: the pause of the next in
///   turn is a sixteenth of that time, up to a second. A pause ends when a lease expires.
/// * **Cost**: a freed permit is unused until the next in turn asks. That is about 5 % of the time if leases are held for 50 ms, and
///   20 % if they are held for 5 ms. With short leases, ten waiting processes make about 1,500 calls a second, and a hundred 2,600.
///   A call takes the server about 20 µs, and 1 µs more for each waiting process.
/// * **A process that dies while it waits** keeps its turn until its mark lapses: after three pauses, but at least 100 ms, and at
///   most the time of a lease. A request that is cancelled leaves the queue at once, and the mark at the next round trip.
/// * **A distant process** gets as many leases as a near one, and slows both down. A process 20 ms away holds each permit 20 ms
///   longer, and needs 10 ms longer to find a free one. With one permit that both hold for 50 ms, each gets 7 in a second. A near
///   process alone gets 19. With leases shorter than the round trip, most of the time goes to the network. Run such work near the
///   server, or give the distant processes a limit of their own.
#[derive(Clone, Debug)]
pub struct RedisPermits {
    pool: Arc<LeasePool<Connector>>,
    limit: u32,
    /// Of [`Admit`].
    request: LeaseRequest,
}

/// A number of leases at once for each key in a whole fleet: for each user, host or account. Made by
/// [`Redis::keyed_permits`](crate::Redis::keyed_permits).
///
/// ```
/// use paceline_redis::{OutagePolicy, Redis};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # // Where the tests run there is a server.
/// # if std::env::var_os("REDIS_URL").is_none() { return Ok(()); }
/// let redis = Redis::open(&std::env::var("REDIS_URL")?, OutagePolicy::open())?;
/// # // A busy machine may be late.
/// # let redis = redis.with_deadline(std::time::Duration::from_secs(2))?;
/// let exports = redis.keyed_permits("exports", 2, Duration::from_secs(10))?;
///
/// match exports.at("alice")?.try_acquire().await? {
///     Some(_lease) => println!("the export starts"),
///     None => println!("429 Too Many Requests"),
/// }
/// # assert!(redis.is_up());
/// # Ok(())
/// # }
/// ```
///
/// Keys share nothing. Everything that [`RedisPermits`] promise holds for each key. A key is forgotten when it has no handle, no
/// lease and no request here: an idle key costs nothing. A key with a handle takes about 1.2 kB. A key with a lease or a request
/// takes about 4 kB and a task, and its calls are not merged with those of other keys.
#[derive(Clone)]
pub struct RedisKeyedPermits {
    /// Its prefix includes the name of these permits.
    redis: Redis,
    limit: u32,
    lease: Duration,
    pools: Arc<Mutex<PoolsByKey>>,
}

impl RedisPermits {
    pub(super) fn new(
        redis: &Redis,
        name: &str,
        limit: u32,
        lease: Duration,
    ) -> Result<Self, ConfigError> {
        let key = format!("{}:permits", tagged(&redis.prefix, name)?);
        if limit == 0 {
            return Err(ConfigError::new("there must be at least 1 permit, got 0"));
        }
        let marks_key = format!("{key}:waiting");
        let class = ClassConfig::new(key, limit, limit, redis.outage_policy)?;
        let pool = LeasePool::new(&redis.batcher, lease, vec![class], Some(marks_key))?;
        Ok(Self::of(pool, limit))
    }

    /// A handle of an existing pool.
    fn of(pool: Arc<LeasePool<Connector>>, limit: u32) -> Self {
        Self {
            pool,
            limit,
            request: LeaseRequest::default(),
        }
    }

    /// Reports to `observer` what becomes of each request of this process, when its leases are released, and how many there are in
    /// the fleet: as [`Permits::with_observer`](paceline::concurrency::Permits::with_observer). To be called once, and before there
    /// are clones, which have it too.
    ///
    /// The time that a request waited includes its round trip. A [local](Lease::is_local) lease is [`Passed`](Event::Passed) too.
    /// A lease that is lost is in use until its holder drops it.
    ///
    /// ```
    /// use paceline::limiter::Event;
    /// use paceline_redis::{OutagePolicy, Redis};
    /// use std::sync::mpsc;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # // Where the tests run there is a server.
    /// # if std::env::var_os("REDIS_URL").is_none() { return Ok(()); }
    /// let redis = Redis::open(&std::env::var("REDIS_URL")?, OutagePolicy::closed())?;
    /// # // A busy machine may be late.
    /// # let redis = redis.with_deadline(std::time::Duration::from_secs(2))?;
    /// # let redis = redis.with_prefix(&format!("observer:{}", std::process::id()))?;
    /// let (sender, events) = mpsc::channel();
    /// let permits = redis.permits("exports", 1, Duration::from_secs(10))?;
    /// let permits = permits.with_observer(move |event: Event| sender.send(event).unwrap());
    ///
    /// let lease = permits.acquire().await?;
    /// assert!(permits.try_acquire().await?.is_none());
    /// drop(lease);
    ///
    /// assert!(matches!(events.recv(), Ok(Event::Resized { limit: 1, .. })));
    /// assert!(matches!(events.recv(), Ok(Event::Passed { cost: 1, .. })));
    /// assert!(matches!(events.recv(), Ok(Event::Refused { cost: 1, .. })));
    /// assert!(matches!(events.recv(), Ok(Event::Released { count: 1, .. })));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_observer<O>(self, observer: O) -> Self
    where
        O: Send + Sync + 'static,
        for<'a> &'a O: Observer,
    {
        let reporter = Reporter::new(observer);
        reporter.report(Event::resized(self.limit));
        let _ = self.pool.reporter.set(reporter);
        self
    }

    /// Waits for a lease, behind all earlier requests of this process.
    ///
    /// # Errors
    ///
    /// If the server refuses the call, because the key holds another type or a permission is missing. An outage is no error:
    /// [`OutagePolicy`](crate::OutagePolicy) decides then.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue. A lease that was granted meanwhile is released.
    pub async fn acquire(&self) -> Result<Lease, ServerError> {
        let lease = self.pool.ask(0, true).await?;
        Ok(lease.expect("a request that waits is never refused"))
    }

    /// Waits for a lease, but no longer than `time`.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and if there was none in time. It is not known when one will be released, so
    /// [`retry_in`](AcquireError::retry_in) is the time that was waited. An observer sees that the request gave up.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_within(&self, time: Duration) -> Result<Lease, AcquireError<ServerError>> {
        match within(time, self.acquire()).await {
            Some(acquired) => acquired.map_err(AcquireError::of_limit),
            None => Err(AcquireError::too_late(time, Some(time))),
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

/// # Panics
///
/// Outside a tokio runtime.
impl Admit for RedisPermits {
    type Guard = Lease;
    type Error = ServerError;

    fn poll_admit(&mut self, (): (), cx: &mut Context<'_>) -> Poll<LeaseAnswer> {
        self.pool.poll_ask(&mut self.request, 0, true, cx)
    }

    fn poll_try_admit(&mut self, (): (), cx: &mut Context<'_>) -> Poll<LeaseAnswer> {
        self.pool.poll_ask(&mut self.request, 0, false, cx)
    }

    fn give_up(&mut self) {
        self.request = LeaseRequest::default();
    }
}

impl RedisKeyedPermits {
    pub(super) fn new(redis: Redis, limit: u32, lease: Duration) -> Result<Self, ConfigError> {
        // Unfit parameters are an error here and not at the first key.
        RedisPermits::new(&redis, "key", limit, lease)?;
        Ok(Self {
            redis,
            limit,
            lease,
            pools: Arc::default(),
        })
    }

    /// The permits of that key. While they, one of their leases or a request exist, the result is always the same pool.
    ///
    /// # Errors
    ///
    /// If the key is empty or longer than 200 bytes.
    pub fn at(&self, key: &str) -> Result<RedisPermits, ConfigError> {
        let mut pools = self.locked();
        if let Some(pool) = pools.get(key).and_then(Weak::upgrade) {
            return Ok(RedisPermits::of(pool, self.limit));
        }
        let permits = RedisPermits::new(&self.redis, key, self.limit, self.lease)?;
        if pools.len() == pools.capacity() {
            pools.retain(|_, pool| pool.strong_count() > 0);
            // As many keys again come before the next removal.
            let in_use = pools.len();
            pools.reserve(in_use);
        }
        pools.insert(key.into(), Arc::downgrade(&permits.pool));
        Ok(permits)
    }

    /// How many keys this process remembers: those in use, and some that were in use.
    #[must_use]
    pub fn remembered(&self) -> usize {
        self.locked().len()
    }

    fn locked(&self) -> MutexGuard<'_, PoolsByKey> {
        // No code under this lock can leave the map half changed.
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: AsRef<str>> Limits<K> for RedisKeyedPermits {
    type Limit = RedisPermits;
    type Error = ConfigError;

    fn at(&self, key: K) -> Result<RedisPermits, ConfigError> {
        Self::at(self, key.as_ref())
    }
}

/// Without the keys, which may be secret and many.
impl fmt::Debug for RedisKeyedPermits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisKeyedPermits")
            .field("prefix", &self.redis.prefix)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}
