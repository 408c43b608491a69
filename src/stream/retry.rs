use core::fmt;
use core::future::Future;
use core::hash::Hash;
use core::mem;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};

use futures_core::Stream;
use futures_core::stream::FusedStream;
use pin_project_lite::pin_project;
use tokio::time::Instant;

use crate::retry::{Attempts, Failure, Retry};
use crate::time::{FAR_AHEAD, OutOfRange, Timer, instant, or_panic};

use super::Concurrent;
use super::input::{poll_taken, with_held};

pin_project! {
    /// Stream for the [`retry`](Concurrent::retry) method of [`Concurrent`]: a call that fails is made again.
    ///
    /// ```
    /// # use {futures::StreamExt, testkit::marble, std::time::Duration};
    /// # use paceline::{concurrency::Permits, limiter::Share, stream::PaceStreamExt};
    /// # use paceline::retry::{Failure, Retry, RetryBudget};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let start = tokio::time::Instant::now();
    /// # let send = move |item: char| async move {
    /// #     if item.is_lowercase() || start.elapsed() >= marble::TICK * 4 { Ok(()) } else { Err(()) }
    /// # };
    /// # let wait = marble::TICK * 3;
    /// # let retry = Retry::new(RetryBudget::new(1, Share::NONE)).with_backoff(wait..=wait);
    /// # let retried = |s: marble::Source| {
    /// #     let sent = s.concurrent(Permits::new(9), send).retry(retry, |()| Failure::Transient, 9);
    /// #     sent.map(|sent| sent.outcome.map(|()| sent.item))
    /// # };
    /// // B and D fail once; one retry, after three ticks; X is given up
    /// let input  = "a B c D - - |";
    /// let output = "a - c X B - |";
    /// # marble::check(retried, input, output).await;
    /// # }
    /// ```
    ///
    #[doc = include_str!("marbles/retry.svg")]
    ///
    /// * **Emits** each item with the result of its last call and its [`Attempts`], as [`Tried`], in order of completion.
    /// * **Waits** on the calls, as [`Concurrent`] does; on the first item that is due; and on the input, while no item is due and there
    ///   is room. An item that is due goes before the input, the one that is due longest first. It takes its permit anew, and holds
    ///   none while it waits.
    /// * **Ends** when the input has ended and all items held have left.
    /// * **Fails** never. The result is an error if the item is given up: the error is final, the item has no attempts left, or the
    ///   budget holds no retry. The `Attempts` [say why](Attempts::given_up).
    /// * **Holds** at most `held` items, those under way included, which `size_hint` counts and [`into_parts`](Self::into_parts) returns in
    ///   order of arrival. It says which were [under way](Attempts::is_under_way): their futures are dropped. A key is remembered while
    ///   items of it are held, or a `Retry-After` holds it.
    /// * **Cancel safety**: dropping `next()` loses nothing; the items and the calls stay. An item whose future panics, or the function of
    ///   whose error, is dropped, and its key goes on. The function of the key, and the one that starts the call, are called again after
    ///   a panic.
    ///
    /// **Window bound**: that of the [`Permits`](crate::concurrency::Permits), and of the limit inside of the future, counted in calls,
    /// retries included. All retries are at most the reserve of the [`RetryBudget`](crate::retry::RetryBudget), and its share of the
    /// successes.
    ///
    /// **Cost**: that of [`Concurrent`], and O(log n) of the items held for each call.
    #[must_use = "streams do nothing unless polled"]
    pub struct Retried<S: Stream, F, Fut, C> {
        #[pin]
        calls: Concurrent<S, F, Fut>,
        retry: Retry,
        failure_of: C,
        // The hash of a key. Keys of one hash are one key.
        key_of: Option<Box<dyn FnMut(&S::Item) -> u64 + Send + Sync>>,
        max: usize,
        lanes: Lanes<S::Item>,
        // By the number of the future.
        under_way: HashMap<usize, Held<S::Item>>,
        // Armed for the first item that waits.
        timer: Timer,
    }
}

