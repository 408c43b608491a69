use core::convert::Infallible;
use core::fmt;
use core::hash::{BuildHasher, Hash};
use core::num::NonZeroU32;
use std::hash::RandomState;
use std::sync::Arc;

use crate::limiter::Limits;
use crate::time::{OutOfRange, or_panic};
use crate::wait::Flow;

use super::{Adaptive, Controller, Permits};

/// Permits that keys divide among them by weight: fair queueing for work under way.
///
/// With plain [`Permits`] a tenant that starts a thousand calls is in front of all others, and holds all permits. Here each key has a share,
/// its weight of the sum of the weights of all keys that hold permits or wait. A key may use more while no other key waits. As soon as others
/// wait, permits that come back go to the keys below their share first.
///
/// ```
/// use paceline::concurrency::FairPermits;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let start = tokio::time::Instant::now();
/// let tenants = FairPermits::new(4);
///
/// let call = async |permits: paceline::concurrency::Permits| {
///     let _permit = permits.acquire().await;
///     tokio::time::sleep(Duration::from_millis(100)).await; // the call
/// };
/// let backlog = [(); 50].map(|()| tokio::spawn(call(tenants.at("ann"))));
/// tokio::task::yield_now().await;
/// assert_eq!(tenants.total().in_use(), 4, "all, while no other key waits");
///
/// call(tenants.at("bob")).await;
/// assert_eq!(start.elapsed(), Duration::from_millis(200), "the next permit, before 46 that came first");
/// # drop(backlog);
/// # }
/// ```
///
/// It is a [`Limits`], whose limit for a key is a handle of type [`Permits`]. So every verb of permits works for a key, and everything that
/// takes permits for each key takes it, such as `paceline_tower::ConcurrencyLayer::by_key`. [`adaptive`](Self::adaptive) permits have handles of
/// type [`Adaptive`].
///
/// # The order
///
/// * **The total is a bound** for all keys together, also while [`resize`](Permits::resize) or a controller moves it.
/// * **Nothing is wasted**: only the order of waiting requests changes. A permit that is free while no request waits goes to any key.
/// * **Below its share first.** A key is below its share if what it uses, divided by its weight, is less than the total divided by the sum of the
///   weights. Requests of these keys come before those of all others. So a key that alone is below its share, and asks for one permit, waits for
///   at most one release, while the total does not fall.
/// * **By weight**: keys below their share take turns among themselves, and so do the others, as in a
///   [`FairQueue`](crate::limiter::FairQueue). A key that misses turns because others are below their share keeps one of them.
/// * **First come, first served** among the requests of one key. A request for many permits is not overtaken by other requests
///   of its key. Those of other keys overtake it if they are below their share and its key is not.
/// * In another [class](Permits::with_priority) a request overtakes others of its key, and of no other key.
///   [Newest first](Permits::with_newest_first) does not apply.
/// * Requests through [`total`](Self::total) are together one more key, of weight 1.
///
/// A permit that [cools down](Permits::with_cooldown) is used by no key.
///
/// The order is that of the priority and fairness of requests to the API server of Kubernetes, with borrowing and exact shares instead of
/// levels, and with keys instead of shuffled queues.
///
/// # Cost
///
/// A grant and a release take time that is logarithmic in the number of keys that wait, once for each different use among them
/// (in permits for its weight). With equal weights these are at most √(2 · total). No permit is taken without the lock, as it is from plain
/// `Permits`. A key is remembered while it holds permits or waits, or
/// owes [permit-seconds](Self::with_permit_seconds). It is told apart by its hash of 64 bits with a random secret. No key is kept.
///
/// # Cancel safety
///
/// That of [`Permits`]: a request that is dropped leaves the queue, and nothing was taken.
///
/// **Window bound**: that of [`Permits`], for all keys together.
#[doc(alias("WFQ", "bulkhead", "noisy neighbour", "priority and fairness"))]
pub struct FairPermits<K, P = Permits> {
    total: P,
    in_flow: fn(&P, Flow) -> P,
    permits: Permits,
    hasher: RandomState,
    weight_of: Arc<dyn Fn(&K) -> NonZeroU32 + Send + Sync>,
}

impl<K: Hash> FairPermits<K> {
    /// Permits for `n` calls at once, of all keys together, with the same weight for each key.
    ///
    /// # Panics
    ///
    /// If `n` is zero; see [`try_new`](Self::try_new).
    #[must_use]
    #[track_caller]
    pub fn new(n: u32) -> Self {
        or_panic(Self::try_new(n))
    }

    /// [`new`](Self::new), for a number from a configuration.
    ///
    /// ```
    /// use paceline::concurrency::FairPermits;
    ///
    /// let error = FairPermits::<String>::try_new(0).unwrap_err();
    /// assert_eq!(error.to_string(), "there must be at least 1 permit, got 0");
    /// ```
    ///
    /// # Errors
    ///
    /// If `n` is zero.
    pub fn try_new(n: u32) -> Result<Self, OutOfRange> {
        Ok(Self::of(&Permits::try_new(n)?))
    }

    /// Divides these permits, with their options. Other handles of them become one more key, and requests that wait already are of that key.
    /// Permits in use count for that key, too.
    ///
    /// ```
    /// use paceline::concurrency::{FairPermits, Permits};
    /// use std::time::Duration;
    ///
    /// let permits = Permits::new(10).with_cooldown(Duration::from_secs(1));
    /// let tenants = FairPermits::of(&permits);
    ///
    /// let permit = tenants.at("ann").try_acquire();
    /// assert_eq!(permits.in_use(), 1);
    /// # drop(permit);
    /// ```
    #[must_use]
    pub fn of(permits: &Permits) -> Self {
        Self::with(permits.clone(), permits, Permits::in_flow)
    }
}

