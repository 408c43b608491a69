use core::fmt;
use core::hash::{BuildHasher, Hash};
use core::task::{Context, Poll};
use core::time::Duration;
use std::convert::Infallible;
use std::hash::RandomState;
use std::sync::{Arc, Mutex};

use tokio::time::Instant;

use crate::feedback::Feedback;
use crate::policy::{Decision, Policy, Status};
use crate::time::Resolution;
use crate::wait::{Intent, Priority};

use super::acquire::{Acquire, AcquireOne, AcquireWithin, retry_in};
use super::as_key::AsKey;
use super::future::Obeying;
use super::key_map::{KeyMap, RETRY_FOR_ROOM, Reply, Shard, WhenFull};
use super::key_table::{Hashed, KeyHasher, KeyTable, Policies};
use super::limit::{LimitState, left_after};
use super::reporter::{KeyedObserver, Reporter, SharedObserver};
use super::settle::{ReserveWithin, Settle};
use super::shared::{LimitHandle, Shared};
use super::{Answer, Event, Limiter, Limits, Method, Obey, Observer, Stats};

/// The number of locks: tasks that ask for different keys seldom block each other, and a table that grows holds one lock and moves a
/// sixteenth of the keys. A power of two.
const SHARDS: usize = 16;

/// A limit for each key: for each user, host or connection.
///
/// Keys share nothing: each has its own state and its own queue, first come, first served. Made by
/// [`PolicyExt::keyed`](super::PolicyExt::keyed), where all keys have the same parameters, or by [`Keyed::by`], where the key
/// says which. Clones share the keys.
///
/// What keeps the key takes it by value: [`at`](Self::at) and the futures. Everything else takes a reference, in any borrowed
/// form of the key, such as `&str` for `String`.
///
/// ```
/// use paceline::limiter::PolicyExt;
/// use paceline::policy::{Decision, TokenBucket};
/// use paceline::time::Rate;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let users = TokenBucket::new(Rate::per_second(1), 2).keyed::<String>();
///
/// assert_eq!(users.try_acquire("ann", 2), Decision::Pass);
/// assert!(!users.try_acquire("ann", 1).is_pass());
/// assert_eq!(users.try_acquire("bob", 2), Decision::Pass);
/// # }
/// ```
///
/// # Memory
///
/// A key costs its own size and a state; while a request waits for it, a few hundred bytes. The state of a
/// [`TokenBucket`](crate::policy::TokenBucket), an [`Interval`](crate::policy::Interval) or a
/// [`FixedWindow`](crate::policy::FixedWindow), also as the only limit of an [`AnyPolicy`](crate::policy::AnyPolicy), takes 8 bytes
/// while it fits: for the first years of the process with most parameters, for its first days with a large number of permits. A
/// `u64` with such a state is 20 to 39 bytes.
///
/// A key that has settled (its state answers like a fresh one) is evicted: new keys sweep a few others, and a waiter that
/// leaves evicts its own. There is no background task. Only settled keys are evicted, so a rush of new keys never resets a limit that
/// binds.
///
/// There are at most [`with_max_keys`](Self::with_max_keys) keys, besides those that are paused or have parameters of their own. While all
/// of them are in use, [`with_when_full`](Self::with_when_full) says what happens to a request for a new one.
///
/// **Window bound**: that of the policy, for each key.
pub struct Keyed<K, P: Policy> {
    /// Each behind a lock of its own. Where the number of keys is limited there is one.
    pub(super) shards: Arc<[Shard<K, P>]>,
    hasher: KeyHasher,
    /// `None` for exact waits, except in a crowd.
    resolution: Option<Resolution>,
    pub(super) priority: Priority,
    /// `None` if the keys are not observed.
    pub(super) observer: Option<Arc<KeyedObserver<K>>>,
}