impl<S: Stream, F, Fut: Future<Output = Result<O, E>>, O, E> Concurrent<S, F, Fut> {
    /// Makes a call that fails again, as the [`Retry`] says. `failure_of` says what its error means.
    ///
    /// Each attempt gets a clone of the item: an `Arc` for a large one. It takes its permit anew, and asks the limit that is inside of
    /// its future. The stream holds at most `held` items, those under way included. See [`Retried`] for exactly when.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use paceline::concurrency::Permits;
    /// use paceline::limiter::Share;
    /// use paceline::prelude::*;
    /// use paceline::retry::{Failure, Retry, RetryBudget};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let start = tokio::time::Instant::now();
    /// # let provider = async move |message: &str| match start.elapsed().as_secs() {
    /// #     0 if message == "b" => Err(429),
    /// #     _ => Ok(message.len()),
    /// # };
    /// let limit = Interval::every(Duration::from_millis(100)).shared();
    /// let send = |message: &'static str| {
    ///     let limit = limit.clone();
    ///     async move {
    ///         limit.acquire_one().await; // every attempt
    ///         provider(message).await
    ///     }
    /// };
    /// let failure_of = |status: &u16| match status {
    ///     429 | 503 => Failure::Refused { retry_after: Some(Duration::from_secs(2)) },
    ///     500..=599 => Failure::Transient,
    ///     _ => Failure::Final,
    /// };
    /// let retry = Retry::new(RetryBudget::new(100, Share::percent(10)));
    ///
    /// let messages = futures::stream::iter(["a", "b", "c"]);
    /// let mut sent = messages.concurrent(Permits::new(20), send).retry(retry, failure_of, 1_000);
    /// while let Some(sent) = sent.next().await {
    ///     match sent.outcome {
    ///         Ok(_) => println!("{}: sent with call {}", sent.item, sent.attempts.calls),
    ///         Err(status) => println!("{}: {status}, {:?}", sent.item, sent.attempts.given_up),
    ///     }
    /// }
    /// assert_eq!(start.elapsed(), Duration::from_millis(2_100)); // b was refused after 100 ms
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If `held` is zero, or calls are under way already. [`Retried::try_new`] returns an error instead.
    #[track_caller]
    pub fn retry<C>(self, retry: Retry, failure_of: C, held: usize) -> Retried<S, F, Fut, C>
    where
        S::Item: Clone,
        C: FnMut(&E) -> Failure,
    {
        or_panic(Retried::try_new(self, retry, failure_of, held))
    }
}

impl<S: Stream, F, Fut, C> Retried<S, F, Fut, C> {
    /// The same as [`retry`](Concurrent::retry), for a size from a configuration.
    ///
    /// # Errors
    ///
    /// If `held` is zero, or calls are under way already, whose items are not known any more.
    pub fn try_new(
        calls: Concurrent<S, F, Fut>,
        retry: Retry,
        failure_of: C,
        held: usize,
    ) -> Result<Self, OutOfRange> {
        if held == 0 {
            let message = "retries need room for at least 1 item, got 0";
            return Err(OutOfRange::new("held", message));
        }
        if !calls.futures.is_empty() {
            let message = "retries need calls that have not begun, got some under way";
            return Err(OutOfRange::new("calls", message));
        }
        Ok(Self {
            calls,
            retry,
            failure_of,
            key_of: None,
            max: held,
            lanes: Lanes {
                is_ordered: false,
                by_key: HashMap::new(),
                due: BTreeSet::new(),
                empty: BTreeSet::new(),
                len: 0,
                arrived: 0,
            },
            under_way: HashMap::new(),
            timer: Timer::new(),
        })
    }

    /// A `Retry-After` holds all items of the same key, and other keys go on. (Without a key it holds the item alone.)
    ///
    /// When it is over, they are called in order of arrival, as many at once as there are permits.
    ///
    /// Other keys go on until the items of this one leave no room: choose `held` above what a key can bring in its longest wait.
    ///
    /// Keys are told apart by a hash of 64 bits with a secret. Keys of one hash wait for each other. There is one key: of several calls
    /// of this method and of [`ordered_by_key`](Self::ordered_by_key) the last one counts.
    pub fn held_by_key<K: Hash>(
        mut self,
        mut key_of: impl FnMut(&S::Item) -> K + Send + Sync + 'static,
    ) -> Self {
        let hasher = RandomState::new();
        self.key_of = Some(Box::new(move |item| hasher.hash_one(key_of(item))));
        self
    }

