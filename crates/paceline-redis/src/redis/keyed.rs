use core::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::remote::{KeyCache, KeyQueue};
use paceline::limiter::{Event, Limits, Observer, Reporter};
use paceline::policy::All;

use super::config::{Config, LONGEST_NAME, Redis, config, escaped, keys};
use super::connector::Connector;
use super::limiter::RedisLimiter;
use super::policy::RedisPolicy;
use super::script_params::RedisLimit;
use super::transport::sha1;
use paceline::config::ConfigError;

/// How many keys are remembered by default.
const MAX_KEYS: usize = 100_000;

/// A limit in Redis for each key: each user, host, connection.
///
/// Made by [`Redis::keyed`](crate::Redis::keyed), where all keys have the same parameters, or by
/// [`Redis::keyed_by`](crate::Redis::keyed_by), where the key says which. Keys share nothing. Clones share what this process
/// knows of the keys.
///
/// ```
/// use futures::StreamExt;
/// use paceline::policy::TokenBucket;
/// use paceline::prelude::*;
/// use paceline_redis::{OutagePolicy, Redis};
/// use paceline::time::Rate;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # // Where the tests run there is a server.
/// # if std::env::var_os("REDIS_URL").is_none() { return Ok(()); }
/// let redis = Redis::open(&std::env::var("REDIS_URL")?, OutagePolicy::insured(3))?;
/// # // A busy machine may be late.
/// # let redis = redis.with_deadline(std::time::Duration::from_secs(2))?;
/// let users = redis.keyed("calls", TokenBucket::new(Rate::per_second(10), 5))?;
///
/// users.at("ann")?.acquire(1).await?;
/// users.at("bob")?.acquire_within(2, Duration::from_secs(1)).await?;
///
/// let mut calls = futures::stream::iter(1..=3).pace(users.at("eve")?);
/// while let Some(call) = calls.next().await {
///     println!("call {call}");
/// }
/// # assert!(redis.is_up());
/// # Ok(())
/// # }
/// ```
///
/// # Memory
///
/// A key in use costs this process about 1.4 kB: it has a handle, a request, or an
/// [insurance](crate::OutagePolicy::insured) in the present outage. About a thousand keys stay like that after their last use. Any
/// other key costs at most 200 bytes, whatever its length (for one policy; each further one of an [`All`](paceline::policy::All) takes
/// 16 more). This process remembers when the key's state was written and when it settles, to detect that the server has
/// [lost it](crate#what-a-failover-can-cost), until when requests are denied, and [what was left](RedisLimiter::status).
///
/// There is a [largest number of keys](Self::with_max_keys). When it is reached, keys that have settled are evicted, which loses
/// nothing. If those are too few, the keys that were asked for the longest time ago are evicted too. The state in Redis stays, so
/// the limit holds. This process only does not notice any more if the server loses the state of such a key, and asks once more
/// where it knew of a denial. While all places are in use, a new key finds none. It is limited in Redis like any other, but
/// while Redis is down an insurance lets nothing of it pass.
#[derive(Clone)]
pub struct RedisKeyed<P: RedisPolicy> {
    /// Its prefix includes the name of this limit.
    redis: Redis,
    policies: Policies<P>,
    /// The keys in Redis of the limits over all keys, which are the last ones of a policy.
    total: Arc<[String]>,
    hashes_long_keys: bool,
    reporter_of: Option<ReporterOf>,
    cache: Arc<Mutex<KeyCache<P, Connector>>>,
}

/// Which parameters a key has.
#[derive(Clone)]
pub(super) enum Policies<P: RedisPolicy> {
    Same(Config<P>),
    ByKey(Arc<dyn Fn(&str) -> P + Send + Sync>),
}

/// Makes the reporter for the handles of a key.
type ReporterOf = Arc<dyn Fn(&str) -> Reporter + Send + Sync>;

impl<P: RedisPolicy> RedisKeyed<P> {
    pub(super) fn new(redis: Redis, policies: Policies<P>) -> Self {
        Self {
            redis,
            policies,
            total: Arc::default(),
            hashes_long_keys: false,
            reporter_of: None,
            cache: Arc::new(Mutex::new(KeyCache::new(MAX_KEYS))),
        }
    }

    fn reporting(self, reporter_of: impl Fn(&str) -> Reporter + Send + Sync + 'static) -> Self {
        Self {
            reporter_of: Some(Arc::new(reporter_of)),
            ..self
        }
    }

    /// Reports to `observer` what becomes of each request and is done to a key through this handle and its later clones, without
    /// the key: see [`RedisLimiter::with_observer`]. To be called before it is cloned.
    #[must_use]
    pub fn with_observer<O>(self, observer: O) -> Self
    where
        O: Send + Sync + 'static,
        for<'a> &'a O: Observer,
    {
        let reporter = Reporter::new(observer);
        self.reporting(move |_| reporter.clone())
    }

