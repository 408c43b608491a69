//! What an element costs while the limit does not bind.

use tokio::runtime::{Builder, Runtime};

use crate::contenders::{HOT, Hot};
use crate::figures::{Figure, Notes};
use crate::measure::{Extent, median_of, nanos_each, worked};

use super::instructions;
use super::pacing::caught;

const COST: &str = "an element";

/// A round takes about so long.
const ROUND_NANOS: f64 = 10e6;

pub(super) fn measure(extent: Extent) -> Vec<Figure> {
    let mut notes = Notes::new("hot");
    add_to(&mut notes, &HOT, COST, extent);
    notes.figures
}

/// What one of each costs, in time and in instructions.
pub(super) fn add_to(notes: &mut Notes, all: &[Hot], cost: &str, extent: Extent) {
    let counts: Vec<u64> = all.iter().map(|hot| calibrated(hot, extent)).collect();
    let mut rounds: Vec<Vec<Result<f64, String>>> = all.iter().map(|_| Vec::new()).collect();
    // In turns, so that what else happens on the machine happens to all.
    for _ in 0..extent.pick(15, 1) {
        for ((hot, &count), rounds) in all.iter().zip(&counts).zip(&mut rounds) {
            rounds.push(nanos(hot, count));
        }
    }
    let medians: Vec<Result<f64, String>> = rounds.into_iter().map(median_of).collect();
    for (hot, value) in all.iter().zip(&medians) {
        notes.begin(hot.part.name());
        notes.add(cost, hot.name, "ns", value.clone());
        if hot.name.starts_with("bare") {
            continue;
        }
        if let (Ok(value), Some(Ok(bare))) = (value, bare_beside(hot, all, &medians)) {
            notes.add(cost, hot.name, "ns more than bare", value - bare);
        }
    }
    instructions::add_to(notes, all, cost, extent);
}

/// The one that does nothing, before it in the same part.
fn bare_beside<'a, T>(hot: &Hot, all: &[Hot], values: &'a [T]) -> Option<&'a T> {
    let before = all
        .iter()
        .zip(values)
        .take_while(|(other, _)| other.name != hot.name || other.part != hot.part);
    before
        .filter(|(other, _)| other.part == hot.part && other.name.starts_with("bare"))
        .last()
        .map(|(_, value)| value)
}

/// Enough elements for a round to take long enough.
fn calibrated(hot: &Hot, extent: Extent) -> u64 {
    if extent == Extent::Quick {
        return 100;
    }
    let mut count = 64;
    loop {
        let took = nanos(hot, count).map_or(f64::INFINITY, |nanos| nanos * count as f64);
        if took >= ROUND_NANOS / 2.0 || count >= 1 << 24 {
            return count;
        }
        count *= 2;
    }
}

fn nanos(hot: &Hot, count: u64) -> Result<f64, String> {
    let runtime = runtime();
    caught(|| worked(|| runtime.block_on(async { (hot.run)(count).await })).0)
        .map(|took| nanos_each(took, usize::try_from(count).unwrap_or(usize::MAX)))
}

pub(super) fn runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime can be built where there are threads")
}
