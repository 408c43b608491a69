//! How near to the allowed rate a contender comes, at intervals down to 10 µs.

use std::time::Duration;

use crate::contenders::PACED;
use crate::figures::{Figure, Notes};
use crate::measure::Extent;

use super::pacing::{Flavour, Pacing, run};

/// The interval in microseconds, and how many of them a round takes at the least.
const INTERVALS: [(&str, u64, u32); 9] = [
    ("100 ms", 100_000, 4),
    ("10 ms", 10_000, 32),
    ("2.5 ms", 2_500, 4),
    ("2 ms", 2_000, 4),
    ("1.5 ms", 1_500, 4),
    ("1 ms", 1_000, 4),
    ("500 µs", 500, 4),
    ("100 µs", 100, 4),
    ("10 µs", 10, 4),
];

const ROUNDS: u32 = 9;

pub(super) fn measure(extent: Extent) -> Vec<Figure> {
    let mut notes = Notes::new("precision");
    let intervals = extent.pick(&INTERVALS[..], &INTERVALS[5..7]);
    let least = extent.pick(Duration::from_millis(160), Duration::from_millis(5));
    for flavour in Flavour::ALL {
        notes.begin(flavour.name());
        for &(name, micros, count) in intervals {
            let interval = Duration::from_micros(micros);
            let during = least.max(extent.pick(count, 2) * interval);
            let mut rounds = vec![Vec::new(); PACED.len()];
            // They take turns, so that a stall of the machine spoils one round of one of them.
            for _ in 0..extent.pick(ROUNDS, 1) {
                for (contender, rounds) in PACED.iter().zip(&mut rounds) {
                    rounds.push(run(contender, flavour, interval, during, || {}));
                }
            }
            for (contender, rounds) in PACED.iter().zip(rounds) {
                let pacing = Pacing::median(rounds);
                note(
                    &mut notes,
                    contender.name,
                    (name, 1e6 / micros as f64),
                    &pacing,
                );
            }
        }
    }
    notes.figures
}

fn note(notes: &mut Notes, contender: &str, case: (&str, f64), pacing: &Result<Pacing, String>) {
    for (metric, of) in Pacing::METRICS {
        notes.add_at(
            metric,
            contender,
            case,
            pacing.as_ref().map(of).map_err(Clone::clone),
        );
    }
}
