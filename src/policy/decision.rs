use core::time::Duration;

use crate::time::Tick;

/// What a limit says about one request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(
    clippy::exhaustive_enums,
    reason = "a limit can say nothing else; callers should match"
)]
#[must_use = "a decision nobody looks at limits nothing"]
pub enum Decision {
    /// Go ahead. It has been counted.
    Pass,
    /// Not now. Nothing was counted.
    Wait {
        /// The same request could pass after this long, if nobody takes its place. Never zero.
        retry_in: Duration,
    },
    /// More than the limit could ever let pass at once. Nothing was counted.
    Never {
        /// The largest cost that could pass.
        capacity: u32,
    },
}

impl Decision {
    /// What passes from `open_at` on, asked `now`.
    pub(super) const fn from(open_at: Tick, now: Tick) -> Self {
        // Most requests pass, and to make a duration takes a division.
        if open_at.as_nanos() <= now.as_nanos() {
            return Self::Pass;
        }
        Self::Wait {
            retry_in: open_at.since(now),
        }
    }

    /// How long to wait, if it is [`Decision::Wait`].
    #[must_use]
    pub const fn retry_in(self) -> Option<Duration> {
        match self {
            Self::Wait { retry_in } => Some(retry_in),
            Self::Pass | Self::Never { .. } => None,
        }
    }

    /// Whether it is [`Decision::Pass`].
    #[must_use]
    pub const fn is_pass(self) -> bool {
        matches!(self, Self::Pass)
    }
}
