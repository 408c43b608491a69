use core::fmt;
use core::task::Context;

use tokio::time::Instant;

use crate::feedback::Feedback;

use super::future::Obeying;
use super::observer::Observer;
use super::reporter::HandleEvents;
use super::{Answer, Limiter, Limits, Method, Obey, RateCall, Settle};

/// A limiter or permits, or those for each key, which report their decisions to an [`Observer`].
///
/// It wraps any limiter and is a limiter itself. Each clone has a clone of the observer, which may share its counters. A closure that
/// takes an [`Event`](super::Event) is an observer.
///
/// ```
/// use futures::StreamExt;
/// use paceline::limiter::{Event, Observed};
/// use paceline::policy::Interval;
/// use paceline::prelude::*;
/// use std::sync::mpsc;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let (sender, events) = mpsc::channel();
/// let limit = Interval::every(Duration::from_millis(100)).shared();
/// let limit = Observed::new(limit, move |event| sender.send(event).unwrap());
///
/// let calls = futures::stream::iter(["a", "b"]).pace(limit);
/// assert_eq!(calls.count().await, 2);
///
/// let mut waits = events.iter().map(|event| match event {
///     Event::Passed { waited, .. } => waited,
///     other => panic!("{other:?}"),
/// });
/// assert_eq!(waits.next(), Some(Duration::ZERO));
/// assert_eq!(waits.next(), Some(Duration::from_millis(100)));
/// # }
/// ```
///
/// # For each key
///
/// Around [`Limits`], such as a [`Keyed`](super::Keyed), or permits for each key, it has an observed
/// handle for each key. Each handle has a clone of the observer, which does not get the key.
///
/// # Permits
///
/// Around what [admits](crate::concurrency::Admit) work, it reports each request with cost 1: passed, shadowed, refused or given up.
/// How long a refused request would have had to wait is not known. That work has ended is not reported. Only the permits know that:
/// see [`Permits::with_observer`](crate::concurrency::Permits::with_observer).
pub struct Observed<L, O: Observer> {
    limiter: L,
    reporter: HandleEvents<O>,
}

impl<L, O: Observer> Observed<L, O> {
    /// Reports to `observer` what `limiter` decides.
    pub const fn new(limiter: L, observer: O) -> Self {
        Self {
            limiter,
            reporter: HandleEvents::new(observer),
        }
    }

    /// The limiter that decides.
    pub const fn limiter(&self) -> &L {
        &self.limiter
    }

    pub(crate) const fn parts(&mut self) -> (&mut L, &mut HandleEvents<O>) {
        (&mut self.limiter, &mut self.reporter)
    }

    /// A handle of this limit, with a clone of the observer.
    pub(crate) fn handle<H>(&self, handle: H) -> Observed<H, O>
    where
        O: Clone,
    {
        Observed::new(handle, self.reporter.observer().clone())
    }
}

impl<L: Limiter, O: Observer> Limiter for Observed<L, O> {
    type Error = L::Error;

    fn poll_decide(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer<L::Error> {
        let answer = self.limiter.poll_decide(cost, cx);
        self.reporter
            .answered(Method::Decide, cost, &answer, self.limiter.shadowed());
        answer
    }

    fn poll_try(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer<L::Error> {
        let answer = self.limiter.poll_try(cost, cx);
        self.reporter
            .answered(Method::Try, cost, &answer, self.limiter.shadowed());
        answer
    }

    fn poll_open(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer<L::Error> {
        let answer = self.limiter.poll_open(cost, cx);
        self.reporter.answered(Method::Open, cost, &answer, None);
        answer
    }

    fn inner(&self) -> Option<&dyn Limiter<Error = L::Error>> {
        Some(&self.limiter)
    }

    fn give_up(&mut self) {
        self.limiter.give_up();
        self.reporter.gave_up();
    }
}

impl<K, L: Limits<K>, O: Observer + Clone> Limits<K> for Observed<L, O> {
    type Limit = Observed<L::Limit, O>;
    type Error = L::Error;

    fn at(&self, key: K) -> Result<Observed<L::Limit, O>, L::Error> {
        self.limiter.at(key).map(|limiter| self.handle(limiter))
    }
}

/// A new handle, with a clone of the observer.
impl<L: Clone, O: Observer + Clone> Clone for Observed<L, O> {
    fn clone(&self) -> Self {
        self.handle(self.limiter.clone())
    }
}

/// A limiter that is dropped leaves the queue, and this reports it.
impl<L, O: Observer> Drop for Observed<L, O> {
    fn drop(&mut self) {
        self.reporter.gave_up();
    }
}

impl<L: fmt::Debug, O: Observer> fmt::Debug for Observed<L, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observed")
            .field("limiter", &self.limiter)
            .finish_non_exhaustive()
    }
}

/// It reports none of these: they are no requests.
impl<L: Settle, O: Observer> Settle for Observed<L, O> {
    fn charge(&self, cost: u32) {
        self.limiter().charge(cost);
    }

    fn refund_from(&self, spent_at: Instant, cost: u32) {
        self.limiter().refund_from(spent_at, cost);
    }

    fn settles(&mut self, passed: &Self) {
        self.limiter.settles(&passed.limiter);
    }
}

impl<L: Limiter + Obey, O: Observer> Obey for Observed<L, O> {
    type Error = <L as Obey>::Error;

    fn obey(&self, feedback: &Feedback) -> Option<Obeying<Self::Error>> {
        self.limiter().obey(feedback)
    }

    fn begin(&self) -> Option<RateCall> {
        self.limiter().begin()
    }
}
