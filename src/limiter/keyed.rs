use core::fmt;
use core::hash::Hash;
use core::time::Duration;
use std::sync::Arc;

use crate::policy::{Decision, Policy};
use crate::time::Precision;

use super::desk::After;
use super::keys::{Keys, Reply};
use super::limit::Ask;
use super::parts::{Parts, work_on};
use super::room::RoomAfter;
use super::{AcquireAt, AcquireWithinAt, Gate, KeyedAt, Mode, Stats};

/// A limit for each key: for each user, host or connection.
///
/// Keys share nothing: each has its own state and its own line, first come, first served. Made by
/// [`PolicyExt::keyed`](super::PolicyExt::keyed), where all keys have the same parameters, or by [`Keyed::by`], where the key
/// says which. Clones share the keys.
///
/// ```
/// use paceline::limiter::PolicyExt;
/// use paceline::policy::{Decision, TokenBucket};
/// use paceline::time::Rate;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let users = TokenBucket::new(Rate::per_second(1), 2).keyed::<&str>();
///
/// assert_eq!(users.try_acquire(&"ann", 2), Decision::Pass);
/// assert!(!users.try_acquire(&"ann", 1).is_pass());
/// assert_eq!(users.try_acquire(&"bob", 2), Decision::Pass);
/// # }
/// ```
///
/// # Memory
///
/// A key costs its own size, a state, and a little more; one for which somebody waits costs a few hundred bytes while that
/// lasts. A key that has settled (its state answers like a fresh one) is forgotten: as new keys come, or when somebody who
/// waited for it leaves. There is no background task. Only settled keys are forgotten, so that no rush of new keys ever
/// resets a limit that binds. There are at most [`max_keys`](Self::max_keys) of them; when all of these are in use, a new
/// key waits until the first one settles, and `try_acquire` says how long that will be. Those who wait for room are served in
/// order of arrival; one that lets its turn go by for a second is overtaken.
///
/// **Window bound**: that of the policy, for each key.
pub struct Keyed<K, P: Policy> {
    parts: Arc<Parts<K, P>>,
    precision: Precision,
}