impl<K: Hash + Eq + Clone, P: Policy<State: Send> + Send + 'static> Keyed<K, P> {
    /// The same `policy` for every key.
    #[must_use]
    pub fn new(policy: P) -> Self
    where
        P: Clone + Sync,
    {
        let policies = Policies::Same(policy, P::clone);
        Self::with_policies(policies)
    }

    /// Each key has the policy that `policy_of` returns. It is called often, under a lock: it must always return the same, and
    /// not use this limit.
    ///
    /// ```
    /// use paceline::limiter::Keyed;
    /// use paceline::policy::TokenBucket;
    /// use paceline::time::Rate;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let plans = Keyed::by(|plan: &String| match plan.as_str() {
    ///     "premium" => TokenBucket::new(Rate::per_second(100), 100),
    ///     _ => TokenBucket::new(Rate::per_second(1), 1),
    /// });
    ///
    /// assert!(plans.try_acquire("premium", 50).is_pass());
    /// assert!(!plans.try_acquire("free", 50).is_pass());
    /// # }
    /// ```
    #[must_use]
    pub fn by(policy_of: impl Fn(&K) -> P + Send + Sync + 'static) -> Self {
        let policies = Policies::ByKey(Box::new(policy_of));
        Self::with_policies(policies)
    }

    fn with_policies(policies: Policies<K, P>) -> Self {
        let hasher = KeyHasher::Random(RandomState::new());
        Self::of(&KeyMap::new(KeyTable::new(Arc::new(policies), hasher)))
    }

    fn of(map: &KeyMap<K, P>) -> Self {
        let count = if map.is_bounded() { 1 } else { SHARDS };
        let maps = (0..count).map(|_| Shard(Mutex::new(map.emptied())));
        Self {
            shards: maps.collect(),
            hasher: map.keys.hasher.clone(),
            resolution: None,
            priority: Priority::Normal,
            observer: None,
        }
    }

    /// The same with one option changed, and with no keys.
    fn anew(self, change: impl FnOnce(&mut KeyMap<K, P>)) -> Self {
        let mut map = self.shards[0].lock().emptied();
        change(&mut map);
        Self {
            resolution: self.resolution,
            priority: self.priority,
            observer: self.observer,
            ..Self::of(&map)
        }
    }

    /// Reports to `observer` what becomes of each request and is done to a key through this handle and its later clones, without
    /// the key: see [`Shared::with_observer`]. To be called before it is cloned.
    ///
    /// ```
    /// use paceline::limiter::{Event, PolicyExt};
    /// use paceline::policy::Interval;
    /// use std::sync::mpsc;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let (sender, events) = mpsc::channel();
    /// let users = Interval::every(Duration::from_millis(100)).keyed::<String>();
    /// let users = users.with_observer(move |event: Event| sender.send(event).unwrap());
    ///
    /// users.acquire("ann".into(), 1).await.unwrap();
    /// assert!(!users.try_acquire("ann", 1).is_pass());
    ///
    /// assert!(matches!(events.recv(), Ok(Event::Passed { .. })));
    /// assert!(matches!(events.recv(), Ok(Event::Refused { .. })));
    /// # }
    /// ```
    #[must_use]
    pub fn with_observer<O>(mut self, observer: O) -> Self
    where
        O: Send + Sync + 'static,
        for<'a> &'a O: Observer,
    {
        self.observer = Some(Arc::new(KeyedObserver::same(observer)));
        self
    }

    /// As [`with_observer`](Self::with_observer), with the key of each event.
    ///
    /// `Metrics::by_key` makes such an observer, with a label for each of the busiest keys.
    ///
    /// ```
    /// use paceline::limiter::{Event, PolicyExt};
    /// use paceline::policy::Interval;
    /// use std::sync::mpsc;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let (sender, refused) = mpsc::channel();
    /// let users = Interval::every(Duration::from_millis(100)).keyed::<String>();
    /// let users = users.with_observer_by_key(move |user, event| {
    ///     if let Event::Refused { .. } = event {
    ///         sender.send(user.clone()).unwrap();
    ///     }
    /// });
    ///
    /// for user in ["ann", "bob", "ann"] {
    ///     let _ = users.try_acquire(user, 1);
    /// }
    /// assert_eq!(refused.try_iter().collect::<Vec<_>>(), ["ann"]);
    /// # }
    /// ```
    #[must_use]
    pub fn with_observer_by_key(self, observer: impl Fn(&K, Event) + Send + Sync + 'static) -> Self
    where
        K: Send + Sync + 'static,
    {
        Self {
            observer: Some(Arc::new(KeyedObserver::by_key(observer))),
            ..self
        }
    }

    /// Hashes the keys with this hasher; by default with that of [`HashMap`](std::collections::HashMap) and a random seed, so that no
    /// client can choose keys that collide and make each decision slow. A quicker hasher is for keys that no client chooses. Its upper
    /// bits have to differ as well as its lower ones. To be called before it is cloned and used: it forgets all keys.
    ///
    /// ```
    /// use paceline::limiter::PolicyExt;
    /// use paceline::policy::Interval;
    /// use std::hash::{BuildHasherDefault, DefaultHasher};
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let shards = Interval::every(Duration::from_millis(100)).keyed::<u16>();
    /// let shards = shards.with_hasher(BuildHasherDefault::<DefaultHasher>::default());
    /// assert!(shards.try_acquire(&1, 1).is_pass());
    /// # }
    /// ```
    #[must_use]
    pub fn with_hasher(self, hasher: impl BuildHasher + Send + Sync + 'static) -> Self {
        self.anew(|map| map.keys.hasher = KeyHasher::own(hasher))
    }

    /// Remembers `max` keys at most; by default there is no bound. To be called before it is cloned and used: it forgets all keys.
    ///
    /// # Panics
    ///
    /// If `max` is zero.
    #[must_use]
    #[track_caller]
    pub fn with_max_keys(self, max: usize) -> Self {
        assert!(
            max > 0,
            "a keyed limit needs room for at least 1 key, got 0"
        );
        self.anew(|map| map.max = max)
    }

    /// What happens to a request for a new key while all of [`with_max_keys`](Self::with_max_keys) are in use; by default, the request
    /// waits. To be called before it is cloned and used: it forgets all keys.
    ///
    /// ```
    /// use paceline::limiter::{PolicyExt, WhenFull};
    /// use paceline::policy::{Interval, TokenBucket};
    /// use paceline::time::Rate;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let each = TokenBucket::new(Rate::per_second(1), 1);
    /// let all_others = TokenBucket::new(Rate::per_second(10), 2);
    /// let users = each.keyed::<u32>().with_max_keys(1).with_when_full(WhenFull::Share(all_others));
    ///
    /// assert!(users.try_acquire(&1, 1).is_pass());
    /// assert!(users.try_acquire(&2, 1).is_pass());
    /// assert!(users.try_acquire(&3, 1).is_pass());
    /// assert!(!users.try_acquire(&4, 1).is_pass(), "2 and 3 have used what is shared");
    /// # }
    /// ```
    #[must_use]
    pub fn with_when_full(self, when_full: WhenFull<P>) -> Self {
        let when_full = match when_full {
            WhenFull::Wait => WhenFull::Wait,
            WhenFull::Pass => WhenFull::Pass,
            WhenFull::Share(policy) => WhenFull::Share(LimitHandle::new(LimitState::new(policy))),
        };
        self.anew(|map| map.when_full = when_full)
    }

    /// How exactly requests wait: see [`Shared::with_resolution`].
    #[must_use]
    pub fn with_resolution(self, resolution: Resolution) -> Self {
        Self {
            resolution: Some(resolution),
            ..self
        }
    }

    /// The class of requests that are made through this handle and its later clones, ten seconds of waiting apart: see [`Priority`] and
    /// [`Shared::with_priority`].
    #[must_use]
    pub fn with_priority(self, priority: Priority) -> Self {
        Self { priority, ..self }
    }

    /// A handle of the limit of one key.
    pub(super) fn handle(&self, limit: Arc<LimitHandle<P>>) -> Shared<P> {
        let mut handle = Shared::of(limit);
        handle.resolution = self.resolution;
        if self.priority == Priority::Normal {
            return handle;
        }
        handle.with_priority(self.priority)
    }

    /// A limiter for this key, for an adapter: a handle that queues for it.
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
        let observer = self.observer_of(|| key.clone());
        KeyedAt {
            keyed: self.clone(),
            key,
            handle: None,
            spare: None,
            reporter: Reporter::of(observer.as_ref()),
            uncounted: None,
            settles_nothing: false,
        }
    }

    /// Waits for `cost` permits of this key, behind every request that waits for the same key.
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
    pub fn acquire(&self, key: K, cost: u32) -> Acquire<KeyedAt<K, P>> {
        Acquire::new(self.at(key), cost)
    }

    /// Waits for one permit of this key, which no limit refuses for ever: [`acquire`](Self::acquire) of 1, without an error.
    ///
    /// ```
    /// use paceline::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let start = tokio::time::Instant::now();
    /// let users = Interval::every(Duration::from_millis(100)).keyed();
    /// users.acquire_one("ann").await;
    /// users.acquire_one("bob").await;
    /// users.acquire_one("ann").await;
    /// # assert_eq!(start.elapsed(), Duration::from_millis(100));
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If it has to wait outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the queue; nothing was counted.
    #[doc(alias = "until_key_ready")]
    pub fn acquire_one(&self, key: K) -> AcquireOne<KeyedAt<K, P>> {
        AcquireOne::new(self.at(key))
    }

    /// Waits for `cost` permits of this key, if they can be had `within` this time.
    ///
    /// As [`Shared::acquire_within`](super::Shared::acquire_within): it fails at once when the wait is known to be too long, and
    /// when the time is over at the latest. Waiting for room for a new key counts too.
    ///
    /// ```
    /// use paceline::limiter::PolicyExt;
    /// use paceline::policy::Interval;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let users = Interval::every(Duration::from_millis(100)).keyed::<&str>();
    /// users.acquire_one("ann").await;
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
    /// [`is_too_late`](super::AcquireError::is_too_late), with [`retry_in`](super::AcquireError::retry_in) for a `Retry-After`;
    /// or [`is_too_costly`](super::AcquireError::is_too_costly) if that many can never pass.
    ///
    /// # Panics
    ///
    /// If it has to wait outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the queue; nothing was counted.
    pub fn acquire_within(
        &self,
        key: K,
        cost: u32,
        within: Duration,
    ) -> AcquireWithin<KeyedAt<K, P>> {
        AcquireWithin::new(self.at(key), cost, within, KeyedAt::refuse_late)
    }

    /// Asks for `cost` permits of this key without waiting. It never overtakes a waiter for the same key.
    pub fn try_acquire<Q: AsKey<K> + ?Sized>(&self, key: &Q, cost: u32) -> Decision {
        self.try_and_read(key, cost, |_| false, &mut None)
    }

    /// Asks once and reports it. `left` becomes the status after the answer if that is read, without another look at the table.
    fn try_and_read<Q: AsKey<K> + ?Sized>(
        &self,
        key: &Q,
        cost: u32,
        reads: impl Fn(Decision) -> bool,
        left: &mut Option<Status>,
    ) -> Decision {
        let (decision, uncounted) = self.try_decide(key, Intent::Acquire, cost, reads, left);
        if let Some(observer) = self.observer_of(|| key.to_key()) {
            observer.report_try(cost, decision, uncounted);
        }
        decision
    }

    /// What [`try_acquire`](Self::try_acquire) would say. Nothing is counted.
    pub fn peek<Q: AsKey<K> + ?Sized>(&self, key: &Q, cost: u32) -> Decision {
        self.try_decide(key, Intent::Peek, cost, |_| false, &mut None)
            .0
    }

    /// Evicts every key that has settled, now, and gives back their memory. It goes through all keys.
    ///
    /// New keys do so by and by. Call it to have the memory back when none come any more.
    ///
    /// ```
    /// use paceline::limiter::PolicyExt;
    /// use paceline::policy::Interval;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let users = Interval::every(Duration::from_millis(100)).keyed::<&str>();
    /// users.acquire_one("ann").await;
    /// tokio::time::sleep(Duration::from_millis(60)).await;
    /// users.acquire_one("bob").await;
    /// tokio::time::sleep(Duration::from_millis(60)).await;
    ///
    /// assert_eq!(users.len(), 2);
    /// users.forget_settled();
    /// assert_eq!(users.len(), 1);
    /// # }
    /// ```
    pub fn forget_settled(&self) {
        let shards = self.shards.iter();
        shards.for_each(|shard| shard.lock().evict_settled());
    }

    /// Asks without waiting. A request that passes without being counted, since there is no room for its key, would have waited: the
    /// second decision says so.
    fn try_decide<Q: AsKey<K> + ?Sized>(
        &self,
        key: &Q,
        intent: Intent,
        cost: u32,
        reads: impl Fn(Decision) -> bool,
        left: &mut Option<Status>,
    ) -> (Decision, Option<Decision>) {
        let answer = self.on_shard(key, |shard, key| {
            let answer = match shard.ask(key, intent, cost) {
                Reply::Decided(decision) => (decision, None),
                Reply::AtCapacity(retry_in) => (Decision::Wait { retry_in }, None),
                Reply::PassesUncounted(retry_in) => {
                    (Decision::Pass, Some(Decision::Wait { retry_in }))
                }
                Reply::Ask(limit) => return Err(limit),
            };
            if intent == Intent::Acquire && !answer.0.is_pass() {
                shard.count_refusal();
            }
            if reads(answer.0) {
                *left = left_after(|| shard.status(key));
            }
            Ok(answer)
        });
        answer.unwrap_or_else(|limit| {
            let limit = Shared::of(limit);
            (limit.try_and_read(intent, cost, reads, left), None)
        })
    }

    pub(super) fn observer_of(&self, key: impl FnOnce() -> K) -> Option<SharedObserver> {
        self.observer.as_ref().map(|observer| observer.of(key))
    }

    /// Locks the shard of a key, which is hashed here and nowhere else.
    pub(super) fn on_shard<Q: Hash + ?Sized, T>(
        &self,
        key: &Q,
        work: impl FnOnce(&mut KeyMap<K, P>, &Hashed<'_, Q>) -> T,
    ) -> T {
        let key = self.hasher.hashed(key);
        // A table takes the place of a key from the lower bits, and tells keys apart by the highest.
        let index = (key.hash >> 40) as usize & (self.shards.len() - 1);
        work(&mut self.shards[index].lock(), &key)
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
    /// let users = TokenBucket::new(Rate::per_second(1), 2).keyed::<String>();
    ///
    /// users.charge("ann", 3);
    /// users.acquire_one("ann".into()).await;
    /// # assert_eq!(start.elapsed(), Duration::from_secs(2));
    /// # }
    /// ```
    pub fn charge<Q: AsKey<K> + ?Sized>(&self, key: &Q, cost: u32) {
        let limit = self.on_shard(key, |shard, key| shard.counting(key));
        if let Some(limit) = limit {
            limit.update(|limit, now| limit.charge(now, cost));
            drop(limit);
            self.on_shard(key, |shard, key| shard.release(key));
        }
    }

    /// Takes back what was particular to this key: parameters of its own, pauses, and what
    /// [`set_remaining`](Shared::set_remaining) has said. What it has spent stays spent; the key goes at once if it has settled, and
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
    /// let slow = Interval::every(Duration::from_secs(1));
    /// hosts.with("a.example", |limit| limit.retune(slow));
    /// assert_eq!(hosts.len(), 1);
    ///
    /// hosts.forget("a.example");
    /// assert_eq!(hosts.len(), 0);
    /// # }
    /// ```
    pub fn forget<Q: AsKey<K> + ?Sized>(&self, key: &Q) {
        self.lend(key, |limit, of_all| {
            limit.retune(of_all);
            limit.queue.with(|limit, _| limit.is_tuned = false);
            limit.resume();
        });
    }

    /// Lends the limit of one key, with all that a [`Shared`] can do: to pause it, to change its parameters, to give permits back,
    /// to read it.
    ///
    /// ```
    /// use paceline::feedback::Feedback;
    /// use paceline::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let hosts = Interval::every(Duration::from_millis(100)).keyed::<String>();
    ///
    /// let refused = Feedback::parse([("Retry-After", "2")], Duration::ZERO);
    /// hosts.with("a.example", |limit| limit.apply_feedback(&refused));
    /// assert!(!hosts.try_acquire("a.example", 1).is_pass());
    /// assert!(hosts.try_acquire("b.example", 1).is_pass());
    ///
    /// let slow = Interval::every(Duration::from_secs(1));
    /// hosts.with("b.example", |limit| limit.retune(slow));
    /// assert_eq!(hosts.with("b.example", |limit| limit.policy()), slow);
    /// # }
    /// ```
    ///
    /// A key that is paused is remembered until the pause ends, and one with parameters of its own until they equal those of
    /// [`new`](Self::new) or [`by`](Self::by) again or until [`forget`](Self::forget), also where there is no room for a new key. What
    /// the key had spent before and had settled may have been forgotten: slower parameters do not count it then.
    ///
    /// **Without room.** While there is no room for a new key, its limit lets nothing pass until there may be some, in a second at
    /// the latest. What is charged to it is not kept, and the key is not remembered for it: requests by key follow
    /// [`with_when_full`](Self::with_when_full) again as soon as `work` is done, and wait meanwhile.
    ///
    /// The handle is an ordinary one: a clone of it may leave the closure, and keeps the key remembered. `work` may use these limits.
    /// For a key that nothing waits for it takes memory, and so costs several times as much as a request by key.
    pub fn with<Q: AsKey<K> + ?Sized, T>(&self, key: &Q, work: impl FnOnce(&Shared<P>) -> T) -> T
    where
        P: PartialEq,
    {
        self.lend(key, |limit, of_all| {
            let done = work(limit);
            limit
                .queue
                .with(|limit, _| limit.is_tuned = limit.policy != of_all);
            done
        })
    }

    /// Lends the limit of one key, with the parameters of a key that has none of its own.
    pub(super) fn lend<Q: AsKey<K> + ?Sized, T>(
        &self,
        key: &Q,
        work: impl FnOnce(&Shared<P>, P) -> T,
    ) -> T {
        // Not on the shard: the work may wake a waiter, or use these limits.
        let (policy, (limit, waited_until)) = self.on_shard(key, |shard, key| {
            (shard.keys.policy_of(key), shard.lend(key))
        });
        let mut handle = self.handle(Arc::clone(&limit));
        handle.reporter = Reporter::of(self.observer_of(|| key.to_key()).as_ref());
        let done = work(&handle, policy);
        drop(handle);
        self.on_shard(key, |shard, key| shard.take_back(key, limit, waited_until));
        done
    }

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
    pub fn status<Q: AsKey<K> + ?Sized>(&self, key: &Q) -> Option<Status> {
        self.on_shard(key, |shard, key| shard.status(key))
    }

    /// How many keys are remembered now, those included that have settled and are not evicted yet.
    #[must_use]
    pub fn len(&self) -> usize {
        let shards = self.shards.iter();
        shards.map(|shard| shard.lock().keys.len()).sum()
    }

    /// Whether no key is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What all the limits have done so far, those of forgotten keys included. It goes through all the keys.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for shard in self.shards.iter() {
            stats.add(shard.lock().stats());
        }
        stats
    }
}

