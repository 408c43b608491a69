//! Clients that share one capacity, beside a limit for each key: `paceline` alone.

use std::time::Duration;

use paceline::fair::FairShare;
use paceline::limiter::Fair;
use paceline::prelude::*;

use crate::figures::{Figure, Notes};
use crate::measure::{Extent, bytes, median, nanos_each, with_commas, worked};

const NANOS: &str = "ns a decision";
const CYCLE: &str = "ms a new cycle";
const BYTES: &str = "bytes a client";

/// Longer than a measurement takes.
const LONG: Duration = Duration::from_secs(3_600);
/// A cycle that is over when the next request comes.
const SHORT: Duration = Duration::from_nanos(1);

const FAIR: &str = "paceline Fair";
const KEYED: &str = "paceline Keyed";

pub(super) fn measure(extent: Extent) -> Vec<Figure> {
    let mut notes = Notes::new("fair");
    for clients in extent.pick(&[4, 1_000, 100_000][..], &[4, 100][..]) {
        let clients = *clients;
        let name = format!("{} clients", with_commas(&clients.to_string()));
        let case = (name.as_str(), f64::from(clients));
        let mut fair = None;
        let memory = bytes(|| fair = Some(known(clients)));
        let fair = fair.expect("made above");
        let keyed = TokenBucket::new(Rate::per_second(1_000), u32::MAX).keyed::<u32>();
        let each = memory.kept as f64 / f64::from(clients);
        notes.add_at(BYTES, FAIR, case, each);

        let decisions = extent.pick(200_000, 2_000);
        let mut rng = fastrand::Rng::with_seed(1);
        let asked: Vec<u32> = (0..decisions).map(|_| rng.u32(..clients)).collect();
        let (mut of_fair, mut of_keyed) = (Vec::new(), Vec::new());
        for _ in 0..extent.pick(15, 2) {
            of_fair.push(nanos(&asked, |client| {
                fair.try_acquire(client, 1).is_pass()
            }));
            of_keyed.push(nanos(&asked, |client| {
                keyed.try_acquire(client, 1).is_pass()
            }));
        }
        notes.add_at(NANOS, FAIR, case, median(&of_fair));
        notes.add_at(NANOS, KEYED, case, median(&of_keyed));

        // Each look at the cycle begins a new one.
        fair.retune(
            FairShare::new(u32::MAX, SHORT)
                .try_forgetting_after(u32::MAX)
                .unwrap(),
        );
        let cycles = (0..extent.pick(15, 2)).map(|_| {
            let before = fair.cycle().number;
            let (took, cycle) = worked(|| fair.cycle());
            assert!(cycle.number > before, "a cycle of 1 ns is over");
            took.as_secs_f64() * 1e3
        });
        notes.add_at(CYCLE, FAIR, case, median(&cycles.collect::<Vec<_>>()));
    }
    notes.figures
}

/// Clients that have asked once. They are never forgotten.
fn known(clients: u32) -> Fair<u32> {
    let share = FairShare::new(u32::MAX, LONG)
        .try_with_max_clients(clients)
        .unwrap()
        .try_forgetting_after(u32::MAX)
        .unwrap();
    let fair = Fair::new(share);
    for client in 0..clients {
        let _ = fair.try_acquire(&client, 1);
    }
    fair
}

fn nanos(asked: &[u32], mut ask: impl FnMut(&u32) -> bool) -> f64 {
    let (took, passed) = worked(|| asked.iter().filter(|client| ask(client)).count());
    assert!(passed > 0, "the limit does not bind");
    nanos_each(took, asked.len())
}
