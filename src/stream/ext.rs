use core::convert::Infallible;
use core::future::Future;
use core::hash::Hash;
use core::time::Duration;

use futures_core::{Stream, TryStream};
use tokio::time::Instant;

use crate::concurrency::{Admit, Permits};
use crate::limiter::{Limiter, Limits, Owned, Unfailing};
use crate::policy::Interval;
use crate::time::or_panic;

use super::{
    Concurrent, Debounce, Enforce, GroupedWeightedWithin, GroupedWithin, Pace, PaceBatches,
    PaceByCost, PaceByDeadline, PaceByKey, PaceByKeyAndCost, Sample, Shed, ShedBy, ThrottleFirst,
    TryGroupedWeightedWithin, TryGroupedWithin, TryPace, TryPaceByKey,
};

/// Throttling for every stream.
///
/// No method has the name of a method of `futures::StreamExt` or `tokio_stream::StreamExt`, so all three can be imported
/// together.
pub trait PaceStreamExt: Stream {
    /// Emits each item as soon as `limiter` grants a permit: an item that comes too soon is emitted late.
    ///
    /// A chain is not a combination. With `.pace(a).pace(b)` only `b` holds at the output: it holds back items that `a` has counted,
    /// and then may emit several of them closer than `a` allows. To keep both limits, pace by [`All`](crate::policy::All) of their
    /// policies, or by a [`Combined`](crate::limiter::Combined) of their handles.
    ///
    /// A function that takes any limiter needs the bound `Limiter<Error = Infallible>`: see
    /// [functions over any limiter](crate::stream#functions-over-any-limiter). See [`Pace`] for exactly when items are emitted.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use paceline::prelude::*;
    /// use paceline::policy::TokenBucket;
    /// use paceline::time::Rate;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let start = tokio::time::Instant::now();
    /// let limit = TokenBucket::new(Rate::per_second(10), 5).shared();
    ///
    /// let calls = futures::stream::iter(0..15).pace(limit.clone());
    /// assert_eq!(calls.count().await, 15);
    /// assert_eq!(start.elapsed(), Duration::from_secs(1)); // 5 at once, then 10 a second
    /// # }
    /// ```
    #[doc(alias("throttle", "rate limit", "ratelimit_stream"))]
    fn pace<L: Unfailing>(self, limiter: L) -> Pace<Self, L>
    where
        Self: Sized,
    {
        Pace::new(self, limiter)
    }

    /// As [`pace`](Self::pace), for a limiter that can fail: its error is the last item of the stream.
    ///
    /// For a limit in Redis, where a wrong password or a missing permission is an error (`RedisLimiter::fail_fast`). What was not
    /// emitted is in [`into_parts`](TryPace::into_parts). See [`TryPace`] for exactly when.
    ///
    /// ```
    /// use futures::{Stream, TryStreamExt};
    /// use paceline::limiter::Limiter;
    /// use paceline::policy::Interval;
    /// use paceline::prelude::*;
    /// use std::time::Duration;
    ///
    /// async fn send_all<L: Limiter>(limiter: L) -> Result<u32, L::Error> {
    ///     let mut sent = 0;
    ///     let mut calls = Box::pin(futures::stream::iter(["a", "b", "c"]).try_pace(limiter));
    ///     while let Some(call) = calls.try_next().await? {
    ///         println!("{call}");
    ///         sent += 1;
    ///     }
    ///     Ok(sent)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let start = tokio::time::Instant::now();
    /// let limit = Interval::every(Duration::from_millis(100)).owned();
    /// assert_eq!(send_all(limit).await, Ok(3));
    /// assert_eq!(start.elapsed(), Duration::from_millis(200));
    /// # }
    /// ```
    fn try_pace<L: Limiter>(self, limiter: L) -> TryPace<Self, L>
    where
        Self: Sized,
    {
        TryPace::new(self, limiter)
    }

