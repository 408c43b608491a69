use core::borrow::Borrow;
use core::hash::Hash;
use core::time::Duration;

use crate::policy::{Policy, Status};

use super::key_map::lock;
use super::keyed::Keyed;
use super::{Mode, Stats};

/// Reading a key, or all of them. None of these creates a key or keeps it.
impl<K, P> Keyed<K, P>
where
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
{
    /// What this key has left now: see [`Shared::status`](super::Shared::status).
    ///
    /// A key that is not remembered has everything left. While there is no room for it, the answer is that of the limit for all
    /// such keys, or what [`with_when_full`](Self::with_when_full) does with its requests: nothing remains if they wait.
    ///
    /// ```
    /// use paceline::limiter::PolicyExt;
    /// use paceline::policy::TokenBucket;
    /// use paceline::time::Rate;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let users = TokenBucket::new(Rate::per_second(1), 5).keyed::<String>();
    /// assert!(users.try_acquire("ann", 2).is_pass());
    ///
    /// assert_eq!(users.status("ann").unwrap().remaining, 3);
    /// assert_eq!(users.status("bob").unwrap().remaining, 5);
    /// assert_eq!(users.len(), 1);
    /// # }
    /// ```
    pub fn status<Q>(&self, key: &Q) -> Option<Status>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        self.shard(key).status(key)
    }

    /// The policy of this key: that of [`retune`](Self::retune), or else the one of [`new`](Self::new) or [`by`](Self::by).
    ///
    /// ```
    /// use paceline::limiter::PolicyExt;
    /// use paceline::policy::Interval;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let (usual, slow) = (Duration::from_millis(100), Duration::from_secs(1));
    /// let hosts = Interval::every(usual).keyed::<String>();
    /// hosts.retune("a.example", Interval::every(slow));
    ///
    /// assert_eq!(hosts.policy("a.example").interval(), slow);
    /// assert_eq!(hosts.policy("b.example").interval(), usual);
    /// # }
    /// ```
    pub fn policy<Q>(&self, key: &Q) -> P
    where
        P: Clone,
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let shard = self.shard(key);
        let own = shard.active(key);
        let own = own.map(|limit| limit.with(|limit, _| limit.policy.clone()));
        own.unwrap_or_else(|| shard.policy_of(key))
    }

    /// How long the pause of this key still lasts; `None` if there is none: see
    /// [`Shared::paused_for`](super::Shared::paused_for).
    ///
    /// ```
    /// use paceline::limiter::PolicyExt;
    /// use paceline::policy::Interval;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let hosts = Interval::every(Duration::from_millis(100)).keyed::<String>();
    /// hosts.pause_for("a.example", Duration::from_secs(2));
    ///
    /// assert_eq!(hosts.paused_for("a.example"), Some(Duration::from_secs(2)));
    /// assert_eq!(hosts.paused_for("b.example"), None);
    /// # }
    /// ```
    pub fn paused_for<Q>(&self, key: &Q) -> Option<Duration>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let shard = self.shard(key);
        shard.active(key)?.with(|limit, _| limit.paused_for())
    }

    /// How many requests for this key are queued now.
    pub fn waiting<Q>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let shard = self.shard(key);
        let limit = shard.active(key);
        limit.map_or(0, |limit| limit.with(|_, waiters| waiters.len()))
    }

    /// How many keys are remembered now, those included that have settled and are not evicted yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    /// Whether no key is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The mode of all limits: see [`set_mode`](Self::set_mode).
    #[must_use]
    pub fn mode(&self) -> Mode {
        lock(&self.shards[0]).mode
    }

    /// What all the limits have done so far, those of forgotten keys included. It goes through all the keys.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::new();
        for shard in self.shards.iter() {
            stats.add(lock(shard).stats());
        }
        stats
    }
}
