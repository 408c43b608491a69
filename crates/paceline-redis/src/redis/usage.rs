use core::task::{Context, Poll};
use core::time::Duration;
use std::sync::Arc;

use crate::remote::{
    CallError, ClassConfig, Fallback, Lease, LeaseAnswer, LeasePool, LeaseRequest, ServerError,
};
use paceline::concurrency::Admit;
use paceline::shed::{Class, InUse};

use super::config::{Redis, tagged};
use super::connector::Connector;
use paceline::config::ConfigError;

/// More leases than there can ever be.
const UNLIMITED: u64 = 1 << 53;

/// The classes of the pool.
const CRITICAL: usize = 0;
const SHEDDABLE: usize = 1;

/// Sheds load by the number of requests under way in a whole fleet, with a reserve for critical work. Made by
/// [`Redis::fleet_usage`](crate::Redis::fleet_usage).
///
/// With a capacity of C and a reserve of R, a sheddable request is admitted if with it no more than C − R sheddable requests and
/// no more than C requests of both kinds are under way. A critical request is always admitted, and counted. One script sees
/// both counts at once, and all numbers are integers. [`shed::FleetUsage`](paceline::shed::FleetUsage) does the same in one process.
///
/// ```
/// use paceline::shed::Class;
/// use paceline_redis::{OutagePolicy, Redis};
/// use std::time::Duration;
///
/// # async fn answer() {}
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # // Where the tests run there is a server.
/// # if std::env::var_os("REDIS_URL").is_none() { return Ok(()); }
/// let redis = Redis::open(&std::env::var("REDIS_URL")?, OutagePolicy::open())?;
/// # // A busy machine may be late.
/// # let redis = redis.with_deadline(std::time::Duration::from_secs(2))?;
/// let usage = redis.fleet_usage("api", 100, 20, Duration::from_secs(10))?;
///
/// match usage.admit(Class::Sheddable(0)).await? {
///     Some(_under_way) => answer().await,
///     None => println!("503 Service Unavailable"),
/// }
/// # assert!(redis.is_up());
/// # Ok(())
/// # }
/// ```
///
/// An admitted request holds a [`Lease`] until its answer is sent. If that lease is [lost](Lease#it-can-be-lost), the request is
/// under way and not counted; there is no other consequence, so a caller need not wait for it.
///
/// **During an outage**, critical requests are admitted with a [local](Lease::is_local) lease. So are sheddable ones with
/// [`OutagePolicy::open`](crate::OutagePolicy::open). With [`closed`](crate::OutagePolicy::closed) they are refused. With [`insured`](crate::OutagePolicy::insured) up to
/// (C − R) / replicas at once are admitted, once the outage has lasted as long as a lease. No round trip takes longer than the
/// deadline.
#[derive(Clone, Debug)]
pub struct FleetUsage {
    pool: Arc<LeasePool<Connector>>,
    /// Of [`Admit`].
    request: LeaseRequest,
}

impl FleetUsage {
    pub(super) fn new(
        redis: &Redis,
        name: &str,
        capacity: u32,
        reserved: u32,
        lease: Duration,
    ) -> Result<Self, ConfigError> {
        let name = tagged(&redis.prefix, name)?;
        if reserved >= capacity {
            return Err(ConfigError::new(format!(
                "a reserve of {reserved} leaves nothing of a capacity of {capacity}"
            )));
        }
        let critical = ClassConfig {
            key: format!("{name}:usage:critical"),
            own: UNLIMITED,
            total: UNLIMITED,
            fallback: Fallback::Open,
        };
        let key = format!("{name}:usage:sheddable");
        let sheddable = ClassConfig::new(key, capacity - reserved, capacity, redis.outage_policy)?;
        let pool = LeasePool::new(&redis.batcher, lease, vec![critical, sheddable], None)?;
        Ok(Self {
            pool,
            request: LeaseRequest::default(),
        })
    }

    /// Admits a request until the lease is dropped; `None` if it is to be shed.
    ///
    /// # Errors
    ///
    /// If the server refuses the call, because a key holds another type or a permission is missing; for critical work too.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// A lease that was granted for a dropped future is released.
    pub async fn admit(&self, class: Class) -> Result<Option<Lease>, ServerError> {
        self.pool.ask(place_of(class), false).await
    }

    /// How many requests are under way, as Redis knows it.
    ///
    /// # Errors
    ///
    /// If Redis does not answer.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub async fn in_use(&self) -> Result<InUse, CallError> {
        let in_use = self.pool.in_use().await?;
        Ok(InUse::new(in_use[CRITICAL], in_use[SHEDDABLE]))
    }
}

/// There is no queue: `None` is a request to be shed.
///
/// # Panics
///
/// Outside a tokio runtime.
impl Admit<Class> for FleetUsage {
    type Guard = Lease;
    type Error = ServerError;

    fn poll_admit(&mut self, class: Class, cx: &mut Context<'_>) -> Poll<LeaseAnswer> {
        let (request, class) = (&mut self.request, place_of(class));
        self.pool.poll_ask(request, class, false, cx)
    }

    fn give_up(&mut self) {
        self.request = LeaseRequest::default();
    }
}

const fn place_of(class: Class) -> usize {
    match class {
        Class::Critical => CRITICAL,
        Class::Sheddable(_) => SHEDDABLE,
    }
}