    /// Keeps two items at least `interval` apart, even if the timer, the source or the consumer is late.
    ///
    /// The same as `.pace(Interval::every(interval).owned())`. An interval of zero is no limit. See [`Pace`] for exactly
    /// when.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use paceline::prelude::*;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let start = tokio::time::Instant::now();
    /// let mut calls = futures::stream::iter(["a", "b", "c"]).min_interval(Duration::from_millis(50));
    ///
    /// calls.next().await; // at once
    /// tokio::time::sleep(Duration::from_millis(80)).await; // late
    /// calls.next().await; // at once again
    /// calls.next().await; // and 50 ms after that one
    /// assert_eq!(start.elapsed(), Duration::from_millis(130));
    /// # }
    /// ```
    #[doc(alias("throttle", "delay between"))]
    fn min_interval(self, interval: Duration) -> Pace<Self, Owned<Interval>>
    where
        Self: Sized,
    {
        self.pace(Owned::new(Interval::every(interval)))
    }

    /// Emits each item as soon as `limiter` grants as many permits as the item costs.
    ///
    /// An item that costs more than the limiter can ever grant is returned in an error. See [`PaceByCost`] for
    /// exactly when.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use paceline::prelude::*;
    /// use paceline::policy::TokenBucket;
    /// use paceline::time::Rate;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let start = tokio::time::Instant::now();
    /// let limit = TokenBucket::new(Rate::per_second(1), 10).owned();
    /// let texts = futures::stream::iter(["seven..", "five.", "far too long"]);
    ///
    /// let sent: Vec<_> = texts.pace_by_cost(limit, |text| text.len() as u32).collect().await;
    /// assert_eq!(sent[0], Ok("seven.."));
    /// assert_eq!(sent[1], Ok("five.")); // two tokens were missing
    /// assert_eq!(start.elapsed(), Duration::from_secs(2));
    /// assert_eq!(sent[2].unwrap_err().into_item(), "far too long");
    /// # }
    /// ```
    fn pace_by_cost<L, F>(self, limiter: L, cost_of: F) -> PaceByCost<Self, L, F>
    where
        Self: Sized,
        L: Unfailing,
        F: FnMut(&Self::Item) -> u32,
    {
        PaceByCost::new(self, limiter, cost_of)
    }

    /// Emits the item with the earliest deadline as soon as `limiter` grants a permit, and gives back an item that cannot make its
    /// deadline.
    ///
    /// The stream holds at most `held` items. See [`PaceByDeadline`] for exactly when.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use paceline::prelude::*;
    /// use paceline::policy::Interval;
    /// use std::time::Duration;
    /// use tokio::time::Instant;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let start = Instant::now();
    /// let limit = Interval::every(Duration::from_millis(100)).owned();
    /// let messages = [("newsletter", 900), ("password", 150), ("password", 120), ("password", 110)];
    /// let deadline = |(_, ms): &(&str, u64)| start + Duration::from_millis(*ms);
    ///
    /// let messages = futures::stream::iter(messages).pace_by_deadline(limit, deadline, 1_000);
    /// let sent: Vec<_> = messages.map(|message| message.map_err(|late| late.into_item())).collect().await;
    /// assert_eq!(
    ///     sent,
    ///     [Err(("password", 150)), Ok(("password", 110)), Ok(("password", 120)), Ok(("newsletter", 900))]
    /// );
    /// assert_eq!(start.elapsed(), Duration::from_millis(200));
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If `held` is zero. [`PaceByDeadline::try_new`] returns an error instead.
    #[track_caller]
    #[doc(alias("EDF", "earliest deadline first", "expiration", "priority queue"))]
    fn pace_by_deadline<L, F>(
        self,
        limiter: L,
        deadline_of: F,
        held: usize,
    ) -> PaceByDeadline<Self, L, F>
    where
        Self: Sized,
        L: Unfailing,
        F: FnMut(&Self::Item) -> Instant,
    {
        or_panic(PaceByDeadline::try_new(self, limiter, deadline_of, held))
    }

    /// Emits one batch a permit: all items that have arrived, at most `max` and at least one.
    ///
    /// For providers that accept batches and limit the number of calls. See [`PaceBatches`] for exactly when.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use paceline::prelude::*;
    /// use paceline::policy::Interval;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let start = tokio::time::Instant::now();
    /// let limit = Interval::every(Duration::from_millis(100)).owned();
    ///
    /// let calls: Vec<_> = futures::stream::iter(1..=7).pace_batches(limit, 3).collect().await;
    /// assert_eq!(calls, [vec![1, 2, 3], vec![4, 5, 6], vec![7]]);
    /// assert_eq!(start.elapsed(), Duration::from_millis(200));
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If `max` is zero. [`PaceBatches::try_new`] returns an error instead.
    #[track_caller]
    fn pace_batches<L: Unfailing>(self, limiter: L, max: usize) -> PaceBatches<Self, L>
    where
        Self: Sized,
    {
        or_panic(PaceBatches::try_new(self, limiter, max))
    }

