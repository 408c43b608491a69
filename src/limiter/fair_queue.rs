use core::convert::Infallible;
use core::fmt;
use core::hash::{BuildHasher, Hash};
use core::num::NonZeroU32;
use std::hash::RandomState;
use std::sync::Arc;

use crate::policy::{Decision, Policy, Status};
use crate::time::Resolution;
use crate::wait::{Flow, Priority, Waiters};

use super::acquire::{Acquire, AcquireOne};
use super::as_key::AsKey;
use super::shared::Shared;
use super::{Limiter, Limits, Observer};

/// One limit for all keys, whose waiting requests take turns by key: fair queueing.
///
/// In a [`Shared`] limit all requests stand in one queue, so a tenant that queues a thousand of them is in front of everybody. Here
/// each key has a queue of its own, and the keys that wait are served one after the other, in proportion to their weights. It is one
/// limit: spacing, window bound and quota of the policy hold for all keys together.
///
/// ```
/// use paceline::limiter::FairQueue;
/// use paceline::prelude::*;
/// use tokio::time::Instant;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let provider = FairQueue::new(Interval::every(Duration::from_millis(100)));
///
/// let backlog = [(); 50].map(|()| tokio::spawn(provider.acquire_one("ann")));
/// tokio::task::yield_now().await;
///
/// let start = Instant::now();
/// provider.acquire_one("bob").await;
/// assert_eq!(start.elapsed(), Duration::from_millis(200), "the second slot, before 48 that came first");
/// # drop(backlog);
/// # }
/// ```
///
/// On a timeline, as a stream:
///
/// ```
/// # use {testkit::marble, paceline::{limiter::FairQueue, policy::Interval, stream::PaceStreamExt}};
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// # let limit = FairQueue::new(Interval::every(marble::TICK * 2));
/// # let key = |item: &char| item.is_ascii_digit();
/// // two ticks apart, all together; letters and digits take turns
/// let input  = "(abcd) - - (1) - - - - - |";
/// let output = "a      - b -   c - 1 - d |";
/// # marble::check(|s| s.pace_by_key(limit, key, 10), input, output).await;
/// # }
/// ```
///
/// It is a [`Limits`], whose limit for a key is a handle of type [`Shared`]. So everything that takes a limit for each key takes it:
/// [`pace_by_key`](crate::stream::PaceStreamExt::pace_by_key), the layers, a [`Line`](super::Line), a
/// [`Combined`](super::Combined), and [`reserve`](super::Settle) on the handle of a key. Changes go to [the limit](Self::limit) of all
/// keys.
///
/// # The order
///
/// Self-clocked fair queueing (S. J. Golestani, 1994). Each key has an account of the permits that it has had, divided by its weight. The next
/// key is the one whose account is the smallest once its first request is paid.
///
/// * **A new key begins at the account of the key that was served last.** Behind a thousand requests of another key of weight w it waits for at
///   most w grants of cost 1.
/// * **By weight**: of two keys that both wait, with weights 3 and 1, the first one gets 3 permits of each 4. With costs of at most c, what
///   two keys of the weights v and w have had in any interval, divided by their weights, differs by at most c/v + c/w.
/// * **Nothing is wasted**: only the order changes. While no other key waits, one key has the whole limit. A key without waiting requests costs
///   and saves nothing.
/// * **First come, first served** among the requests of one key.
/// * **Classes**: with [`with_priority`](Self::with_priority) keys take turns within each class. The class of the oldest request is served
///   first, where a class above counts as some time of waiting, so none starves.
/// * **Other orders**: neither [newest first](Shared::with_newest_first) nor that [by deadline](Shared::by_deadline) applies. A deadline only
///   ends the wait of its request.
/// * A request passes at once if no request waits, whatever its key has had.
/// * Requests through [`limit`](Self::limit) are together one more key, of weight 1.
///
/// The wait that a refused request is told counts no waiter: it says when the policy would let it pass.
///
/// Keys are told apart by their hash of 64 bits with a random secret. No key is kept.
///
/// # Cancel safety
///
/// That of a [`Shared`] limit: a request that is dropped leaves the queue, and nothing was counted. If its key has missed turns for
/// it, it has one of them.
///
/// **Window bound**: that of the policy, for all keys together.
#[doc(alias("WFQ", "SCFQ", "DRR", "round robin", "noisy neighbour", "fair queuing"))]
pub struct FairQueue<K, P: Policy> {
    limit: Shared<P>,
    hasher: RandomState,
    weight_of: Arc<dyn Fn(&K) -> NonZeroU32 + Send + Sync>,
}