    /// The calls of a key are made one after the other, in order of arrival: a retry goes before the later items of its key. A
    /// `Retry-After` and a backoff hold all of them, and other keys go on, as with [`held_by_key`](Self::held_by_key), which need not be
    /// called too.
    ///
    /// An item that is given up does not stop its key.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use paceline::concurrency::Permits;
    /// use paceline::limiter::Share;
    /// use paceline::prelude::*;
    /// use paceline::retry::{Failure, Retry, RetryBudget};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let start = tokio::time::Instant::now();
    /// // The first call of all fails.
    /// let send = |(_, n): (&'static str, u32)| async move {
    ///     if n == 1 && start.elapsed().is_zero() { Err("timeout") } else { Ok(n) }
    /// };
    /// let retry = Retry::new(RetryBudget::new(100, Share::percent(10)));
    /// let sent = futures::stream::iter([("ann", 1), ("ann", 2), ("bob", 3)])
    ///     .concurrent(Permits::new(20), send)
    ///     .retry(retry, |_| Failure::Transient, 1_000)
    ///     .ordered_by_key(|(user, _)| *user);
    /// let order: Vec<_> = sent.map(|sent| sent.outcome.unwrap()).collect().await;
    /// assert_eq!(order, [3, 1, 2]);
    /// # }
    /// ```
    pub fn ordered_by_key<K: Hash>(
        self,
        key_of: impl FnMut(&S::Item) -> K + Send + Sync + 'static,
    ) -> Self {
        let mut ordered = self.held_by_key(key_of);
        ordered.lanes.is_ordered = true;
        ordered
    }

    /// The input, and the items held with their calls, in order of arrival. The futures are dropped.
    pub fn into_parts(self) -> (S, Vec<(S::Item, Attempts)>) {
        let (stream, last) = self.calls.input.into_parts();
        let lanes = self.lanes.by_key.into_values();
        let waiting = lanes.flat_map(|lane| lane.waiting.into_values());
        let under_way = self.under_way.into_values().map(|mut held| {
            held.attempts.is_under_way = true;
            held
        });
        let mut held: Vec<_> = under_way.chain(waiting).collect();
        held.sort_unstable_by_key(|held| held.number);
        let held = held.into_iter().map(|held| (held.item, held.attempts));
        let last = last.map(|item| (item, Attempts::default()));
        (stream, held.chain(last).collect())
    }
}

