use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// How long requests took, since the start.
#[derive(Debug, Default)]
pub(crate) struct Times {
    /// In the sidecar: before the upstream was asked, and from the head of its response to the client's.
    pub(crate) added: Histogram,
    /// From the question to the head of the upstream's response.
    pub(crate) upstream: Histogram,
}

/// Counts by powers of two, from 16 µs to 34 s. To record costs two additions and no lock.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    counts: [AtomicU64; BOUNDS + 1],
    sum: AtomicU64,
}

/// The number of upper bounds. What is above the last one is counted too.
const BOUNDS: usize = 22;

/// The first upper bound, in nanoseconds.
const FIRST: u64 = 16_000;

impl Histogram {
    pub(crate) fn record(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // How often the first bound has to be doubled.
        let doublings = u64::BITS - (nanos.saturating_sub(1) / FIRST).leading_zeros();
        let bucket = usize::try_from(doublings).map_or(BOUNDS, |at| at.min(BOUNDS));
        self.counts[bucket].fetch_add(1, Relaxed);
        self.sum.fetch_add(nanos, Relaxed);
    }

    /// The sum in seconds.
    pub(crate) fn sum(&self) -> f64 {
        Duration::from_nanos(self.sum.load(Relaxed)).as_secs_f64()
    }

    /// Upper bounds in seconds, the last one infinite, each with how many were at most that and above the one before.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        self.counts.iter().enumerate().map(|(at, count)| {
            let bound = match at {
                BOUNDS => f64::INFINITY,
                at => Duration::from_nanos(FIRST << at).as_secs_f64(),
            };
            (bound, count.load(Relaxed))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_first_bucket_that_holds_it() {
        for (nanos, bound) in [
            (0, 16e-6),
            (1, 16e-6),
            (16_000, 16e-6),
            (16_001, 32e-6),
            (32_000, 32e-6),
            (32_001, 64e-6),
            (1_000_000, 1.024e-3),
            (33_554_432_000, 33.554_432),
            (33_554_432_001, f64::INFINITY),
            (u64::MAX, f64::INFINITY),
        ] {
            let histogram = Histogram::default();
            histogram.record(Duration::from_nanos(nanos));
            let filled: Vec<_> = histogram
                .buckets()
                .filter(|(_, count)| *count > 0)
                .collect();
            assert_eq!(filled, [(bound, 1)], "{nanos} ns");
        }
    }

    #[test]
    fn sums_are_in_seconds() {
        let histogram = Histogram::default();
        histogram.record(Duration::from_millis(1_500));
        histogram.record(Duration::from_millis(500));
        assert!((histogram.sum() - 2.0).abs() < f64::EPSILON);
    }
}
