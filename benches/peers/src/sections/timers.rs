//! What a wait costs and how late it ends, with one timer, with a hundred and with ten thousand in one runtime.

use std::future::poll_fn;
use std::time::{Duration, Instant};

use cpu_time::ProcessTime;
use paceline::time::{Resolution, Timer};

use crate::figures::{Figure, Notes};
use crate::measure::{Extent, quantile, with_commas};

use super::pacing::Flavour;

/// How many tasks wait, and the length of each wait in microseconds.
const CROWDS: [(u32, u64); 12] = [
    (1, 25),
    (1, 50),
    (1, 100),
    (1, 1_000),
    (1, 10_000),
    (1, 100_000),
    (100, 1_000),
    (100, 10_000),
    (100, 100_000),
    (100, 1_000_000),
    (10_000, 100_000),
    (10_000, 1_000_000),
];

#[derive(Clone, Copy, Debug)]
enum Waiter {
    Exact,
    Millis,
    Tokio,
}

impl Waiter {
    const ALL: [Self; 3] = [Self::Exact, Self::Millis, Self::Tokio];

    const fn name(self) -> &'static str {
        match self {
            Self::Exact => "paceline Timer",
            Self::Millis => "paceline Timer, Millis",
            Self::Tokio => "tokio sleep",
        }
    }
}

/// Lateness in microseconds, and processor time.
struct Waits {
    late: Vec<f64>,
    cpu: Duration,
}

pub(super) fn measure(extent: Extent) -> Vec<Figure> {
    let mut notes = Notes::new("timers");
    let least = extent.pick(Duration::from_millis(500), Duration::from_millis(5));
    for &(count, micros) in extent.pick(&CROWDS[..], &CROWDS[2..4]) {
        let wait = Duration::from_micros(micros);
        let case = format!("{} of {wait:?}", with_commas(&count.to_string()));
        for waiter in Waiter::ALL {
            let waits = crowd(waiter, count, wait, least.max(3 * wait));
            let count = waits.late.len() as f64;
            for (metric, value) in [
                ("late, median, µs", quantile(&waits.late, 0.5)),
                ("late, 99 %, µs", quantile(&waits.late, 0.99)),
                (
                    "µs of processor time a wait",
                    waits.cpu.as_secs_f64() * 1e6 / count,
                ),
            ] {
                notes.add(metric, waiter.name(), &case, value);
            }
        }
    }
    notes.figures
}

fn crowd(waiter: Waiter, count: u32, wait: Duration, during: Duration) -> Waits {
    Flavour::OneThread.runtime().block_on(async {
        let end = Instant::now() + during;
        let start = ProcessTime::now();
        let tasks: Vec<_> = (0..count)
            .map(|n| tokio::spawn(task(waiter, wait * n / count, wait, end)))
            .collect();
        let mut late = Vec::new();
        for task in tasks {
            late.extend(task.await.expect("a task that waits does not panic"));
        }
        Waits {
            late,
            cpu: start.elapsed(),
        }
    })
}

/// Waits again and again, and says how late it was each time. `phase` keeps the tasks apart.
async fn task(waiter: Waiter, phase: Duration, wait: Duration, end: Instant) -> Vec<f64> {
    let mut late = Vec::new();
    let mut timer = match waiter {
        Waiter::Millis => Timer::new().with_resolution(Resolution::Millis),
        Waiter::Exact | Waiter::Tokio => Timer::new(),
    };
    tokio::time::sleep(phase).await;
    loop {
        let start = Instant::now();
        if matches!(waiter, Waiter::Tokio) {
            tokio::time::sleep(wait).await;
        } else {
            timer.arm(wait);
            poll_fn(|cx| timer.poll_elapsed(cx)).await;
        }
        late.push(start.elapsed().saturating_sub(wait).as_secs_f64() * 1e6);
        if Instant::now() >= end {
            return late;
        }
    }
}
