use core::convert::Infallible;
use core::fmt;
use core::future::{Future, poll_fn};
use core::hash::{BuildHasher, Hash};
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::hash::RandomState;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::limiter::{AcquireError, AsKey, Event, Limits, Observer, SharedObserver, Stats};
use crate::time::{Clock, OutOfRange, Resolution, Tick, Timer, or_panic};
use crate::wait::WaitQueue;

use super::future::{AcquirePermitFrom, AcquirePermitWithin};
use super::permits::{AcquirePermit, Permit, Permits};
use super::semaphore::{Keeper, SemaphoreState};
use super::{Admit, Admitted};

/// The number of locks: tasks that ask for different keys seldom block each other.
const SHARDS: usize = 16;

/// The longest time until a waiter for room asks again: when a key is forgotten is not known.
const RETRY_FOR_ROOM: Duration = Duration::from_millis(100);

/// A map or a queue with capacity for fewer than four times as many keeps its memory.
const FEW: usize = 32;

const NO_KEYS: &str = "keyed permits need room for at least 1 key, got 0";

/// A limit on how much is under way at once for each key: for each user, host or account.
///
/// Keys share nothing: each has its own permits and its own queue, first come, first served. Clones share the keys.
///
/// ```
/// use paceline::concurrency::KeyedPermits;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let users = KeyedPermits::<String>::new(2);
///
/// let first = users.acquire("ann".into()).await;
/// let second = users.acquire("ann".into()).await;
/// assert!(users.try_acquire("ann").is_none());
/// assert!(users.try_acquire("bob").is_some());
///
/// drop((first, second));
/// assert!(users.is_empty(), "no permit of any key is in use");
/// # }
/// ```
///
/// What keeps the key takes it by value: [`at`](Self::at) and the futures. Everything else takes a reference, in any borrowed
/// form of the key, such as `&str` for `String`.
///
/// # Memory
///
/// A key is remembered while a permit of it is in use or cools down, or a request waits for one. It is forgotten with the last of
/// these: an idle key costs nothing, and a key that is waited for is never forgotten. There is no background task. (A cool-down
/// ends unnoticed: the key goes with the next request for a key of its shard, or when the keys are [counted](Self::len).)
///
/// A key in use takes about 650 bytes and twice its own size; while permits of it cool down, up to 1 kB. A permit takes 16 bytes, and
/// a request that waits about 400. While a second request waits for the same key there is a small task, as for [`Permits`].
///
/// [`with_max_keys`](Self::with_max_keys) bounds the number of keys.
///
/// There is no `resize` by key: an idle key costs nothing and is forgotten, and so would be its number of permits. [`by`](Self::by)
/// says the number whenever the key comes back.
///
/// **Window bound**: that of [`Permits`], for each key.
#[doc(alias("semaphore", "bulkhead", "maxConcurrent", "p-limit"))]
pub struct KeyedPermits<K> {
    keys: Arc<Keys<K>>,
    resolution: Resolution,
    observer: Option<SharedObserver>,
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> KeyedPermits<K> {
    /// Permits for `n` calls at once for each key.
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
    /// use paceline::concurrency::KeyedPermits;
    ///
    /// let error = KeyedPermits::<String>::try_new(0).unwrap_err();
    /// assert_eq!(error.to_string(), "there must be at least 1 permit, got 0");
    /// ```
    ///
    /// # Errors
    ///
    /// If `n` is zero.
    pub fn try_new(n: u32) -> Result<Self, OutOfRange> {
        Permits::try_new(n)?;
        Ok(Self::by(move |_| n))
    }

    /// Each key has as many permits as `limit_of` returns. Zero lets nothing pass: requests for that key wait without end.
    ///
    /// It is called when a key comes that is not remembered, under a lock: it must not use these permits. A key that is in use
    /// keeps its number.
    ///
    /// ```
    /// use paceline::concurrency::KeyedPermits;
    ///
    /// let plans = KeyedPermits::by(|plan: &String| match plan.as_str() {
    ///     "premium" => 20,
    ///     _ => 1,
    /// });
    ///
    /// let one = (plans.try_acquire("premium"), plans.try_acquire("free"));
    /// assert!(plans.try_acquire("premium").is_some());
    /// assert!(plans.try_acquire("free").is_none());
    /// # drop(one);
    /// ```
    #[doc(alias("tier", "plan"))]
    #[must_use]
    pub fn by(limit_of: impl Fn(&K) -> u32 + Send + Sync + 'static) -> Self {
        Self {
            keys: Arc::new(Keys::new(Arc::new(limit_of), Duration::ZERO, usize::MAX)),
            resolution: Resolution::default(),
            observer: None,
        }
    }

    /// Each permit comes back `cooldown` after it was released: see [`Permits::with_cooldown`]. Zero is none. To be called before
    /// it is cloned and used: it forgets all keys.
    ///
    /// ```
    /// use paceline::concurrency::KeyedPermits;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let hosts = KeyedPermits::<String>::new(1).with_cooldown(Duration::from_millis(100));
    ///
    /// drop(hosts.acquire("a.example".into()).await);
    /// assert!(hosts.try_acquire("a.example").is_none());
    /// assert!(hosts.try_acquire("b.example").is_some());
    ///
    /// tokio::time::sleep(Duration::from_millis(100)).await;
    /// assert!(hosts.is_empty());
    /// # }
    /// ```
    #[must_use]
    pub fn with_cooldown(self, cooldown: Duration) -> Self {
        let limit_of = Arc::clone(&self.keys.limit_of);
        let keys = Arc::new(Keys::new(limit_of, cooldown, self.keys.max));
        Self { keys, ..self }
    }

    /// Remembers `max` keys at most; by default there is no bound. To be called before it is cloned and used: it forgets all keys.
    ///
    /// While all of them are in use or cool down, a new key finds no room: [`try_acquire`](Self::try_acquire) returns `None`, and
    /// a request that waits asks again when the first key has cooled down, after 100 ms at the latest. Requests that wait for
    /// room are not served in order.
    ///
    /// ```
    /// use paceline::concurrency::KeyedPermits;
    ///
    /// let users = KeyedPermits::<String>::new(2).with_max_keys(1);
    ///
    /// let ann = users.try_acquire("ann");
    /// assert!(users.try_acquire("bob").is_none());
    /// assert!(users.try_acquire("ann").is_some());
    /// drop(ann);
    /// assert!(users.try_acquire("bob").is_some());
    /// ```
    ///
    /// # Panics
    ///
    /// If `max` is zero.
    #[must_use]
    #[track_caller]
    pub fn with_max_keys(self, max: usize) -> Self {
        assert!(max > 0, "{NO_KEYS}");
        let limit_of = Arc::clone(&self.keys.limit_of);
        let keys = Arc::new(Keys::new(limit_of, self.keys.cooldown, max));
        Self { keys, ..self }
    }

    /// Reports to `observer` what becomes of each request of any key, and when permits are released: see
    /// [`Permits::with_observer`]. To be called before there are clones, which have it too.
    ///
    /// A request that waits for room is reported from when its key has room. If it gives up before that, nothing is reported.
    ///
    /// ```
    /// use paceline::concurrency::KeyedPermits;
    /// use paceline::limiter::Event;
    /// use std::sync::mpsc;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let (sender, events) = mpsc::channel();
    /// let users = KeyedPermits::<String>::new(1).with_observer(move |event: Event| sender.send(event).unwrap());
    ///
    /// let permit = users.acquire("ann".into()).await;
    /// assert!(users.try_acquire("ann").is_none());
    /// drop(permit);
    ///
    /// assert!(matches!(events.recv(), Ok(Event::Passed { cost: 1, .. })));
    /// assert!(matches!(events.recv(), Ok(Event::Refused { cost: 1, .. })));
    /// assert!(matches!(events.recv(), Ok(Event::Released { count: 1, .. })));
    /// # }
    /// ```
    #[must_use]
    pub fn with_observer<O>(self, observer: O) -> Self
    where
        O: Send + Sync + 'static,
        for<'a> &'a O: Observer,
    {
        let observer = Some(SharedObserver::new(observer));
        Self { observer, ..self }
    }

    /// How exactly a cool-down is waited for: see [`Permits::with_resolution`].
    #[must_use]
    pub fn with_resolution(self, resolution: Resolution) -> Self {
        Self { resolution, ..self }
    }

    /// A handle on the permits of this key, which queues for one: see [`Admit`]. It costs nothing while it is not queued.
    ///
    /// ```
    /// use core::future::poll_fn;
    /// use paceline::concurrency::{Admit, KeyedPermits};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let users = KeyedPermits::<String>::new(2);
    /// let mut ann = users.at("ann".into());
    /// assert!(users.is_empty());
    ///
    /// let permit = poll_fn(|cx| ann.poll_admit((), cx)).await.unwrap();
    /// assert_eq!((permit.is_some(), users.in_use("ann")), (true, 1));
    /// # }
    /// ```
    #[must_use]
    pub fn at(&self, key: K) -> PermitsAt<K> {
        PermitsAt {
            permits: self.clone(),
            key,
            waiting: None,
            room: Timer::new().with_resolution(self.resolution),
        }
    }

    /// Waits for a permit of this key, behind every request that waits for the same key.
    ///
    /// # Panics
    ///
    /// If it has to wait for a cool-down, or for [room](Self::with_max_keys), outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the queue; nothing was taken, and the next goes when it can.
    pub fn acquire(&self, key: K) -> AcquirePermitFrom<PermitsAt<K>> {
        AcquirePermitFrom::new(self.at(key))
    }

    /// Waits for a permit of this key, if it can be had `within` this time.
    ///
    /// As [`Permits::acquire_within`]. Waiting for room for a new key counts too.
    ///
    /// ```
    /// use paceline::concurrency::KeyedPermits;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let users = KeyedPermits::new(1);
    /// let _permit = users.acquire("ann").await;
    ///
    /// let refused = users.acquire_within("ann", Duration::from_millis(50)).await;
    /// assert!(refused.unwrap_err().is_too_late());
    /// assert!(users.acquire_within("bob", Duration::ZERO).await.is_ok());
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`is_too_late`](crate::limiter::AcquireError::is_too_late).
    ///
    /// # Panics
    ///
    /// If it has to wait outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the queue; nothing was taken.
    pub fn acquire_within(&self, key: K, within: Duration) -> AcquirePermitWithin<PermitsAt<K>> {
        let expected_wait = |handle: &PermitsAt<K>| {
            let permits = handle.permits.keys.find(&handle.key);
            permits.map_or(Duration::ZERO, |permits| permits.expected_wait())
        };
        AcquirePermitWithin::new(self.at(key), within, self.resolution, expected_wait)
    }