    /// As [`with_observer`](Self::with_observer), with the key of each event.
    ///
    /// `Metrics::by_key` makes such an observer, with a label for each of the busiest keys.
    ///
    /// ```
    /// use paceline::limiter::Event;
    /// use paceline::policy::SlidingLog;
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
    /// # let redis = redis.with_prefix(&format!("by_key:{}", std::process::id()))?;
    /// let (sender, refused) = mpsc::channel();
    /// let users = redis.keyed("users", SlidingLog::new(1, Duration::from_secs(60)))?;
    /// let users = users.with_observer_by_key(move |user, event| {
    ///     if let Event::Refused { .. } = event {
    ///         sender.send(user.to_owned()).unwrap();
    ///     }
    /// });
    ///
    /// for user in ["ann", "bob", "ann"] {
    ///     let _ = users.at(user)?.try_acquire(1).await?;
    /// }
    /// assert_eq!(refused.try_iter().collect::<Vec<_>>(), ["ann"]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_observer_by_key(
        self,
        observer: impl Fn(&str, Event) + Send + Sync + 'static,
    ) -> Self {
        let observer = Arc::new(observer);
        self.reporting(move |key| {
            let (observer, key) = (Arc::clone(&observer), key.to_owned());
            Reporter::new(move |event: Event| observer(&key, event))
        })
    }

    /// At most that many keys are remembered; 100,000 by default. To be called before it is cloned and used: it begins anew.
    ///
    /// # Errors
    ///
    /// If `max` is zero.
    pub fn with_max_keys(self, max: usize) -> Result<Self, ConfigError> {
        if max == 0 {
            return Err(ConfigError::new(
                "a keyed limit needs room for at least 1 key, got 0",
            ));
        }
        let cache = Arc::new(Mutex::new(KeyCache::new(max)));
        Ok(Self { cache, ..self })
    }

    /// Uses the SHA-1 of a key that is longer than 200 bytes, instead of refusing the key. All processes have to do the same.
    ///
    /// In Redis such a key is `sha1=` and 40 hexadecimal digits. No shorter key looks like that, because `=` is escaped.
    ///
    /// Two keys with the same hash would share a limit. Of n long keys, two have the same by chance with a probability of n² in
    /// 2¹⁶¹: for a billion keys, 10⁻³¹. With much effort one can compute two keys that have the same hash, and then has one limit
    /// for both. It is not feasible to find a key that has the hash of another user's key.
    ///
    /// ```
    /// use paceline::policy::TokenBucket;
    /// use paceline_redis::{OutagePolicy, Redis};
    /// use paceline::time::Rate;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let redis = Redis::open("redis://localhost", OutagePolicy::closed())?;
    /// let urls = redis.keyed("urls", TokenBucket::new(Rate::per_second(1), 5))?;
    /// let long = "x".repeat(201);
    /// assert!(urls.at(&long).is_err());
    ///
    /// let urls = urls.with_long_keys_hashed();
    /// assert_eq!(
    ///     urls.at(&long)?.keys(),
    ///     ["paceline:urls:{sha1=4b18791347c9db92f62f44a2dfe9c51a9cd2b11d}:token_bucket:2"]
    /// );
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_long_keys_hashed(self) -> Self {
        Self {
            hashes_long_keys: true,
            ..self
        }
    }

    /// With a limit over all keys: a request passes if its key and the total pass it, and counts in both or in neither. It is one
    /// decision and one round trip. To be called first.
    ///
    /// ```
    /// use paceline::policy::{SlidingLog, TokenBucket};
    /// use paceline_redis::{OutagePolicy, Redis};
    /// use paceline::time::Rate;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # // Where the tests run there is a server.
    /// # if std::env::var_os("REDIS_URL").is_none() { return Ok(()); }
    /// let redis = Redis::open(&std::env::var("REDIS_URL")?, OutagePolicy::closed())?;
    /// # let redis = redis.with_deadline(Duration::from_secs(10))?;
    /// # let redis = redis.with_prefix(&format!("total:{}", std::process::id()))?;
    /// let users = redis
    ///     .keyed("users", TokenBucket::new(Rate::per_minute(1), 5))?
    ///     .with_total(SlidingLog::new(8, Duration::from_secs(60)))?;
    ///
    /// assert!(users.at("ann")?.try_acquire(5).await?.is_pass());
    /// assert!(!users.at("ann")?.try_acquire(1).await?.is_pass());
    /// assert!(!users.at("bob")?.try_acquire(5).await?.is_pass());
    /// assert!(users.at("bob")?.try_acquire(3).await?.is_pass());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [`binding`](RedisLimiter::binding) and the status number the limits of the key first. Where several keys wait for the total,
    /// a permit goes to the one whose request comes first when it is available. The total has the parameters that it was made with:
    /// a [`retune`](RedisLimiter::retune) of one key gives its total other parameters for that key only, so give the same ones again.
    ///
    /// The keys in Redis are `prefix:{name}:each:{key}:policy:2` and `prefix:{name}:total:policy:2`. In a cluster they are all in one
    /// slot, so on one node. What was spent before a `with_total` is not known after it.
    ///
    /// # Errors
    ///
    /// * If it has a total already.
    /// * If the outage policy is an [insurance](crate::OutagePolicy::insured): each key would have a share of the total.
    /// * As [`Redis::keyed`](crate::Redis::keyed), for the policy of the total.
    #[doc(alias("global limit", "hierarchical"))]
    pub fn with_total<T: RedisPolicy>(
        self,
        total: T,
    ) -> Result<RedisKeyed<All<(P, T)>>, ConfigError> {
        if !self.total.is_empty() {
            return Err(ConfigError::new(
                "a keyed limit has one total, got a second one: make them an `All`",
            ));
        }
        let max_keys = self.locked().max;
        let outage_policy = self.redis.outage_policy;
        if outage_policy.is_insured() {
            return Err(ConfigError::new(
                "a total over all keys cannot be insured, because each key would have its share of the total: \
                 use an outage policy that is open or closed",
            ));
        }
        let (prefix, name) = self.redis.prefix.rsplit_once(':').unwrap_or_default();
        let tag = format!("{prefix}:{{{name}}}");
        let (_, params) = config(total.clone(), outage_policy)?;
        let policies = match self.policies {
            Policies::Same((each, _)) => {
                let both = All::new((each.policy.clone(), total));
                Policies::Same(config(both, outage_policy)?)
            }
            Policies::ByKey(policy_of) => Policies::ByKey(Arc::new(move |key| {
                All::new((policy_of(key), total.clone()))
            })),
        };
        Ok(RedisKeyed {
            redis: Redis {
                prefix: format!("{tag}:each").into(),
                ..self.redis
            },
            policies,
            total: keys(&params, &format!("{tag}:total")),
            hashes_long_keys: self.hashes_long_keys,
            reporter_of: self.reporter_of,
            cache: Arc::new(Mutex::new(KeyCache::new(max_keys))),
        })
    }

    /// The limit of that key.
    ///
    /// # Errors
    ///
    /// If the key is empty, or longer than 200 bytes and long keys are [not hashed](Self::with_long_keys_hashed), or the policy that
    /// [`keyed_by`](crate::Redis::keyed_by) has for it cannot be used.
    pub fn at(&self, key: &str) -> Result<RedisLimiter<P>, ConfigError> {
        let (config, params) = match &self.policies {
            Policies::Same(config) => config.clone(),
            Policies::ByKey(policy_of) => config(policy_of(key), self.redis.outage_policy)?,
        };
        let reporter_of = self.reporter_of.as_ref();
        let reporter = reporter_of.map_or(Reporter::NONE, |reporter_of| reporter_of(key));
        let mut cache = self.locked();
        if let Some(queue) = cache.get(key)
            && queue.limit.params == params
        {
            return Ok(RedisLimiter::new(queue, reporter));
        }
        let own = params.len() - self.total.len();
        let own = keys(&params[..own], &self.name(key)?);
        let keys = own.iter().chain(&*self.total).cloned().collect();
        let limit = RedisLimit { keys, params };
        let queue = KeyQueue::new(Arc::clone(&self.redis.batcher), config, limit);
        // The policy may have changed since the denial.
        let keeps_denial = matches!(self.policies, Policies::Same(_));
        let queue = cache.insert(key, queue, keeps_denial);
        Ok(RedisLimiter::new(queue, reporter))
    }

    /// The start of all keys in Redis of this key.
    fn name(&self, key: &str) -> Result<String, ConfigError> {
        if self.hashes_long_keys && key.len() > LONGEST_NAME {
            return Ok(format!("{}:{{sha1={}}}", self.redis.prefix, sha1(key)));
        }
        let key = escaped("a key", key).map_err(|error| {
            let hint = "`with_long_keys_hashed` takes longer ones";
            match key.len() {
                0 => error,
                _ => ConfigError::new(format!("{error}; {hint}")),
            }
        })?;
        Ok(format!("{}:{{{key}}}", self.redis.prefix))
    }

    /// Forgets what this process remembers of a key, unless the key is in use. The state in Redis stays.
    ///
    /// For a user who has left. If the key comes again before its state has settled, this process does not notice if the server
    /// has lost the state.
    pub fn forget(&self, key: &str) {
        self.locked().forget(key);
    }

    /// Forgets every key that is not in use and has settled, now, and gives back their memory. It goes through all keys.
    ///
    /// New keys do so as they come. Call it to have the memory back when none come any more.
    pub fn forget_settled(&self) {
        let connection = &self.redis.batcher.connection;
        let (health, now) = (connection.health(), connection.now());
        self.locked().forget_settled(&health, now);
    }

    /// How many keys this process remembers, those in use included.
    #[must_use]
    pub fn remembered(&self) -> usize {
        self.locked().len()
    }

    fn locked(&self) -> MutexGuard<'_, KeyCache<P, Connector>> {
        // No code under this lock can leave the cache half changed.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: RedisPolicy, K: AsRef<str>> Limits<K> for RedisKeyed<P> {
    type Limit = RedisLimiter<P>;
    type Error = ConfigError;

    fn at(&self, key: K) -> Result<RedisLimiter<P>, ConfigError> {
        Self::at(self, key.as_ref())
    }
}

/// Without the keys, which may be secret and many.
impl<P: RedisPolicy> fmt::Debug for RedisKeyed<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisKeyed")
            .field("prefix", &self.redis.prefix)
            .finish_non_exhaustive()
    }
}
