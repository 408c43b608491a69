use core::convert::Infallible;
use core::error::Error;
use core::fmt;
use core::hash::Hash;
use core::pin::Pin;
use core::task::{Context, Poll};

use futures_core::Stream;
use futures_core::stream::FusedStream;
use pin_project_lite::pin_project;

use crate::limiter::{Limiter, Limits};
use crate::time::OutOfRange;

use super::pace_by_key_and_cost::{Cause, PaceByKeyAndCost, PaceByKeyError};

pin_project! {
    /// Stream for the [`pace_by_key`](super::PaceStreamExt::pace_by_key) method: each key has a limit of its own, and an item
    /// that comes too soon for its key is emitted late.
    ///
    /// ```
    /// # use {testkit::marble, paceline::{limiter::PolicyExt, policy::Interval, stream::PaceStreamExt}};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let limits = Interval::every(marble::TICK * 3).keyed();
    /// # let key = |item: &char| item.is_ascii_digit();
    /// // letters at least three ticks apart, and digits too
    /// let input  = "(abc12) - - -    - - - |";
    /// let output = "(a1)    - - (b2) - - c |";
    /// # marble::check(|s| s.pace_by_key(limits, key, 10), input, output).await;
    /// # }
    /// ```
    ///
    #[doc = include_str!("marbles/pace_by_key.svg")]
    ///
    /// * **Emits** an item when the limit of its key grants a permit. Items of one key stay in order. Keys that have a permit
    ///   take turns.
    /// * **Waits** on the input while there is room, and on the limit of every key that has items.
    /// * **Ends** when the input has ended and all items held have left.
    /// * **Holds** at most `held` items over all keys, which `size_hint` counts and [`into_parts`](Self::into_parts) returns in
    ///   order of arrival. While there is no room the input is not polled: one key that exceeds its limit for long fills all
    ///   the room and holds up the others, so make `held` as large as you can afford.
    /// * **Cancel safety**: dropping `next()` loses nothing; the items stay held.
    ///
    /// Only keys that were woken are polled. A key takes memory while items of it are held.
    ///
    /// **Window bound**: that of the policy, for each key, counted in emissions; with [a total](crate::limiter::WithTotal) that of its
    /// policy for all keys together, too.
    #[must_use = "streams do nothing unless polled"]
    pub struct PaceByKey<S, K, L, F>
    where
        S: Stream,
        L: Limits<K>,
        L::Limit: Limiter,
    {
        #[pin]
        inner: TryPaceByKey<S, K, L, F>,
    }
}

impl<S, K, L, F> PaceByKey<S, K, L, F>
where
    S: Stream,
    K: Hash + Eq + Clone,
    L: Limits<K, Limit: Limiter<Error = Infallible>, Error = Infallible>,
    F: FnMut(&S::Item) -> K,
{
    /// The same as [`pace_by_key`](super::PaceStreamExt::pace_by_key), for a size from a configuration.
    ///
    /// # Errors
    ///
    /// If `held` is zero.
    pub fn try_new(stream: S, limits: L, key_of: F, held: usize) -> Result<Self, OutOfRange> {
        let inner = TryPaceByKey::try_new(stream, limits, key_of, held)?;
        Ok(Self { inner })
    }

    /// The input, and the items that were waiting for a permit, in order of arrival.
    pub fn into_parts(self) -> (S, Vec<S::Item>) {
        self.inner.into_parts()
    }
}

impl<S, K, L, F> Stream for PaceByKey<S, K, L, F>
where
    S: Stream,
    K: Hash + Eq + Clone,
    L: Limits<K, Limit: Limiter<Error = Infallible>, Error = Infallible>,
    F: FnMut(&S::Item) -> K,
{
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let item = self.project().inner.poll_next(cx);
        item.map(|item| item.map(|(Ok(item) | Err(NoLimit { item, .. }))| item))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.inner.size_hint()
    }
}

impl<S: Stream, K, L: Limits<K, Limit: Limiter>, F> FusedStream for PaceByKey<S, K, L, F>
where
    Self: Stream,
{
    fn is_terminated(&self) -> bool {
        self.inner.inner.is_over()
    }
}

/// Does not print the items and the keys: they may be secret, and they may be large.
impl<S, K, L, F> fmt::Debug for PaceByKey<S, K, L, F>
where
    S: Stream + fmt::Debug,
    K: Hash + Eq + Clone,
    L: Limits<K, Limit: Limiter<Error = Infallible>, Error = Infallible>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.inner.fmt_as("PaceByKey", f)
    }
}