    /// Waits for `cost` permits of this key at once, as [`Permits::acquire_many`] does.
    ///
    /// ```
    /// use paceline::concurrency::KeyedPermits;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let users = KeyedPermits::<String>::new(3);
    ///
    /// let both = users.acquire_many("ann".into(), 2).await.unwrap();
    /// assert_eq!((both.count(), users.in_use("ann")), (2, 2));
    /// assert!(users.try_acquire_many("ann", 2).is_none());
    /// assert!(users.acquire_many("ann".into(), 4).await.unwrap_err().is_too_costly());
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the key has fewer permits: as [`Permits::acquire_many`].
    ///
    /// # Panics
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the queue; nothing was taken.
    pub fn acquire_many(
        &self,
        key: K,
        cost: u32,
    ) -> impl Future<Output = Result<Permit, AcquireError>> + use<K> {
        let mut handle = self.at(key);
        async move {
            poll_fn(|cx| handle.poll_enter(cx))
                .await
                .acquire_many(cost)
                .await
        }
    }

    /// A permit of this key, if one is free and no request waits for it. It never overtakes a waiter for the same key.
    #[must_use = "a permit that is dropped at once limits nothing"]
    pub fn try_acquire<Q: AsKey<K> + ?Sized>(&self, key: &Q) -> Option<Permit> {
        self.try_acquire_many(key, 1)
    }

