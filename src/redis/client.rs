use core::time::Duration;
use std::sync::Arc;

use super::driver::One;
use super::error::{CallError, ConfigError};
use super::keeper::Keeper;
use super::key::{escaped, tagged};
use super::keyed::Keyed;
use super::leases::{FleetUsage, RedisPermits};
use super::limit::Limit;
use super::link::Store;
use super::plan::Plan;
use super::remote::RedisLimiter;
use super::stats::Stats;
use super::twin::RedisPolicy;
use super::when_down::OutagePolicy;

/// So long a call may take, unless said otherwise.
const DEADLINE: Duration = Duration::from_millis(25);

const PREFIX: &str = "paceline";

/// A Redis or Valkey server, or a cluster, in which limits are kept. Clones share one connection.
///
/// It connects when it is first needed, and again whenever that is lost; nobody waits for it longer than the deadline.
///
/// ```
/// use futures::StreamExt;
/// use paceline::policy::TokenBucket;
/// use paceline::prelude::*;
/// use paceline::redis::{Redis, OutagePolicy};
/// use paceline::time::Rate;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # // Where the tests run there is a server.
/// # if std::env::var_os("REDIS_URL").is_none() { return Ok(()); }
/// let redis = Redis::open(&std::env::var("REDIS_URL")?, OutagePolicy::insured(3))?;
/// let limit = redis.limit("sms", TokenBucket::new(Rate::per_second(30), 5))?;
///
/// let mut messages = futures::stream::iter(["one", "two"]).pace(limit);
/// while let Some(message) = messages.next().await {
///     println!("{message}");
/// }
/// # assert!(redis.is_up());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Redis {
    keeper: Arc<Keeper>,
    /// As it stands in keys.
    prefix: Arc<str>,
    when_down: OutagePolicy,
}

impl Redis {
    /// One server, by its URL: `redis://[user:password@]host[:port][/database]`, `rediss://` for TLS (with that feature of the
    /// `redis` crate), or `unix:///path`. It does not connect yet.
    ///
    /// `when_down` says what its limits do while it does not answer.
    ///
    /// # Errors
    ///
    /// If the URL is none of a Redis server.
    pub fn open(url: &str, when_down: OutagePolicy) -> Result<Self, ConfigError> {
        let one = One::new(url).map_err(|error| {
            let url = without_secrets(url);
            ConfigError::new(format!("{url:?} is no URL of a Redis server: {error}"))
        })?;
        Ok(Self::on(Arc::new(one), when_down))
    }

    /// A cluster, by the URLs of some of its nodes. It does not connect yet.
    ///
    /// # Errors
    ///
    /// If there is no URL, or one is none of a Redis server.
    #[cfg(feature = "redis-cluster")]
    pub fn open_cluster(urls: &[&str], when_down: OutagePolicy) -> Result<Self, ConfigError> {
        let many = super::driver::Many::new(urls).map_err(|error| {
            let urls: Vec<_> = urls.iter().map(|url| without_secrets(url)).collect();
            ConfigError::new(format!("{urls:?} are no URLs of a Redis cluster: {error}"))
        })?;
        Ok(Self::on(Arc::new(many), when_down))
    }

    fn on(store: Arc<dyn Store>, when_down: OutagePolicy) -> Self {
        Self {
            keeper: Arc::new(Keeper::new(store, DEADLINE)),
            prefix: PREFIX.into(),
            when_down,
        }
    }

    /// So long a call may take: to connect, to send, to wait for the answer. 25 ms unless said otherwise.
    ///
    /// Call it before anything is made of it: what has been made keeps the deadline that it had.
    ///
    /// # Errors
    ///
    /// If it is shorter than a millisecond: nothing would ever be answered in time.
    pub fn with_deadline(self, deadline: Duration) -> Result<Self, ConfigError> {
        if deadline < Duration::from_millis(1) {
            return Err(ConfigError::new(format!(
                "a deadline is at least 1 ms, got {deadline:?}"
            )));
        }
        let keeper = self.keeper.with_deadline(deadline);
        Ok(Self {
            keeper: Arc::new(keeper),
            ..self
        })
    }

    /// What the keys of its limits begin with: `paceline` unless said otherwise.
    ///
    /// # Errors
    ///
    /// If it is empty or longer than 200 bytes.
    pub fn with_prefix(self, prefix: &str) -> Result<Self, ConfigError> {
        Ok(Self {
            prefix: escaped("a prefix", prefix)?.into(),
            ..self
        })
    }

