//! Runs what keeps emissions apart on the clock on the wall, and says how well it did.

use std::panic::{self, AssertUnwindSafe};
use std::time::{Duration, Instant};

use cpu_time::ProcessTime;
use tokio::runtime::{Builder, Runtime};

use crate::contenders::{Paced, Tape};
use crate::measure::quantile;

pub(super) const REACHED: &str = "share of the allowed rate";
pub(super) const SHORT: &str = "gaps too short, in %";
pub(super) const LATE: &str = "late, median, µs";
pub(super) const LATE_P99: &str = "late, 99 %, µs";
pub(super) const CPU: &str = "µs of processor time an emission";

/// A contender that emits nothing for so long is stuck.
const PATIENCE: Duration = Duration::from_secs(5);

/// The time between an emission and the clock reading after it.
const READING: Duration = Duration::from_micros(1);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Flavour {
    OneThread,
    TwoThreads,
}

impl Flavour {
    pub(super) const ALL: [Self; 2] = [Self::OneThread, Self::TwoThreads];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::OneThread => "one thread",
            Self::TwoThreads => "two threads",
        }
    }

    pub(super) fn runtime(self) -> Runtime {
        let mut builder = match self {
            Self::OneThread => Builder::new_current_thread(),
            Self::TwoThreads => Builder::new_multi_thread(),
        };
        if self == Self::TwoThreads {
            builder.worker_threads(2);
        }
        let runtime = builder.enable_all().build();
        runtime.expect("a runtime can be built where there are threads")
    }
}

/// How well emissions were kept apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pacing {
    pub(super) reached: f64,
    pub(super) short: f64,
    pub(super) late: f64,
    pub(super) late_p99: f64,
    pub(super) cpu: f64,
}

impl Pacing {
    /// Each of the figures with its name.
    pub(super) const METRICS: [Metric; 5] = [
        (REACHED, |pacing| pacing.reached),
        (SHORT, |pacing| pacing.short),
        (LATE, |pacing| pacing.late),
        (LATE_P99, |pacing| pacing.late_p99),
        (CPU, |pacing| pacing.cpu),
    ];

    /// The median of several rounds, figure by figure; or why one of them failed. Gaps that are too short are few, and a mean
    /// forgets none.
    pub(super) fn median(rounds: Vec<Result<Self, String>>) -> Result<Self, String> {
        let rounds: Vec<Self> = rounds.into_iter().collect::<Result<_, _>>()?;
        let median = |of: fn(&Self) -> f64| {
            let values: Vec<f64> = rounds.iter().map(of).collect();
            quantile(&values, 0.5)
        };
        Ok(Self {
            reached: median(|round| round.reached),
            short: rounds.iter().map(|round| round.short).sum::<f64>() / rounds.len() as f64,
            late: median(|round| round.late),
            late_p99: median(|round| round.late_p99),
            cpu: median(|round| round.cpu),
        })
    }

    fn of(stamps: &[Instant], interval: Duration, cpu: Duration) -> Self {
        let gaps: Vec<Duration> = stamps.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let took: Duration = gaps.iter().sum();
        let tolerance = READING.max(interval / 100);
        let short = gaps
            .iter()
            .filter(|&&gap| gap + tolerance < interval)
            .count();
        let late: Vec<f64> = gaps
            .iter()
            .map(|gap| gap.saturating_sub(interval).as_secs_f64() * 1e6)
            .collect();
        let count = gaps.len() as f64;
        Self {
            reached: count * interval.as_secs_f64() / took.as_secs_f64(),
            short: 100.0 * short as f64 / count,
            late: quantile(&late, 0.5),
            late_p99: quantile(&late, 0.99),
            cpu: cpu.as_secs_f64() * 1e6 / stamps.len() as f64,
        }
    }
}

type Metric = (&'static str, fn(&Pacing) -> f64);

/// Lets a contender emit for a while. `beside` starts what else the runtime has to do.
pub(super) fn run(
    contender: &Paced,
    flavour: Flavour,
    interval: Duration,
    during: Duration,
    beside: impl FnOnce(),
) -> Result<Pacing, String> {
    let runtime = flavour.runtime();
    let outcome = caught(|| {
        runtime.block_on(async {
            beside();
            let tape = Tape::new(200_000, during);
            let start = ProcessTime::now();
            let running = tokio::spawn((contender.run)(interval, tape));
            let tape = tokio::time::timeout(during + PATIENCE, running).await;
            (tape, start.elapsed())
        })
    });
    runtime.shutdown_background();
    let (tape, cpu) = outcome?;
    let tape = tape.map_err(|_| "stuck: it did not emit three times".to_owned())?;
    let tape = tape.map_err(|error| match error.try_into_panic() {
        Ok(panic) => format!("panics: {}", message(&*panic)),
        Err(error) => error.to_string(),
    })?;
    Ok(Pacing::of(&tape.stamps, interval, cpu))
}

/// A panic as an error, without the noise.
pub(super) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let loud = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let outcome = panic::catch_unwind(AssertUnwindSafe(work));
    panic::set_hook(loud);
    outcome.map_err(|panic| format!("panics: {}", message(&*panic)))
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "without a message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_that_is_too_short_and_one_that_is_late_are_seen() {
        let start = Instant::now();
        let at = |micros| start + Duration::from_micros(micros);
        // Of 99 µs it cannot be said whether the emission or its reading came too soon.
        let stamps = [at(0), at(100), at(190), at(310), at(409)];
        let pacing = Pacing::of(
            &stamps,
            Duration::from_micros(100),
            Duration::from_micros(20),
        );
        assert!((pacing.reached - 400.0 / 409.0).abs() < 1e-9, "{pacing:?}");
        assert!((pacing.short - 25.0).abs() < 1e-9, "{pacing:?}");
        assert!((pacing.late_p99 - 20.0).abs() < 1e-9, "{pacing:?}");
        assert!(pacing.late.abs() < 1e-9, "{pacing:?}");
        assert!((pacing.cpu - 4.0).abs() < 1e-9, "{pacing:?}");
    }

    #[test]
    fn a_panic_is_an_error_with_its_message() {
        let error = caught(|| panic!("no such {}", "interval")).unwrap_err();
        assert_eq!(error, "panics: no such interval");
    }
}
