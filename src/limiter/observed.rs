use core::fmt;
use core::task::{Context, Poll};
use core::time::Duration;

use crate::policy::{Decision, Status};
use crate::time::Resolution;

use super::observer::Observer;
use super::reporter::Reporter;
use super::{Limiter, Method};

/// A limiter that reports its decisions to an [`Observer`].
///
/// It wraps any other and is a limiter itself. Each clone has a clone of the observer, which may share its counters. A closure that
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
pub struct Observed<L: Limiter, O: Observer> {
    limiter: L,
    reporter: Reporter<O>,
}

impl<L: Limiter, O: Observer> Observed<L, O> {
    /// Reports to `observer` what `limiter` decides.
    pub const fn new(limiter: L, observer: O) -> Self {
        Self {
            limiter,
            reporter: Reporter::new(observer),
        }
    }

    /// The limiter that decides.
    pub const fn limiter(&self) -> &L {
        &self.limiter
    }
}

impl<L: Limiter, O: Observer> Limiter for Observed<L, O> {
    type Error = L::Error;

    fn poll_decide(&mut self, cost: u32, cx: &mut Context<'_>) -> Poll<Result<Decision, L::Error>> {
        let answer = self.limiter.poll_decide(cost, cx);
        self.reporter
            .answered(Method::Decide, cost, &answer, self.limiter.shadowed());
        answer
    }

    fn poll_try(&mut self, cost: u32, cx: &mut Context<'_>) -> Poll<Result<Decision, L::Error>> {
        let answer = self.limiter.poll_try(cost, cx);
        self.reporter
            .answered(Method::Try, cost, &answer, self.limiter.shadowed());
        answer
    }

    fn poll_open(&mut self, cost: u32, cx: &mut Context<'_>) -> Poll<Result<Decision, L::Error>> {
        let answer = self.limiter.poll_open(cost, cx);
        self.reporter.answered(Method::Open, cost, &answer, None);
        answer
    }

    fn shadowed(&self) -> Option<Decision> {
        self.limiter.shadowed()
    }

    fn status(&self) -> Option<Status> {
        self.limiter.status()
    }

    fn least_wait(&self, cost: u32) -> Duration {
        self.limiter.least_wait(cost)
    }

    fn resolution(&self) -> Resolution {
        self.limiter.resolution()
    }

    fn give_up(&mut self) {
        self.limiter.give_up();
        self.reporter.gave_up();
    }
}

/// A new handle, with a clone of the observer.
impl<L, O> Clone for Observed<L, O>
where
    L: Limiter + Clone,
    O: Observer + Clone,
{
    fn clone(&self) -> Self {
        Self::new(self.limiter.clone(), self.reporter.observer().clone())
    }
}

/// Leaves the queue, and reports it.
impl<L: Limiter, O: Observer> Drop for Observed<L, O> {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl<L: Limiter + fmt::Debug, O: Observer> fmt::Debug for Observed<L, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observed")
            .field("limiter", &self.limiter)
            .finish_non_exhaustive()
    }
}
