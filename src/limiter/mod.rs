//! Somewhere for a policy to live, and ways to ask it.
//!
//! A [`Limiter`] is the one seam of this crate: every adapter asks one, and knows nothing else of limits. Which one:
//!
//! | | for | cost of asking |
//! |---|---|---|
//! | [`Owned`] | one adapter, nobody else | no lock |
//! | [`Shared`] | many tasks and adapters, served first come, first served | one short lock |
//! | [`Keyed`] | a limit for each user, host or connection | one short lock |
//! | `&mut L` | lending either to an adapter for a while | the same |
//!
//! [`PolicyExt`] makes them from a policy. A [`Gate`] waits until a limiter lets something pass.
//!
//! What is refused, dropped or late is decided by whoever asks, not here: a limiter only ever answers with a
//! [`Decision`].

mod acquire;
mod error;
mod estimate;
mod gate;
mod key_map;
mod keyed;
mod limit;
#[cfg(feature = "metrics")]
mod metrics;
mod observed;
mod owned;
mod prefetch;
mod shared;
#[cfg(feature = "tracing")]
mod tracing_observer;

use core::convert::Infallible;
use core::hash::Hash;
use core::task::{Context, Poll};

use crate::policy::{Decision, Policy};
use crate::time::Resolution;

pub use acquire::{Acquire, AcquireAt, AcquireWithin, AcquireWithinAt};
pub use error::{AcquireError, Exceeded, PassError, TooCostly};
pub use gate::Gate;
pub use key_map::WhenFull;
pub use keyed::{Keyed, KeyedAt};
pub use limit::{Mode, Stats};
#[cfg(feature = "metrics")]
pub use metrics::Metrics;
pub use observed::{Event, Observed, Observer};
pub use owned::Owned;
pub use shared::Shared;
#[cfg(feature = "tracing")]
pub use tracing_observer::TracingObserver;

/// A handle on a limit: one place in line. A clone is another place, of the same limit.
///
/// To ask for cost 0 is to use nothing: it passes at once, before everybody who waits, and starts the limit's clock if
/// nobody has asked before.
pub trait Limiter {
    /// Why there may be no answer at all; [`Infallible`] in memory.
    type Error;

    /// Stands in line and asks for `cost` permits.
    ///
    /// `Pending`: it is not this handle's turn, or the answer is under way; the waker is kept. [`Decision::Wait`]: ask
    /// again after that long, or when woken. [`Decision::Pass`]: counted, and out of the line. [`Decision::Never`]: said
    /// at once, whoever stands before, and out of the line.
    ///
    /// It may be asked early and often. A later question with another cost replaces the one before.
    ///
    /// # Errors
    ///
    /// When the limit cannot be reached.
    fn poll_decide(
        &mut self,
        cost: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Decision, Self::Error>>;

    /// Asks without joining the line: never [`Decision::Pass`] while others stand before this handle. One that stands
    /// first itself leaves the line when it passes.
    ///
    /// Provided: [`poll_decide`](Self::poll_decide), for a limiter that has no line.
    ///
    /// # Errors
    ///
    /// When the limit cannot be reached.
    fn poll_try(&mut self, cost: u32, cx: &mut Context<'_>) -> Poll<Result<Decision, Self::Error>> {
        self.poll_decide(cost, cx)
    }

    /// Stands in line until `cost` permits would pass, and leaves it on [`Decision::Pass`]. Nothing is counted.
    ///
    /// Whoever has stood in line and left it so holds up nobody, and yet has waited: with the next question for permits the
    /// handle comes before those who joined after it.
    ///
    /// Provided: says [`Decision::Pass`] at once, for a limiter that cannot look without counting. Whoever asks must be
    /// able to wait afterwards anyhow, since another handle may have been quicker.
    ///
    /// # Errors
    ///
    /// When the limit cannot be reached.
    fn poll_open(
        &mut self,
        cost: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Decision, Self::Error>> {
        let _ = (cost, cx);
        Poll::Ready(Ok(Decision::Pass))
    }

    /// Leaves the line and forgets a question under way. Dropping the handle does the same.
    fn give_up(&mut self);

    /// How exactly a [`Gate`] waits for this limiter.
    ///
    /// Provided: [`Resolution::Exact`]. A limiter around another returns that one's.
    fn resolution(&self) -> Resolution {
        Resolution::default()
    }
}

/// A limiter that is lent.
impl<L: Limiter + ?Sized> Limiter for &mut L {
    type Error = L::Error;

    fn poll_decide(&mut self, cost: u32, cx: &mut Context<'_>) -> Poll<Result<Decision, L::Error>> {
        (**self).poll_decide(cost, cx)
    }

    fn poll_try(&mut self, cost: u32, cx: &mut Context<'_>) -> Poll<Result<Decision, L::Error>> {
        (**self).poll_try(cost, cx)
    }

    fn poll_open(&mut self, cost: u32, cx: &mut Context<'_>) -> Poll<Result<Decision, L::Error>> {
        (**self).poll_open(cost, cx)
    }

    fn give_up(&mut self) {
        (**self).give_up();
    }

    fn resolution(&self) -> Resolution {
        (**self).resolution()
    }
}

/// A limiter that is chosen while the program runs.
impl<L: Limiter + ?Sized> Limiter for Box<L> {
    type Error = L::Error;

    fn poll_decide(&mut self, cost: u32, cx: &mut Context<'_>) -> Poll<Result<Decision, L::Error>> {
        (**self).poll_decide(cost, cx)
    }

    fn poll_try(&mut self, cost: u32, cx: &mut Context<'_>) -> Poll<Result<Decision, L::Error>> {
        (**self).poll_try(cost, cx)
    }

    fn poll_open(&mut self, cost: u32, cx: &mut Context<'_>) -> Poll<Result<Decision, L::Error>> {
        (**self).poll_open(cost, cx)
    }

    fn give_up(&mut self) {
        (**self).give_up();
    }

    fn resolution(&self) -> Resolution {
        (**self).resolution()
    }
}

/// Gives a policy somewhere to live.
///
/// ```
/// use paceline::limiter::PolicyExt;
/// use paceline::policy::{Interval, TokenBucket};
/// use paceline::time::Rate;
/// use std::time::Duration;
///
/// let for_one_stream = Interval::every(Duration::from_millis(50)).owned();
/// let for_many_tasks = TokenBucket::new(Rate::per_second(30), 5).shared();
/// # let _ = (for_one_stream, for_many_tasks);
/// ```
pub trait PolicyExt: Policy + Sized {
    /// For one adapter, without a lock.
    fn owned(self) -> Owned<Self> {
        Owned::new(self)
    }

    /// For many tasks and adapters: clones share one limit, first come, first served.
    fn shared(self) -> Shared<Self>
    where
        Self: Send + 'static,
        Self::State: Send,
    {
        Shared::new(self)
    }

    /// A limit for each key, with the same parameters for all.
    fn keyed<K>(self) -> Keyed<K, Self>
    where
        Self: Clone + Send + Sync + 'static,
        Self::State: Send,
        K: Hash + Eq + Clone,
    {
        Keyed::new(self)
    }
}

impl<P: Policy> PolicyExt for P {}

/// What an in-memory limiter answers, without the error it cannot have.
type Answer = Poll<Result<Decision, Infallible>>;
