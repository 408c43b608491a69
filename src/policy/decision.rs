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
    Wait {
        /// The same request can pass after this long, if no other request passes before. Never zero.
        retry_in: Duration,
    },
    /// The cost is more than the limit can ever pass at once. Nothing was counted.
    Never {
        /// The largest cost that could pass.
        capacity: u32,
    },
}

impl Decision {
    /// The decision `now` on a request that passes from `open_at` on.
    pub(super) const fn from(open_at: Tick, now: Tick) -> Self {
        // Most requests pass, and making a duration takes a division.
        if open_at.as_nanos() <= now.as_nanos() {
            return Self::Pass;
        }
        Self::Wait {
            retry_in: open_at.since(now),
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
