use core::time::Duration;
use std::error::Error;
use std::sync::Arc;

use crate::remote::{
    Batcher, CallError, Change, Connection, Fallback, KeyQueue, OutagePolicy, ServerStats,
};
use paceline::limiter::{Mode, Reporter, Share, Switch};
use paceline::policy::TokenBucket;

use super::config::{Redis, config, escaped, keys, tagged};
use super::connector::Connector;
#[cfg(feature = "tls")]
use super::connector::Tls;
use super::keyed::{Policies, RedisKeyed};
use super::limiter::RedisLimiter;
use super::permits::{RedisKeyedPermits, RedisPermits};
use super::policy::RedisPolicy;
use super::reserved::RedisReserved;
use super::script_params::RedisLimit;
use super::usage::FleetUsage;
use paceline::config::ConfigError;

/// The default deadline of a call.
const DEADLINE: Duration = Duration::from_millis(25);

/// The same if everything passes without an answer. A server that only waits for a processor should have the time to answer.
const DEADLINE_IF_OPEN: Duration = Duration::from_millis(100);

const PREFIX: &str = "paceline";

impl Redis {
    /// One server, by its URL: `redis://[user:password@]host[:port][/database]`, `rediss://` for TLS (with feature `tls`),
    /// or `unix:///path`. It does not connect yet.
    ///
    /// `when_down` decides what passes its limits during an outage.
    ///
    /// # Errors
    ///
    /// If the URL is not the URL of a Redis server, or needs TLS without feature `tls`.
    pub fn open(url: &str, when_down: OutagePolicy) -> Result<Self, ConfigError> {
        let connector = Connector::server(url).map_err(|error| {
            let why = why_not(&[url], &error);
            let url = without_secrets(url);
            ConfigError::new(format!(
                "{url:?} is no URL of a Redis server, such as redis://host:6379/0{why}"
            ))
        })?;
        Ok(Self::with(connector, when_down))
    }

    /// The master that Sentinel names, by the URLs of some sentinels and the master's name. It does not connect yet.
    ///
    /// Every time it connects, it asks all sentinels at once, takes the first master that one of them names, and checks that it
    /// is one. So it follows a failover, and a sentinel that is down does not matter. What a failover can cost is in
    /// [the guide](crate#what-a-failover-can-cost).
    ///
    /// If the master needs a login, a database or TLS, `master` is a URL with the name as its host:
    /// `rediss://user:password@mymaster/2`. The logins in the URLs of the sentinels are for the sentinels.
    ///
    /// # Errors
    ///
    /// If there is no URL, or one of them is not the URL of a Redis server, or needs TLS without feature `tls`.
    pub fn open_sentinel(
        sentinels: &[&str],
        master: &str,
        when_down: OutagePolicy,
    ) -> Result<Self, ConfigError> {
        let connector = Connector::sentinels(sentinels, master).map_err(|error| {
            // The name alone is no URL.
            let master_url = [master].into_iter().filter(|master| master.contains("://"));
            let all: Vec<_> = sentinels.iter().copied().chain(master_url).collect();
            let why = why_not(&all, &error);
            let urls: Vec<_> = sentinels.iter().map(|url| without_secrets(url)).collect();
            let master = without_secrets(master);
            ConfigError::new(format!(
                "{urls:?} and {master:?} are no URLs of sentinels and name of a master{why}"
            ))
        })?;
        Ok(Self::with(connector, when_down))
    }

    /// A cluster, by the URLs of some of its nodes. It does not connect yet.
    ///
    /// # Errors
    ///
    /// If there is no URL, or one of them is not the URL of a Redis server, or needs TLS without feature `tls`.
    #[cfg(feature = "cluster")]
    pub fn open_cluster(urls: &[&str], when_down: OutagePolicy) -> Result<Self, ConfigError> {
        let connector = Connector::cluster(urls).map_err(|error| {
            let why = why_not(urls, &error);
            let urls: Vec<_> = urls.iter().map(|url| without_secrets(url)).collect();
            ConfigError::new(format!("{urls:?} are no URLs of a Redis cluster{why}"))
        })?;
        Ok(Self::with(connector, when_down))
    }