    /// Emits each item as soon as the limit of its key grants a permit. Keys do not wait for each other, unless they have
    /// [a total](crate::limiter::WithTotal).
    ///
    /// The stream holds at most `held` items, over all keys. See [`PaceByKey`] for exactly when.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use paceline::prelude::*;
    /// use paceline::policy::Interval;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let start = tokio::time::Instant::now();
    /// let hosts = Interval::every(Duration::from_millis(100)).keyed();
    /// let calls = futures::stream::iter([("a.example", 1), ("a.example", 2), ("b.example", 3)]);
    ///
    /// let paced = calls.pace_by_key(hosts, |(host, _)| *host, 100);
    /// let order: Vec<_> = paced.map(|(_, call)| call).collect().await;
    /// assert_eq!(order, [1, 3, 2]);
    /// assert_eq!(start.elapsed(), Duration::from_millis(100));
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If `held` is zero. [`PaceByKey::try_new`] returns an error instead.
    #[doc(alias("group by", "per user"))]
    #[track_caller]
    fn pace_by_key<K, L, F>(self, limits: L, key_of: F, held: usize) -> PaceByKey<Self, K, L, F>
    where
        Self: Sized,
        K: Hash + Eq + Clone,
        L: Limits<K, Limit: Unfailing, Error = Infallible>,
        F: FnMut(&Self::Item) -> K,
    {
        or_panic(PaceByKey::try_new(self, limits, key_of, held))
    }

    /// As [`pace_by_key`](Self::pace_by_key), for [`Limits`] of which a key may have none: those in Redis too.
    ///
    /// An item whose key has no limit becomes an error that contains the item: a key for a limit in Redis must not be empty, for
    /// example. See [`TryPaceByKey`] for exactly when.
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
    /// let hosts = Interval::every(Duration::from_millis(100)).keyed();
    /// let calls = futures::stream::iter([("a.example", 1), ("a.example", 2), ("b.example", 3)]);
    ///
    /// let mut paced = calls.try_pace_by_key(hosts, |(host, _)| *host, 100);
    /// while let Some(call) = paced.next().await {
    ///     match call {
    ///         Ok((host, n)) => println!("{host}: call {n}"),
    ///         Err(refused) => println!("{refused}"),
    ///     }
    /// }
    /// assert_eq!(start.elapsed(), Duration::from_millis(100));
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If `held` is zero. [`TryPaceByKey::try_new`] returns an error instead.
    #[track_caller]
    fn try_pace_by_key<K, L, F>(
        self,
        limits: L,
        key_of: F,
        held: usize,
    ) -> TryPaceByKey<Self, K, L, F>
    where
        Self: Sized,
        K: Hash + Eq + Clone,
        L: Limits<K, Limit: Unfailing>,
        F: FnMut(&Self::Item) -> K,
    {
        or_panic(TryPaceByKey::try_new(self, limits, key_of, held))
    }

    /// Emits each item as soon as the limit of its key grants as many permits as the item costs. Keys do not wait for each other.
    ///
    /// It takes any [`Limits`]. An item that can never pass is returned in an error: it costs more than the limit can ever grant,
    /// or its key has no limit. The stream holds at most `held` items, over all keys. See [`PaceByKeyAndCost`] for exactly when.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use paceline::policy::TokenBucket;
    /// use paceline::prelude::*;
    /// use paceline::time::Rate;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let start = tokio::time::Instant::now();
    /// let users = TokenBucket::new(Rate::per_second(10), 20).keyed();
    /// let prompts = futures::stream::iter([("ann", 15), ("ann", 10), ("bob", 20), ("bob", 99)]);
    ///
    /// let paced = prompts.pace_by_key_and_cost(users, |(user, _)| *user, |(_, tokens)| *tokens, 100);
    /// let sent: Vec<_> = paced.collect().await;
    /// assert_eq!(sent[0], Ok(("ann", 15)));
    /// assert_eq!(sent[1], Ok(("bob", 20)));
    /// assert_eq!(sent[2].unwrap_err().into_item(), ("bob", 99)); // more than 20 never pass at once
    /// assert_eq!(sent[3], Ok(("ann", 10))); // five were missing
    /// assert_eq!(start.elapsed(), Duration::from_millis(500));
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If `held` is zero. [`PaceByKeyAndCost::try_new`] returns an error instead.
    #[track_caller]
    fn pace_by_key_and_cost<K, L, F, C>(
        self,
        limits: L,
        key_of: F,
        cost_of: C,
        held: usize,
    ) -> PaceByKeyAndCost<Self, K, L, F, C>
    where
        Self: Sized,
        K: Hash + Eq + Clone,
        L: Limits<K, Limit: Unfailing>,
        F: FnMut(&Self::Item) -> K,
        C: FnMut(&Self::Item) -> u32,
    {
        or_panic(PaceByKeyAndCost::try_new(
            self, limits, key_of, cost_of, held,
        ))
    }

