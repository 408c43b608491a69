//! Limiters: a policy with its state, and ways to ask it.
//!
//! A [`Limiter`] is the one seam of this crate: every adapter asks one, and knows nothing else of limits.
//!
//! | | for | cost of asking |
//! |---|---|---|
//! | [`Owned`] | one adapter | no lock |
//! | [`Shared`] | many tasks and adapters, first come, first served | one short lock |
//! | [`Keyed`] | a limit for each user, host or connection | one short lock |
//! | [`Fair`] | clients that share one capacity, and lend each other what they do not need | one short lock |
//! | [`FairQueue`] | one limit for all keys, whose waiting requests take turns by key | one short lock |
//! | [`Combined`] | several of these, all or nothing | one short lock each |
//! | [`WithTotal`] | a limit for each key and one for all keys, all or nothing | one short lock each |
//! | [`AnyOf`] | the first of several limits that has room, such as one for each API key | one short lock each |
//! | [`AdaptiveRate`] | a rate that follows what a provider allows | one short lock |
//! | [`Line`] | any limiter, with a bound on what waits, an end, and jitter | that of the limiter, and one short lock |
//! | [`Switched`] | any limiter, a limiter for each key, or permits, with a mode that changes while it is used | that of the limiter, and an atomic read |
//! | [`DynLimiter`] | any limiter in memory, of a type that is chosen at run time; it can be cloned | that of the limiter, and a call through a pointer |
//! | `&mut L`, `Box<L>` | a limiter that is lent, or chosen at run time | the same |
//!
//! [`Limits`] has a limiter for each key: a [`Keyed`] is one, and a `RedisKeyed`.
//!
//! Where the cost of a request is known only afterwards, [`Settle`] reserves an estimate and corrects it:
//! `let reserved = limit.reserve(800).await?;` and `reserved.settle(1234);`.
//!
//! [`PolicyExt`] makes them from a policy. [`LimiterExt`] asks any of them by hand. A [`Gate`] waits until a limiter lets a request pass.
//!
//! To watch a limit, give it an [`Observer`]: [`Shared::with_observer`], [`Keyed::with_observer`], and so for
//! [`Permits`](crate::concurrency::Permits::with_observer). Metrics and a log are behind features. An [`Observed`] limiter is for
//! others, such as an [`Owned`] or a [`Switched`] one: it sees what is asked through it.
//!
//! A limiter only answers with a [`Decision`]. Whether a request then waits, is refused or is dropped, is the business of the
//! adapter.

mod acquire;
mod adaptive_rate;
mod additive_increase;
mod any_of;
mod as_key;
mod blocking;
mod combined;
mod dyn_limiter;
mod error;
mod estimate;
mod fair;
mod fair_clients;
mod fair_queue;
mod gate;
mod hold;
mod hold_and_probe;
mod key_map;
mod key_table;
mod keyed;
mod limit;
mod line;
#[cfg(feature = "metrics")]
mod metrics;
mod mode;
mod obey;
mod observed;
mod observer;
mod owned;
mod part;
mod prefetch;
mod rate_call;
mod rate_rule;
mod reporter;
mod settle;
mod share;
mod shared;
mod switch;
mod switched;
#[cfg(feature = "tracing")]
mod tracing_observer;
mod with_total;

use core::convert::Infallible;
use core::hash::Hash;
use core::task::{Context, Poll};
use core::time::Duration;

use tokio::time::Instant;

use crate::policy::{Decision, Policy};
use crate::time::{Resolution, require_clock};

