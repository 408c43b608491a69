//! Clients that share one capacity, beside a limit for each key: `paceline` alone.

mod backlog;
mod lenders;

use std::iter;
use std::time::Duration;

use fastrand::Rng;
use paceline::fair::{FairShare, GuaranteedShare, Rule};
use paceline::limiter::Fair;
use paceline::prelude::*;
use tokio::runtime::Builder;

use crate::figures::{Figure, Notes};
use crate::measure::{Extent, bytes, median, nanos_each, with_commas, worked};

const NANOS: &str = "ns a decision";
const CYCLE: &str = "ms a new cycle";
const BYTES: &str = "bytes a client";

/// Longer than a measurement takes.
const LONG: Duration = Duration::from_secs(3_600);
/// A cycle that is over when the next request comes. After `u32::MAX` of them no client is forgotten yet.
const SHORT: Duration = Duration::from_nanos(100);

const FAIR: &str = "paceline FairShare";
const GUARANTEED: &str = "paceline GuaranteedShare";
const KEYED: &str = "paceline Keyed";

pub(super) fn measure(extent: Extent) -> Vec<Figure> {
    let mut notes = Notes::new("fair");
    for clients in extent.pick(&[4, 1_000, 100_000][..], &[4, 100][..]) {
        costs(*clients, extent, &mut notes);
    }
    backlog::measure(extent, &mut notes);
    lenders::measure(extent, &mut notes);
    notes.figures
}

fn costs(clients: u32, extent: Extent, notes: &mut Notes) {
    let name = format!("{} clients", with_commas(&clients.to_string()));
    let case = (name.as_str(), f64::from(clients));
    let fair = known(by_demand(LONG, clients), clients, FAIR, case, notes);
    // Buckets fill about as fast as they are asked, so that decisions have that to do, too.
    let guaranteed = GuaranteedShare::new(10_000_000, Duration::from_secs(1))
        .try_with_max_clients(clients)
        .and_then(|share| share.try_forgetting_after(u32::MAX));
    let guaranteed = known(
        guaranteed.expect("in range"),
        clients,
        GUARANTEED,
        case,
        notes,
    );
    let keyed = TokenBucket::new(Rate::per_second(1_000), u32::MAX).keyed::<u32>();

    let decisions = extent.pick(200_000, 2_000);
    let mut random = Rng::with_seed(1);
    let asked: Vec<u32> = (0..decisions).map(|_| random.u32(..clients)).collect();
    let (mut of_fair, mut of_guaranteed, mut of_keyed) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..extent.pick(15, 2) {
        of_fair.push(nanos(&asked, |client| {
            fair.try_acquire(client, 1).is_pass()
        }));
        of_guaranteed.push(nanos(&asked, |client| {
            guaranteed.try_acquire(client, 1).is_pass()
        }));
        of_keyed.push(nanos(&asked, |client| {
            keyed.try_acquire(client, 1).is_pass()
        }));
    }
    notes.add_at(NANOS, FAIR, case, median(&of_fair));
    notes.add_at(NANOS, GUARANTEED, case, median(&of_guaranteed));
    notes.add_at(NANOS, KEYED, case, median(&of_keyed));

    // Each look at the cycle begins a new one.
    fair.retune(by_demand(SHORT, clients));
    let cycles = (0..extent.pick(15, 2)).map(|_| {
        let before = fair.cycle().number;
        let (took, cycle) = worked(|| fair.cycle());
        assert!(cycle.number > before, "a cycle of 100 ns is over");
        took.as_secs_f64() * 1e3
    });
    notes.add_at(CYCLE, FAIR, case, median(&cycles.collect::<Vec<_>>()));
    assert_eq!(fair.len(), clients as usize, "no client is forgotten");
}

/// For clients that are never forgotten.
fn by_demand(cycle: Duration, clients: u32) -> FairShare {
    let share = FairShare::new(u32::MAX, cycle).try_with_max_clients(clients);
    let share = share.and_then(|share| share.try_forgetting_after(u32::MAX));
    share.expect("in range")
}

/// Clients that have asked once.
fn known<R: Rule>(
    share: R,
    clients: u32,
    name: &str,
    case: (&str, f64),
    notes: &mut Notes,
) -> Fair<u32, R> {
    let mut fair = None;
    let memory = bytes(|| {
        let fair = fair.insert(Fair::new(share));
        for client in 0..clients {
            let _ = fair.try_acquire(&client, 1);
        }
    });
    notes.add_at(BYTES, name, case, memory.kept as f64 / case.1);
    fair.expect("made above")
}

fn nanos(asked: &[u32], mut ask: impl FnMut(&u32) -> bool) -> f64 {
    let (took, passed) = worked(|| asked.iter().filter(|client| ask(client)).count());
    assert_eq!(passed, asked.len(), "the limit does not bind");
    nanos_each(took, asked.len())
}

/// When requests come that are independent of each other, until `end`: a Poisson process. The same in each run.
fn at_random(a_second: f64, end: Duration, random: &mut Rng) -> impl Iterator<Item = Duration> {
    let mut at = Duration::ZERO;
    let times = iter::repeat_with(move || {
        at += Duration::from_secs_f64(-(1.0 - random.f64()).ln() / a_second);
        at
    });
    times.take_while(move |at| *at < end)
}

fn in_virtual_time<T>(run: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build();
    runtime.expect("a runtime without threads").block_on(run)
}