    fn with(connector: Connector, outage_policy: OutagePolicy) -> Self {
        let prefix: Arc<str> = PREFIX.into();
        let deadline = match outage_policy.fallback(Ok::<_, ()>) {
            Ok(Fallback::Open) => DEADLINE_IF_OPEN,
            _ => DEADLINE,
        };
        Self {
            batcher: batcher(connector, deadline, &prefix),
            prefix,
            outage_policy,
        }
    }

    /// The certificates for connections by TLS, in place of the system's root certificates. They are for every URL that begins
    /// with `rediss://`.
    ///
    /// Set it before making limits: a limit keeps the connection it was made with.
    ///
    /// # Errors
    ///
    /// If no URL begins with `rediss://`, or the certificates or the key cannot be read.
    #[cfg(feature = "tls")]
    pub fn with_tls(self, tls: &Tls) -> Result<Self, ConfigError> {
        let connection = &self.batcher.connection;
        let connector = connection.store.with_tls(tls).map_err(|error| {
            ConfigError::new(format!("cannot connect by TLS: {}", plain(&error)))
        })?;
        Ok(Self {
            batcher: batcher(connector, connection.deadline(), &self.prefix),
            ..self
        })
    }

    /// The time limit of a call: to connect, to send, and to wait for the answer. 25 ms by default, and 100 ms if it was opened with
    /// [`OutagePolicy::open`], where a limit that is not answered in time limits nothing.
    ///
    /// Set it before making limits: a limit keeps the deadline it was made with.
    ///
    /// # Errors
    ///
    /// If it is shorter than a millisecond: no call would be answered in time.
    pub fn with_deadline(self, deadline: Duration) -> Result<Self, ConfigError> {
        if deadline < Duration::from_millis(1) {
            return Err(ConfigError::new(format!(
                "a deadline is at least 1 ms, got {deadline:?}"
            )));
        }
        let connector = self.batcher.connection.store.clone();
        Ok(Self {
            batcher: batcher(connector, deadline, &self.prefix),
            ..self
        })
    }

    /// The start of all keys: `paceline` by default. Limits with different prefixes share the connection, but no round trips.
    ///
    /// # Errors
    ///
    /// If it is empty or longer than 200 bytes.
    pub fn with_prefix(self, prefix: &str) -> Result<Self, ConfigError> {
        let prefix: Arc<str> = escaped("a prefix", prefix)?.into();
        let connection = Arc::clone(&self.batcher.connection);
        Ok(Self {
            batcher: Arc::new(Batcher::new(connection, Arc::clone(&prefix))),
            prefix,
            ..self
        })
    }

    /// The same server and connection, with another outage policy for the limits made from here on.
    #[must_use]
    pub const fn when_down(mut self, when_down: OutagePolicy) -> Self {
        self.outage_policy = when_down;
        self
    }

    /// The limit of that name, shared with all processes that use the name with the same policy.
    ///
    /// It makes no call yet. Two limits of the same name in one process share the state in Redis but not a queue: prefer a
    /// clone.
    ///
    /// # Errors
    ///
    /// If the policy's numbers are too large for Redis (a `SlidingLog` of more than 100,000, where a `SlidingCounter` is right), the
    /// name is empty or longer than 200 bytes, or the limit cannot be divided among the replicas of its
    /// [insurance](OutagePolicy::insured).
    pub fn limit<P: RedisPolicy>(
        &self,
        name: &str,
        policy: P,
    ) -> Result<RedisLimiter<P>, ConfigError> {
        let (config, params) = config(policy, self.outage_policy)?;
        let keys = keys(&params, &tagged(&self.prefix, name)?);
        let limit = RedisLimit { keys, params };
        let queue = KeyQueue::new(Arc::clone(&self.batcher), config, limit);
        Ok(RedisLimiter::new(Arc::new(queue), Reporter::NONE))
    }