pub use crate::fair::report::{ClientShare, FairCycle};
pub use crate::policy::{Quota, Status};
pub use crate::wait::Priority;
pub use acquire::LimiterExt;
pub use adaptive_rate::AdaptiveRate;
pub use additive_increase::AdditiveIncrease;
pub use any_of::AnyOf;
pub use as_key::AsKey;
pub use combined::Combined;
pub use dyn_limiter::DynLimiter;
pub use error::{AcquireError, Exceeded, LineError, TooCostly};
pub use fair::{Fair, FairAt};
pub use fair_queue::FairQueue;
pub use gate::Gate;
pub(crate) use gate::poll_turn;
pub use hold_and_probe::HoldAndProbe;
pub use key_map::WhenFull;
pub use keyed::{Keyed, KeyedAt};
pub use limit::Stats;
pub use line::Line;
#[cfg(feature = "metrics")]
pub use metrics::Metrics;
pub use mode::Mode;
pub use obey::Obey;
pub use observed::Observed;
pub use observer::{Event, Observer};
pub use owned::Owned;
pub use rate_call::RateCall;
pub use rate_rule::{CallOutcome, RateRule};
pub use reporter::Reporter;
pub(crate) use reporter::{SharedObserver, contained_in_unwind};
pub use settle::{Reservation, Settle};
pub use share::Share;
pub(crate) use share::random_up_to;
pub use shared::Shared;
pub use switch::{Switch, SwitchStats};
pub use switched::{SwitchExt, Switched};
#[cfg(feature = "tracing")]
pub use tracing_observer::TracingObserver;
pub use with_total::WithTotal;

/// The futures of limiters, and the traits of the parts of a [`Combined`]. Few programs name them.
pub mod future {
    #[doc(hidden)]
    pub use crate::limiter::acquire::ByHand;
    pub use crate::limiter::acquire::{Acquire, AcquireOne, AcquireWithin};
    pub use crate::limiter::obey::Obeying;
    #[doc(hidden)]
    pub use crate::limiter::part::{Part, Together};
    pub use crate::limiter::settle::{Reserve, ReserveWithin};
    pub use crate::limiter::shared::Lent;
}

/// A handle on a limit: it has one position in the queue. A clone is another handle of the same limit.
///
/// Cost 0 uses nothing: it passes at once, before every waiter, and starts the limit's clock if that has not started.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a limiter",
    label = "expected a limiter",
    note = "a policy becomes a limiter with `.owned()` (for one adapter) or `.shared()` (for many tasks)",
    note = "a `Keyed` has a limiter for each key: `keyed.at(key)`",
    note = "a `Shared` is a handle already: clone it instead of putting it into an `Arc`",
    note = "`Permits` limit what is under way: `permits.acquire()`, and `line.acquire_permit()` of a `Line` around them"
)]
pub trait Limiter {
    /// Why there may be no answer at all; [`Infallible`] in memory.
    type Error;