impl<K: Hash + Eq + Clone, P: Policy<State: Send> + Send + 'static> Limits<K> for Keyed<K, P> {
    type Limit = KeyedAt<K, P>;
    type Error = Infallible;

    fn at(&self, key: K) -> Result<KeyedAt<K, P>, Infallible> {
        Ok(Self::at(self, key))
    }

    fn try_at(&self, key: &K, cost: u32, all: bool, left: &mut Option<Status>) -> Option<Decision> {
        self.try_as(key, cost, all, left)
    }

    fn try_as<Q>(&self, of: &Q, cost: u32, all: bool, left: &mut Option<Status>) -> Option<Decision>
    where
        Q: AsKey<K> + ?Sized,
    {
        let reads = |decision: Decision| all || !decision.is_pass();
        Some(self.try_and_read(of, cost, reads, left))
    }
}

/// The same keys.
impl<K, P: Policy> Clone for Keyed<K, P> {
    fn clone(&self) -> Self {
        Self {
            shards: Arc::clone(&self.shards),
            hasher: self.hasher.clone(),
            resolution: self.resolution,
            priority: self.priority,
            observer: self.observer.clone(),
        }
    }
}

/// Does not print the keys: they may be secret.
impl<K, P: Policy> fmt::Debug for Keyed<K, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyed").finish_non_exhaustive()
    }
}