    /// That many permits of this key, if they are free and no request waits for the same key.
    #[must_use = "a permit that is dropped at once limits nothing"]
    pub fn try_acquire_many<Q: AsKey<K> + ?Sized>(&self, key: &Q, cost: u32) -> Option<Permit> {
        let retry_in = match self.keys.enter(key, self.observer.as_ref()) {
            Ok(permits) => return permits.try_acquire_many(cost),
            Err(retry_in) => retry_in,
        };
        lock(self.keys.shard(key)).stats.refused += 1;
        if let Some(observer) = &self.observer {
            observer.report(Event::Refused { cost, retry_in });
        }
        None
    }

    /// How many permits of this key are in use, without those that cool down.
    #[must_use]
    pub fn in_use<Q: AsKey<K> + ?Sized>(&self, key: &Q) -> u32 {
        let permits = self.keys.find(key);
        permits.map_or(0, |permits| permits.in_use())
    }

    /// How many keys are remembered now: a permit of each is in use or cools down, or a request waits for one.
    #[must_use]
    pub fn len(&self) -> usize {
        let shards = self.keys.shards.iter();
        shards.map(|shard| tidied(shard).queues.len()).sum()
    }

    /// Whether no key is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the permits of all keys have done so far, forgotten keys included. It goes through all keys that are in use.
    ///
    /// A request that waits for room is not counted before it has found some, or was too late.
    ///
    /// ```
    /// use paceline::concurrency::KeyedPermits;
    ///
    /// let users = KeyedPermits::<String>::new(1);
    /// drop(users.try_acquire("ann"));
    /// let _permit = users.try_acquire("bob");
    /// assert!(users.try_acquire("bob").is_none());
    ///
    /// let stats = users.stats();
    /// assert_eq!((stats.passed, stats.refused), (2, 1));
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for shard in &self.keys.shards {
            let shard = tidied(shard);
            stats.add(shard.stats);
            let live: Vec<_> = shard.queues.values().filter_map(Weak::upgrade).collect();
            // The last reference may be dropped here, which locks the shard.
            drop(shard);
            for queue in live {
                stats.add(Permits::of(queue).stats());
            }
        }
        stats
    }
}

