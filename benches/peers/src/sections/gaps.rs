//! Gaps as the consumer sees them: it reads the clock after each element, in `block_on` and in a task.

use std::time::Duration;

use crate::contenders::{GAPS, Paced, Tape};
use crate::figures::{Figure, Notes};
use crate::measure::Extent;

use super::pacing::Flavour;

const INTERVALS: [(&str, u64); 3] = [("2.5 ms", 2_500), ("1.5 ms", 1_500), ("1 ms", 1_000)];

/// A gap that is shorter than the interval by more than this is too short.
const TOLERANCE: Duration = Duration::from_micros(1);

pub(super) fn measure(extent: Extent) -> Vec<Figure> {
    let mut notes = Notes::new("gaps");
    for flavour in Flavour::ALL {
        for in_a_task in [false, true] {
            let place = if in_a_task { "a task" } else { "block_on" };
            notes.begin(&format!("{place}, {}", flavour.name()));
            for (name, micros) in INTERVALS {
                let interval = Duration::from_micros(micros);
                for contender in GAPS {
                    let gaps = gaps(
                        contender,
                        flavour,
                        in_a_task,
                        interval,
                        extent.pick(1_000, 10),
                    );
                    let short: Vec<f64> = gaps
                        .iter()
                        .filter(|&&gap| gap + TOLERANCE < interval)
                        .map(|&gap| interval.saturating_sub(gap).as_secs_f64() * 1e6)
                        .collect();
                    let per_mille = short.len() as f64 * 1e3 / gaps.len() as f64;
                    let most = short.iter().copied().fold(0.0, f64::max);
                    notes.add("gaps too short, of 1,000", contender.name, name, per_mille);
                    notes.add("short by at most, µs", contender.name, name, most);
                }
            }
        }
    }
    notes.figures
}

fn gaps(
    contender: &Paced,
    flavour: Flavour,
    in_a_task: bool,
    interval: Duration,
    count: usize,
) -> Vec<Duration> {
    let runtime = flavour.runtime();
    let running = (contender.run)(interval, Tape::of(count + 1));
    let tape = runtime.block_on(async {
        if in_a_task {
            tokio::spawn(running)
                .await
                .expect("a paced stream does not panic")
        } else {
            running.await
        }
    });
    let pairs = tape.stamps.windows(2);
    pairs.map(|pair| pair[1] - pair[0]).collect()
}
