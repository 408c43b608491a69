use core::fmt;
use core::task::{Context, Poll};
use core::time::Duration;

use crate::policy::{Decision, Status};
use crate::time::{Clock, Resolution, Tick};

use super::Limiter;

/// A limiter that tells an observer what was decided.
///
/// It goes around any other, and is one like it: each clone has an observer of its own, which may well share what it counts
/// in. A closure that takes an [`Event`] is an observer.
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
    observer: O,
    clock: Clock,
    /// Since when it is queued.
    since: Option<Tick>,
}

impl<L: Limiter, O: Observer> Observed<L, O> {
    /// Tells `observer` what `limiter` decides.
    pub const fn new(limiter: L, observer: O) -> Self {
        Self {
            limiter,
            observer,
            clock: Clock::new(),
            since: None,
        }
    }

    /// The limiter that decides.
    pub const fn limiter(&self) -> &L {
        &self.limiter
    }

    fn passed(&mut self, cost: u32) {
        let waited = self.waited();
        self.observer.observe(Event::Passed { cost, waited });
    }

    fn too_costly(&mut self, cost: u32, capacity: u32) {
        self.since = None;
        self.observer.observe(Event::TooCostly { cost, capacity });
    }

    /// How long it was queued, now that it is no more.
    fn waited(&mut self) -> Duration {
        let since = self.since.take();
        since.map_or(Duration::ZERO, |since| self.clock.now().since(since))
    }

    fn waits(&mut self) {
        if self.since.is_none() {
            self.since = Some(self.clock.now());
        }
    }
}

impl<L: Limiter, O: Observer> Limiter for Observed<L, O> {
    type Error = L::Error;

    fn poll_decide(&mut self, cost: u32, cx: &mut Context<'_>) -> Poll<Result<Decision, L::Error>> {
        let polled = self.limiter.poll_decide(cost, cx);
        match polled {
            _ if cost == 0 => {}
            Poll::Pending | Poll::Ready(Ok(Decision::Wait { .. })) => self.waits(),
            Poll::Ready(Ok(Decision::Pass)) => self.passed(cost),
            Poll::Ready(Ok(Decision::Never { capacity })) => self.too_costly(cost, capacity),
            Poll::Ready(Err(_)) => {}
        }
        polled
    }

    fn poll_try(&mut self, cost: u32, cx: &mut Context<'_>) -> Poll<Result<Decision, L::Error>> {
        let polled = self.limiter.poll_try(cost, cx);
        match polled {
            _ if cost == 0 => {}
            Poll::Ready(Ok(Decision::Pass)) => self.passed(cost),
            Poll::Ready(Ok(Decision::Wait { retry_in })) => {
                self.observer.observe(Event::Refused { cost, retry_in });
            }
            Poll::Ready(Ok(Decision::Never { capacity })) => self.too_costly(cost, capacity),
            Poll::Pending | Poll::Ready(Err(_)) => {}
        }
        polled
    }

    fn poll_open(&mut self, cost: u32, cx: &mut Context<'_>) -> Poll<Result<Decision, L::Error>> {
        let polled = self.limiter.poll_open(cost, cx);
        match polled {
            Poll::Pending | Poll::Ready(Ok(Decision::Wait { .. })) => self.waits(),
            Poll::Ready(Ok(Decision::Never { capacity })) => self.too_costly(cost, capacity),
            // It has not passed yet, and has been waiting for it.
            Poll::Ready(Ok(Decision::Pass) | Err(_)) => {}
        }
        polled
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
        if self.since.is_some() {
            let waited = self.waited();
            self.observer.observe(Event::GaveUp { waited });
        }
    }
}

/// A place of its own, with an observer of its own.
impl<L, O> Clone for Observed<L, O>
where
    L: Limiter + Clone,
    O: Observer + Clone,
{
    fn clone(&self) -> Self {
        Self::new(self.limiter.clone(), self.observer.clone())
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

/// Receives what a limit decides.
pub trait Observer {
    /// A request was decided. It is called where the limit is asked, so it should be quick.
    fn observe(&mut self, event: Event);
}

impl<F: FnMut(Event)> Observer for F {
    fn observe(&mut self, event: Event) {
        self(event);
    }
}

/// What became of a request. Requests of cost 0 are not reported.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// It passed, after waiting that long in the queue; zero if it passed at once.
    #[non_exhaustive]
    Passed {
        /// What it cost.
        cost: u32,
        /// How long it was queued.
        waited: Duration,
    },
    /// It was refused, since it came too soon: what `enforce` gives back and `shed` drops. (A pacing sink that lost its slot to
    /// another handle is refused too, and passes later.)
    #[non_exhaustive]
    Refused {
        /// What it would have cost.
        cost: u32,
        /// How long it would have had to wait.
        retry_in: Duration,
    },
    /// It was refused for ever, since that much can never pass.
    #[non_exhaustive]
    TooCostly {
        /// What it would have cost.
        cost: u32,
        /// The largest cost that could pass.
        capacity: u32,
    },
    /// It left the queue after that long, without having passed.
    #[non_exhaustive]
    GaveUp {
        /// How long it was queued.
        waited: Duration,
    },
}
