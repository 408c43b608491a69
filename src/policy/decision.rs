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

/// A duration in nanoseconds, or the longest possible one.
#[expect(
    clippy::cast_possible_truncation,
    reason = "seconds are compared before, and the rest is less than a second"
)]
pub(super) const fn saturating_duration(nanos: u128) -> Duration {
    const NANOS_PER_SEC: u128 = 1_000_000_000;
    if nanos >= Duration::MAX.as_nanos() {
        return Duration::MAX;
    }
    Duration::new(
        (nanos / NANOS_PER_SEC) as u64,
        (nanos % NANOS_PER_SEC) as u32,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_saturates() {
        assert_eq!(saturating_duration(0), Duration::ZERO);
        assert_eq!(saturating_duration(1_000_000_007), Duration::new(1, 7));
        assert_eq!(saturating_duration(Duration::MAX.as_nanos()), Duration::MAX);
        assert_eq!(
            saturating_duration(Duration::MAX.as_nanos() + 1),
            Duration::MAX
        );
    }
}
