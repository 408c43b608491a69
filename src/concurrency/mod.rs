//! Limits on the number of calls under way at once: permits, and controllers that change their number.
//!
//! A rate limits how often a call starts; [`Permits`] limit how many calls are under way. They are also the only limit that
//! keeps a bound on *arrivals* at the provider: see [`with_cooldown`](Permits::with_cooldown).
//!
//! | | at once |
//! |---|---|
//! | [`Permits`] | n, over all tasks that share them |
//! | [`KeyedPermits`] | n for each user, host or account |
//! | [`FairPermits`] | n, divided among users by weight |
//! | [`Adaptive`] | as many as the server bears, found from the outcomes of the calls |
//! | `RedisPermits`, `RedisKeyedPermits` of `paceline-redis` | n in a whole fleet, and for each key |
//! | [`shed::FleetUsage`](crate::shed::FleetUsage) | n, with a reserve for critical work |
//! | `FleetUsage` of `paceline-redis` | n in a whole fleet, with a reserve for critical work |
//!
//! [`Admit`] is what they have in common, for code that is generic over them. A [`Line`](crate::limiter::Line) around any of them
//! bounds how many requests wait, and can be closed. A [`Switched`](crate::limiter::Switched) around any of
//! them has a kill switch, a shadow mode and a share; an [`Observed`](crate::limiter::Observed) reports its requests.
//!
//! The number of calls that a provider can take at once is often unknown, and changes. A controller finds it from the
//! outcomes of the calls:
//!
//! | controller | follows | for a provider that |
//! |---|---|---|
//! | [`Aimd`] | refusals: the limit grows by one while there are none, and is halved after one | refuses calls when it is overloaded |
//! | [`Gradient`] | latency: the long-term mean compared with the present one | becomes slow when it is overloaded |
//!
//! A controller is arithmetic: a [`Controller`] takes each [`Outcome`] and the time, has no clock and no lock, and does not know
//! the permits. [`Adaptive`] joins the two: it measures how long each call takes, and resizes the permits. `paceline_tower::AdaptiveLayer`
//! does it for a service. By hand it is `permits.resize(controller.limit())`; see the example at [`Aimd`].

mod acquire_within;
mod adaptive;
mod aimd;
mod fair_permits;
mod gradient;
mod hold_time;
mod keyed_permits;
mod line;
mod observed;
mod permits;
mod semaphore;
mod switched;

use core::convert::Infallible;
use core::task::{Context, Poll};
use core::time::Duration;

use crate::policy::Decision;
use crate::time::Tick;

pub use adaptive::{Adaptive, AdaptivePermit};
pub use aimd::Aimd;
pub use fair_permits::FairPermits;
pub use gradient::Gradient;
pub use keyed_permits::{KeyedPermits, PermitsAt};
pub(crate) use permits::Missed;
pub use permits::{Permit, Permits};

/// The futures of permits. Few programs name them.
pub mod future {
    pub use crate::concurrency::acquire_within::{AcquirePermitFrom, AcquirePermitWithin};
    pub use crate::concurrency::permits::{AcquirePermit, AcquirePermits};
}

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

/// Finds from the outcomes of calls how many may be under way at once: [`Aimd`], [`Gradient`], or your own.
///
/// ```
/// use paceline::concurrency::{Adaptive, Controller, Outcome};
/// use paceline::time::Tick;
///
/// /// One less after each refusal, and never more.
/// struct Cautious(u32);
///
/// impl Controller for Cautious {
///     fn observe(&mut self, _: Tick, _: u32, outcome: Outcome) {
///         self.0 = self.0.saturating_sub(u32::from(outcome == Outcome::Dropped));
///     }
///
///     fn limit(&self) -> u32 {
///         self.0
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let adaptive = Adaptive::new(Cautious(10));
/// adaptive.acquire().await.dropped();
/// assert_eq!(adaptive.permits().limit(), 9);
/// # }
/// ```
pub trait Controller {
    /// Takes in the outcome of a call that ended `now`, when `in_use` calls were under way, including this one.
    fn observe(&mut self, now: Tick, in_use: u32, outcome: Outcome);

    /// The number of calls that may be under way at once.
    fn limit(&self) -> u32;
}