    /// Asks for `cost` permits, and is queued while it has to wait.
    ///
    /// `Pending`: it is not the turn of this handle, or the answer is under way; the waker is kept. [`Decision::Wait`]: ask
    /// again after that long, or when woken. [`Decision::Pass`]: counted, and out of the queue. [`Decision::Never`]: out of the
    /// queue; returned at once, wherever the handle is queued.
    ///
    /// It may be asked early and often. A later request with another cost replaces the one before.
    ///
    /// # Errors
    ///
    /// When the limit cannot be reached.
    fn poll_decide(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer<Self::Error>;

    /// Asks without being queued: never [`Decision::Pass`] while another handle is ahead. A handle that is the head of the queue
    /// leaves it when it passes.
    ///
    /// Provided: [`poll_decide`](Self::poll_decide), for a limiter without a queue.
    ///
    /// # Errors
    ///
    /// When the limit cannot be reached.
    fn poll_try(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer<Self::Error> {
        self.poll_decide(cost, cx)
    }

    /// Is queued until `cost` permits would pass, and leaves the queue on [`Decision::Pass`]. Nothing is counted.
    ///
    /// On `Pass` the handle blocks no waiter any more, but keeps its position: its next request is ordered before every waiter
    /// that joined later.
    ///
    /// Provided: returns [`Decision::Pass`] at once, for a limiter that cannot look without counting. The caller must be able to
    /// wait afterwards in any case, since another handle may be quicker.
    ///
    /// # Errors
    ///
    /// When the limit cannot be reached.
    fn poll_open(&mut self, cost: u32, cx: &mut Context<'_>) -> Answer<Self::Error> {
        let _ = (cost, cx);
        Poll::Ready(Ok(Decision::Pass))
    }

    /// Leaves the queue and forgets a request under way. Dropping the handle does the same.
    fn give_up(&mut self);

    /// The limiter inside, of a limiter around another one with the same error. One line gives it all provided methods below: they
    /// ask the limiter inside, and without one they return what is not known.
    ///
    /// ```
    /// use paceline::limiter::{Limiter, PolicyExt};
    /// use paceline::policy::{Decision, Interval};
    /// use std::task::{Context, Poll};
    /// use std::time::Duration;
    ///
    /// /// Counts twice what a request costs.
    /// struct Double<L>(L);
    ///
    /// impl<L: Limiter> Limiter for Double<L> {
    ///     type Error = L::Error;
    ///
    ///     fn poll_decide(&mut self, cost: u32, cx: &mut Context<'_>) -> Poll<Result<Decision, L::Error>> {
    ///         self.0.poll_decide(2 * cost, cx)
    ///     }
    ///
    ///     fn give_up(&mut self) {
    ///         self.0.give_up();
    ///     }
    ///
    ///     fn inner(&self) -> Option<&dyn Limiter<Error = L::Error>> {
    ///         Some(&self.0)
    ///     }
    /// }
    ///
    /// let limit = Double(Interval::every(Duration::from_millis(100)).shared());
    /// assert_eq!(limit.status().unwrap().remaining, 1);
    /// ```
    fn inner(&self) -> Option<&dyn Limiter<Error = Self::Error>> {
        None
    }

    /// What the limit has left now. Nothing is counted, no waiter is disturbed, and the clock of an unused limit does not start.
    ///
    /// While requests are queued it is what the policy has, of which they take theirs first. During a pause nothing remains.
    ///
    /// ```
    /// use paceline::limiter::{Limiter, PolicyExt};
    /// use paceline::policy::FixedWindow;
    /// use std::time::Duration;
    ///
    /// fn remaining(limit: &impl Limiter) -> Option<u32> {
    ///     Some(limit.status()?.remaining)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let limit = FixedWindow::new(10, Duration::from_secs(60)).shared();
    /// assert!(limit.try_acquire(3).is_pass());
    /// assert_eq!(remaining(&limit), Some(7));
    /// # }
    /// ```
    ///
    /// `None` if it is not known: the state is elsewhere and was not asked yet, or a switch is off.
    ///
    /// Provided: that of the limiter [inside](Self::inner), or `None`.
    fn status(&self) -> Option<Status> {
        self.inner()?.status()
    }

    /// How long a request of `cost` waits at the least, if it is queued now. Nothing is counted.
    ///
    /// A caller with a deadline need not begin to wait if it is longer.
    ///
    /// Provided: that of the limiter [inside](Self::inner), or zero, which is not known.
    fn least_wait(&self, cost: u32) -> Duration {
        self.inner()
            .map_or(Duration::ZERO, |inner| inner.least_wait(cost))
    }

    /// What the last request of this handle would have been answered if the limit were active: `Some` if it passed only because of a
    /// [`Switch`], or because its key found no room. An [`Observed`] limiter reports such a request as [`Event::Shadowed`].
    ///
    /// Provided: that of the limiter [inside](Self::inner), or `None`.
    fn shadowed(&self) -> Option<Decision> {
        self.inner()?.shadowed()
    }

    /// Whether nothing is known against the last request of this handle: it waits, or was answered with [`Decision::Wait`], only
    /// because the limit cannot be asked. A layer of `tower` refuses with 503 then, and not with 429.
    ///
    /// Provided: that of the limiter [inside](Self::inner), or `false`.
    fn is_out_of_reach(&self) -> bool {
        self.inner().is_some_and(|inner| inner.is_out_of_reach())
    }

    /// Whether this error is a refusal, such as that of a [`Line`] that is full or closed, and no failure of the limiter. A layer of
    /// `tower` refuses the request with 503 then, also where it lets requests pass when the limiter fails.
    ///
    /// Provided: that of the limiter [inside](Self::inner), or `false`.
    fn is_refusal(&self, error: &Self::Error) -> bool {
        self.inner().is_some_and(|inner| inner.is_refusal(error))
    }

    /// The error of a request for `cost` permits that can never pass a limit of this `capacity`.
    #[doc(hidden)]
    fn too_costly(&self, cost: u32, capacity: u32) -> TooCostly {
        let inner = self.inner();
        let unknown = || TooCostly::new(cost, capacity);
        inner.map_or_else(unknown, |inner| inner.too_costly(cost, capacity))
    }

    /// How exactly a [`Gate`] waits for this limiter.
    ///
    /// Provided: that of the limiter [inside](Self::inner), or [`Resolution::Exact`].
    fn resolution(&self) -> Resolution {
        self.inner()
            .map_or_else(Resolution::default, |inner| inner.resolution())
    }

    /// When the next `count` requests of this handle pass, of cost 1 each, at the earliest; fewer or none if that is not known.
    ///
    /// Provided: none.
    #[doc(hidden)]
    fn foresee(&self, count: usize) -> Vec<Instant> {
        let _ = count;
        Vec::new()
    }

    /// What [`poll_try`](Self::poll_try) of a clone answers, without a clone. `None`: that takes one.
    ///
    /// `left` becomes the [`status`](Self::status) after the answer: that of `all` requests, or only of those that do not pass.
    #[doc(hidden)]
    fn try_once(&self, cost: u32, all: bool, left: &mut Option<Status>) -> Option<Decision> {
        let _ = (cost, all, left);
        None
    }
}

/// What a limiter says as the one inside does, where the two have different errors.
macro_rules! forward_answers {
    ($self:ident => $limiter:expr) => {
        fn status(&$self) -> Option<Status> {
            $limiter.status()
        }

        fn shadowed(&$self) -> Option<Decision> {
            $limiter.shadowed()
        }

        fn is_out_of_reach(&$self) -> bool {
            $limiter.is_out_of_reach()
        }

        fn too_costly(&$self, cost: u32, capacity: u32) -> $crate::limiter::TooCostly {
            $limiter.too_costly(cost, capacity)
        }

        fn resolution(&$self) -> Resolution {
            $limiter.resolution()
        }
    };
}
pub(crate) use forward_answers;

/// All methods, for a pointer to a limiter.
macro_rules! forward_all {
    ($self:ident => $limiter:expr) => {
        $crate::limiter::forward_answers!($self => $limiter);

        fn poll_decide(&mut $self, cost: u32, cx: &mut Context<'_>) -> Answer<Self::Error> {
            $limiter.poll_decide(cost, cx)
        }

        fn poll_try(&mut $self, cost: u32, cx: &mut Context<'_>) -> Answer<Self::Error> {
            $limiter.poll_try(cost, cx)
        }

        fn poll_open(&mut $self, cost: u32, cx: &mut Context<'_>) -> Answer<Self::Error> {
            $limiter.poll_open(cost, cx)
        }

        fn give_up(&mut $self) {
            $limiter.give_up();
        }

        fn is_refusal(&$self, error: &Self::Error) -> bool {
            $limiter.is_refusal(error)
        }

        fn least_wait(&$self, cost: u32) -> Duration {
            $limiter.least_wait(cost)
        }

        fn foresee(&$self, count: usize) -> Vec<$crate::limiter::Instant> {
            $limiter.foresee(count)
        }

        fn try_once(&$self, cost: u32, all: bool, left: &mut Option<Status>) -> Option<Decision> {
            $limiter.try_once(cost, all, left)
        }
    };
}
pub(crate) use forward_all;

/// A [`Limiter`] that cannot fail, as adapters need whose items have no place for its error: every `Limiter<Error = Infallible>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a limiter that cannot fail",
    label = "expected a limiter without errors",
    note = "a policy becomes a limiter with `.owned()` (for one adapter) or `.shared()` (for many tasks)",
    note = "a `Line`, or a limit in Redis that fails fast, has errors: `try_pace` takes it, and its stream ends with the error",
    note = "a `Keyed` has a limiter for each key: `keyed.at(key)`",
    note = "a `Shared` is a handle already: clone it instead of putting it into an `Arc`",
    note = "`Permits` limit what is under way: `permits.acquire()`, and `line.acquire_permit()` of a `Line` around them"
)]
pub trait Unfailing: Limiter<Error = Infallible> {}