    /// Groups items: a group leaves when it has `max` items, or when its window ends.
    ///
    /// The window starts with the first item of the group, unless [`GroupedWithin::with_window`] says otherwise. See
    /// [`GroupedWithin`] for exactly when.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use paceline::prelude::*;
    /// use std::time::Duration;
    /// use tokio_stream::wrappers::ReceiverStream;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let (rows, input) = tokio::sync::mpsc::channel(16);
    /// let mut writes = ReceiverStream::new(input).grouped_within(100, Duration::from_millis(20));
    ///
    /// rows.send("a").await.unwrap();
    /// rows.send("b").await.unwrap();
    /// let start = tokio::time::Instant::now();
    /// assert_eq!(writes.next().await, Some(vec!["a", "b"]));
    /// assert_eq!(start.elapsed(), Duration::from_millis(20));
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If `max` or `window` is zero. [`GroupedWithin::try_new`] returns an error instead.
    #[doc(alias("chunks_timeout", "bufferTimeout", "batch"))]
    #[track_caller]
    fn grouped_within(self, max: usize, window: Duration) -> GroupedWithin<Self>
    where
        Self: Sized,
    {
        or_panic(GroupedWithin::try_new(self, max, window))
    }

    /// Groups items: a group leaves when it weighs `max_weight`, before it would weigh more, or when its window ends.
    ///
    /// An item that is heavier leaves at once, alone. See [`GroupedWeightedWithin`] for exactly when.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use paceline::prelude::*;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let texts = futures::stream::iter(["four", "and", "seven..", "far too long"]);
    /// let calls = texts.grouped_weighted_within(10, Duration::from_millis(20), |text| text.len() as u64);
    ///
    /// let calls: Vec<_> = calls.collect().await;
    /// assert_eq!(calls, [vec!["four", "and"], vec!["seven.."], vec!["far too long"]]);
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If `max_weight` or `window` is zero. [`GroupedWithin::try_weighing`] returns an error instead.
    #[doc(alias("groupedWeightedWithin", "batch by size"))]
    #[track_caller]
    fn grouped_weighted_within<F>(
        self,
        max_weight: u64,
        window: Duration,
        weigh: F,
    ) -> GroupedWeightedWithin<Self, F>
    where
        Self: Sized,
        F: FnMut(&Self::Item) -> u64,
    {
        or_panic(GroupedWithin::try_weighing(self, max_weight, window, weigh))
    }

    /// Does not wait: items that come too soon are returned in errors.
    ///
    /// See [`Enforce`] for exactly when.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use paceline::prelude::*;
    /// use paceline::policy::Interval;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let limit = Interval::every(Duration::from_secs(1)).owned();
    /// let mut calls = futures::stream::iter(["first", "second"]).enforce(limit);
    ///
    /// assert_eq!(calls.next().await, Some(Ok("first")));
    /// let refused = calls.next().await.unwrap().unwrap_err();
    /// assert_eq!(refused.retry_in(), Some(Duration::from_secs(1)));
    /// assert_eq!(refused.into_item(), "second");
    /// # }
    /// ```
    fn enforce<L: Unfailing>(self, limiter: L) -> Enforce<Self, L>
    where
        Self: Sized,
    {
        Enforce::new(self, limiter)
    }