/// The limit of one key, for an adapter. Made by [`Keyed::at`]. A clone queues for the same limit.
pub struct KeyedAt<K: Hash + Eq + Clone, P: Policy<State: Send> + Send + 'static> {
    pub(super) keyed: Keyed<K, P>,
    pub(super) key: K,
    /// While it waits.
    pub(super) handle: Option<Shared<P>>,
    /// Memory for the next time that it waits.
    pub(super) spare: Option<Arc<LimitHandle<P>>>,
    pub(super) reporter: Reporter,
    /// What the last request would have been answered, if it passed without being counted because there was no room for the key.
    pub(super) uncounted: Option<Decision>,
    /// Made for the settlement of such a request.
    settles_nothing: bool,
}

impl<K: Hash + Eq + Clone, P: Policy<State: Send> + Send + 'static> KeyedAt<K, P> {
    /// Waits for `cost` permits, if they can be had `within` this time: see [`Keyed::acquire_within`].
    pub fn acquire_within(&self, cost: u32, within: Duration) -> AcquireWithin<Self> {
        self.keyed.acquire_within(self.key.clone(), cost, within)
    }

    /// Asks for `cost` permits without waiting: see [`Keyed::try_acquire`].
    pub fn try_acquire(&self, cost: u32) -> Decision {
        self.keyed.try_acquire(&self.key, cost)
    }

    fn poll_ask(&mut self, intent: Intent, cost: u32, cx: &mut Context<'_>) -> Answer {
        self.uncounted = None;
        let handle = if let Some(handle) = &mut self.handle {
            handle
        } else {
            let reply = self.ask_map(intent, cost);
            match self.handle_of(reply) {
                Ok(handle) => handle,
                Err(decision) => return Poll::Ready(Ok(decision)),
            }
        };
        let answer = handle.poll_for_key(intent, cost, cx);
        // A handle that waits is queued, and a look that has passed reserves the position.
        if handle.is_outside() {
            self.leave();
        }
        answer
    }

    fn try_ask(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer {
        self.uncounted = None;
        let Some(handle) = self.handle.as_mut().filter(|_| cost > 0) else {
            let (key, intent) = (&self.key, Intent::Acquire);
            let asked = self
                .keyed
                .try_decide(key, intent, cost, |_| false, &mut None);
            self.uncounted = asked.1;
            return Poll::Ready(Ok(asked.0));
        };
        let answer = handle.poll_try(cost, cx);
        if matches!(answer, Poll::Ready(Ok(Decision::Pass))) {
            self.leave();
        }
        answer
    }

    fn ask_map(&mut self, intent: Intent, cost: u32) -> Reply<P> {
        self.keyed.on_shard(&self.key, |shard, key| {
            let reply = shard.ask(key, intent, cost);
            match reply {
                Reply::Decided(Decision::Wait { .. }) => {
                    return Reply::Ask(shard.activate(key, &mut self.spare));
                }
                // A look too: its request is refused, and made no more.
                Reply::Decided(Decision::Never { .. }) => shard.count_refusal(),
                _ => {}
            }
            reply
        })
    }

    /// A handle of the limit to ask, or the answer.
    pub(super) fn handle_of(&mut self, reply: Reply<P>) -> Result<&mut Shared<P>, Decision> {
        match reply {
            Reply::Decided(decision) => Err(decision),
            Reply::AtCapacity(retry_in) => Err(Decision::Wait {
                retry_in: retry_in.min(RETRY_FOR_ROOM),
            }),
            Reply::PassesUncounted(retry_in) => {
                self.uncounted = Some(Decision::Wait { retry_in });
                Err(Decision::Pass)
            }
            Reply::Ask(limit) => Ok(self.handle.insert(self.keyed.handle(limit))),
        }
    }

    /// Leaves the queue.
    pub(super) fn leave(&mut self) {
        if self.handle.is_some() {
            self.handle = None;
            let spare = self
                .keyed
                .on_shard(&self.key, |shard, key| shard.release(key));
            self.spare = spare.or(self.spare.take());
        }
    }

    /// Leaves the queue, since it would take too long.
    fn refuse_late(&mut self, cost: u32, known: Option<Duration>) -> Option<Duration> {
        self.leave();
        self.keyed
            .on_shard(&self.key, |shard, _| shard.count_refusal());
        let retry_in = known.or_else(|| retry_in(self.keyed.peek(&self.key, cost)));
        self.reporter.too_late(cost, retry_in);
        retry_in
    }
}

