//! Limits on the number of calls under way at once: permits, and controllers that change their number.
//!
//! A rate limits how often a call starts; [`Permits`] limit how many calls are under way. They are also the only limit that
//! keeps a bound on *arrivals* at the provider: see [`with_cooldown`](Permits::with_cooldown).
//!
//! The number of calls that a provider can take at once is often unknown, and changes. A controller finds it from the
//! outcomes of the calls:
//!
//! | controller | follows | for a provider that |
//! |---|---|---|
//! | [`Aimd`] | refusals: the limit grows by one while there are none, and is halved after one | refuses calls when it is overloaded |
//! | [`Gradient`] | latency: the long-term mean compared with the present one | becomes slow when it is overloaded |
//!
//! A controller is arithmetic. It takes each [`Outcome`] and the time, has no clock and no lock, and does not know the
//! permits. `permits.resize(controller.limit())` connects the two; see the example at [`Aimd`].
//!
//! For a queue with a deadline, put `tokio::time::timeout` around [`acquire`](Permits::acquire): a waiter can leave the queue
//! at no cost. Permits that processes share are in `redis` (feature `redis`).

mod aimd;
mod gradient;
mod permits;
mod semaphore;

use core::task::{Context, Poll};
use core::time::Duration;

pub use aimd::Aimd;
pub use gradient::Gradient;
pub(crate) use permits::Missed;
pub use permits::{AcquirePermit, AcquirePermits, Permit, Permits, TooMany};

/// How a call ended, for a controller.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "a call shows that there is capacity, that there is none, or neither"
)]
pub enum Outcome {
    /// The call was answered.
    Success {
        /// The time from the start of the call to the answer, without the wait for a permit.
        latency: Duration,
    },
    /// The call says nothing about the capacity of the server: it failed for another reason, or was cancelled.
    Ignored,
    /// The server was overloaded: it refused the call (429, 503) or did not answer in time.
    Dropped,
}

/// Lets work begin and gives it a guard, which it keeps while it is under way.
///
/// It is for guards what [`Limiter`](crate::limiter::Limiter) is for rates: code that is generic over it works with
/// [`Permits`], and with limits in Redis. `C` is the class of the work, for a limit that treats classes differently.
pub trait Admit<C = ()> {
    /// What the work holds while it is under way. Dropping it ends the work.
    type Guard;

    /// Why there may be no answer at all; [`Infallible`](core::convert::Infallible) in memory.
    type Error;

    /// Asks for a guard, and is queued while it has to wait.
    ///
    /// `Pending`: it is queued, or the answer is under way; the waker is kept. `None`: refused, by a limit that has no queue.
    ///
    /// # Errors
    ///
    /// When the limit cannot be reached.
    fn poll_admit(
        &mut self,
        class: C,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Self::Guard>, Self::Error>>;

    /// Asks without being queued: `None` if there is no permit now, or another handle is ahead.
    ///
    /// Provided: [`poll_admit`](Self::poll_admit), for a limit without a queue.
    ///
    /// # Errors
    ///
    /// When the limit cannot be reached.
    fn poll_try_admit(
        &mut self,
        class: C,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Self::Guard>, Self::Error>> {
        self.poll_admit(class, cx)
    }

    /// Leaves the queue and forgets a request under way. Dropping the handle does the same.
    fn give_up(&mut self);
}
