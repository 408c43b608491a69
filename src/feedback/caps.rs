use core::time::Duration;

use crate::time::Rate;

/// How far a provider is believed: what is beyond is cut.
///
/// A header is text from outside. Without caps a single `Retry-After: 999999999` would silence a program for 30 years.
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
    /// Pauses of at most one hour; rates from one a day to a million a second.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            longest_pause: Duration::from_secs(3_600),
            slowest: Rate::per_day(1),
            fastest: Rate::per_second(1_000_000),
        }
    }

    /// No wait is longer than this.
    #[must_use]
    pub const fn with_longest_pause(self, longest_pause: Duration) -> Self {
        Self {
            longest_pause,
            ..self
        }
    }

    /// No rate is slower than this, however few requests the provider says there are.
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

    /// No rate is faster than this, however many requests the provider allows: what you have paid for, say. If it is slower
    /// than the slowest, it wins.
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

    pub(super) fn pause(&self, told: Duration) -> Duration {
        told.min(self.longest_pause)
    }

    pub(super) fn rate(&self, told: Rate) -> Rate {
        // A told rate that equals a cap is kept as it was written.
        if told > self.fastest {
            self.fastest
        } else if told < self.slowest {
            self.slowest.min(self.fastest)
        } else {
            told
        }
    }
}

impl Default for Caps {
    /// Those of [`new`](Self::new).
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_what_is_beyond_and_keeps_what_is_not_as_it_was_written() {
        let caps = Caps::new()
            .with_slowest(Rate::per_minute(6))
            .with_fastest(Rate::per_second(10));

        assert_eq!(caps.rate(Rate::per_second(11)), Rate::per_second(10));
        assert_eq!(caps.rate(Rate::per_hour(1)), Rate::per_minute(6));
        assert_eq!(caps.rate(Rate::per_minute(600)).to_string(), "600/min");
        assert_eq!(caps.pause(Duration::MAX), Duration::from_secs(3_600));
        assert_eq!(caps.pause(Duration::from_secs(9)), Duration::from_secs(9));
    }

    #[test]
    fn of_crossed_caps_the_fastest_wins() {
        let caps = Caps::new()
            .with_slowest(Rate::per_second(5))
            .with_fastest(Rate::per_second(2));
        for told in [1, 3, 9].map(Rate::per_second) {
            assert_eq!(caps.rate(told), Rate::per_second(2), "{told}");
        }
    }
}
