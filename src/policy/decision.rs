use core::cmp::Reverse;
use core::time::Duration;

use crate::time::Tick;

/// The answer of a limit to one request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "there are no other answers; callers should match"
)]
#[must_use = "a decision that is ignored limits nothing"]
pub enum Decision {
    /// The request passes and was counted.
    Pass,
    /// The request does not pass now. Nothing was counted.
    #[doc(alias = "NotUntil")]
    Wait {
        /// The same request can pass after this long, if no other request passes before. Never zero.
        retry_in: Duration,
    },
    /// The cost is more than the limit can ever pass at once. Nothing was counted.
    #[doc(alias = "InsufficientCapacity")]
    Never {
        /// The largest cost that could pass.
        capacity: u32,
    },
}

impl Decision {
    /// The decision `now` on a request that passes from `open_at` on.
    pub(crate) const fn from(open_at: Tick, now: Tick) -> Self {
        // Most requests pass, and making a duration takes a division.
        if open_at.as_nanos() <= now.as_nanos() {
            return Self::Pass;
        }
        Self::Wait {
            retry_in: open_at.since(now),
        }
    }

    /// The decision that delays a request longer.
    pub(crate) fn strictest(self, other: Self) -> Self {
        use Decision::{Never, Pass, Wait};
        match (self, other) {
            (Never { capacity: a }, Never { capacity: b }) => Never { capacity: a.min(b) },
            (never @ Never { .. }, _) | (_, never @ Never { .. }) => never,
            (Wait { retry_in: a }, Wait { retry_in: b }) => Wait { retry_in: a.max(b) },
            (wait @ Wait { .. }, Pass) | (Pass, wait @ Wait { .. }) => wait,
            (Pass, Pass) => Pass,
        }
    }

    /// The decision that lets a request pass earlier.
    pub(crate) fn mildest(self, other: Self) -> Self {
        use Decision::Never;
        match (self, other) {
            (Never { capacity: a }, Never { capacity: b }) => Never { capacity: a.max(b) },
            _ if self.strictest(other) == self => other,
            _ => self,
        }
    }

    /// How long to wait, if this is [`Decision::Wait`].
    #[must_use]
    pub const fn retry_in(self) -> Option<Duration> {
        match self {
            Self::Wait { retry_in } => Some(retry_in),
            Self::Pass | Self::Never { .. } => None,
        }
    }

    /// Whether this is [`Decision::Pass`].
    #[must_use]
    pub const fn is_pass(self) -> bool {
        matches!(self, Self::Pass)
    }
}

/// What a limit is in the words of a contract: a number of permits in a window.
///
/// It describes the limit to callers, as in the header `RateLimit-Policy`. The exact bound is in the docs of the policy.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(clippy::exhaustive_structs, reason = "a quota is two numbers")]
pub struct Quota {
    /// How many permits a window has.
    pub permits: u32,
    /// The length of the window.
    pub window: Duration,
}

/// What a limit has left at one instant: from [`Limiter::status`](crate::limiter::Limiter::status).
///
/// ```
/// use paceline::limiter::PolicyExt;
/// use paceline::policy::{All, FixedWindow, Quota};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let (second, day) = (Duration::from_secs(1), Duration::from_secs(86_400));
/// let limit = All::new((FixedWindow::new(10, second), FixedWindow::new(500, day))).shared();
/// assert!(limit.try_acquire(4).is_pass());
///
/// let left = limit.status().unwrap();
/// assert_eq!(left.binding, Some(0), "6 of 10 are less than 496 of 500");
/// assert_eq!(left.quota, Some(Quota { permits: 10, window: second }));
/// assert_eq!((left.remaining, left.reset_in), (6, second));
/// # }
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
#[doc(alias(
    "StateSnapshot",
    "estimateAbilityToConsume",
    "getAvailableTokens",
    "currentReservoir",
    "counts"
))]
pub struct Status {
    /// The limit itself. `None` if it has none: see [`Policy::quota`](super::Policy::quota).
    pub quota: Option<Quota>,
    /// How many requests of cost 1 would pass now, one after another. [`u32::MAX`] means that many or more.
    #[doc(alias("remaining_burst_capacity", "availableTokens"))]
    pub remaining: u32,
    /// After how long nothing counts as spent any more, if no request passes before. Zero for a limit that is not in use. A limit
    /// that starts empty or delayed is said to be spent at its start.
    pub reset_in: Duration,
    /// Of several limits the one with the least remaining, from 0; that is the one described here. `None` if there is only one
    /// limit. The limits of an [`All`](super::All) inside an `All` are numbered one by one.
    pub binding: Option<usize>,
}

impl Status {
    /// The status of a single limit.
    #[must_use]
    pub const fn new(quota: Option<Quota>, remaining: u32, reset_in: Duration) -> Self {
        Self {
            quota,
            remaining,
            reset_in,
            binding: None,
        }
    }

    /// The same, of the limit with that number in an [`All`](super::All), from 0.
    #[must_use]
    pub const fn with_binding(self, number: usize) -> Self {
        Self {
            binding: Some(number),
            ..self
        }
    }

    /// The status of the limit with the least room, of `(status, number of limits)` each.
    pub(super) fn least(statuses: impl IntoIterator<Item = (Self, usize)>) -> Self {
        let rank = |status: &Self| (status.remaining, Reverse(status.reset_in));
        let mut least = Self::new(None, u32::MAX, Duration::ZERO);
        let mut before = 0;
        for (status, limits) in statuses {
            if least.binding.is_none() || rank(&status) < rank(&least) {
                least = status.with_binding(before + status.binding.unwrap_or(0));
            }
            before += limits;
        }
        least
    }

    /// The same while no more than `remaining` passes before `reset_in` is over.
    pub(crate) fn at_most(self, remaining: u32, reset_in: Duration) -> Self {
        if remaining > self.remaining {
            return self;
        }
        Self {
            remaining,
            reset_in: self.reset_in.max(reset_in),
            ..self
        }
    }

    /// The same during a pause.
    #[must_use]
    pub fn paused_for(self, pause: Duration) -> Self {
        self.at_most(0, pause)
    }
}