    /// A limit for each key, all with the same policy.
    ///
    /// # Errors
    ///
    /// As [`limit`](Self::limit).
    pub fn keyed<P: RedisPolicy>(
        &self,
        name: &str,
        policy: P,
    ) -> Result<RedisKeyed<P>, ConfigError> {
        let policies = Policies::Same(config(policy, self.outage_policy)?);
        Ok(RedisKeyed::new(self.named(name)?, policies))
    }

    /// A limit for each key, with the policy that `policy_of` returns for the key: tiers of users, for example.
    ///
    /// It is called each time [`at`](RedisKeyed::at) is. All processes have to agree on the policy of a key. When the policy changes,
    /// the handles made from then on have it, and what was spent stays spent. Handles made before keep the old policy; during an
    /// outage they have no [insurance](OutagePolicy::insured) any more, and the new ones begin with everything spent.
    ///
    /// ```
    /// use paceline::policy::TokenBucket;
    /// use paceline_redis::{OutagePolicy, Redis};
    /// use paceline::time::Rate;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # // Where the tests run there is a server.
    /// # if std::env::var_os("REDIS_URL").is_none() { return Ok(()); }
    /// let redis = Redis::open(&std::env::var("REDIS_URL")?, OutagePolicy::closed())?;
    /// # // A busy machine may be late.
    /// # let redis = redis.with_deadline(std::time::Duration::from_secs(2))?;
    /// let users = redis.keyed_by("users", |user| match user {
    ///     "ann" => TokenBucket::new(Rate::per_second(100), 100),
    ///     _ => TokenBucket::new(Rate::per_second(1), 5),
    /// })?;
    ///
    /// assert!(users.at("ann")?.try_acquire(50).await?.is_pass());
    /// assert!(!users.at("bob")?.try_acquire(50).await?.is_pass());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the name is empty or longer than 200 bytes. A policy that cannot be used is an error of [`at`](RedisKeyed::at).
    #[doc(alias("tier", "plan"))]
    pub fn keyed_by<P: RedisPolicy>(
        &self,
        name: &str,
        policy_of: impl Fn(&str) -> P + Send + Sync + 'static,
    ) -> Result<RedisKeyed<P>, ConfigError> {
        let policies = Policies::ByKey(Arc::new(policy_of));
        Ok(RedisKeyed::new(self.named(name)?, policies))
    }

    /// A rate of which some classes of requests have a reserve, and which all of them may use whole: see [`RedisReserved`].
    ///
    /// Each reserve is the name of a class and its share of the rate, in whole percent. What is left is the share of all other classes
    /// together. It makes no call yet.
    ///
    /// ```
    /// use paceline::limiter::Share;
    /// use paceline::policy::TokenBucket;
    /// use paceline::time::Rate;
    /// use paceline_redis::{OutagePolicy, Redis};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # // Where the tests run there is a server.
    /// # if std::env::var_os("REDIS_URL").is_none() { return Ok(()); }
    /// let redis = Redis::open(&std::env::var("REDIS_URL")?, OutagePolicy::closed())?;
    /// # let redis = redis.with_deadline(std::time::Duration::from_secs(10))?;
    /// # let redis = redis.with_prefix(&format!("reserved:{}", std::process::id()))?;
    /// let bucket = TokenBucket::new(Rate::per_minute(1), 10);
    /// let sms = redis.reserved("sms", bucket, &[("payments", Share::percent(25))])?;
    ///
    /// // A bucket of 6 and a pool of 2 are empty then.
    /// assert_eq!(sms.at("analytics").try_acquire_up_to(100).await?, 8);
    /// assert!(!sms.at("reports").try_acquire(1).await?.is_pass());
    /// sms.at("payments").acquire(2).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// * If there are no reserves or more than seven, two of one class, one that is no whole number of percent, or more than 100 % together.
    /// * If a part of the burst, also that of all others, is less than one permit, or less than one for each replica of an
    ///   [insurance](OutagePolicy::insured).
    /// * If the bucket starts empty or has debts, or if it is too large for the numbers of the scripts.
    /// * If the name is empty or longer than 200 bytes.
    #[doc(alias("priority", "guaranteed rate", "borrow", "hierarchical token bucket"))]
    pub fn reserved(
        &self,
        name: &str,
        bucket: TokenBucket,
        reserves: &[(&str, Share)],
    ) -> Result<RedisReserved, ConfigError> {
        RedisReserved::new(self, name, bucket, reserves)
    }

