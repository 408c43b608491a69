use core::time::Duration;

use crate::time::{OutOfRange, Tick};

use super::{Controller, Outcome};

/// Additive increase, multiplicative decrease: TCP finds the capacity of a path in this way.
///
/// The limit starts at the floor. With a limit of n it grows by one after n successes, which is about once a round trip.
/// Only successes while at least half of the limit was in use count, since an unused limit says nothing about the server.
///
/// A dropped call cuts the limit to a half, or to another [share](Self::with_backoff). It is cut at most once a round trip:
/// further drops within the latency of the last success belong to the same overload.
///
/// ```
/// use paceline::concurrency::{Aimd, Outcome, Permits};
/// use paceline::time::Clock;
/// use std::time::Duration;
///
/// /// The server answers 6 calls at once and refuses the seventh.
/// async fn call(at_once: u32) -> Result<(), ()> {
///     tokio::time::sleep(Duration::from_millis(10)).await;
///     if at_once <= 6 { Ok(()) } else { Err(()) }
/// }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let mut clock = Clock::new();
/// let mut controller = Aimd::new(1, 100);
/// let permits = Permits::new(controller.limit());
/// let mut most = 0;
///
/// for _ in 0..50 {
///     let at_once = permits.limit();
///     let calls: Vec<_> = (0..at_once).map(|_| tokio::spawn(call(at_once))).collect();
///     let held = permits.acquire_many(at_once).await.unwrap();
///     for answered in calls {
///         let outcome = match answered.await.unwrap() {
///             Ok(()) => Outcome::Success { latency: Duration::from_millis(10) },
///             Err(()) => Outcome::Dropped,
///         };
///         controller.observe(clock.now(), permits.in_use(), outcome);
///     }
///     drop(held);
///     permits.resize(controller.limit());
///     most = most.max(controller.limit());
/// }
/// assert_eq!(most, 7); // one more than the server can take; then the limit falls to 3
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Aimd {
    floor: u32,
    ceiling: u32,
    backoff: f64,
    limit: u32,
    /// Successes since the limit was moved.
    successes: u32,
    /// The latency of the last success.
    latency: Duration,
    cut_at: Option<Tick>,
}

impl Aimd {
    /// A limit that starts at `floor` and stays between `floor` and `ceiling`.
    ///
    /// # Panics
    ///
    /// If the floor is zero, or above the ceiling; see [`try_new`](Self::try_new).
    #[must_use]
    #[track_caller]
    pub const fn new(floor: u32, ceiling: u32) -> Self {
        OutOfRange::or_panic(Self::try_new(floor, ceiling))
    }

    /// [`new`](Self::new), for numbers from a configuration.
    ///
    /// # Errors
    ///
    /// If the floor is zero, or above the ceiling.
    pub const fn try_new(floor: u32, ceiling: u32) -> Result<Self, OutOfRange> {
        if let Err(error) = check_range(floor, ceiling) {
            return Err(error);
        }
        Ok(Self {
            floor,
            ceiling,
            backoff: 0.5,
            limit: floor,
            successes: 0,
            latency: Duration::ZERO,
            cut_at: None,
        })
    }

    /// Starts at `limit` instead of the floor.
    ///
    /// ```
    /// use paceline::concurrency::Aimd;
    ///
    /// assert_eq!(Aimd::new(1, 100).limit(), 1);
    /// assert_eq!(Aimd::new(1, 100).with_start(20).limit(), 20);
    /// ```
    ///
    /// # Panics
    ///
    /// If `limit` is below the floor or above the ceiling.
    #[must_use]
    #[track_caller]
    pub const fn with_start(self, limit: u32) -> Self {
        assert!(
            self.floor <= limit && limit <= self.ceiling,
            "the start must lie between floor and ceiling"
        );
        Self { limit, ..self }
    }

    /// The share of the limit that remains after a drop; 0.5 by default. A drop cuts the limit by at least 1.
    ///
    /// ```
    /// use paceline::concurrency::{Aimd, Outcome};
    /// use paceline::time::Tick;
    ///
    /// let mut controller = Aimd::new(1, 100).with_start(20).with_backoff(0.9);
    /// controller.observe(Tick::ZERO, 20, Outcome::Dropped);
    /// assert_eq!(controller.limit(), 18);
    /// ```
    ///
    /// # Panics
    ///
    /// If `backoff` is not above 0 and below 1.
    #[must_use]
    #[track_caller]
    pub fn with_backoff(self, backoff: f64) -> Self {
        assert!(
            0.0 < backoff && backoff < 1.0,
            "the backoff must be above 0 and below 1, got {backoff}"
        );
        Self { backoff, ..self }
    }

    /// Takes in the outcome of a call that ended `now`, when `in_use` calls were under way, including this one.
    pub fn observe(&mut self, now: Tick, in_use: u32, outcome: Outcome) {
        match outcome {
            Outcome::Success { latency } => {
                self.latency = latency;
                if is_used(self.limit, in_use) {
                    self.grow();
                }
            }
            Outcome::Ignored => {}
            Outcome::Dropped => self.cut(now),
        }
    }

