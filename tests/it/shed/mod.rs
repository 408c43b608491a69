//! Load shedders.

pub(crate) mod fleet_cases;
mod fleet_usage;
mod overload;
#[cfg(all(feature = "metrics", feature = "tracing"))]
mod published;
mod sampled;
mod sensors;
mod simulation;
mod switched;
mod utilization;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use paceline::shed::{Class, FleetUsage, WorkerUtilization};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::timed::{ms, now, sleep_until};

/// A sensor that a test sets, and that counts how often it is asked.
#[derive(Clone, Default)]
struct Dial(Arc<(AtomicU64, AtomicU32)>);

impl Dial {
    fn at(utilization: f64) -> Self {
        let dial = Self::default();
        dial.set(utilization);
        dial
    }

    fn set(&self, utilization: f64) {
        self.0.0.store(utilization.to_bits(), Ordering::Relaxed);
    }

    fn asked(&self) -> u32 {
        self.0.1.load(Ordering::Relaxed)
    }

    /// Whether a shedder still has it.
    fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    fn shedder(&self) -> WorkerUtilization {
        let dial = self.clone();
        WorkerUtilization::new(move || {
            dial.0.1.fetch_add(1, Ordering::Relaxed);
            f64::from_bits(dial.0.0.load(Ordering::Relaxed))
        })
    }
}

/// The instants of one test, in milliseconds from its start, each after the sample of that instant.
struct Timeline(Instant);

impl Timeline {
    /// Starts the shedder too.
    async fn of(shedder: &WorkerUtilization) -> Self {
        assert_eq!(shedder.utilization(), None, "before its first sample");
        let timeline = Self(now());
        timeline.at(0).await;
        timeline
    }

    async fn at(&self, millis: u64) {
        sleep_until(self.0 + ms(millis)).await;
        settled().await;
    }
}

/// What a letter of a [case](fleet_cases::CASES) asks for.
const fn importance(kind: char) -> Class {
    match kind {
        'c' => Class::Critical,
        _ => Class::Sheddable(0),
    }
}

fn in_use(usage: &FleetUsage) -> (u32, u32) {
    let in_use = usage.in_use();
    (in_use.critical, in_use.sheddable)
}

/// How many tasks the runtime has.
fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// What was woken has run.
async fn settled() {
    for _ in 0..4 {
        tokio::task::yield_now().await;
    }
}

/// The hook prints what a test lets panic.
fn quietly() {
    static QUIET: LazyLock<()> = LazyLock::new(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if info.payload().downcast_ref() != Some(&"the sensor is broken") {
                print(info);
            }
        }));
    });
    LazyLock::force(&QUIET);
}