impl<K, P> Keyed<K, P>
where
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
{
    /// The same `policy` for every key.
    #[must_use]
    pub fn new(policy: P) -> Self
    where
        P: Clone + Sync,
    {
        Self::by(move |_| policy.clone())
    }

    /// Each key has the policy that `policy_of` says. It is asked often, under a lock: it must always say the same, and not
    /// ask this limit.
    ///
    /// ```
    /// use paceline::limiter::Keyed;
    /// use paceline::policy::TokenBucket;
    /// use paceline::time::Rate;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let plans = Keyed::by(|plan: &&str| match *plan {
    ///     "premium" => TokenBucket::new(Rate::per_second(100), 100),
    ///     _ => TokenBucket::new(Rate::per_second(1), 1),
    /// });
    ///
    /// assert!(plans.try_acquire(&"premium", 50).is_pass());
    /// assert!(!plans.try_acquire(&"free", 50).is_pass());
    /// # }
    /// ```
    #[must_use]
    pub fn by(policy_of: impl Fn(&K) -> P + Send + Sync + 'static) -> Self {
        Self {
            parts: Arc::new(Parts::new(Arc::new(policy_of))),
            precision: Precision::default(),
        }
    }

    /// At most so many keys at once; without it, as many as come. To be called before it is cloned and used: it begins anew.
    ///
    /// # Panics
    ///
    /// If `max` is zero.
    #[must_use]
    #[track_caller]
    pub fn max_keys(self, max: usize) -> Self {
        assert!(
            max > 0,
            "a keyed limit needs room for at least 1 key, got 0"
        );
        Self {
            parts: Arc::new(self.parts.bounded(max)),
            ..self
        }
    }

    /// Waits to the microsecond in [`acquire`](Self::acquire) and [`acquire_within`](Self::acquire_within), through this handle
    /// and its clones: see [`Timer::precise`](crate::time::Timer::precise). An adapter has a method of its own for that.
    #[cfg(feature = "precise")]
    #[must_use]
    pub fn precise(self) -> Self {
        Self {
            precision: Precision::BEST,
            ..self
        }
    }

    /// A limiter for this key: a place in its line, for an adapter.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use paceline::policy::Interval;
    /// use paceline::prelude::*;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let start = tokio::time::Instant::now();
    /// let hosts = Interval::every(Duration::from_millis(100)).keyed::<&str>();
    ///
    /// let a = futures::stream::iter(0..3).pace(hosts.at("a.example"));
    /// let b = futures::stream::iter(0..3).pace(hosts.at("b.example"));
    /// futures::join!(a.count(), b.count());
    /// assert_eq!(start.elapsed(), Duration::from_millis(200));
    /// # }
    /// ```
    #[must_use]
    pub fn at(&self, key: K) -> KeyedAt<K, P> {
        KeyedAt::new(self.clone(), key, self.precision)
    }

    /// Waits for `cost` permits of this key, behind everybody who waits for the same key.
    ///
    /// # Errors
    ///
    /// At once, if so many can never pass.
    ///
    /// # Panics
    ///
    /// If it has to wait outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the line; nothing was counted.
    pub fn acquire(&self, key: K, cost: u32) -> AcquireAt<K, P> {
        AcquireAt::new(Gate::waiting(self.at(key), self.precision), cost)
    }

    /// Waits for `cost` permits of this key, if they can be had `within` this time.
    ///
    /// As [`Shared::acquire_within`](super::Shared::acquire_within): it fails at once when the wait is known to be too long, and
    /// when the time is over at the latest. To wait for room for a new key counts too.
    ///
    /// ```
    /// use paceline::limiter::PolicyExt;
    /// use paceline::policy::Interval;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let users = Interval::every(Duration::from_millis(100)).keyed::<&str>();
    /// users.acquire("ann", 1).await.unwrap();
    ///
    /// let refused = users.acquire_within("ann", 1, Duration::from_millis(99)).await;
    /// assert!(refused.unwrap_err().is_too_late());
    /// users.acquire_within("ann", 1, Duration::from_millis(100)).await.unwrap();
    /// users.acquire_within("bob", 1, Duration::ZERO).await.unwrap();
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`is_too_late`](super::AcquireError::is_too_late), or [`is_too_costly`](super::AcquireError::is_too_costly) if so
    /// many can never pass.
    ///
    /// # Panics
    ///
    /// If it has to wait outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the line; nothing was counted.
    pub fn acquire_within(&self, key: K, cost: u32, within: Duration) -> AcquireWithinAt<K, P> {
        AcquireWithinAt::new(Gate::waiting(self.at(key), self.precision), cost, within)
    }

    /// Asks for `cost` permits of this key without waiting. It never overtakes those who wait for the same key.
    pub fn try_acquire(&self, key: &K, cost: u32) -> Decision {
        self.ask_aside(key, Ask::ToPass, cost)
    }

    /// What [`try_acquire`](Self::try_acquire) would say. Nothing is counted.
    pub fn peek(&self, key: &K, cost: u32) -> Decision {
        self.ask_aside(key, Ask::ToLook, cost)
    }

    /// Forgets every key that has settled, now, and gives back their memory.
    ///
    /// There is no need for it: new keys do so as they come. It is for one who wants the memory back although no more come, and
    /// it goes through all the keys.
    ///
    /// ```
    /// use paceline::limiter::PolicyExt;
    /// use paceline::policy::Interval;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let users = Interval::every(Duration::from_millis(100)).keyed::<&str>();
    /// users.acquire("ann", 1).await.unwrap();
    /// tokio::time::sleep(Duration::from_millis(60)).await;
    /// users.acquire("bob", 1).await.unwrap();
    /// tokio::time::sleep(Duration::from_millis(60)).await;
    ///
    /// assert_eq!(users.len(), 2);
    /// users.forget_settled();
    /// assert_eq!(users.len(), 1);
    /// # }
    /// ```
    pub fn forget_settled(&self) {
        self.parts.for_each(Keys::forget_settled);
    }

    /// How many keys are remembered now, those included that have settled and are not yet forgotten.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// Whether no key is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives this key parameters of its own from now on; those who wait for it feel it at once. What was spent stays spent.
    ///
    /// Such a key is never forgotten, and is remembered even if there is no room for it. What it had spent before and had settled
    /// may have been forgotten: slower parameters do not count it then.
    pub fn retune(&self, key: &K, policy: P) {
        let limit = self.locked(key, |keys, _| keys.tuned(key));
        limit.retune(policy);
    }

    /// Lets nothing pass for this key before `duration` is over. It is remembered as long, even if there is no room for it.
    pub fn pause_for(&self, key: &K, duration: Duration) {
        let limit = self.locked(key, |keys, _| keys.full(key));
        limit.pause_for(duration);
    }

    /// Ends every pause of this key.
    pub fn resume(&self, key: &K) {
        let limit = self.locked(key, |keys, _| keys.full(key));
        limit.resume();
        drop(limit);
        self.locked(key, |keys, after| keys.left(key, after));
    }

    /// Whether the limits hold, are only watched, or are off, for every key. Those who wait feel it at once.
    pub fn set_mode(&self, mode: Mode) {
        let (mut for_keys, mut for_room) = self.parts.set_mode(mode);
        for_keys.iter_mut().for_each(After::run);
        for_room.iter_mut().for_each(RoomAfter::run);
    }

    /// What all the limits have done so far, those of forgotten keys included. It goes through all the keys.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.parts.stats()
    }

    fn ask_aside(&self, key: &K, ask: Ask, cost: u32) -> Decision {
        let mut keys = self.parts.lock(key);
        if let Some(decision) = keys.ask_known(key, ask, cost) {
            keys.count_refusal(ask, decision);
            return decision;
        }
        let reply = work_on(keys, |keys, after| keys.ask_aside(key, ask, cost, after));
        match (reply, ask) {
            (Reply::Now(decision), _) => decision,
            (Reply::NoRoom(retry_in), _) => Decision::Wait { retry_in },
            (Reply::AskThere(limit), Ask::ToPass) => limit.try_acquire(cost),
            (Reply::AskThere(limit), Ask::ToLook) => limit.peek(cost),
        }
    }

    pub(super) fn parts(&self) -> &Parts<K, P> {
        &self.parts
    }

    pub(super) fn locked<T>(
        &self,
        key: &K,
        work: impl FnOnce(&mut Keys<K, P>, &mut RoomAfter) -> T,
    ) -> T {
        work_on(self.parts.lock(key), work)
    }
}

/// The same keys.
impl<K, P: Policy> Clone for Keyed<K, P> {
    fn clone(&self) -> Self {
        Self {
            parts: Arc::clone(&self.parts),
            precision: self.precision,
        }
    }
}

/// Says nothing of the keys: they may be secret.
impl<K, P: Policy> fmt::Debug for Keyed<K, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyed").finish_non_exhaustive()
    }
}
