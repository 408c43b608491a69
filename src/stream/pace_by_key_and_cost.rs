use core::convert::Infallible;
use core::error::Error;
use core::fmt;
use core::hash::Hash;
use core::pin::Pin;
use core::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_core::stream::FusedStream;
use pin_project_lite::pin_project;

use crate::limiter::{Limiter, Limits, TooCostly};
use crate::time::OutOfRange;

use super::input::{PeekableInput, poll_taken, with_held};
use super::key_queues::KeyQueues;

pin_project! {
    /// Stream for the [`pace_by_key_and_cost`](super::PaceStreamExt::pace_by_key_and_cost) method: each key has a limit of its
    /// own, and each item takes as many permits of it as it costs.
    ///
    /// ```
    /// # use {testkit::marble, paceline::{limiter::PolicyExt, policy::TokenBucket, stream::PaceStreamExt, time::Rate}};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let limits = TokenBucket::new(Rate::new(1, marble::TICK), 3).keyed();
    /// # let key = |item: &char| item.is_ascii_digit();
    /// # let cost = |item: &char| item.to_digit(10).unwrap_or(1);
    /// // one token a tick, three at most; a digit costs what it says, and a letter 1 of another key
    /// let input  = "(32a9) - -    (1b) |";
    /// let output = "(3a)   - (2X) (1b) |";
    /// # marble::check(|s| s.pace_by_key_and_cost(limits, key, cost, 10), input, output).await;
    /// # }
    /// ```
    ///
    #[doc = include_str!("marbles/pace_by_key_and_cost.svg")]
    ///
    /// * **Emits** `Ok(item)` when the limit of its key grants its cost. Items of one key stay in order, whatever they cost. Keys
    ///   that have their permits take turns. An item of cost 0 waits only for those before it.
    /// * **Waits** on the input while there is room, and on the limit of every key that has items.
    /// * **Ends** when the input has ended and all items held have left.
    /// * **Fails** with [`PaceByKeyError`] for an item that can never pass: at once if its key has no limit, and in its turn among
    ///   the items of its key if it costs more than the limit can ever grant. The error contains the item. The stream goes on
    ///   after it.
    /// * **Holds** at most `held` items over all keys, which `size_hint` counts and [`into_parts`](Self::into_parts) returns in
    ///   order of arrival. While there is no room the input is not polled, as in [`PaceByKey`](super::PaceByKey).
    /// * **Cancel safety**: dropping `next()` loses nothing; the items stay held. The functions are called once an item, and again
    ///   after a panic.
    ///
    /// **Window bound**: that of the policy, for each key, counted in the costs of `Ok`s.
    #[must_use = "streams do nothing unless polled"]
    pub struct PaceByKeyAndCost<S, K, L, F, C>
    where
        S: Stream,
        L: Limits<K>,
        L::Limit: Limiter,
    {
        #[pin]
        input: PeekableInput<S>,
        key_of: F,
        cost_of: C,
        max: usize,
        limits: L,
        queues: KeyQueues<S::Item, K, L::Limit>,
    }
}