    /// Drops items that come too soon, and counts them.
    ///
    /// See [`Shed`] for exactly when.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use paceline::prelude::*;
    /// use paceline::policy::TokenBucket;
    /// use paceline::time::Rate;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let limit = TokenBucket::new(Rate::per_second(1), 2).owned();
    /// let mut samples = futures::stream::iter(0..100).shed(limit);
    ///
    /// assert_eq!(samples.next().await, Some(0));
    /// assert_eq!(samples.next().await, Some(1));
    /// assert_eq!(samples.next().await, None);
    /// assert_eq!(samples.shed_count(), 98);
    /// # }
    /// ```
    #[doc(alias("drop", "sample"))]
    fn shed<L: Unfailing>(self, limiter: L) -> Shed<Self, L>
    where
        Self: Sized,
    {
        Shed::new(self, limiter)
    }

    /// Drops the items that a [load shedder](crate::shed) refuses, and counts them. The closure says which class an item has.
    ///
    /// It takes a [`WorkerUtilization`](crate::shed::WorkerUtilization). A [`FleetUsage`](crate::shed::FleetUsage) gives a permit to
    /// hold, which is not `Copy`; see [`ShedBy`] for what to do with it, and for exactly when an item is emitted.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use paceline::prelude::*;
    /// use paceline::shed::{Class, WorkerUtilization};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let shedder = WorkerUtilization::new(|| 0.99); // how busy this worker is
    /// let events = futures::stream::iter(["login", "page view"]);
    /// let shed = events.shed_by(shedder, |event| match *event {
    ///     "login" => Class::Critical,
    ///     _ => Class::Sheddable(0),
    /// });
    /// assert_eq!(shed.count().await, 2); // for the first half minute
    /// # }
    /// ```
    fn shed_by<C, A, F>(self, shedder: A, class: F) -> ShedBy<Self, A, F>
    where
        Self: Sized,
        A: Admit<C, Guard: Copy, Error = Infallible>,
        F: FnMut(&Self::Item) -> C,
    {
        ShedBy::new(self, shedder, class)
    }

    /// Emits an item when no other has followed it for `delay`. The others are dropped and counted.
    ///
    /// See [`Debounce`] for exactly when.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use paceline::prelude::*;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let start = tokio::time::Instant::now();
    /// let typed = futures::stream::iter(["p", "pa", "pac", "pace"]).chain(futures::stream::pending());
    /// let mut searches = typed.debounce(Duration::from_millis(300));
    ///
    /// assert_eq!(searches.next().await, Some("pace"));
    /// assert_eq!(start.elapsed(), Duration::from_millis(300));
    /// assert_eq!(searches.dropped_count(), 3);
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If `delay` is zero. [`Debounce::try_new`] returns an error instead.
    #[track_caller]
    fn debounce(self, delay: Duration) -> Debounce<Self>
    where
        Self: Sized,
    {
        or_panic(Debounce::try_new(self, delay))
    }

    /// Emits the latest item once a `period`. The others are dropped and counted.
    ///
    /// See [`Sample`] for exactly when.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use paceline::prelude::*;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let progress = futures::stream::iter(0..=100).min_interval(Duration::from_millis(10));
    /// let shown: Vec<_> = progress.sample(Duration::from_millis(250)).with_keep_last().collect().await;
    ///
    /// assert_eq!(shown, [24, 49, 74, 99, 100]); // an item that arrives with a tick waits for the next tick
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If `period` is zero. [`Sample::try_new`] returns an error instead.
    #[doc(alias("throttleLast", "latest"))]
    #[track_caller]
    fn sample(self, period: Duration) -> Sample<Self>
    where
        Self: Sized,
    {
        or_panic(Sample::try_new(self, period))
    }

    /// Emits an item, then drops and counts the items that arrive within `quiet` after that emission.
    ///
    /// See [`ThrottleFirst`] for exactly when.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use paceline::prelude::*;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let clicks = futures::stream::iter(1..=9).min_interval(Duration::from_millis(100));
    /// let mut orders = clicks.throttle_first(Duration::from_millis(300));
    ///
    /// assert_eq!(orders.by_ref().collect::<Vec<_>>().await, [1, 4, 7]);
    /// assert_eq!(orders.dropped_count(), 6);
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If `quiet` is zero. [`ThrottleFirst::try_new`] returns an error instead.
    #[doc(alias("throttle", "leading edge"))]
    #[track_caller]
    fn throttle_first(self, quiet: Duration) -> ThrottleFirst<Self>
    where
        Self: Sized,
    {
        or_panic(ThrottleFirst::try_new(self, quiet))
    }

