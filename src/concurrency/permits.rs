use core::fmt;
use core::time::Duration;
use std::sync::{Arc, Mutex};

use crate::patience::watcher;
use crate::time::Precision;

use super::Permit;
use super::acquire::{AcquirePermit, AcquirePermits};
use super::desk::{After, Desk, lock, locked};

/// So many at once: permits shared by every clone, and given back by dropping them.
///
/// It can be built anywhere. Without a cool-down it needs no runtime either.
///
/// ```
/// use paceline::concurrency::Permits;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let start = tokio::time::Instant::now();
/// let permits = Permits::new(2);
///
/// let calls = (0..6).map(|_| {
///     let permits = permits.clone();
///     tokio::spawn(async move {
///         let _permit = permits.acquire().await;
///         tokio::time::sleep(Duration::from_millis(100)).await; // the call
///     })
/// });
/// for call in calls.collect::<Vec<_>>() {
///     call.await.unwrap();
/// }
/// assert_eq!(start.elapsed(), Duration::from_millis(300));
/// # }
/// ```
///
/// # The line
///
/// First come, first served, whatever the costs: who wants many permits is not overtaken by those who want one. Leaving
/// the line costs nothing and grants nothing. All this takes time that is logarithmic in the number of waiters, and about
/// one wake-up for each permit granted, with 100,000 waiters too; two where the permit has to cool down while its next
/// holder stands first, since that one has to set a timer.
///
/// A permit is handed over when its next holder is polled. One who is first, was woken and is not polled steps aside after
/// 10 ms, and those behind may pass; it keeps its place and comes before them again as soon as it asks. Who waits for more
/// permits than are free is not idle, and is never overtaken. A small task keeps watch while somebody stands behind the
/// first, in the runtime of one of those who came. Where there is none, or one built without `enable_time` (tokio complains
/// of that once, and nobody is hurt), nobody watches, and one who is not polled holds up those behind.
///
/// **Window bound**: at most [`limit`](Self::limit) permits are in use at any instant. With a
/// [cool-down](Self::with_cooldown) of W, no half-open window of W holds more than that many arrivals *at the other side*,
/// whatever the network does.
#[derive(Clone)]
pub struct Permits {
    desk: Arc<Mutex<Desk>>,
    precision: Precision,
}

impl Permits {
    /// So many permits.
    ///
    /// # Panics
    ///
    /// If `n` is zero. To begin with a pause, [`resize`](Self::resize) to zero.
    #[must_use]
    #[track_caller]
    pub fn new(n: u32) -> Self {
        assert!(n > 0, "there must be at least 1 permit, got 0");
        Self {
            desk: Arc::new_cyclic(|desk| Mutex::new(Desk::new(n, watcher(desk)))),
            precision: Precision::default(),
        }
    }

    /// Each permit comes back `cooldown` after it was released. Zero is none. To be called before there are clones, which
    /// would have it too.
    ///
    /// For a provider that counts arrivals in a window of its own. How long a request takes to get there is not known, but
    /// an arrival lies between the emission and the answer. If each permit is used for **one** request and released
    /// when the answer has come, two arrivals under the same permit are at least `cooldown` apart: so no half-open window of
    /// this length holds more than n arrivals, for any delays and wherever the window begins. To space emissions
    /// promises no such thing. `Permits::new(1)` is minimum spacing, counted from completion.
    ///
    /// ```
    /// use paceline::concurrency::Permits;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let start = tokio::time::Instant::now();
    /// let permits = Permits::new(1).with_cooldown(Duration::from_millis(100));
    ///
    /// for _ in 0..3 {
    ///     let _permit = permits.acquire().await;
    ///     tokio::time::sleep(Duration::from_millis(30)).await; // until the answer has come
    /// }
    /// assert_eq!(start.elapsed(), Duration::from_millis(30 + 100 + 30 + 100 + 30));
    /// # }
    /// ```
    ///
    /// What it costs is speed: at most n requests in `cooldown` plus the time of an answer. What it cannot know: a
    /// request whose answer never came counts as arrived by the time at which the caller gave up and dropped the permit.
    /// A request that arrives even later is not covered, nor is a second one (a retry, a redirect) under the same permit.
    ///
    /// Nothing is armed when a permit is released. Whoever stands first in line waits on a timer of its own.
    #[must_use]
    pub fn with_cooldown(self, cooldown: Duration) -> Self {
        self.locked(|desk, _| desk.set_cooldown(cooldown));
        self
    }

    /// Waits to the microsecond for a cool-down to be over, through this handle and its clones: see
    /// [`Timer::precise`](crate::time::Timer::precise).
    #[cfg(feature = "precise")]
    #[must_use]
    pub fn precise(self) -> Self {
        Self {
            precision: Precision::BEST,
            ..self
        }
    }