impl<S, K, L, F, C> PaceByKeyAndCost<S, K, L, F, C>
where
    S: Stream,
    K: Hash + Eq + Clone,
    L: Limits<K, Limit: Limiter<Error = Infallible>>,
{
    /// The same as [`pace_by_key_and_cost`](super::PaceStreamExt::pace_by_key_and_cost), for a size from a configuration.
    ///
    /// # Errors
    ///
    /// If `held` is zero.
    pub fn try_new(
        stream: S,
        limits: L,
        key_of: F,
        cost_of: C,
        held: usize,
    ) -> Result<Self, OutOfRange> {
        if held == 0 {
            return Err(OutOfRange::new(
                "held",
                "pacing by key needs room for at least 1 item, got 0",
            ));
        }
        Ok(Self {
            input: PeekableInput::new(stream),
            key_of,
            cost_of,
            max: held,
            limits,
            queues: KeyQueues::new(),
        })
    }

    /// The input, and the items that were waiting for permits, in order of arrival.
    pub fn into_parts(self) -> (S, Vec<S::Item>) {
        let (stream, held) = self.input.into_parts();
        let mut items = self.queues.into_items();
        items.extend(held);
        (stream, items)
    }

    /// Takes the items that have arrived, while there is room. Returns the first whose key has no limit.
    fn collect(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Result<(), PaceByKeyError<S::Item, L::Error>>
    where
        F: FnMut(&S::Item) -> K,
        C: FnMut(&S::Item) -> u32,
    {
        let mut this = self.project();
        let mut taken = 0;
        while this.queues.len < *this.max {
            let Poll::Ready(Some(item)) = this.input.as_mut().poll_peek(cx) else {
                break;
            };
            let (key, cost) = ((this.key_of)(item), (this.cost_of)(item));
            let queue = this.queues.queue_of(key, |key| this.limits.at(key));
            let Some(item) = this.input.as_mut().take() else {
                break;
            };
            match queue {
                Ok(queue) => this.queues.push(queue, cost, item),
                Err(error) => {
                    let cause = Cause::NoLimit(error);
                    return Err(PaceByKeyError { item, cause });
                }
            }
            if poll_taken(&mut taken, cx).is_pending() {
                break;
            }
        }
        Ok(())
    }
}

impl<S: Stream, K, L: Limits<K, Limit: Limiter>, F, C> PaceByKeyAndCost<S, K, L, F, C> {
    /// Whether the input has ended, and nothing is held.
    pub(super) const fn is_over(&self) -> bool {
        self.input.is_terminated() && self.queues.len == 0
    }

    pub(super) fn fmt_as(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result
    where
        S: fmt::Debug,
    {
        f.debug_struct(name)
            .field("input", &self.input)
            .field("max", &self.max)
            .field("held", &self.queues.len)
            .finish_non_exhaustive()
    }
}

impl<S, K, L, F, C> Stream for PaceByKeyAndCost<S, K, L, F, C>
where
    S: Stream,
    K: Hash + Eq + Clone,
    L: Limits<K, Limit: Limiter<Error = Infallible>>,
    F: FnMut(&S::Item) -> K,
    C: FnMut(&S::Item) -> u32,
{
    type Item = Result<S::Item, PaceByKeyError<S::Item, L::Error>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Err(no_limit) = self.as_mut().collect(cx) {
            return Poll::Ready(Some(Err(no_limit)));
        }
        let this = self.project();
        if this.queues.len == 0 && this.input.is_terminated() {
            return Poll::Ready(None);
        }
        let (item, passed) = ready!(this.queues.poll_pass(cx));
        Poll::Ready(Some(match passed {
            Ok(()) => Ok(item),
            Err(never) => Err(PaceByKeyError {
                item,
                cause: Cause::TooCostly(never),
            }),
        }))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        with_held(self.input.size_hint(), self.queues.len)
    }
}

impl<S: Stream, K, L: Limits<K, Limit: Limiter>, F, C> FusedStream
    for PaceByKeyAndCost<S, K, L, F, C>
where
    Self: Stream,
{
    fn is_terminated(&self) -> bool {
        self.is_over()
    }
}

/// Does not print the items and the keys: they may be secret, and they may be large.
impl<S, K, L, F, C> fmt::Debug for PaceByKeyAndCost<S, K, L, F, C>
where
    S: Stream + fmt::Debug,
    L: Limits<K, Limit: Limiter>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_as("PaceByKeyAndCost", f)
    }
}

/// An item that can never pass: its key has no limit, or it costs too much. It is given back, not lost.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct PaceByKeyError<T, E> {
    pub(super) item: T,
    pub(super) cause: Cause<E>,
}

/// Why an item can never pass.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Cause<E> {
    NoLimit(E),
    TooCostly(TooCostly),
}

impl<T, E> PaceByKeyError<T, E> {
    /// The item that was refused.
    pub fn into_item(self) -> T {
        self.item
    }

    /// How much it would have cost and how much could ever pass, if that is why.
    pub const fn too_costly(&self) -> Option<TooCostly> {
        match &self.cause {
            Cause::NoLimit(_) => None,
            Cause::TooCostly(never) => Some(*never),
        }
    }

    /// What is wrong with its key, if that is why.
    pub const fn no_limit(&self) -> Option<&E> {
        match &self.cause {
            Cause::NoLimit(error) => Some(error),
            Cause::TooCostly(_) => None,
        }
    }
}

/// Does not ask `T: Debug`, and does not print the item: it may be secret, and it may be large.
impl<T, E: fmt::Debug> fmt::Debug for PaceByKeyError<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PaceByKeyError")
            .field("cause", &self.cause)
            .finish_non_exhaustive()
    }
}

impl<T, E> fmt::Display for PaceByKeyError<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::NoLimit(_) => f.write_str("the key has no limit"),
            Cause::TooCostly(never) => never.fmt(f),
        }
    }
}

impl<T, E: Error + 'static> Error for PaceByKeyError<T, E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.no_limit().map(|error| error as _)
    }
}