    /// The same server, whose limits do something else while it does not answer.
    #[must_use]
    pub const fn when_down(mut self, when_down: OutagePolicy) -> Self {
        self.when_down = when_down;
        self
    }

    /// The limit of that name, shared with all processes that use the name with the same policy.
    ///
    /// Nothing is asked of the server yet. Limits of the same name that are made twice in one process share what is in Redis, but
    /// not their line: better clone one.
    ///
    /// # Errors
    ///
    /// If the policy's numbers have no room in Redis, the name is empty or longer than 200 bytes, or the limit cannot be divided
    /// among the replicas of its [insurance](OutagePolicy::insured).
    pub fn limit<P: RedisPolicy>(
        &self,
        name: &str,
        policy: P,
    ) -> Result<RedisLimiter<P>, ConfigError> {
        let plan = Arc::new(Plan::new(policy, self.when_down)?);
        let name = tagged(&self.prefix, name)?;
        Ok(RedisLimiter::new(Arc::new(Limit::new(
            Arc::clone(&self.keeper),
            plan,
            &name,
        ))))
    }

    /// A limit for each key, all with the same policy.
    ///
    /// # Errors
    ///
    /// As [`limit`](Self::limit).
    pub fn keyed<P: RedisPolicy>(&self, name: &str, policy: P) -> Result<Keyed<P>, ConfigError> {
        let plan = Arc::new(Plan::new(policy, self.when_down)?);
        let prefix = format!("{}:{}", self.prefix, escaped("a name", name)?);
        Ok(Keyed::new(Arc::clone(&self.keeper), plan, prefix))
    }

    /// So many at once, shared with all processes that use the name with the same number: each has a [`Lease`](super::Lease),
    /// which lapses after that time unless it is renewed.
    ///
    /// Short leases let others in soon after a process has ended without a word; long ones outlast a longer outage. Ten seconds
    /// is a good begin. Nothing is asked of the server yet. Made twice in one process, they share what is in Redis, but not
    /// their line: better clone them.
    ///
    /// # Errors
    ///
    /// If `n` is zero; if `lease` is shorter than 100 ms or four [deadlines](Self::with_deadline), or longer than a day; if the
    /// name is empty or longer than 200 bytes; or if there are fewer than one for each replica of the
    /// [insurance](OutagePolicy::insured).
    pub fn permits(
        &self,
        name: &str,
        n: u32,
        lease: Duration,
    ) -> Result<RedisPermits, ConfigError> {
        let key = format!("{}:permits", tagged(&self.prefix, name)?);
        RedisPermits::new(Arc::clone(&self.keeper), key, n, lease, self.when_down)
    }

    /// Sheds load by how much the whole fleet has under way: at most `capacity` requests, of which `reserved` are kept for
    /// critical work. Of 100 with a reserve of 20 %, that is 20.
    ///
    /// Every request that is let in has a [`Lease`](super::Lease) while it is under way, which lapses after that time unless it
    /// is renewed.
    ///
    /// # Errors
    ///
    /// If `reserved` is not less than `capacity`: nothing but critical work would ever pass; or as [`permits`](Self::permits),
    /// where what is not reserved is divided among the replicas.
    pub fn fleet_usage(
        &self,
        name: &str,
        capacity: u32,
        reserved: u32,
        lease: Duration,
    ) -> Result<FleetUsage, ConfigError> {
        let name = tagged(&self.prefix, name)?;
        let keeper = Arc::clone(&self.keeper);
        FleetUsage::new(keeper, &name, capacity, reserved, lease, self.when_down)
    }

    /// Connects, if it is not yet connected, and waits for that up to a deadline: to know at the start of a program that all is
    /// well. Nothing needs it.
    ///
    /// # Errors
    ///
    /// Why it is not connected.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub async fn connect(&self) -> Result<(), CallError> {
        self.keeper.connected_within().await.map_err(CallError::new)
    }

    /// Whether there is a connection that was of use last.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.keeper.is_up()
    }

    /// How calls ended.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.keeper.stats()
    }

    /// Why the last call that failed did, in words.
    #[must_use]
    pub fn last_failure(&self) -> Option<String> {
        self.keeper
            .last_failure()
            .map(|failure| failure.to_string())
    }
}

/// Without the user and the password, for errors that may be written down.
fn without_secrets(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://…@{host}"),
        (None, Some((_, host))) => format!("…@{host}"),
        (_, None) => url.to_owned(),
    }
}