    /// Makes a future of each item, and runs as many at once as there are `permits`. Outputs come in order of completion.
    ///
    /// Like `buffer_unordered`, but with a limit that other streams and tasks can share, and that can be resized while futures
    /// run. See [`Concurrent`] for exactly when.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use paceline::concurrency::Permits;
    /// use paceline::prelude::*;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let start = tokio::time::Instant::now();
    /// let permits = Permits::new(2);
    ///
    /// let answers = futures::stream::iter([30, 10, 10]).concurrent(permits.clone(), |millis| async move {
    ///     tokio::time::sleep(Duration::from_millis(millis)).await;
    ///     (millis, start.elapsed().as_millis())
    /// });
    /// assert_eq!(answers.collect::<Vec<_>>().await, [(10, 10), (10, 20), (30, 30)]);
    /// # }
    /// ```
    #[doc(alias("buffer_unordered", "mapAsyncUnordered", "for_each_concurrent"))]
    fn concurrent<F, Fut>(self, permits: Permits, start: F) -> Concurrent<Self, F, Fut>
    where
        Self: Sized,
        F: FnMut(Self::Item) -> Fut,
        Fut: Future,
    {
        Concurrent::new(self, permits, start)
    }
}

impl<S: Stream + ?Sized> PaceStreamExt for S {}

/// Throttling for streams of `Result`s, for adapters that do not treat errors as items.
///
/// For most adapters an `Err` is an item like any other, and [`PaceStreamExt`] has the methods. The adapters here group items,
/// and must not put errors into a group. No method has the name of a method of `futures::TryStreamExt`, so both can be
/// imported together.
pub trait PaceTryStreamExt: TryStream {
    /// Groups the items that are `Ok` as [`grouped_within`](PaceStreamExt::grouped_within) does. An error leaves on its
    /// own, after the group that was being collected.
    ///
    /// With [`OnError::Discard`](super::OnError::Discard) the error drops that group instead. See [`TryGroupedWithin`] for exactly
    /// when.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use paceline::prelude::*;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let rows = futures::stream::iter([Ok(1), Ok(2), Ok(3), Err("line 4"), Ok(5)]);
    /// let mut writes = rows.try_grouped_within(2, Duration::from_millis(20));
    ///
    /// assert_eq!(writes.next().await, Some(Ok(vec![1, 2])));
    /// assert_eq!(writes.next().await, Some(Ok(vec![3])));
    /// assert_eq!(writes.next().await, Some(Err("line 4")));
    /// assert_eq!(writes.next().await, Some(Ok(vec![5])));
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If `max` or `window` is zero. [`TryGroupedWithin::try_new`] returns an error instead.
    #[track_caller]
    fn try_grouped_within(self, max: usize, window: Duration) -> TryGroupedWithin<Self>
    where
        Self: Sized,
    {
        or_panic(TryGroupedWithin::try_new(self, max, window))
    }

    /// Groups the items that are `Ok` by weight, as [`grouped_weighted_within`](PaceStreamExt::grouped_weighted_within) does.
    ///
    /// See [`TryGroupedWeightedWithin`] for exactly when.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use paceline::prelude::*;
    /// use paceline::stream::OnError;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let texts = futures::stream::iter([Ok("four"), Ok("seven.."), Err("cut off"), Ok("five.")]);
    /// let mut calls = texts
    ///     .try_grouped_weighted_within(10, Duration::from_millis(20), |text| text.len() as u64)
    ///     .with_on_error(OnError::Discard);
    ///
    /// assert_eq!(calls.next().await, Some(Ok(vec!["four"])));
    /// assert_eq!(calls.next().await, Some(Err("cut off")));
    /// assert_eq!(calls.dropped_count(), 1);
    /// assert_eq!(calls.next().await, Some(Ok(vec!["five."])));
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If `max_weight` or `window` is zero. [`TryGroupedWithin::try_weighing`] returns an error instead.
    #[track_caller]
    fn try_grouped_weighted_within<F>(
        self,
        max_weight: u64,
        window: Duration,
        weigh: F,
    ) -> TryGroupedWeightedWithin<Self, F>
    where
        Self: Sized,
        F: FnMut(&Self::Ok) -> u64,
    {
        or_panic(TryGroupedWithin::try_weighing(
            self, max_weight, window, weigh,
        ))
    }
}

impl<S: TryStream + ?Sized> PaceTryStreamExt for S {}