/// The same keys.
impl<K> Clone for KeyedPermits<K> {
    fn clone(&self) -> Self {
        Self {
            keys: Arc::clone(&self.keys),
            resolution: self.resolution,
            observer: self.observer.clone(),
        }
    }
}

/// Does not print the keys: they may be secret.
impl<K> fmt::Debug for KeyedPermits<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedPermits").finish_non_exhaustive()
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Limits<K> for KeyedPermits<K> {
    type Limit = PermitsAt<K>;
    type Error = Infallible;

    fn at(&self, key: K) -> Result<PermitsAt<K>, Infallible> {
        Ok(Self::at(self, key))
    }
}

/// A handle on the permits of one key. Made by [`KeyedPermits::at`]. A clone queues for the same permits.
pub struct PermitsAt<K> {
    permits: KeyedPermits<K>,
    key: K,
    /// While it is queued.
    waiting: Option<AcquirePermit<'static>>,
    /// While it waits for room.
    room: Timer,
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> PermitsAt<K> {
    /// The permits of the key, once there is room for it.
    fn poll_enter(&mut self, cx: &mut Context<'_>) -> Poll<Permits> {
        loop {
            let observer = self.permits.observer.as_ref();
            match self.permits.keys.enter(&self.key, observer) {
                Ok(permits) => {
                    return Poll::Ready(permits.with_resolution(self.permits.resolution));
                }
                Err(retry_in) => {
                    self.room.arm(retry_in);
                    ready!(self.room.poll_elapsed(cx));
                }
            }
        }
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Admit for PermitsAt<K> {
    type Guard = Permit;
    type Error = Infallible;

    fn poll_admit(&mut self, (): (), cx: &mut Context<'_>) -> Admitted<Permit> {
        loop {
            if let Some(waiting) = &mut self.waiting {
                let permit = ready!(Pin::new(waiting).poll(cx));
                self.waiting = None;
                return Poll::Ready(Ok(Some(permit)));
            }
            let permits = ready!(self.poll_enter(cx));
            self.waiting = Some(permits.acquire_owned());
        }
    }

    fn poll_try_admit(&mut self, (): (), _cx: &mut Context<'_>) -> Admitted<Permit> {
        let permit = match self.waiting.take() {
            Some(waiting) => waiting.leave(),
            None => self.permits.try_acquire(&self.key),
        };
        Poll::Ready(Ok(permit))
    }

    fn give_up(&mut self) {
        self.waiting = None;
        self.room.disarm();
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Clone for PermitsAt<K> {
    fn clone(&self) -> Self {
        self.permits.at(self.key.clone())
    }
}

/// Does not print the key: it may be secret.
impl<K> fmt::Debug for PermitsAt<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PermitsAt")
            .field("is_waiting", &self.waiting.is_some())
            .finish_non_exhaustive()
    }
}

/// The keys, in shards.
struct Keys<K> {
    /// Each behind a lock of its own. Where the number of keys is limited there is one.
    shards: Box<[Mutex<Shard<K>>]>,
    hasher: RandomState,
    limit_of: Arc<dyn Fn(&K) -> u32 + Send + Sync>,
    cooldown: Duration,
    max: usize,
}

/// The permits of the keys of one shard.
struct Shard<K> {
    /// Permits in use and waiters keep the queue of their key alive.
    queues: HashMap<K, Weak<WaitQueue<SemaphoreState>>>,
    /// Queues that are kept alive until a permit has cooled down, soonest first.
    cooling: VecDeque<(Tick, Arc<WaitQueue<SemaphoreState>>)>,
    clock: Clock,
    /// Of forgotten keys, and of requests that found no room.
    stats: Stats,
}

impl<K> Keys<K> {
    fn new(limit_of: Arc<dyn Fn(&K) -> u32 + Send + Sync>, cooldown: Duration, max: usize) -> Self {
        let count = if max < usize::MAX { 1 } else { SHARDS };
        let shards = (0..count).map(|_| {
            Mutex::new(Shard {
                queues: HashMap::new(),
                cooling: VecDeque::new(),
                clock: Clock::new(),
                stats: Stats::default(),
            })
        });
        Self {
            shards: shards.collect(),
            hasher: RandomState::new(),
            limit_of,
            cooldown,
            max,
        }
    }

    fn shard<Q: Hash + ?Sized>(&self, key: &Q) -> &Mutex<Shard<K>> {
        // The upper bits: the map in the shard has a secret of its own.
        let hash = (self.hasher.hash_one(key) >> 32) as usize;
        &self.shards[hash % self.shards.len()]
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Keys<K> {
    /// The permits of this key, if it is remembered.
    fn find<Q: AsKey<K> + ?Sized>(&self, key: &Q) -> Option<Permits> {
        let shard = tidied(self.shard(key));
        let queue = key.find_in(&shard.queues)?.1.upgrade()?;
        Some(Permits::of(queue))
    }

    /// The permits of this key, or when there may be room for it.
    fn enter<Q: AsKey<K> + ?Sized>(
        self: &Arc<Self>,
        key: &Q,
        observer: Option<&SharedObserver>,
    ) -> Result<Permits, Duration> {
        let mut shard = tidied(self.shard(key));
        if let Some(queue) = key
            .find_in(&shard.queues)
            .and_then(|(_, queue)| queue.upgrade())
        {
            return Ok(Permits::of(queue));
        }
        if shard.queues.len() >= self.max && key.find_in(&shard.queues).is_none() {
            return Err(shard.retry_for_room());
        }
        let key = key.to_key();
        let mut state = SemaphoreState::new((self.limit_of)(&key));
        state.set_cooldown(self.cooldown);
        state.keeper = Some(Arc::new(KeeperOf {
            key: key.clone(),
            keys: Arc::downgrade(self),
        }));
        let queue = WaitQueue::new(state);
        if let Some(observer) = observer {
            let _ = queue.front().observer.set(observer.clone());
        }
        shard.queues.insert(key, Arc::downgrade(&queue));
        Ok(Permits::of(queue))
    }
}

impl<K> Shard<K> {
    /// The permits that have cooled down. Dropping the last reference to one locks this shard.
    fn take_cooled(&mut self) -> Vec<Arc<WaitQueue<SemaphoreState>>> {
        let mut cooled = Vec::new();
        if !self.cooling.is_empty() {
            let now = self.clock.now();
            let count = self.cooling.partition_point(|(until, _)| *until <= now);
            cooled.extend(self.cooling.drain(..count).map(|(_, queue)| queue));
        }
        cooled
    }

    fn retry_for_room(&mut self) -> Duration {
        let now = self.clock.now();
        let first = self.cooling.front();
        let first = first.map_or(RETRY_FOR_ROOM, |(until, _)| until.since(now));
        first.min(RETRY_FOR_ROOM)
    }
}

/// Remembers the permits of this key.
struct KeeperOf<K> {
    key: K,
    keys: Weak<Keys<K>>,
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Keeper for KeeperOf<K> {
    fn keep_while_cooling(&self, permits: Arc<WaitQueue<SemaphoreState>>) {
        if let Some(keys) = self.keys.upgrade() {
            let mut shard = tidied(keys.shard(&self.key));
            let until = shard.clock.now().after(keys.cooldown);
            // If the clock goes back, which it may between two runtimes, the order stays.
            let until = shard.cooling.back().map_or(until, |last| until.max(last.0));
            shard.cooling.push_back((until, permits));
        }
    }

    fn forget(&self, stats: Stats) {
        let Some(keys) = self.keys.upgrade() else {
            return;
        };
        let mut shard = lock(keys.shard(&self.key));
        shard.stats.add(stats);
        let queue = shard.queues.get(&self.key);
        // There may be others for this key by now.
        if queue.is_some_and(|queue| queue.strong_count() == 0) {
            shard.queues.remove(&self.key);
        }
        let (len, cooling) = (shard.queues.len(), shard.cooling.len());
        if 4 * len.max(FEW) < shard.queues.capacity() {
            shard.queues.shrink_to(2 * len);
        }
        if 4 * cooling.max(FEW) < shard.cooling.capacity() {
            shard.cooling.shrink_to(2 * cooling);
        }
    }
}

/// Locks a shard, after the keys are forgotten whose permits have cooled down.
fn tidied<K>(shard: &Mutex<Shard<K>>) -> MutexGuard<'_, Shard<K>> {
    let mut locked = lock(shard);
    let cooled = locked.take_cooled();
    if !cooled.is_empty() {
        drop(locked);
        drop(cooled);
        locked = lock(shard);
    }
    locked
}

fn lock<K>(shard: &Mutex<Shard<K>>) -> MutexGuard<'_, Shard<K>> {
    // Only code of the key or of `limit_of` can panic under this lock, and then nothing is half changed.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