impl<K: Hash, C: Controller> FairPermits<K, Adaptive<C>> {
    /// Divides permits with a number that follows a controller. The handle of a key reports to it.
    ///
    /// ```
    /// use paceline::concurrency::{Adaptive, Aimd, FairPermits};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let adaptive = Adaptive::new(Aimd::new(1, 100).with_start(20));
    /// let tenants = FairPermits::adaptive(&adaptive);
    ///
    /// tenants.at("ann").acquire().await.dropped();
    /// assert_eq!(adaptive.permits().limit(), 10);
    /// # }
    /// ```
    #[must_use]
    pub fn adaptive(adaptive: &Adaptive<C>) -> Self {
        Self::with(adaptive.permits().clone(), adaptive, Adaptive::in_flow)
    }
}

impl<K: Hash, P> FairPermits<K, P> {
    fn with(permits: Permits, total: &P, in_flow: fn(&P, Flow) -> P) -> Self {
        let hasher = permits.divide();
        Self {
            total: in_flow(total, Flow::OF_NO_KEY),
            in_flow,
            permits,
            hasher,
            weight_of: Arc::new(|_| NonZeroU32::MIN),
        }
    }

    /// Gives each key a weight. The function is called by [`at`](Self::at), so a weight may change: it holds from the next request of
    /// the key on.
    ///
    /// ```
    /// use paceline::concurrency::FairPermits;
    /// use std::num::NonZeroU32;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let three = NonZeroU32::new(3).unwrap();
    /// let tenants = FairPermits::new(8)
    ///     .with_weights(move |tenant: &&str| if *tenant == "gold" { three } else { NonZeroU32::MIN });
    ///
    /// let held = tenants.at("free").acquire_many(8).await;
    /// let calls = ["gold", "free"].map(|tenant| [(); 20].map(|()| tokio::spawn(tenants.at(tenant).acquire_owned())));
    /// tokio::task::yield_now().await;
    /// drop(held);
    /// tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    ///
    /// let granted = calls.each_ref().map(|of_tenant| of_tenant.iter().filter(|one| one.is_finished()).count());
    /// assert_eq!(granted, [6, 2]);
    /// # }
    /// ```
    #[must_use]
    pub fn with_weights(
        self,
        weight_of: impl Fn(&K) -> NonZeroU32 + Send + Sync + 'static,
    ) -> Self {
        Self {
            weight_of: Arc::new(weight_of),
            ..self
        }
    }

    /// Keys pay for the time for which they hold permits, in permits times seconds, for services whose requests differ in length. To be
    /// called before it is used.
    ///
    /// By default keys take turns by permits: a key with requests that are a hundred times as long has as many of them granted, and with
    /// them nearly all of the time. With this, of the keys on one side of their share the one comes first that has held permits for the shortest
    /// time, for its weight. Only time counts in which any request waited, and it counts when the key next gets a permit or gives one back. A key that has had
    /// more than others is remembered until they have had as much, or could have had it. How long a request will take is not known before: so a
    /// key that is new has its turn before its first request is paid for.
    ///
    /// ```
    /// use paceline::concurrency::FairPermits;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let tenants = FairPermits::new(1).with_permit_seconds();
    /// let calls = [("slow", 100), ("quick", 1)].map(|(tenant, millis)| {
    ///     [(); 1_000].map(|()| {
    ///         let permits = tenants.at(tenant);
    ///         tokio::spawn(async move {
    ///             let _permit = permits.acquire().await;
    ///             tokio::time::sleep(Duration::from_millis(millis)).await;
    ///         })
    ///     })
    /// });
    /// tokio::time::sleep(Duration::from_millis(1_005)).await;
    ///
    /// let done = calls.each_ref().map(|of_tenant| of_tenant.iter().filter(|one| one.is_finished()).count());
    /// assert_eq!(done, [5, 500]);
    /// # }
    /// ```
    ///
    /// With it each request and each release reads the clock.
    #[doc(alias("seat-seconds"))]
    #[must_use]
    pub fn with_permit_seconds(self) -> Self {
        self.permits.count_time();
        self
    }

    /// A handle whose requests wait in the queue of this key.
    #[must_use]
    pub fn at(&self, key: K) -> P {
        let flow = Flow::new(self.hasher.hash_one(&key), (self.weight_of)(&key));
        (self.in_flow)(&self.total, flow)
    }

    /// The permits of all keys: their number, how many are in use, what they did, and to [resize](Permits::resize) them.
    #[must_use]
    pub const fn total(&self) -> &P {
        &self.total
    }
}

impl<K: Hash, P> Limits<K> for FairPermits<K, P> {
    type Limit = P;
    type Error = Infallible;

    fn at(&self, key: K) -> Result<P, Infallible> {
        Ok(Self::at(self, key))
    }
}

/// The same permits and the same queues.
impl<K, P: Clone> Clone for FairPermits<K, P> {
    fn clone(&self) -> Self {
        Self {
            total: self.total.clone(),
            in_flow: self.in_flow,
            permits: self.permits.clone(),
            hasher: self.hasher.clone(),
            weight_of: Arc::clone(&self.weight_of),
        }
    }
}

impl<K, P: fmt::Debug> fmt::Debug for FairPermits<K, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FairPermits")
            .field("total", &self.total)
            .finish_non_exhaustive()
    }
}
