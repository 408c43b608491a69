//! How near to the allowed rate a contender comes while there is other work to do.

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::contenders::PACED;
use crate::figures::{Figure, Notes};
use crate::measure::Extent;

use super::pacing::{Flavour, Pacing, run};

/// What else there is to do.
#[derive(Clone, Copy, Debug)]
enum Load {
    /// A task of the same runtime that computes between two yields.
    Task,
    /// Many tasks that sleep again and again.
    Timers,
    /// Threads that leave no core idle, outside the runtime.
    Cores,
}

const LOADS: [(&str, Load); 3] = [
    ("busy task", Load::Task),
    ("1,000 timers", Load::Timers),
    ("busy cores", Load::Cores),
];

const INTERVALS: [(&str, u64); 2] = [("10 ms", 10_000), ("1 ms", 1_000)];

/// Between two yields of the task.
const AT_A_TIME: Duration = Duration::from_micros(200);

pub(super) fn measure(extent: Extent) -> Vec<Figure> {
    let mut notes = Notes::new("load");
    let during = extent.pick(Duration::from_millis(700), Duration::from_millis(5));
    for flavour in Flavour::ALL {
        notes.begin(flavour.name());
        for (interval_name, micros) in extent.pick(&INTERVALS[..], &INTERVALS[1..]) {
            for (load_name, load) in LOADS {
                let case = format!("{interval_name}, {load_name}");
                for contender in PACED {
                    let interval = Duration::from_micros(*micros);
                    let guard = load.outside();
                    let pacing = run(contender, flavour, interval, during, || load.inside());
                    drop(guard);
                    for (metric, of) in Pacing::METRICS {
                        let value = pacing.as_ref().map(of).map_err(Clone::clone);
                        notes.add(metric, contender.name, &case, value);
                    }
                }
            }
        }
    }
    notes.figures
}

impl Load {
    /// Starts what runs in the runtime. It ends with it.
    fn inside(self) {
        match self {
            Self::Task => {
                tokio::spawn(async {
                    loop {
                        compute(AT_A_TIME);
                        tokio::task::yield_now().await;
                    }
                });
            }
            Self::Timers => {
                for timer in 0..1_000 {
                    let period = Duration::from_micros(5_000 + 13 * timer);
                    tokio::spawn(async move {
                        loop {
                            tokio::time::sleep(period).await;
                        }
                    });
                }
            }
            Self::Cores => {}
        }
    }

    /// Starts what runs outside. It ends when what is given is dropped.
    fn outside(self) -> Option<Busy> {
        matches!(self, Self::Cores).then(Busy::everywhere)
    }
}

fn compute(during: Duration) {
    let start = Instant::now();
    while start.elapsed() < during {
        spin_loop();
    }
}

/// Threads that compute until this is dropped.
struct Busy {
    is_over: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Busy {
    fn everywhere() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let threads = (0..cores).map(|_| {
            let is_over = Arc::clone(&is_over);
            thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    compute(AT_A_TIME);
                }
            })
        });
        let threads = threads.collect();
        Self { is_over, threads }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
