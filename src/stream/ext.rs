use core::future::Future;
use core::hash::Hash;
use core::time::Duration;

use futures_core::Stream;

use crate::concurrency::Permits;
use crate::limiter::{Keyed, Limiter, Owned};
use crate::policy::{Interval, Policy};

use super::{
    Concurrent, Debounce, Enforce, GroupedWeightedWithin, GroupedWithin, Pace, PaceBatches,
    PaceByCost, PaceByKey, Sample, Shed, ThrottleFirst,
};

/// Throttling for every stream.
///
/// No name here is also one of `futures::StreamExt` or `tokio_stream::StreamExt`, so that all three can be imported
/// together.
pub trait PaceStreamExt: Stream {
    /// Lets each item pass when `limiter` does: late rather than never.
    ///
    /// See [`Pace`] for exactly when.
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
    fn pace<L: Limiter>(self, limiter: L) -> Pace<Self, L>
    where
        Self: Sized,
    {
        Pace::new(self, limiter)
    }

    /// Keeps two items at least `interval` apart, whatever is late: the timer, the source or the consumer.
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
    fn min_interval(self, interval: Duration) -> Pace<Self, Owned<Interval>>
    where
        Self: Sized,
    {
        self.pace(Owned::new(Interval::every(interval)))
    }

    /// Lets each item pass when `limiter` lets its cost pass.
    ///
    /// An item that costs more than the limiter could ever let pass is given back in an error. See [`PaceByCost`] for
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
        L: Limiter,
        F: FnMut(&Self::Item) -> u32,
    {
        PaceByCost::new(self, limiter, cost_of)
    }

    /// At each permit, emits all that has arrived, at most `max` items and never none.
    ///
    /// For providers that take batches and limit the calls. See [`PaceBatches`] for exactly when.
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
    /// If `max` is zero.
    #[track_caller]
    fn pace_batches<L: Limiter>(self, limiter: L, max: usize) -> PaceBatches<Self, L>
    where
        Self: Sized,
    {
        PaceBatches::new(self, limiter, max)
    }

    /// Lets each item pass when the limit of its key does, and no key waits for another.
    ///
    /// At most `held` items are inside, over all keys. See [`PaceByKey`] for exactly when.
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
    /// If `held` is zero.
    #[track_caller]
    fn pace_by_key<K, P, F>(
        self,
        limits: Keyed<K, P>,
        key_of: F,
        held: usize,
    ) -> PaceByKey<Self, K, P, F>
    where
        Self: Sized,
        K: Hash + Eq + Clone,
        P: Policy + Send + 'static,
        P::State: Send,
        F: FnMut(&Self::Item) -> K,
    {
        PaceByKey::new(self, limits, key_of, held)
    }

    /// Groups items: a group leaves when it has `max` items, or when its window ends.
    ///
    /// The window starts with the first item of the group, unless [`GroupedWithin::window`] says otherwise. See
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
    /// If `max` or `window` is zero.
    #[track_caller]
    fn grouped_within(self, max: usize, window: Duration) -> GroupedWithin<Self>
    where
        Self: Sized,
    {
        GroupedWithin::new(self, max, window)
    }

    /// Groups items: a group leaves when it weighs `max_weight`, before it would weigh more, or when its window ends.
    ///
    /// An item that is heavier than that leaves alone, at once. See [`GroupedWeightedWithin`] for exactly when.
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
    /// If `max_weight` or `window` is zero.
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
        GroupedWeightedWithin::new(self, max_weight, window, weigh)
    }

    /// Answers at once: items that come too soon are given back as errors.
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
    fn enforce<L: Limiter>(self, limiter: L) -> Enforce<Self, L>
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
    fn shed<L: Limiter>(self, limiter: L) -> Shed<Self, L>
    where
        Self: Sized,
    {
        Shed::new(self, limiter)
    }

    /// Emits an item when it has been quiet for `delay` after it, and drops and counts the others.
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
    /// If `delay` is zero.
    #[track_caller]
    fn debounce(self, delay: Duration) -> Debounce<Self>
    where
        Self: Sized,
    {
        Debounce::new(self, delay)
    }

    /// Emits the newest item at each `period`, and drops and counts the others.
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
    /// let shown: Vec<_> = progress.sample(Duration::from_millis(250)).keep_last().collect().await;
    ///
    /// assert_eq!(shown, [24, 49, 74, 99, 100]); // what comes with a tick waits for the next
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If `period` is zero.
    #[track_caller]
    fn sample(self, period: Duration) -> Sample<Self>
    where
        Self: Sized,
    {
        Sample::new(self, period)
    }

    /// Emits an item, then drops and counts what comes within `quiet` after that emission.
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
    /// If `quiet` is zero.
    #[track_caller]
    fn throttle_first(self, quiet: Duration) -> ThrottleFirst<Self>
    where
        Self: Sized,
    {
        ThrottleFirst::new(self, quiet)
    }

    /// Makes a future of each item, and runs as many at once as there are `permits`; their outputs come as they are done.
    ///
    /// Like `buffer_unordered`, but under a limit that other streams and tasks share, and that can be resized while it
    /// runs. See [`Concurrent`] for exactly when.
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
