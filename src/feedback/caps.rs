use core::time::Duration;

use crate::time::Rate;

/// Bounds for the values in headers. A value beyond them is cut.
///
/// The caps are for hostile and broken values: without them a single `Retry-After: 999999999` would silence a program for
/// 30 years. A pause below the cap is kept in full, however long: [`Feedback::pause_is_long`](super::Feedback::pause_is_long) reports one of more than an
/// hour. A program that prefers to try again earlier sets a shorter cap with
/// [`with_longest_pause`](Self::with_longest_pause).
///
/// ```
/// use paceline::feedback::{Caps, Feedback};
/// use std::time::Duration;
///
/// let caps = Caps::new().with_longest_pause(Duration::from_secs(60));
/// let feedback = Feedback::parse_capped([("Retry-After", "86400")], Duration::ZERO, caps);
///
/// assert_eq!(feedback.retry_after(), Some(Duration::from_secs(60)));
/// assert!(feedback.was_capped());
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Caps {
    longest_pause: Duration,
    slowest: Rate,
    fastest: Rate,
}

impl Caps {
    /// Pauses of at most 31 days, the longest monthly quota; rates from one a day to a million a second.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            longest_pause: Duration::from_secs(31 * 86_400),
            slowest: Rate::per_day(1),
            fastest: Rate::per_second(1_000_000),
        }
    }

    /// The longest wait.
    #[must_use]
    pub const fn with_longest_pause(self, longest_pause: Duration) -> Self {
        Self {
            longest_pause,
            ..self
        }
    }

    /// The slowest rate.
    ///
    /// ```
    /// use paceline::feedback::{Caps, Feedback};
    /// use paceline::time::Rate;
    /// use std::time::Duration;
    ///
    /// let caps = Caps::new().with_slowest(Rate::per_minute(1));
    /// let feedback = Feedback::parse_capped([("RateLimit-Policy", "1;w=3600")], Duration::ZERO, caps);
    /// assert_eq!(feedback.limit(), Some(Rate::per_minute(1)));
    /// ```
    #[must_use]
    pub const fn with_slowest(self, slowest: Rate) -> Self {
        Self { slowest, ..self }
    }

    /// The fastest rate, for example the one that you have paid for. If it is slower than the slowest rate, it wins.
    ///
    /// ```
    /// use paceline::feedback::{Caps, Feedback};
    /// use paceline::time::Rate;
    /// use std::time::Duration;
    ///
    /// let caps = Caps::new().with_fastest(Rate::per_second(100));
    /// let feedback = Feedback::parse_capped([("RateLimit-Policy", "5000;w=1")], Duration::ZERO, caps);
    /// assert_eq!(feedback.limit(), Some(Rate::per_second(100)));
    /// ```
    #[must_use]
    pub const fn with_fastest(self, fastest: Rate) -> Self {
        Self { fastest, ..self }
    }

    pub(super) fn pause(&self, pause: Duration) -> Duration {
        pause.min(self.longest_pause)
    }

    pub(super) fn rate(&self, rate: Rate) -> Rate {
        // A rate that equals a cap stays as it was written.
        if rate > self.fastest {
            self.fastest
        } else if rate < self.slowest {
            self.slowest.min(self.fastest)
        } else {
            rate
        }
    }
}

impl Default for Caps {
    /// The caps of [`new`](Self::new).
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_beyond_a_cap_is_cut_and_another_stays_as_it_was_written() {
        let caps = Caps::new()
            .with_slowest(Rate::per_minute(6))
            .with_fastest(Rate::per_second(10));

        assert_eq!(caps.rate(Rate::per_second(11)), Rate::per_second(10));
        assert_eq!(caps.rate(Rate::per_hour(1)), Rate::per_minute(6));
        assert_eq!(caps.rate(Rate::per_minute(600)).to_string(), "600/min");
    }

    #[test]
    fn if_the_caps_cross_the_fastest_wins() {
        let caps = Caps::new()
            .with_slowest(Rate::per_second(5))
            .with_fastest(Rate::per_second(2));
        for rate in [1, 3, 9].map(Rate::per_second) {
            assert_eq!(caps.rate(rate), Rate::per_second(2), "{rate}");
        }
    }
}