impl<K: Hash, P: Policy<State: Send> + Send + 'static> FairQueue<K, P> {
    /// The limit of this policy, with the same weight for all keys.
    #[must_use]
    pub fn new(policy: P) -> Self {
        let limit = Shared::new(policy);
        let serve = |_: &mut _, waiters: &mut Waiters| waiters.serve_in_turns().hasher.clone();
        let hasher = limit.queue.update_turns(serve);
        Self {
            limit: limit.in_flow(Flow::OF_NO_KEY),
            hasher,
            weight_of: Arc::new(|_| NonZeroU32::MIN),
        }
    }
}

impl<K: Hash, P: Policy> FairQueue<K, P> {
    /// Gives each key a weight. The function is called for each request, so a weight may change: it holds from the next request of the key on.
    ///
    /// ```
    /// use paceline::limiter::FairQueue;
    /// use paceline::prelude::*;
    /// use std::num::NonZeroU32;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let three = NonZeroU32::new(3).unwrap();
    /// let provider = FairQueue::new(Interval::every(Duration::from_millis(100)))
    ///     .with_weights(move |tenant: &&str| if *tenant == "gold" { three } else { NonZeroU32::MIN });
    ///
    /// let requests = ["gold", "free"].map(|tenant| [(); 50].map(|()| tokio::spawn(provider.acquire_one(tenant))));
    /// tokio::time::sleep(Duration::from_millis(4_050)).await;
    ///
    /// let passed = requests.map(|of_tenant| of_tenant.iter().filter(|one| one.is_finished()).count());
    /// assert_eq!(passed, [31, 10]);
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

    /// Puts the requests of this clone into a class: see [`Shared::with_priority`]. Keys take turns within each class.
    #[must_use]
    pub fn with_priority(self, priority: Priority) -> Self {
        let limit = self.limit.with_priority(priority);
        Self { limit, ..self }
    }

    /// Chooses how exactly requests wait: see [`Resolution`].
    #[must_use]
    pub fn with_resolution(self, resolution: Resolution) -> Self {
        let limit = self.limit.with_resolution(resolution);
        Self { limit, ..self }
    }

    /// Reports what is asked through this clone and its handles.
    #[must_use]
    pub fn with_observer<O>(self, observer: O) -> Self
    where
        O: Send + Sync + 'static,
        for<'a> &'a O: Observer,
    {
        let limit = self.limit.with_observer(observer);
        Self { limit, ..self }
    }

    /// A handle whose requests wait in the queue of this key.
    #[must_use]
    pub fn at(&self, key: K) -> Shared<P> {
        let flow = Flow::new(self.hasher.hash_one(&key), (self.weight_of)(&key));
        self.limit.in_flow(flow)
    }

    /// Waits for `cost` permits in the queue of this key: see [`Shared::acquire`].
    pub fn acquire(&self, key: K, cost: u32) -> Acquire<Shared<P>> {
        Acquire::new(self.at(key), cost)
    }

    /// Waits for one permit in the queue of this key: see [`Shared::acquire_one`].
    pub fn acquire_one(&self, key: K) -> AcquireOne<Shared<P>> {
        AcquireOne::new(self.at(key))
    }

    /// The limit of all keys: its status and its counts, and to [retune](Shared::retune), pause or reset it.
    #[must_use]
    pub const fn limit(&self) -> &Shared<P> {
        &self.limit
    }
}

impl<K: Hash, P: Policy> Limits<K> for FairQueue<K, P> {
    type Limit = Shared<P>;
    type Error = Infallible;

    fn at(&self, key: K) -> Result<Shared<P>, Infallible> {
        Ok(Self::at(self, key))
    }

    /// Without waiting, the key makes no difference.
    fn try_at(&self, _: &K, cost: u32, all: bool, left: &mut Option<Status>) -> Option<Decision> {
        self.limit.try_once(cost, all, left)
    }

    fn try_as<Q>(&self, _: &Q, cost: u32, all: bool, left: &mut Option<Status>) -> Option<Decision>
    where
        Q: AsKey<K> + ?Sized,
    {
        self.limit.try_once(cost, all, left)
    }
}

/// The same limit and the same queues.
impl<K, P: Policy> Clone for FairQueue<K, P> {
    fn clone(&self) -> Self {
        Self {
            limit: self.limit.clone(),
            hasher: self.hasher.clone(),
            weight_of: Arc::clone(&self.weight_of),
        }
    }
}

impl<K, P: Policy> fmt::Debug for FairQueue<K, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FairQueue")
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}
