use core::fmt;
use core::hash::Hash;
use core::pin::Pin;
use core::task::{Context, Poll};

use futures_core::Stream;
use futures_core::stream::FusedStream;
use pin_project_lite::pin_project;

use crate::limiter::Keyed;
use crate::policy::Policy;

use super::input::{Input, Turn};
use super::lanes::Lanes;

pin_project! {
    /// Stream for the [`pace_by_key`](super::PaceStreamExt::pace_by_key) method: late rather than never, each key for itself.
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
    /// * **Emits** an item when the limit of its key lets it pass. Items of one key stay in order; keys whose turn has come take
    ///   turns.
    /// * **Waits** on the input while there is room, and on every key that something is held for.
    /// * **Ends** when the input does and what is held has passed.
    /// * **Holds** at most `held` items, over all keys, which `size_hint` counts and [`into_parts`](Self::into_parts) gives
    ///   back in order of arrival. When there is no room the input waits: one key that brings more than its limit for long
    ///   fills all the room, so give it as much as you can afford.
    /// * **Cancel safety**: dropping `next()` loses nothing; the items stay held.
    ///
    /// Only keys that were woken are looked at. A key costs memory while something is held for it.
    ///
    /// **Window bound**: that of the policy, for each key, counted in emissions.
    #[must_use = "streams do nothing unless polled"]
    pub struct PaceByKey<S, K, P, F>
    where
        S: Stream,
        K: Hash,
        K: Eq,
        K: Clone,
        P: Policy,
        P: Send,
        P: 'static,
        P::State: Send,
    {
        #[pin]
        input: Input<S>,
        key_of: F,
        max: usize,
        lanes: Lanes<S::Item, K, P>,
    }
}

impl<S, K, P, F> PaceByKey<S, K, P, F>
where
    S: Stream,
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
{
    #[track_caller]
    pub(super) fn new(stream: S, limits: Keyed<K, P>, key_of: F, max: usize) -> Self {
        assert!(
            max > 0,
            "pacing by key needs room for at least 1 item, got 0"
        );
        Self {
            input: Input::new(stream),
            key_of,
            max,
            lanes: Lanes::new(limits),
        }
    }

    /// Waits to the microsecond: see [`Timer::precise`](crate::time::Timer::precise).
    #[cfg(feature = "precise")]
    pub fn precise(mut self) -> Self {
        self.lanes.be_precise();
        self
    }

    /// The input, and the items that were waiting to pass, in order of arrival.
    pub fn into_parts(self) -> (S, Vec<S::Item>) {
        (self.input.into_inner(), self.lanes.into_items())
    }
}

impl<S, K, P, F> PaceByKey<S, K, P, F>
where
    S: Stream,
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
    F: FnMut(&S::Item) -> K,
{
    /// Takes what has arrived, as far as there is room.
    fn collect(self: Pin<&mut Self>, cx: &mut Context<'_>) {
        let mut this = self.project();
        let mut turn = Turn::new();
        while this.lanes.len() < *this.max {
            let Poll::Ready(Some(item)) = this.input.as_mut().poll_next(cx) else {
                return;
            };
            let key = (this.key_of)(&item);
            this.lanes.push(key, item);
            if turn.poll_go_on(cx).is_pending() {
                return;
            }
        }
    }
}

impl<S, K, P, F> Stream for PaceByKey<S, K, P, F>
where
    S: Stream,
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
    F: FnMut(&S::Item) -> K,
{
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        self.as_mut().collect(cx);

        let this = self.project();
        if this.lanes.len() == 0 && this.input.is_ended() {
            return Poll::Ready(None);
        }
        this.lanes.poll_pass(cx).map(Some)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.input.size_hint_with(self.lanes.len())
    }
}

impl<S, K, P, F> FusedStream for PaceByKey<S, K, P, F>
where
    S: Stream,
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
    F: FnMut(&S::Item) -> K,
{
    fn is_terminated(&self) -> bool {
        self.input.is_ended() && self.lanes.len() == 0
    }
}

/// Does not print the items and the keys: they may be secret, and they may be large.
impl<S, K, P, F> fmt::Debug for PaceByKey<S, K, P, F>
where
    S: Stream + fmt::Debug,
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PaceByKey")
            .field("input", &self.input)
            .field("max", &self.max)
            .field("held", &self.lanes.len())
            .finish_non_exhaustive()
    }
}