    /// The number of calls that may be under way at once.
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    fn grow(&mut self) {
        self.successes = self.successes.saturating_add(1);
        if self.successes >= self.limit {
            self.successes = 0;
            self.limit = self.limit.saturating_add(1).min(self.ceiling);
        }
    }

    fn cut(&mut self, now: Tick) {
        let is_of_the_same = self
            .cut_at
            .is_some_and(|cut_at| now < cut_at.after(self.latency));
        if !is_of_the_same {
            let left = whole(f64::from(self.limit) * self.backoff).min(self.limit - 1);
            self.limit = left.max(self.floor);
            self.successes = 0;
            self.cut_at = Some(now);
        }
    }
}

impl Controller for Aimd {
    fn observe(&mut self, now: Tick, in_use: u32, outcome: Outcome) {
        self.observe(now, in_use, outcome);
    }

    fn limit(&self) -> u32 {
        self.limit()
    }
}

/// Whether enough of the limit is in use to say something about it: at least half, as in Netflix's library.
pub(super) const fn is_used(limit: u32, in_use: u32) -> bool {
    in_use >= limit.div_ceil(2)
}

/// The number without its fraction.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast drops the fraction and saturates"
)]
pub(super) const fn whole(number: f64) -> u32 {
    number as u32
}

/// Both controllers ask the same of their limits.
pub(super) const fn check_range(floor: u32, ceiling: u32) -> Result<(), OutOfRange> {
    if floor == 0 {
        let message = "the floor must be at least 1, got 0";
        return Err(OutOfRange::new("floor", message));
    }
    if floor > ceiling {
        let error = OutOfRange::new("floor", "the floor must not be above the ceiling");
        return Err(error.got_counts(floor, ceiling));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(nanos: u64) -> Tick {
        Tick::from_nanos(nanos)
    }

    const fn success(nanos: u64) -> Outcome {
        Outcome::Success {
            latency: Duration::from_nanos(nanos),
        }
    }

    #[test]
    #[should_panic(expected = "the floor must not be above the ceiling, got 19 and 3")]
    fn a_panic_has_both_numbers() {
        let _ = Aimd::new(19, 3);
    }

    #[test]
    fn grows_by_one_a_round_trip() {
        let mut aimd = Aimd::new(1, 100);
        let mut limits = Vec::new();
        for now in 0..10 {
            aimd.observe(at(now), aimd.limit(), success(1));
            limits.push(aimd.limit());
        }
        assert_eq!(limits, [2, 2, 3, 3, 3, 4, 4, 4, 4, 5]);
    }

    #[test]
    fn a_limit_that_is_not_used_does_not_grow() {
        let mut aimd = Aimd::new(1, 100).with_start(9);
        for now in 0..1_000 {
            aimd.observe(at(now), 4, success(1));
        }
        assert_eq!(aimd.limit(), 9);

        for now in 0..9 {
            aimd.observe(at(now), 5, success(1));
        }
        assert_eq!(aimd.limit(), 10, "half of it is enough");
    }

    #[test]
    fn stays_between_floor_and_ceiling() {
        let mut aimd = Aimd::new(3, 5);
        for now in 0..100 {
            aimd.observe(at(now), 5, success(1));
        }
        assert_eq!(aimd.limit(), 5);
        for now in 0..100 {
            aimd.observe(at(now), 5, Outcome::Dropped);
        }
        assert_eq!(aimd.limit(), 3);
    }

    #[test]
    fn one_overload_cuts_once() {
        let mut aimd = Aimd::new(1, 100).with_start(80);
        aimd.observe(at(0), 80, success(50));
        for now in 100..150 {
            aimd.observe(at(now), 80, Outcome::Dropped);
        }
        assert_eq!(aimd.limit(), 40);
        aimd.observe(at(150), 40, Outcome::Dropped);
        assert_eq!(aimd.limit(), 20);
    }

    #[test]
    fn a_cut_is_one_at_least_and_begins_the_count_anew() {
        let mut aimd = Aimd::new(1, 100).with_start(3).with_backoff(0.99);
        aimd.observe(at(0), 3, success(0));
        aimd.observe(at(0), 3, success(0));
        aimd.observe(at(0), 3, Outcome::Dropped);
        assert_eq!(aimd.limit(), 2);
        aimd.observe(at(1), 3, success(0));
        assert_eq!(aimd.limit(), 2);
    }

    #[test]
    fn what_is_ignored_changes_nothing() {
        let mut aimd = Aimd::new(1, 100).with_start(10);
        for now in 0..100 {
            aimd.observe(at(now), 10, Outcome::Ignored);
        }
        assert_eq!(aimd.limit(), 10);
    }
}
