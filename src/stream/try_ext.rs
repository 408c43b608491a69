use core::time::Duration;

use futures_core::TryStream;

use super::{TryGroupedWeightedWithin, TryGroupedWithin};

/// Throttling for streams of `Result`s, where errors are not to be treated as items.
///
/// Most adapters do not care: to them an `Err` is an item like any other, and [`PaceStreamExt`](super::PaceStreamExt) has
/// all that is needed. Those that put items together do. No name here is also one of `futures::TryStreamExt`, so that both
/// can be imported together.
pub trait PaceTryStreamExt: TryStream {
    /// Groups the items that are `Ok` as [`grouped_within`](super::PaceStreamExt::grouped_within) does; an error leaves on
    /// its own, after the group that was being collected.
    ///
    /// Or it drops that group: see [`on_error`](TryGroupedWithin::on_error), and [`TryGroupedWithin`] for exactly when.
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
    /// If `max` or `window` is zero.
    #[track_caller]
    fn try_grouped_within(self, max: usize, window: Duration) -> TryGroupedWithin<Self>
    where
        Self: Sized,
    {
        TryGroupedWithin::new(self, max, window)
    }

    /// The same by weight, as [`grouped_weighted_within`](super::PaceStreamExt::grouped_weighted_within) does.
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
    ///     .on_error(OnError::Discard);
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
    /// If `max_weight` or `window` is zero.
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
        TryGroupedWeightedWithin::new(self, max_weight, window, weigh)
    }
}

impl<S: TryStream + ?Sized> PaceTryStreamExt for S {}
