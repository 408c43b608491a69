//! How time, memory and rounds are taken.

use std::hint::black_box;
use std::time::{Duration, Instant};

use cpu_time::ThreadTime;

/// How much is measured: everything, or a little of everything to see that it runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Extent {
    Full,
    Quick,
}

impl Extent {
    pub(crate) fn pick<T>(self, full: T, quick: T) -> T {
        match self {
            Self::Full => full,
            Self::Quick => quick,
        }
    }
}

/// How long this thread works at it, and what it gives: time in which others had the processor is not counted.
pub(crate) fn worked<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = ThreadTime::now();
    let done = black_box(work());
    (start.elapsed(), done)
}

/// How long `work` takes on the clock on the wall, and what it gives.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let done = black_box(work());
    (start.elapsed(), done)
}

/// How many bytes more are allocated after `work` than before, and how many more there were at most meanwhile.
pub(crate) fn bytes(work: impl FnOnce()) -> Bytes {
    let info = allocation_counter::measure(work);
    Bytes {
        kept: info.bytes_current,
        most: i64::try_from(info.bytes_max).unwrap_or(i64::MAX),
    }
}

/// How many allocations this thread makes meanwhile.
pub(crate) fn allocations(work: impl FnOnce()) -> u64 {
    allocation_counter::measure(work).count_total
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes {
    pub(crate) kept: i64,
    pub(crate) most: i64,
}

pub(crate) fn nanos_each(took: Duration, count: usize) -> f64 {
    took.as_secs_f64() * 1e9 / count.max(1) as f64
}

/// The middle one; NaN of none.
pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The same of rounds, or why one of them failed.
pub(crate) fn median_of(rounds: Vec<Result<f64, String>>) -> Result<f64, String> {
    let values: Result<Vec<f64>, String> = rounds.into_iter().collect();
    values.map(|values| median(&values))
}

/// The least value that is not less than this share of all of them; NaN of none.
pub(crate) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a length is an index"
    )]
    let at = ((sorted.len() as f64 * share).ceil() as usize).max(1) - 1;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

/// The exponent of the power law that lies nearest, in logarithms: 1 is linear, 0 is constant.
pub(crate) fn exponent(points: &[(f64, f64)]) -> f64 {
    let logs: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    let n = logs.len() as f64;
    let (mean_x, mean_y) = (
        logs.iter().map(|(x, _)| x).sum::<f64>() / n,
        logs.iter().map(|(_, y)| y).sum::<f64>() / n,
    );
    let rise: f64 = logs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let run: f64 = logs.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    rise / run
}

/// A comma after each thousand.
pub(crate) fn with_commas(digits: &str) -> String {
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        let left = digits.len() - at;
        if at > 0 && left.is_multiple_of(3) && text != "-" {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_one_of_the_values() {
        assert_eq!(median(&[3.0, 1.0, 2.0]).to_bits(), 2.0_f64.to_bits());
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]).to_bits(), 2.0_f64.to_bits());
        assert_eq!(
            quantile(&[1.0, 2.0, 3.0], 0.99).to_bits(),
            3.0_f64.to_bits()
        );
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn the_exponent_of_a_square_is_two() {
        let squares = [1.0, 10.0, 100.0].map(|x: f64| (x, 7.0 * x * x));
        assert!((exponent(&squares) - 2.0).abs() < 1e-9);
        let constant = [1.0, 10.0, 100.0].map(|x| (x, 7.0));
        assert!(exponent(&constant).abs() < 1e-9);
    }

    #[test]
    fn bytes_are_counted() {
        let mut kept = Vec::new();
        let bytes = bytes(|| {
            drop(vec![0_u8; 10_000]);
            kept = vec![0_u8; 1_000];
        });
        assert_eq!((bytes.kept, bytes.most), (1_000, 10_000));
    }
}