impl<S, F, Fut, C, O, E> Retried<S, F, Fut, C>
where
    S: Stream<Item: Clone>,
    F: FnMut(S::Item) -> Fut,
    Fut: Future<Output = Result<O, E>>,
    C: FnMut(&E) -> Failure,
{
    /// Begins one call, or takes one item from the input.
    fn poll_start(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        let due = this.lanes.due.first().copied();
        if let Some((_, lane)) = due.filter(|(due, _)| *due <= instant()) {
            let permit = ready!(this.calls.as_mut().poll_permit(cx));
            let calls = this.calls.project();
            *calls.waiting = None;
            let future = this.lanes.first(lane).map(calls.start);
            if let (Some(future), Some(held)) = (future, this.lanes.begin(lane)) {
                let index = calls.futures.push(future, permit);
                this.under_way.insert(index, held);
            }
            return Poll::Ready(());
        }
        let mut calls = this.calls.project();
        *calls.waiting = None;
        if this.lanes.len >= *this.max {
            return Poll::Pending;
        }
        let Some(item) = ready!(calls.input.as_mut().poll_peek(cx)) else {
            return Poll::Pending;
        };
        let key = this.key_of.as_mut().map(|key_of| key_of(item));
        if let Some(item) = calls.input.take() {
            this.lanes.arrive(item, key);
        }
        Poll::Ready(())
    }

    /// Ready: an item is due, or has got a place in the queue for permits.
    fn poll_due(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        let calls = this.calls.project();
        let first = this.lanes.due.first();
        let Some((due, _)) = first.filter(|_| calls.waiting.is_none()) else {
            this.timer.disarm();
            return Poll::Pending;
        };
        let left = due.saturating_duration_since(instant());
        if left.is_zero() {
            *calls.waiting = Some(calls.permits.acquire_owned());
            return Poll::Ready(());
        }
        this.timer.arm(left);
        this.timer.poll_elapsed(cx)
    }

    /// What is emitted for a call that is done. `None`: it is made again.
    fn done(
        self: Pin<&mut Self>,
        index: usize,
        output: Result<O, E>,
    ) -> Option<<Self as Stream>::Item> {
        let this = self.project();
        let failure = output.as_ref().err().map(this.failure_of);
        let mut held = this.under_way.remove(&index)?;
        let wait = if let Some(failure) = failure {
            this.retry.after(&mut held.attempts, failure)
        } else {
            this.retry.succeeded(&mut held.attempts);
            None
        };
        let retry_after = failure.and_then(Failure::retry_after);
        let gone = this.lanes.end(held, retry_after, wait)?;
        Some(Tried {
            item: gone.item,
            outcome: output,
            attempts: gone.attempts,
        })
    }

    /// Drops the items whose futures or functions have panicked.
    fn drop_panicked(self: Pin<&mut Self>) {
        let this = self.project();
        let futures = this.calls.project().futures;
        while this.under_way.len() > futures.len() {
            let mut numbers = this.under_way.keys().copied();
            let panicked = numbers.find(|index| !futures.has(*index));
            let held = panicked.and_then(|index| this.under_way.remove(&index));
            held.map(|held| this.lanes.end(held, None, None));
        }
    }
}

impl<S, F, Fut, C, O, E> Stream for Retried<S, F, Fut, C>
where
    S: Stream<Item: Clone>,
    F: FnMut(S::Item) -> Fut,
    Fut: Future<Output = Result<O, E>>,
    C: FnMut(&E) -> Failure,
{
    type Item = Tried<S::Item, Result<O, E>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.as_mut().drop_panicked();
        let mut taken = 0;
        loop {
            while self.as_mut().poll_start(cx).is_ready() {
                ready!(poll_taken(&mut taken, cx));
            }
            let futures = self.as_mut().project().calls.project().futures;
            if let Poll::Ready((index, output)) = futures.poll_done(cx) {
                if let Some(done) = self.as_mut().done(index, output) {
                    return Poll::Ready(Some(done));
                }
            } else if self.is_terminated() {
                return Poll::Ready(None);
            } else {
                ready!(self.as_mut().poll_due(cx));
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        with_held(self.calls.input.size_hint(), self.lanes.len)
    }
}

impl<S: Stream, F, Fut, C> FusedStream for Retried<S, F, Fut, C>
where
    Self: Stream,
{
    fn is_terminated(&self) -> bool {
        self.calls.input.is_terminated() && self.lanes.len == 0
    }
}

/// Does not print items and futures: they may be secret, and they may be large.
impl<S: Stream + fmt::Debug, F, Fut, C> fmt::Debug for Retried<S, F, Fut, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retried")
            .field("calls", &self.calls)
            .field("retry", &self.retry)
            .field("held", &self.lanes.len)
            .finish_non_exhaustive()
    }
}

/// The items that wait, each in the lane of its key. An item without a key has a lane of its own.
struct Lanes<T> {
    /// Whether a lane has one call at a time.
    is_ordered: bool,
    by_key: HashMap<u64, Lane<T>>,
    /// When the first item of each lane may be called.
    due: BTreeSet<(Instant, u64)>,
    /// Until when a `Retry-After` holds lanes that were left without an item.
    empty: BTreeSet<(Instant, u64)>,
    /// How many items there are, those under way too.
    len: usize,
    arrived: u64,
}

