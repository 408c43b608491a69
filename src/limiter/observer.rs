use core::time::Duration;

use crate::policy::Decision;

/// Receives the decisions of a limit, and its changes.
///
/// A closure that takes an [`Event`] is an observer. One that a limit carries, as with
/// [`Shared::with_observer`](super::Shared::with_observer), is used by many tasks at once: there the bound is that a *reference*
/// to it is an observer, as [`Read`](std::io::Read) is implemented for `&File`. A closure qualifies if it is `Fn`: it changes only
/// atomics and what is behind a lock.
///
/// ```
/// use paceline::limiter::{Event, Observer, PolicyExt};
/// use paceline::policy::Interval;
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// #[derive(Clone, Default)]
/// struct Waiting(Arc<AtomicU32>);
///
/// impl Observer for &Waiting {
///     fn observe(&mut self, _: Event) {}
///
///     fn queued(&mut self) {
///         self.0.fetch_add(1, Ordering::Relaxed);
///     }
///
///     fn dequeued(&mut self) {
///         self.0.fetch_sub(1, Ordering::Relaxed);
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let waiting = Waiting::default();
/// let limit = Interval::every(Duration::from_millis(100)).shared();
/// let limit = limit.with_observer(waiting.clone());
///
/// limit.acquire(1).await.unwrap();
/// let second = tokio::spawn(limit.acquire_owned(1));
/// tokio::task::yield_now().await;
/// assert_eq!(waiting.0.load(Ordering::Relaxed), 1);
///
/// second.await.unwrap().unwrap();
/// assert_eq!(waiting.0.load(Ordering::Relaxed), 0);
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an observer of limits",
    label = "expected an observer",
    note = "a closure `FnMut(Event)` is one, and so is a type with `impl Observer`",
    note = "an observer that a limit carries is used by many tasks at once: `&{Self}` has to be an observer, so a closure has \
            to be `Fn(Event)`, and a type needs `impl Observer for &{Self}`"
)]
pub trait Observer {
    /// A request was decided, or the limit was changed. It is called where the limit is asked, so it should be quick.
    ///
    /// It must not panic. The panic would reach the caller of the limit, after the request has passed: its permits stay spent,
    /// and a permit for concurrency comes back. While a thread unwinds, such a panic goes no further.
    fn observe(&mut self, event: Event);

    /// A request was queued. Each request is queued once at most, whatever it waits for.
    ///
    /// Provided: does nothing.
    fn queued(&mut self) {}

    /// A request has left the queue. The next event says what became of it.
    ///
    /// Provided: does nothing.
    fn dequeued(&mut self) {}
}

impl<F: FnMut(Event)> Observer for F {
    fn observe(&mut self, event: Event) {
        self(event);
    }
}

/// What became of a request, or how a limit was changed. Requests of cost 0 are not reported.
///
/// Each request has exactly one of the first five events. The others are reported by limits that carry an observer: see
/// [`Shared::with_observer`](super::Shared::with_observer).
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
    /// It passed only because a [`Switch`](super::Switch) is in [`Mode::Shadow`](super::Mode::Shadow) or does not limit it, or because a keyed limit had
    /// no room for its key and lets such keys pass.
    #[non_exhaustive]
    Shadowed {
        /// What it would have cost. Nothing was charged.
        cost: u32,
        /// How long it was queued before, if the mode changed meanwhile.
        waited: Duration,
        /// How long it would have had to wait from then on; `None` if it could never have passed.
        retry_in: Option<Duration>,
    },
    /// It was refused, since it would have had to wait: by `enforce`, `shed` or `try_acquire`, or for too long, by
    /// `acquire_within`. (A pacing sink that lost its slot to another handle is refused too, and passes later. What was too late
    /// for [`LimiterExt::acquire_within`](super::LimiterExt::acquire_within) has [given up](Self::GaveUp).)
    #[non_exhaustive]
    Refused {
        /// What it would have cost.
        cost: u32,
        /// How long it would have had to wait; [`Duration::MAX`] if that is not known.
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
    /// `pause_for`: no request passes for that long.
    #[non_exhaustive]
    Paused {
        /// How long from now on. Of two pauses the later end counts.
        duration: Duration,
    },
    /// `apply_feedback`: no request passes for that long, because a provider asked for it.
    #[non_exhaustive]
    FeedbackApplied {
        /// How long from now on. Of two pauses the later end counts.
        pause: Duration,
    },
    /// `resume`, or `reset` of a shared limit: all pauses are over.
    Resumed,
    /// `retune`: the limit has other parameters. Also `forget` and `reset` of a key, which give it those of all keys.
    Retuned,
    /// Permits for concurrency were released, and are in use no more.
    #[non_exhaustive]
    Released {
        /// How many.
        count: u32,
    },
    /// `resize`: there are that many permits for concurrency from now on. Also the first event of permits.
    #[non_exhaustive]
    Resized {
        /// The new limit.
        limit: u32,
    },
}

/// For a limiter of your own, which reports its changes.
impl Event {
    /// A pause, of that long from now on.
    #[must_use]
    pub const fn paused(duration: Duration) -> Self {
        Self::Paused { duration }
    }

    /// A pause that a provider asked for, of that long from now on.
    #[must_use]
    pub const fn feedback_applied(pause: Duration) -> Self {
        Self::FeedbackApplied { pause }
    }

    /// That many permits for concurrency were released.
    #[must_use]
    pub const fn released(count: u32) -> Self {
        Self::Released { count }
    }

    /// There are that many permits for concurrency from now on.
    #[must_use]
    pub const fn resized(limit: u32) -> Self {
        Self::Resized { limit }
    }
}

impl Event {
    /// Whether it is the outcome of a request, and not a change of the limit.
    #[must_use]
    pub const fn is_of_request(&self) -> bool {
        matches!(
            self,
            Self::Passed { .. }
                | Self::Shadowed { .. }
                | Self::Refused { .. }
                | Self::TooCostly { .. }
                | Self::GaveUp { .. }
        )
    }

    /// What became of a request that is decided: a wait is a refusal.
    pub(super) fn of(
        cost: u32,
        decision: Decision,
        shadowed: Option<Decision>,
        waited: Duration,
    ) -> Self {
        match decision {
            Decision::Pass => match shadowed {
                None => Self::Passed { cost, waited },
                Some(shadowed) => Self::Shadowed {
                    cost,
                    waited,
                    retry_in: shadowed.retry_in(),
                },
            },
            Decision::Wait { retry_in } => Self::Refused { cost, retry_in },
            Decision::Never { capacity } => Self::TooCostly { cost, capacity },
        }
    }
}