    /// Up to `n` leases at once, shared with all processes that use the name with the same `n`. A holder has a
    /// [`Lease`](crate::Lease), which expires after the time `lease` unless it is renewed.
    ///
    /// With short leases, others get in soon after a process has died; long leases outlast a longer outage. Ten seconds is a
    /// good start. It makes no call yet. Two pools of the same name in one process share the state in Redis but not a queue:
    /// prefer a clone.
    ///
    /// # Errors
    ///
    /// If `n` is zero; if `lease` is shorter than 100 ms or four [deadlines](Self::with_deadline), or longer than a day; if the
    /// name is empty or longer than 200 bytes; or if `n` is less than the number of replicas of the
    /// [insurance](OutagePolicy::insured).
    pub fn permits(
        &self,
        name: &str,
        n: u32,
        lease: Duration,
    ) -> Result<RedisPermits, ConfigError> {
        RedisPermits::new(self, name, n, lease)
    }

    /// Up to `n` leases at once for each key, shared with all processes that use the name with the same `n`: at most `n` exports at
    /// once for each user.
    ///
    /// # Errors
    ///
    /// As [`permits`](Self::permits).
    pub fn keyed_permits(
        &self,
        name: &str,
        n: u32,
        lease: Duration,
    ) -> Result<RedisKeyedPermits, ConfigError> {
        RedisKeyedPermits::new(self.named(name)?, n, lease)
    }

    /// Sheds load by the number of requests under way in the whole fleet: at most `capacity`, of which `reserved` are kept for
    /// critical work. Of 100 with a reserve of 20 %, that is 20.
    ///
    /// Every admitted request has a [`Lease`](crate::Lease) while it is under way, which expires after the time `lease` unless it
    /// is renewed.
    ///
    /// # Errors
    ///
    /// If `reserved` is not less than `capacity`: only critical work would ever pass; or as [`permits`](Self::permits), where
    /// the part that is not reserved is divided among the replicas.
    pub fn fleet_usage(
        &self,
        name: &str,
        capacity: u32,
        reserved: u32,
        lease: Duration,
    ) -> Result<FleetUsage, ConfigError> {
        FleetUsage::new(self, name, capacity, reserved, lease)
    }

    /// The [`Switch`] of that name, whose mode all processes have in common: [`set_mode`](Self::set_mode) sets it in all of them. Put
    /// it around any limit, in Redis or in memory.
    ///
    /// ```
    /// use paceline::limiter::Mode;
    /// use paceline::policy::SlidingLog;
    /// use paceline::prelude::*;
    /// use paceline_redis::{OutagePolicy, Redis};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # // Where the tests run there is a server.
    /// # if std::env::var_os("REDIS_URL").is_none() { return Ok(()); }
    /// let redis = Redis::open(&std::env::var("REDIS_URL")?, OutagePolicy::closed())?;
    /// # // A busy machine may be late.
    /// # let redis = redis.with_deadline(Duration::from_secs(2))?;
    /// # let redis = redis.with_prefix(&format!("switch:{}", std::process::id()))?;
    /// let switch = redis.switch("calls")?;
    /// let calls = redis.limit("calls", SlidingLog::new(1, Duration::from_secs(60)))?.switched(&switch);
    ///
    /// redis.set_mode("calls", Mode::Shadow).await?;
    /// for _ in 0..3 {
    ///     assert!(calls.try_acquire(1).await.is_pass());
    /// }
    /// assert_eq!(switch.stats().held_back, 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A process hears of another mode as of [other changes](crate#a-fleet-hears-a-429): with a request, of which the answer waits for
    /// nothing. So one that was idle hears a round trip after its first request, which it asks in the mode before. One that starts is
    /// `Active` until then, or as `redis.switch("calls")?.with_mode(Mode::Shadow)` says. A request that waits in memory behind the
    /// switch hears with the next request that this process makes.
    ///
    /// The [share](Switch::share) belongs to this process. A mode that is set on the switch itself lasts until this process reads that
    /// of the fleet again: for a second or so, or for an outage.
    ///
    /// # Errors
    ///
    /// If the name is empty or longer than 200 bytes.
    pub fn switch(&self, name: &str) -> Result<Switch, ConfigError> {
        let name = tagged(&self.prefix, name)?;
        Ok(self.batcher.switch(&name))
    }

