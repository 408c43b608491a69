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