    /// Waits for a permit, behind everybody who came before.
    ///
    /// ```
    /// use paceline::concurrency::Permits;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let permits = Permits::new(1);
    ///
    /// let permit = permits.acquire().await;
    /// assert_eq!(permits.in_use(), 1);
    /// drop(permit);
    /// assert_eq!(permits.in_use(), 0);
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If it has to wait for a cool-down outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the line; nothing was taken, and the next goes when it can.
    pub fn acquire(&self) -> AcquirePermit {
        AcquirePermit::new(Arc::clone(&self.desk), self.precision)
    }

    /// Waits for `cost` permits at once, behind everybody who came before. None are held while it waits for the others.
    ///
    /// ```
    /// use paceline::concurrency::Permits;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let permits = Permits::new(3);
    ///
    /// let both = permits.acquire_many(2).await.unwrap();
    /// assert_eq!(both.count(), 2);
    ///
    /// let never = permits.acquire_many(4).await.unwrap_err();
    /// assert_eq!(never.to_string(), "4 permits can never be had at once of 3");
    /// # }
    /// ```
    ///
    /// No permits at all are had at once, before everybody who waits.
    ///
    /// # Errors
    ///
    /// If there are not so many: at once, when it asks for the first time; and, if the limit has become smaller since, when
    /// its turn comes. It could have waited for the limit to grow; but that may never happen, and everybody behind would
    /// wait with it. What the limit does in between is no matter, and a limit of zero refuses nobody: it is a pause, and
    /// does not say how many there will be after it.
    ///
    /// # Panics
    ///
    /// If it has to wait for a cool-down outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the line; nothing was taken, and the next goes when it can.
    pub fn acquire_many(&self, cost: u32) -> AcquirePermits {
        AcquirePermits::new(Arc::clone(&self.desk), cost, self.precision)
    }

    /// A permit, if one is free and nobody waits for it. It never overtakes the line.
    ///
    /// ```
    /// use paceline::concurrency::Permits;
    ///
    /// let permits = Permits::new(1);
    ///
    /// let permit = permits.try_acquire();
    /// assert!(permit.is_some());
    /// assert!(permits.try_acquire().is_none());
    /// drop(permit);
    /// assert!(permits.try_acquire().is_some());
    /// ```
    #[must_use]
    pub fn try_acquire(&self) -> Option<Permit> {
        self.try_acquire_many(1)
    }

    /// So many permits, if they are free and nobody waits. It never overtakes the line, save for a cost of zero.
    ///
    /// ```
    /// use paceline::concurrency::Permits;
    ///
    /// let permits = Permits::new(3);
    ///
    /// let two = permits.try_acquire_many(2);
    /// assert!(two.is_some());
    /// assert!(permits.try_acquire_many(2).is_none());
    /// ```
    #[must_use]
    pub fn try_acquire_many(&self, cost: u32) -> Option<Permit> {
        let taken = lock(&self.desk).takes_alone(cost);
        taken.then(|| Permit::new(Arc::clone(&self.desk), cost))
    }

    /// As [`try_acquire`](Self::try_acquire), and says why not.
    pub(crate) fn try_one(&self) -> Result<Permit, Missed> {
        let mut desk = lock(&self.desk);
        if desk.takes_alone(1) {
            drop(desk);
            return Ok(Permit::new(Arc::clone(&self.desk), 1));
        }
        Err(if desk.is_waited_for() {
            Missed::OthersWait
        } else {
            Missed::NoneFree
        })
    }

    /// Goes on with `n` permits. Those who wait feel it at once.
    ///
    /// Of zero permits nothing passes until there are more again. A limit below what is in use takes effect as permits
    /// come back: nothing is taken from anybody.
    ///
    /// ```
    /// use paceline::concurrency::Permits;
    ///
    /// let permits = Permits::new(2);
    /// let (one, two) = (permits.try_acquire(), permits.try_acquire());
    ///
    /// permits.resize(1);
    /// assert_eq!((permits.in_use(), permits.limit()), (2, 1));
    /// drop(one);
    /// assert!(permits.try_acquire().is_none());
    /// drop(two);
    /// assert!(permits.try_acquire().is_some());
    /// ```
    ///
    /// With a cool-down, the bound of a window is the limit as it was when the last of its arrivals was let go.
    pub fn resize(&self, n: u32) {
        self.locked(|desk, after| desk.resize(n, after));
    }

    /// How many are in use, without those that cool down.
    #[must_use]
    pub fn in_use(&self) -> u32 {
        self.locked(|desk, _| desk.stock().in_use())
    }

    /// How many there are.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.locked(|desk, _| desk.stock().limit())
    }

    fn locked<T>(&self, work: impl FnOnce(&mut Desk, &mut After) -> T) -> T {
        locked(&self.desk, work)
    }
}

/// Why there is no permit now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Missed {
    OthersWait,
    NoneFree,
}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permits")
            .field("desk", &self.desk)
            .finish_non_exhaustive()
    }
}