    /// Sets the mode of the [`switch`](Self::switch) of that name, in all processes. It stays until it is set again, also for
    /// processes that start later.
    ///
    /// # Errors
    ///
    /// [`unfit`](CallError::unfit), if the name is empty or longer than 200 bytes; any other, as [`RedisLimiter::pause_for`]: the mode
    /// is set in this process, and others may not know of it.
    ///
    /// # Cancel safety
    ///
    /// This process has changed as soon as the future was polled. If the future is dropped before it is ready, other processes
    /// may not know.
    pub async fn set_mode(&self, name: &str, mode: Mode) -> Result<(), CallError> {
        let name = tagged(&self.prefix, name)?;
        self.batcher.change(&name, &Change::Mode(mode)).await
    }

    /// Connects if there is no connection, and waits for it up to a deadline: to find out at the start of a program whether Redis
    /// can be used. No other method needs it.
    ///
    /// A connection that fails is an outage, at the start of a program too. When the server is there, [all limits count as
    /// used up](crate#what-a-failover-can-cost) for one window. A program that starts beside its server avoids that with
    /// a new [`Redis`] for each attempt, which knows of no outage, until one connects. Limits are made after that.
    ///
    /// # Errors
    ///
    /// Why there is no connection.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub async fn connect(&self) -> Result<(), CallError> {
        self.batcher.connection.connected_within().await
    }

    /// Whether there is a connection, and no failure has shown that it is broken.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.batcher.connection.is_up()
    }

    /// How calls ended.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
        self.batcher.connection.stats()
    }

    /// The cause of the last failure, in words.
    #[must_use]
    pub fn last_failure(&self) -> Option<String> {
        let failure = self.batcher.connection.last_failure()?;
        Some(failure.to_string())
    }
}

fn batcher(connector: Connector, deadline: Duration, prefix: &Arc<str>) -> Arc<Batcher<Connector>> {
    let connection = Arc::new(Connection::new(connector, deadline));
    Arc::new(Batcher::new(connection, Arc::clone(prefix)))
}

/// Why these are no URLs, or what may be meant; empty if there is nothing to add.
fn why_not(urls: &[&str], error: &dyn Error) -> String {
    if !cfg!(feature = "tls") && urls.iter().any(|url| url.starts_with("rediss://")) {
        return ": TLS needs feature `tls`".to_owned();
    }
    let lacks_only_a_scheme =
        |url: &&&str| !url.contains("://") && Connector::server(&format!("redis://{url}")).is_ok();
    if let Some(url) = urls.iter().find(lacks_only_a_scheme) {
        return format!(": did you mean redis://{}?", without_secrets(url));
    }
    match plain(error) {
        why if why == "redis URL did not parse" => String::new(),
        why => format!(": {why}"),
    }
}

/// The message of the client library, without the kind of the error after it.
fn plain(error: &dyn Error) -> String {
    let text = error.to_string();
    let why = text.split(" - ").next().unwrap_or_default();
    let (first, rest) = why.split_at_checked(1).unwrap_or_default();
    first.to_ascii_lowercase() + rest
}

/// Without the user and the password, because errors may be logged.
fn without_secrets(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://…@{host}"),
        (None, Some((_, host))) => format!("…@{host}"),
        (_, None) => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_for_tls_is_refused_without_feature_redis_tls() {
        let opened = Redis::open("rediss://bob:hunter2@example.org", OutagePolicy::closed());
        let expected = "\"rediss://…@example.org\" is no URL of a Redis server, such as redis://host:6379/0: TLS needs feature `tls`";
        let expected = (!cfg!(feature = "tls")).then(|| expected.to_owned());
        assert_eq!(opened.err().map(|error| error.to_string()), expected);
    }
}
