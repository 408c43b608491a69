use core::borrow::Borrow;
use core::hash::Hash;
use core::time::Duration;
use std::sync::Arc;

use tokio::time::Instant;

use crate::feedback::Feedback;
use crate::policy::Policy;
use crate::wait::WaitQueue;

use super::key_map::lock;
use super::keyed::KeyedAt;
use super::limit::LimitState;
use super::reporter::KeyedObserver;
use super::settle::{Reserve, Settle};
use super::shared::LimitHandle;
use super::{Event, Keyed, Mode};

/// Changes of a key, and of the mode.
impl<K, P> Keyed<K, P>
where
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
{
    /// Gives back `cost` permits of this key that passed and were not used: see [`Shared::refund`](super::Shared::refund).
    ///
    /// ```
    /// use paceline::limiter::PolicyExt;
    /// use paceline::policy::TokenBucket;
    /// use paceline::time::Rate;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let users = TokenBucket::new(Rate::per_second(1), 2).keyed::<String>();
    /// assert!(users.try_acquire("ann", 2).is_pass());
    ///
    /// users.refund("ann", 1);
    /// assert!(users.try_acquire("ann", 1).is_pass());
    /// # }
    /// ```
    pub fn refund<Q>(&self, key: &Q, cost: u32)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        self.change(key, |limit, _| {
            limit.update(|limit, now| limit.refund(now, cost));
        });
    }

    /// Counts `cost` permits of this key that were used without having been asked for: see
    /// [`Shared::charge`](super::Shared::charge).
    ///
    /// A key that finds no room is charged to the limit of [`WhenFull::Share`](super::WhenFull::Share), if there is one, and
    /// else not at all.
    ///
    /// ```
    /// use paceline::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let start = tokio::time::Instant::now();
    /// let users = TokenBucket::new(Rate::per_second(1), 2).keyed::<&str>();
    ///
    /// users.charge(&"ann", 3);
    /// users.acquire_one("ann").await;
    /// # assert_eq!(start.elapsed(), Duration::from_secs(2));
    /// # }
    /// ```
    pub fn charge<Q>(&self, key: &Q, cost: u32)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let limit = self.shard(key).counting(key);
        if let Some(limit) = limit {
            limit.update(|limit, now| limit.charge(now, cost));
            drop(limit);
            self.shard(key).release(key);
        }
    }

    pub(super) fn refund_from<Q>(&self, key: &Q, spent_at: Instant, cost: u32)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        self.change(key, |limit, _| {
            limit.update(|limit, now| limit.refund_from(now, spent_at, cost));
        });
    }

    /// Waits for an estimate of what a request for this key costs: [`at`](Self::at) and [`Settle::reserve`].
    ///
    /// ```
    /// use paceline::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), paceline::limiter::TooCostly> {
    /// let tokens = TokenBucket::new(Rate::per_minute(600), 1000).keyed::<&str>();
    ///
    /// let reserved = tokens.reserve("ann", 800).await?;
    /// reserved.settle(300);
    /// assert_eq!(tokens.status(&"ann").unwrap().remaining, 700);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// At once, if that many can never pass.
    ///
    /// # Panics
    ///
    /// If it has to wait outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the queue; nothing was counted.
    pub fn reserve(&self, key: K, estimate: u32) -> Reserve<KeyedAt<K, P>> {
        self.at(key).reserve(estimate)
    }

    /// Gives this key parameters of its own. They take effect at once, for queued requests too. What was spent stays spent.
    ///
    /// A key with parameters of its own is never evicted, and is remembered even if there is no room for it: until they equal
    /// those of [`new`](Self::new) or [`by`](Self::by) again, or until [`forget`](Self::forget). What the key had spent before
    /// and had settled may have been forgotten: slower parameters do not count it then.
    pub fn retune<Q>(&self, key: &Q, policy: P)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
        P: PartialEq,
    {
        self.change(key, |limit, of_all| {
            limit.update_all(|limit, now| {
                limit.is_tuned = policy != of_all;
                limit.retune(now, policy);
            });
        });
        self.report(key, Event::Retuned);
    }

    /// Lets no request for this key pass before `duration` is over. It is remembered as long, even if there is no room for it.
    pub fn pause_for<Q>(&self, key: &Q, duration: Duration)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let duration = self.pause(key, duration);
        self.report(key, Event::Paused { duration });
    }

    /// Lets at most `remaining` more permits of this key pass before `reset_in` is over: see
    /// [`Shared::set_remaining`](super::Shared::set_remaining). It is remembered as long, even if there is no room for it.
    ///
    /// ```
    /// use paceline::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let hosts = TokenBucket::new(Rate::per_second(100), 100).keyed::<String>();
    ///
    /// hosts.set_remaining("a.example", 1, Duration::from_secs(30));
    /// assert!(hosts.try_acquire("a.example", 1).is_pass());
    /// assert!(!hosts.try_acquire("a.example", 1).is_pass());
    /// assert!(hosts.try_acquire("b.example", 2).is_pass());
    /// # }
    /// ```
    pub fn set_remaining<Q>(&self, key: &Q, remaining: u32, reset_in: Duration)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        self.change(key, |limit, _| {
            limit.update(|limit, now| limit.set_remaining(now, remaining, reset_in));
        });
    }

    /// Pauses this key for as long as a provider asks, and returns for how long; `None` if it asks for nothing.
    ///
    /// As [`Shared::apply_feedback`](super::Shared::apply_feedback): a host that says "too many requests" does not slow down requests to another.
    ///
    /// ```
    /// use paceline::feedback::Feedback;
    /// use paceline::limiter::PolicyExt;
    /// use paceline::policy::Interval;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let hosts = Interval::every(Duration::from_millis(100)).keyed::<&str>();
    ///
    /// let refused = Feedback::parse([("Retry-After", "2")], Duration::ZERO);
    /// assert_eq!(hosts.apply_feedback(&"a.example", &refused), Some(Duration::from_secs(2)));
    ///
    /// assert!(!hosts.try_acquire(&"a.example", 1).is_pass());
    /// assert!(hosts.try_acquire(&"b.example", 1).is_pass());
    /// # }
    /// ```
    pub fn apply_feedback<Q>(&self, key: &Q, feedback: &Feedback) -> Option<Duration>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let asked = feedback.pause()?;
        let pause = self.pause(key, asked);
        self.report(key, Event::FeedbackApplied { pause });
        Some(asked)
    }

    /// Ends every pause of this key, and what [`set_remaining`](Self::set_remaining) has said.
    pub fn resume<Q>(&self, key: &Q)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        self.change(key, |limit, _| limit.update(|limit, _| limit.resume()));
        self.report(key, Event::Resumed);
    }

    /// Takes back what was particular to this key: parameters of its own, pauses, and what
    /// [`set_remaining`](Self::set_remaining) has said. What it has spent stays spent; the key goes at once if it has settled, and
    /// otherwise when it settles, like any other.
    ///
    /// ```
    /// use paceline::limiter::PolicyExt;
    /// use paceline::policy::Interval;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let hosts = Interval::every(Duration::from_millis(100)).keyed::<String>();
    /// hosts.retune("a.example", Interval::every(Duration::from_secs(1)));
    /// assert_eq!(hosts.len(), 1);
    ///
    /// hosts.forget("a.example");
    /// assert_eq!(hosts.len(), 0);
    /// # }
    /// ```
    pub fn forget<Q>(&self, key: &Q)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        self.change(key, |limit, of_all| {
            limit.update_all(|limit, now| {
                limit.is_tuned = false;
                limit.retune(now, of_all);
                limit.resume();
            });
        });
        self.report(key, Event::Retuned);
        self.report(key, Event::Resumed);
    }

    /// Begins anew with this key, as if it had never been used: nothing is spent, and there are no parameters of its own and no
    /// pause. It takes effect at once, for queued requests too.
    ///
    /// What it had spent comes on top of the window bound.
    ///
    /// ```
    /// use paceline::limiter::PolicyExt;
    /// use paceline::policy::Interval;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let users = Interval::every(Duration::from_secs(3600)).keyed::<String>();
    /// assert!(users.try_acquire("ann", 1).is_pass());
    ///
    /// users.reset("ann");
    /// assert!(users.try_acquire("ann", 1).is_pass());
    /// # }
    /// ```
    pub fn reset<Q>(&self, key: &Q)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        self.change(key, |limit, of_all| {
            limit.update_all(|limit, now| {
                limit.is_tuned = false;
                limit.policy = of_all;
                limit.reset(now);
            });
        });
        self.report(key, Event::Retuned);
        self.report(key, Event::Resumed);
    }

    /// Makes the limits of all keys active, shadow or off: see [`Mode`]. It takes effect at once, for queued requests too.
    pub fn set_mode(&self, mode: Mode) {
        // All shards at once, so that of two modes one is the last for every key.
        let mut shards: Vec<_> = self.shards.iter().map(lock).collect();
        let limits: Vec<Arc<LimitHandle<P>>> = shards
            .iter_mut()
            .flat_map(|shard| shard.set_mode(mode))
            .collect();
        drop(shards);
        for limit in limits {
            limit.wake_all();
        }
        if let Some(KeyedObserver::Same(observer)) = self.observer.as_deref() {
            observer.report(Event::ModeChanged { mode });
        }
    }

    fn report<Q>(&self, key: &Q, event: Event)
    where
        Q: ToOwned<Owned = K> + ?Sized,
    {
        if let Some(observer) = self.observer_of(|| key.to_owned()) {
            observer.report(event);
        }
    }

    /// Pauses a key, and returns for how long.
    fn pause<Q>(&self, key: &Q, duration: Duration) -> Duration
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        self.change(key, |limit, _| {
            limit.update(|limit, now| limit.pause_for(now, duration))
        })
    }

    /// Changes the limit of one key, given with the parameters of a key that has none of its own.
    fn change<Q, T>(&self, key: &Q, change: impl FnOnce(&WaitQueue<LimitState<P>>, P) -> T) -> T
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let mut shard = self.shard(key);
        let policy = shard.policy_of(key);
        let limit = shard.activate(key, &mut None);
        drop(shard);
        let changed = change(&limit, policy);
        drop(limit);
        self.shard(key).release(key);
        changed
    }
}