struct Lane<T> {
    held_until: Instant,
    under_way: usize,
    /// By the instant of their arrival, or of their retry if that does not hold the lane; and by number.
    waiting: BTreeMap<(Instant, u64), Held<T>>,
}

struct Held<T> {
    item: T,
    attempts: Attempts,
    lane: u64,
    number: u64,
    arrived_at: Instant,
}

impl<T: Clone> Lanes<T> {
    fn arrive(&mut self, item: T, key: Option<u64>) {
        let (number, arrived_at) = (self.arrived, instant());
        let held = Held {
            item,
            attempts: Attempts::default(),
            lane: key.unwrap_or(number),
            number,
            arrived_at,
        };
        self.arrived += 1;
        self.len += 1;
        let still_held = self.empty.split_off(&(arrived_at, u64::MAX));
        for (_, lane) in mem::replace(&mut self.empty, still_held) {
            self.change(lane, |_| ());
        }
        self.change(held.lane, |lane| {
            lane.waiting.insert((arrived_at, number), held);
        });
    }

    /// A clone of the first item of a lane.
    fn first(&self, lane: u64) -> Option<T> {
        let (_, held) = self.by_key.get(&lane)?.waiting.first_key_value()?;
        Some(held.item.clone())
    }

    /// The call of that item begins.
    fn begin(&mut self, lane: u64) -> Option<Held<T>> {
        let first = self.change(lane, |lane| {
            lane.under_way += 1;
            lane.waiting.pop_first()
        });
        first.map(|(_, held)| held)
    }

    /// A call has ended. Its item waits for another, or is returned.
    fn end(
        &mut self,
        held: Held<T>,
        retry_after: Option<Duration>,
        wait: Option<Duration>,
    ) -> Option<Held<T>> {
        let holds_lane = self.is_ordered || retry_after.is_some();
        let from = instant() + wait.or(retry_after).unwrap_or_default().min(FAR_AHEAD);
        self.len -= usize::from(wait.is_none());
        self.change(held.lane, |lane| {
            lane.under_way -= 1;
            let mut place = (from, held.number);
            if holds_lane {
                lane.held_until = lane.held_until.max(from);
                place.0 = held.arrived_at;
            }
            if wait.is_none() {
                return Some(held);
            }
            lane.waiting.insert(place, held)
        })
    }

    /// Changes a lane, and finds when its first item may be called.
    fn change<R>(&mut self, id: u64, change: impl FnOnce(&mut Lane<T>) -> R) -> R {
        let is_ordered = self.is_ordered;
        let lane = self.by_key.entry(id).or_insert_with(|| Lane {
            held_until: instant(),
            under_way: 0,
            waiting: BTreeMap::new(),
        });
        if let Some(due) = lane.due(is_ordered) {
            self.due.remove(&(due, id));
        }
        let changed = change(lane);
        if let Some(due) = lane.due(is_ordered) {
            self.due.insert((due, id));
        } else if lane.under_way == 0 && lane.waiting.is_empty() {
            if lane.held_until > instant() {
                self.empty.insert((lane.held_until, id));
            } else {
                self.by_key.remove(&id);
            }
        }
        changed
    }
}

impl<T> Lane<T> {
    /// When its first item may be called; `None` if none waits, or if that waits for the end of a call.
    fn due(&self, is_ordered: bool) -> Option<Instant> {
        let ((from, _), _) = self.waiting.first_key_value()?;
        let is_free = !is_ordered || self.under_way == 0;
        is_free.then(|| self.held_until.max(*from))
    }
}

/// An item whose calls are over.
#[non_exhaustive]
pub struct Tried<T, R> {
    /// The item.
    pub item: T,
    /// The result of its last call.
    pub outcome: R,
    /// All of its calls, and why there are no more.
    pub attempts: Attempts,
}

/// Does not print the item and the outcome: they may be secret, and they may be large.
impl<T, R> fmt::Debug for Tried<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tried")
            .field("attempts", &self.attempts)
            .finish_non_exhaustive()
    }
}