impl<K: Hash + Eq + Clone, P: Policy<State: Send> + Send + 'static> Limiter for KeyedAt<K, P> {
    type Error = Infallible;

    fn poll_decide(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer {
        let answer = self.poll_ask(Intent::Acquire, cost, cx);
        self.reporter
            .answered(Method::Decide, cost, &answer, self.uncounted);
        answer
    }

    fn poll_try(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer {
        let answer = self.try_ask(cost, cx);
        self.reporter
            .answered(Method::Try, cost, &answer, self.uncounted);
        answer
    }

    fn poll_open(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer {
        let answer = self.poll_ask(Intent::Peek, cost, cx);
        self.reporter.answered(Method::Open, cost, &answer, None);
        answer
    }

    fn give_up(&mut self) {
        self.leave();
        self.reporter.gave_up();
    }

    fn shadowed(&self) -> Option<Decision> {
        self.uncounted
    }

    fn status(&self) -> Option<Status> {
        self.keyed.status(&self.key)
    }

    fn least_wait(&self, cost: u32) -> Duration {
        let decision = self.keyed.peek(&self.key, cost);
        decision.retry_in().unwrap_or_default()
    }

    fn try_once(&self, cost: u32, all: bool, left: &mut Option<Status>) -> Option<Decision> {
        self.keyed.try_as(&self.key, cost, all, left)
    }

    fn resolution(&self) -> Resolution {
        self.keyed.resolution.unwrap_or_default()
    }
}

impl<K: Hash + Eq + Clone, P: Policy<State: Send> + Send + 'static> Settle for KeyedAt<K, P> {
    fn charge(&self, cost: u32) {
        if !self.settles_nothing {
            self.keyed.charge(&self.key, cost);
        }
    }

    fn refund_from(&self, spent_at: Instant, cost: u32) {
        if !self.settles_nothing {
            self.keyed
                .lend(&self.key, |limit, _| limit.refund_from(spent_at, cost));
        }
    }

    fn settles(&mut self, passed: &Self) {
        self.settles_nothing = passed.uncounted.is_some();
    }

    fn reserve_within(&self, estimate: u32, within: Duration) -> ReserveWithin<Self> {
        ReserveWithin {
            acquire: self.acquire_within(estimate, within),
        }
    }
}

impl<K: Hash + Eq + Clone, P: Policy<State: Send> + Send + 'static> Obey for KeyedAt<K, P> {
    type Error = Infallible;

    fn obey(&self, feedback: &Feedback) -> Option<Obeying<Infallible>> {
        self.keyed
            .lend(&self.key, |limit, _| limit.apply_feedback(feedback));
        None
    }
}

impl<K: Hash + Eq + Clone, P: Policy<State: Send> + Send + 'static> Clone for KeyedAt<K, P> {
    fn clone(&self) -> Self {
        self.keyed.at(self.key.clone())
    }
}

/// Leaves the queue.
impl<K: Hash + Eq + Clone, P: Policy<State: Send> + Send + 'static> Drop for KeyedAt<K, P> {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// Does not print the key: it may be secret.
impl<K: Hash + Eq + Clone, P: Policy<State: Send> + Send + 'static> fmt::Debug for KeyedAt<K, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedAt")
            .field("is_waiting", &self.handle.is_some())
            .finish_non_exhaustive()
    }
}