pin_project! {
    /// Stream for the [`try_pace_by_key`](super::PaceStreamExt::try_pace_by_key) method: as [`PaceByKey`], for limits that may
    /// refuse a key.
    ///
    /// ```
    /// # use {testkit::marble, paceline::{limiter::*, policy::Interval, stream::PaceStreamExt}};
    /// # struct Digits(Keyed<(), Interval>);
    /// # impl Limits<char> for Digits {
    /// #     type Limit = KeyedAt<(), Interval>;
    /// #     type Error = char;
    /// #     fn at(&self, key: char) -> Result<Self::Limit, char> {
    /// #         if key.is_ascii_digit() { Ok(self.0.at(())) } else { Err(key) }
    /// #     }
    /// # }
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let limits = Digits(Interval::every(marble::TICK * 3).keyed());
    /// // digits at least three ticks apart; there is no limit for letters
    /// let input  = "(1a2) - - - b |";
    /// let output = "(X1)  - - 2 X |";
    /// # marble::check(|s| s.try_pace_by_key(limits, |item: &char| *item, 10), input, output).await;
    /// # }
    /// ```
    ///
    #[doc = include_str!("marbles/try_pace_by_key.svg")]
    ///
    /// * **Emits**, **waits**, **ends** and **holds** as [`PaceByKey`].
    /// * **Fails** with [`NoLimit`] for an item whose key has no limit, in the instant in which the item arrives. The error
    ///   contains the item. The stream goes on after it.
    /// * **Cancel safety**: dropping `next()` loses nothing; the items stay held.
    ///
    /// **Window bound**: that of the policy, for each key, counted in `Ok`s.
    #[must_use = "streams do nothing unless polled"]
    pub struct TryPaceByKey<S, K, L, F>
    where
        S: Stream,
        L: Limits<K>,
        L::Limit: Limiter,
    {
        #[pin]
        inner: PaceByKeyAndCost<S, K, L, F, fn(&S::Item) -> u32>,
    }
}

impl<S, K, L, F> TryPaceByKey<S, K, L, F>
where
    S: Stream,
    K: Hash + Eq + Clone,
    L: Limits<K, Limit: Limiter<Error = Infallible>>,
{
    /// The same as [`try_pace_by_key`](super::PaceStreamExt::try_pace_by_key), for a size from a configuration.
    ///
    /// # Errors
    ///
    /// If `held` is zero.
    pub fn try_new(stream: S, limits: L, key_of: F, held: usize) -> Result<Self, OutOfRange> {
        let one: fn(&S::Item) -> u32 = |_| 1;
        let inner = PaceByKeyAndCost::try_new(stream, limits, key_of, one, held)?;
        Ok(Self { inner })
    }

    /// The input, and the items that were waiting for a permit, in order of arrival.
    pub fn into_parts(self) -> (S, Vec<S::Item>) {
        self.inner.into_parts()
    }
}

impl<S, K, L, F> Stream for TryPaceByKey<S, K, L, F>
where
    S: Stream,
    K: Hash + Eq + Clone,
    L: Limits<K, Limit: Limiter<Error = Infallible>>,
    F: FnMut(&S::Item) -> K,
{
    type Item = Result<S::Item, NoLimit<S::Item, L::Error>>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let item = self.project().inner.poll_next(cx);
        item.map(|item| item.map(|item| item.map_err(NoLimit::of)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.inner.size_hint()
    }
}

impl<S: Stream, K, L: Limits<K, Limit: Limiter>, F> FusedStream for TryPaceByKey<S, K, L, F>
where
    Self: Stream,
{
    fn is_terminated(&self) -> bool {
        self.inner.is_over()
    }
}

/// Does not print the items and the keys: they may be secret, and they may be large.
impl<S, K, L, F> fmt::Debug for TryPaceByKey<S, K, L, F>
where
    S: Stream + fmt::Debug,
    L: Limits<K, Limit: Limiter>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt_as("TryPaceByKey", f)
    }
}

/// The key of an item has no limit. The item is given back, not lost.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct NoLimit<T, E> {
    item: T,
    error: E,
}

impl<T, E> NoLimit<T, E> {
    /// Of an item of cost 1.
    fn of(refused: PaceByKeyError<T, E>) -> Self {
        let PaceByKeyError { item, cause } = refused;
        match cause {
            Cause::NoLimit(error) => Self { item, error },
            Cause::TooCostly(never) => {
                panic!("a limiter must let cost 1 pass in the end, but: {never}")
            }
        }
    }

    /// The item that was refused.
    pub fn into_item(self) -> T {
        self.item
    }

    /// What is wrong with its key.
    pub const fn error(&self) -> &E {
        &self.error
    }
}

/// Does not ask `T: Debug`, and does not print the item: it may be secret, and it may be large.
impl<T, E: fmt::Debug> fmt::Debug for NoLimit<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NoLimit")
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl<T, E> fmt::Display for NoLimit<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the key has no limit")
    }
}

impl<T, E: Error + 'static> Error for NoLimit<T, E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}