#[diagnostic::do_not_recommend]
impl<L: Limiter<Error = Infallible> + ?Sized> Unfailing for L {}

impl<L: Limiter + ?Sized> Limiter for &mut L {
    type Error = L::Error;

    forward_all!(self => (**self));
}

impl<L: Limiter + ?Sized> Limiter for Box<L> {
    type Error = L::Error;

    forward_all!(self => (**self));
}

/// A limit for each key: a [`Keyed`], a [`Fair`], permits for each key, or one whose state is elsewhere.
///
/// Code that is generic over it works with limits in memory and with limits in Redis, with rates
/// (`L: Limits<K, Limit: Limiter>`) and with permits (`L: Limits<K, Limit: Admit>`).
///
/// ```
/// use paceline::limiter::{Limiter, LimiterExt, Limits};
/// use paceline::prelude::*;
/// use std::convert::Infallible;
///
/// async fn call<L>(limits: &L, host: &'static str)
/// where
///     L: Limits<&'static str, Limit: LimiterExt<Error = Infallible>, Error = Infallible>,
/// {
///     let Ok(limit) = limits.at(host);
///     limit.acquire_one().await;
/// }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let hosts = Interval::every(Duration::from_millis(100)).keyed();
/// call(&hosts, "a.example").await;
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a limit for each key of type `{K}`",
    label = "expected a limit for each key",
    note = "a policy becomes one with `.keyed()`, and `KeyedPermits` are permits for each key",
    note = "a `Shared` is one limit for all requests: a layer takes it with `new` instead of `by_key`",
    note = "the value of a header is a key of type `String`"
)]
pub trait Limits<K> {
    /// A handle on the limit of one key: a [`Limiter`], or what [admits](crate::concurrency::Admit) work.
    type Limit;

