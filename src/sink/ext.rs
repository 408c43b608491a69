use core::time::Duration;

use futures_sink::Sink;

use crate::limiter::Unfailing;
use crate::time::or_panic;

use super::{EnforceSends, GroupSends, PaceSends, PaceSendsByCost, ShedSends};

/// Throttling for every sink.
///
/// No method has the name of a method of `futures::SinkExt`, or of an extension trait for streams. So all of them can be
/// imported together and used on a type that is both.
pub trait PaceSinkExt<Item>: Sink<Item> {
    /// Sends each item as soon as `limiter` grants a permit: an item that comes too soon is sent late.
    ///
    /// See [`PaceSends`] for exactly when.
    ///
    /// ```
    /// use futures::SinkExt;
    /// use paceline::policy::Interval;
    /// use paceline::prelude::*;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let start = tokio::time::Instant::now();
    /// let limit = Interval::every(Duration::from_millis(50)).owned();
    /// let mut calls = futures::sink::drain().pace_sends(limit);
    ///
    /// calls.send("a").await.unwrap(); // at once
    /// calls.send("b").await.unwrap(); // 50 ms later
    /// assert_eq!(start.elapsed(), Duration::from_millis(50));
    /// # }
    /// ```
    #[doc(alias("throttle", "ratelimit_sink"))]
    fn pace_sends<L: Unfailing>(self, limiter: L) -> PaceSends<Self, L, Item>
    where
        Self: Sized,
    {
        PaceSends::new(self, limiter)
    }

    /// Sends each item as soon as `limiter` grants as many permits as it costs.
    ///
    /// An item that costs more than the limiter can ever grant is returned in an error. See [`PaceSendsByCost`] for
    /// exactly when.
    ///
    /// ```
    /// use futures::SinkExt;
    /// use paceline::policy::TokenBucket;
    /// use paceline::prelude::*;
    /// use paceline::sink::SendError;
    /// use paceline::time::Rate;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let start = tokio::time::Instant::now();
    /// let limit = TokenBucket::new(Rate::per_second(1), 10).owned();
    /// let mut texts = futures::sink::drain().pace_sends_by_cost(limit, |text: &&str| text.len() as u32);
    ///
    /// texts.send("seven..").await.unwrap();
    /// texts.send("five.").await.unwrap(); // two tokens were missing
    /// assert_eq!(start.elapsed(), Duration::from_secs(2));
    ///
    /// let Err(SendError::Refused(never)) = texts.send("far too long").await else { panic!() };
    /// assert_eq!(never.into_item(), "far too long");
    /// # }
    /// ```
    fn pace_sends_by_cost<L, F>(self, limiter: L, cost_of: F) -> PaceSendsByCost<Self, L, F, Item>
    where
        Self: Sized,
        L: Unfailing,
        F: FnMut(&Item) -> u32,
    {
        PaceSendsByCost::new(self, limiter, cost_of)
    }

    /// Does not wait: an item that is sent too soon is returned in an error.
    ///
    /// See [`EnforceSends`] for exactly when.
    ///
    /// ```
    /// use futures::SinkExt;
    /// use paceline::policy::Interval;
    /// use paceline::prelude::*;
    /// use paceline::sink::SendError;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let limit = Interval::every(Duration::from_secs(1)).owned();
    /// let mut calls = futures::sink::drain().enforce_sends(limit);
    ///
    /// calls.send("first").await.unwrap();
    /// let Err(SendError::Refused(refused)) = calls.send("second").await else { panic!() };
    /// assert_eq!(refused.retry_in(), Some(Duration::from_secs(1)));
    /// assert_eq!(refused.into_item(), "second");
    /// # }
    /// ```
    fn enforce_sends<L: Unfailing>(self, limiter: L) -> EnforceSends<Self, L, Item>
    where
        Self: Sized,
    {
        EnforceSends::new(self, limiter)
    }

    /// Drops items that are sent too soon, and counts them.
    ///
    /// See [`ShedSends`] for exactly when.
    ///
    /// ```
    /// use futures::SinkExt;
    /// use paceline::policy::TokenBucket;
    /// use paceline::prelude::*;
    /// use paceline::time::Rate;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let (outlet, input) = futures::channel::mpsc::unbounded();
    /// let limit = TokenBucket::new(Rate::per_second(1), 2).owned();
    /// let mut samples = outlet.shed_sends(limit);
    ///
    /// for n in 0..100 {
    ///     samples.send(n).await.unwrap();
    /// }
    /// assert_eq!(samples.shed_count(), 98);
    /// drop(samples);
    /// assert_eq!(futures::StreamExt::collect::<Vec<_>>(input).await, [0, 1]);
    /// # }
    /// ```
    fn shed_sends<L: Unfailing>(self, limiter: L) -> ShedSends<Self, L, Item>
    where
        Self: Sized,
    {
        ShedSends::new(self, limiter)
    }

    /// Groups items for a sink that takes groups: a group leaves when it has `max` items, or at the first poll after its window.
    ///
    /// The window starts with the first item of the group, unless [`GroupSends::with_window`] says otherwise. `send`, and `send_all`
    /// and `forward` with a source that is sometimes pending, flush early: for items that arrive over time use
    /// [`grouped_within`](crate::stream::PaceStreamExt::grouped_within), and [`pace`](crate::stream::PaceStreamExt::pace) the
    /// groups. See [`GroupSends`] for exactly when.
    ///
    /// ```
    /// use futures::{SinkExt, StreamExt, stream};
    /// use paceline::prelude::*;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let (outlet, writes) = futures::channel::mpsc::unbounded();
    /// let mut rows = outlet.group_sends(3, Duration::from_millis(20));
    ///
    /// rows.send_all(&mut stream::iter(1..=7).map(Ok)).await.unwrap();
    /// drop(rows);
    /// assert_eq!(writes.collect::<Vec<_>>().await, [vec![1, 2, 3], vec![4, 5, 6], vec![7]]);
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If `max` or `window` is zero. [`GroupSends::try_new`] returns an error instead.
    #[doc(alias("batch", "chunks_timeout"))]
    #[track_caller]
    fn group_sends<T>(self, max: usize, window: Duration) -> GroupSends<Self, T>
    where
        Self: Sink<Vec<T>> + Sized,
    {
        or_panic(GroupSends::try_new(self, max, window))
    }
}

impl<S: Sink<Item> + ?Sized, Item> PaceSinkExt<Item> for S {}
