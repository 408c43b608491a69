use crate::time::{Rate, Tick};

use super::sums::scaled_up;

/// When a [`TokenBucket`](super::TokenBucket) will be full again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TokenBucketState {
    /// In two halves: beside a key of eight bytes, a number of sixteen would leave eight unused.
    high: u64,
    low: u64,
}

impl TokenBucketState {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the other half keeps the rest"
    )]
    pub(super) const fn full_at(shares: Shares) -> Self {
        Self {
            high: (shares >> 64) as u64,
            low: shares as u64,
        }
    }

    pub(super) const fn shares(self) -> Shares {
        (self.high as Shares) << 64 | self.low as Shares
    }
}

/// Time in units of 1 ns / permits, so that a token takes a whole number of them: as many as the period has nanoseconds.
///
/// The largest sum is a tick (64 bits) times the permits (32 bits), plus a cost (32 bits) times a period (94 bits).
pub(super) type Shares = u128;

/// How many shares what is: the part of a bucket's parameters that its sums need, computed once.
///
/// Two are equal if their rates are the same fraction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    permits: u32,
    token: Shares,
    room: Shares,
}

impl Scale {
    pub(super) const fn new(rate: Rate, burst: u32) -> Self {
        let token = rate.period().as_nanos();
        Self {
            permits: rate.permits(),
            token,
            room: token * burst as Shares,
        }
    }

    /// The whole burst.
    pub(super) const fn room(self) -> Shares {
        self.room
    }

    /// Whether a share is as long in both, and not only a token.
    pub(super) const fn is_as_fine_as(self, other: Self) -> bool {
        self.permits == other.permits
    }

    pub(super) const fn shares_at(self, tick: Tick) -> Shares {
        tick.as_nanos() as Shares * self.permits as Shares
    }

    pub(super) const fn shares_of(self, tokens: u32) -> Shares {
        tokens as Shares * self.token
    }

    /// As many tokens as these shares of another scale are, and the part of one.
    pub(super) fn rescaled(self, shares: Shares, old: Self) -> Shares {
        let (whole, part) = (shares / old.token, shares % old.token);
        whole
            .saturating_mul(self.token)
            .saturating_add(scaled_up(part, self.token, old.token))
    }

    /// In whole nanoseconds, rounded up: never early.
    pub(super) fn nanos(self, shares: Shares) -> u128 {
        match u64::try_from(shares) {
            // Less than half as long, and nearly always so.
            Ok(shares) => shares.div_ceil(self.permits.into()).into(),
            Err(_) => shares.div_ceil(self.permits.into()),
        }
    }
}

impl PartialEq for Scale {
    fn eq(&self, other: &Self) -> bool {
        other.shares_of(self.permits) == self.shares_of(other.permits)
    }
}

impl Eq for Scale {}

#[cfg(test)]
mod tests {
    use super::super::{Decision, Policy, TokenBucket};
    use super::*;

    #[test]
    fn a_rate_that_is_written_otherwise_changes_no_answer() {
        let (minutes, seconds) = (Rate::per_minute(60), Rate::per_second(1));
        let (old, new) = (TokenBucket::new(minutes, 2), TokenBucket::new(seconds, 2));
        assert_eq!(old, new);
        let at = Tick::from_nanos;
        let mut state = old.fresh(at(0));
        assert!(old.decide(&mut state, at(0), 2).is_pass());

        let now = at(400_000_000);
        let expected = old.peek(&state, now, 1);
        assert!(matches!(expected, Decision::Wait { .. }));
        new.retune(&old, &mut state, now);
        assert_eq!(new.peek(&state, now, 1), expected);
        assert_eq!(new.settled_at(&state), at(2_000_000_000));
    }

    #[test]
    fn a_bucket_prints_what_it_was_made_of() {
        let printed = format!("{:?}", TokenBucket::new(Rate::per_second(7), 2));
        assert!(
            printed.contains("permits: 7") && printed.contains("burst: 2"),
            "{printed}"
        );
    }
}
