use core::fmt;
use core::hash::Hash;
use std::convert::Infallible;

use crate::policy::Policy;

use super::combined::{Combined, require_no_class};
use super::{Keyed, KeyedAt, Limits, Shared};

/// A limit for each key and one for all keys together: a request passes if its key and the total pass it, and counts in both or in
/// neither. Made by [`Keyed::with_total`].
///
/// The limit of a key is a [`Combined`] with the limit of the key first and the total last. So a key above its limit holds up no
/// other key, and takes nothing of the total.
///
/// ```
/// use futures::StreamExt;
/// use paceline::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// # let start = tokio::time::Instant::now();
/// let users = Interval::every(Duration::from_millis(300)).keyed();
/// let total = Interval::every(Duration::from_millis(100)).shared();
/// let calls = futures::stream::iter([("ann", 1), ("ann", 2), ("bob", 3), ("eve", 4)]);
///
/// let paced = calls.pace_by_key(users.with_total(total), |(user, _)| *user, 100);
/// let sent: Vec<_> = paced.map(|(_, call)| (call, start.elapsed().as_millis())).collect().await;
/// assert_eq!(sent, [(1, 0), (3, 100), (4, 200), (2, 300)]);
/// # }
/// ```
///
/// The keys and the total are those of their clones: keep a clone to read, to pause or to retune them. Clones of this share both.
///
/// # Cancel safety
///
/// As a [`Combined`]: a future or a stream that is dropped leaves both queues, and nothing was counted.
///
/// **Window bound**: each key that of its policy, all keys together that of the total.
pub struct WithTotal<K, P: Policy, Q: Policy> {
    keys: Keyed<K, P>,
    total: Shared<Q>,
}

// In this file, since a `Combined` uses `Keyed`.
impl<K, P: Policy> Keyed<K, P> {
    /// With a limit over all keys: a request passes if its key and the total pass it, and counts in both or in neither. It is what a
    /// stream or a layer by key takes: see [`WithTotal`]. To be called last.
    ///
    /// ```
    /// use paceline::limiter::Limits;
    /// use paceline::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let start = tokio::time::Instant::now();
    /// let users = Interval::every(Duration::from_millis(300)).keyed();
    /// let users = users.with_total(Interval::every(Duration::from_millis(100)).shared());
    ///
    /// users.acquire_one("ann").await;
    /// users.acquire_one("bob").await;
    /// assert_eq!(start.elapsed(), Duration::from_millis(100));
    /// users.acquire_one("ann").await;
    /// assert_eq!(start.elapsed(), Duration::from_millis(300));
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If the keys or the total have a [class](super::Priority) other than [`Normal`](super::Priority::Normal): see
    /// [`Combined`](super::Combined#the-order).
    #[doc(alias("global limit", "hierarchical"))]
    #[must_use]
    #[track_caller]
    pub fn with_total<Q: Policy>(self, total: Shared<Q>) -> WithTotal<K, P, Q> {
        require_no_class("the limit of each key", self.priority);
        require_no_class("the total", total.priority);
        WithTotal { keys: self, total }
    }
}

impl<K: Hash + Eq + Clone, P: Policy<State: Send> + Send + 'static, Q: Policy> WithTotal<K, P, Q> {
    /// The limit of this key and the total, for an adapter or to ask by hand.
    ///
    /// ```
    /// use paceline::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let users = TokenBucket::new(Rate::per_minute(1), 5).keyed();
    /// let users = users.with_total(SlidingLog::new(8, Duration::from_secs(60)).shared());
    ///
    /// assert!(users.at("ann").try_acquire(5).await.is_pass());
    /// assert!(!users.at("bob").try_acquire(5).await.is_pass());
    /// assert_eq!(users.at("bob").status().unwrap().remaining, 3);
    /// # }
    /// ```
    #[must_use]
    pub fn at(&self, key: K) -> Combined<(KeyedAt<K, P>, Shared<Q>)> {
        Combined::of((self.keys.at(key), self.total.clone()))
    }
}

impl<K, P, Q> Limits<K> for WithTotal<K, P, Q>
where
    K: Hash + Eq + Clone,
    P: Policy<State: Send> + Send + 'static,
    Q: Policy,
{
    type Limit = Combined<(KeyedAt<K, P>, Shared<Q>)>;
    type Error = Infallible;

    fn at(&self, key: K) -> Result<Self::Limit, Infallible> {
        Ok(Self::at(self, key))
    }
}

/// The same keys and the same total.
impl<K, P: Policy, Q: Policy> Clone for WithTotal<K, P, Q> {
    fn clone(&self) -> Self {
        Self {
            keys: self.keys.clone(),
            total: self.total.clone(),
        }
    }
}

/// Does not print the keys: they may be secret.
impl<K, P: Policy, Q: Policy> fmt::Debug for WithTotal<K, P, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithTotal")
            .field("keys", &self.keys)
            .field("total", &self.total)
            .finish()
    }
}