    /// Why a key may have no limit; [`Infallible`] in memory.
    type Error;

    /// The limit of this key.
    ///
    /// # Errors
    ///
    /// If the key cannot be used.
    fn at(&self, key: K) -> Result<Self::Limit, Self::Error>;

    /// [`try_once`](Limiter::try_once) of the limit of this key, without a handle.
    #[doc(hidden)]
    fn try_at(&self, key: &K, cost: u32, all: bool, left: &mut Option<Status>) -> Option<Decision> {
        let _ = (key, cost, all, left);
        None
    }

    /// The same for a borrowed form of the key.
    #[doc(hidden)]
    fn try_as<Q>(&self, of: &Q, cost: u32, all: bool, left: &mut Option<Status>) -> Option<Decision>
    where
        Q: AsKey<K> + ?Sized,
        Self: Sized,
    {
        let _ = (of, cost, all, left);
        None
    }

    /// Waits for `cost` permits of this key, as [`LimiterExt::acquire`] of its limit. For keys that all have a limit.
    fn acquire(&self, key: K, cost: u32) -> future::Acquire<Self::Limit>
    where
        Self: Limits<K, Error = Infallible>,
        Self::Limit: LimiterExt,
    {
        let Ok(limit) = self.at(key);
        future::Acquire::new(limit, cost)
    }

    /// Waits for one permit of this key, as [`LimiterExt::acquire_one`] of its limit. For keys that all have a limit.
    fn acquire_one(&self, key: K) -> future::AcquireOne<Self::Limit>
    where
        Self: Limits<K, Error = Infallible>,
        Self::Limit: LimiterExt<Error = Infallible>,
    {
        let Ok(limit) = self.at(key);
        future::AcquireOne::new(limit)
    }
}

/// Makes limiters from a policy.
///
/// On `wasm32-unknown-unknown`, which has no clock, these methods do not compile: see [`time`](crate::time#clocks-and-runtimes).
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
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a policy",
    note = "policies are in `paceline::policy`; a limiter such as `Owned` or `Shared` has a policy already"
)]
pub trait PolicyExt: Policy + Sized {
    /// For one adapter, without a lock.
    fn owned(self) -> Owned<Self> {
        const { require_clock() };
        Owned::new(self)
    }

    /// For many tasks and adapters: clones share one limit, first come, first served.
    fn shared(self) -> Shared<Self>
    where
        Self: Send + 'static,
        Self::State: Send,
    {
        const { require_clock() };
        Shared::new(self)
    }

    /// A limit for each key, with the same parameters for all. Where the key says which, such as by tier, it is [`Keyed::by`].
    #[doc(alias("RateLimiter", "KeyedRateLimiter", "per user", "tier"))]
    fn keyed<K>(self) -> Keyed<K, Self>
    where
        Self: Clone + Send + Sync + 'static,
        Self::State: Send,
        K: Hash + Eq + Clone,
    {
        const { require_clock() };
        Keyed::new(self)
    }
}

impl<P: Policy> PolicyExt for P {}

/// Which method of a [`Limiter`] was called.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) enum Method {
    Decide,
    Try,
    Open,
}

/// What a limiter answers; in memory without an error.
type Answer<E = Infallible> = Poll<Result<Decision, E>>;
