//! Sums that more than one policy may need.

use core::time::Duration;

/// A duration of so many nanoseconds, or the longest there is.
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

/// `part · to / from`, rounded up, for `part < from`. Where the product has no room (both periods are of centuries), the
/// fraction is rounded up to 33 bits.
pub(super) fn scaled_up(part: u128, to: u128, from: u128) -> u128 {
    let bits = |number: u128| u128::BITS - number.leading_zeros();
    let excess = (bits(part) + bits(to)).saturating_sub(u128::BITS - 1);
    let part = part.div_ceil(1 << excess);
    (part * to).div_ceil(from >> excess).min(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fraction_without_room_is_rounded_up() {
        let longest = Duration::MAX.as_nanos();

        assert_eq!(scaled_up(1, 1, 2), 1);
        assert_eq!(scaled_up(0, longest, longest), 0);
        assert_eq!(scaled_up(3, 10, 4), 8);
        let half = scaled_up(longest / 2, longest, longest);
        let full = scaled_up((1 << 94) - 1, (1 << 94) - 1, 1 << 94);
        assert_eq!(
            full,
            (1 << 94) - 1,
            "rounded up to a power of two, and there is room"
        );
        assert!(half >= longest / 2 && half - longest / 2 < longest >> 31);
    }

    #[test]
    fn a_duration_is_as_long_as_there_is_room() {
        assert_eq!(saturating_duration(0), Duration::ZERO);
        assert_eq!(saturating_duration(1_000_000_007), Duration::new(1, 7));
        assert_eq!(saturating_duration(Duration::MAX.as_nanos()), Duration::MAX);
        assert_eq!(
            saturating_duration(Duration::MAX.as_nanos() + 1),
            Duration::MAX
        );
    }
}