/// A controller that is chosen at run time.
impl<C: Controller + ?Sized> Controller for Box<C> {
    fn observe(&mut self, now: Tick, in_use: u32, outcome: Outcome) {
        (**self).observe(now, in_use, outcome);
    }

    fn limit(&self) -> u32 {
        (**self).limit()
    }
}

/// Lets work begin, and gives it a guard to hold while it is under way.
///
/// It is for guards what [`Limiter`](crate::limiter::Limiter) is for rates: code that is generic over it works with [`Permits`]
/// and with permits in Redis. A handle has one position in the queue; a clone is another handle of the same limit.
/// `C` is the class of the work, for a limit that treats classes differently.
///
/// ```
/// use core::future::poll_fn;
/// use paceline::concurrency::{Admit, Permits};
///
/// async fn guarded<A: Admit>(admit: &mut A) -> Result<&'static str, A::Error> {
///     match poll_fn(|cx| admit.poll_admit((), cx)).await? {
///         Some(_guard) => Ok("done"), // the work, and at its end the guard is dropped
///         None => Ok("shed"),
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let permits = Permits::new(1);
/// assert_eq!(guarded(&mut permits.clone()).await, Ok("done"));
/// assert_eq!(permits.in_use(), 0);
/// # }
/// ```
///
/// # Cancel safety
///
/// Dropping the future that polls changes nothing: the handle stays queued until it is polled again, gives up or is dropped. In
/// memory it takes nothing meanwhile, and other waiters pass it over if it is not polled when its turn comes (see
/// [`Permits`](Permits#the-queue)). In Redis a lease may be granted to it meanwhile, which it holds until then.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not admit work of class `{C}`",
    label = "expected permits",
    note = "`Permits`, `Adaptive`, a `RedisPermits` and a key of `KeyedPermits` (`keyed.at(key)`) admit work of class `()`, and a shedder work of class `shed::Class`",
    note = "a limiter such as `Shared` limits how often work begins, and has no guard",
    note = "a `Permits` is a handle already: clone it instead of putting it into an `Arc`"
)]
pub trait Admit<C = ()> {
    /// What the work holds while it is under way. Dropping it ends the work.
    type Guard;

    /// Why there may be no answer at all; [`Infallible`] in memory.
    type Error;

    /// Asks for a guard, and is queued while it has to wait.
    ///
    /// `Pending`: it is queued, or the answer is under way; the waker is kept. `None`: refused, by a limit that has no queue.
    /// A later request of another class, or [without the queue](Self::poll_try_admit), replaces the one before.
    ///
    /// # Errors
    ///
    /// When the limit cannot be reached.
    fn poll_admit(
        &mut self,
        class: C,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Self::Guard>, Self::Error>>;

    /// Asks without being queued: `None` if there is no permit now, or another handle is ahead. A handle that was queued leaves
    /// the queue.
    ///
    /// `Pending`: the answer is under way.
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

    /// What the last request of this handle would have been answered if the limit were active: `Some` if it was admitted only in
    /// [`Mode::Shadow`](crate::limiter::Mode::Shadow). As [`Limiter::shadowed`](crate::limiter::Limiter::shadowed).
    ///
    /// Provided: `None`. Permits around others return what those do.
    fn shadowed(&self) -> Option<Decision> {
        None
    }
}

/// The implementation for a pointer to a handle.
macro_rules! forward_admit {
    ($pointer:ty) => {
        impl<C, A: Admit<C> + ?Sized> Admit<C> for $pointer {
            type Guard = A::Guard;
            type Error = A::Error;

            fn poll_admit(
                &mut self,
                class: C,
                cx: &mut Context<'_>,
            ) -> Admitted<A::Guard, A::Error> {
                (**self).poll_admit(class, cx)
            }

            fn poll_try_admit(
                &mut self,
                class: C,
                cx: &mut Context<'_>,
            ) -> Admitted<A::Guard, A::Error> {
                (**self).poll_try_admit(class, cx)
            }

            fn give_up(&mut self) {
                (**self).give_up();
            }

            fn shadowed(&self) -> Option<Decision> {
                (**self).shadowed()
            }
        }
    };
}

forward_admit!(&mut A);
forward_admit!(Box<A>);

/// What a poll of an [`Admit`] returns.
pub(crate) type Admitted<G, E = Infallible> = Poll<Result<Option<G>, E>>;
