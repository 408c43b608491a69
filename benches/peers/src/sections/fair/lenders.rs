//! Clients that leave a part of their share, beside one that takes all it gets: requests are refused, and do not wait.

use std::time::Duration;

use fastrand::Rng;
use paceline::fair::{Division, FairShare, GuaranteedShare};
use paceline::limiter::Fair;
use paceline::prelude::*;
use tokio::time::{Instant, advance};

use crate::figures::Notes;
use crate::measure::Extent;

use super::{at_random, in_virtual_time};

const METRIC: &str = "lenders and borrowers";

const CLIENTS: usize = 4;
/// What each client has in a cycle.
const SHARE: u32 = 60;
const CAPACITY: u32 = 4 * SHARE;
const CYCLE: Duration = Duration::from_secs(1);

/// What each client asks for, in shares.
type Demand = [f64; CLIENTS];
const LENDERS: Demand = [0.6, 0.8, 0.95, 40.0];
/// The last one asks ten times as often as the one before.
const BORROWERS: Demand = [0.6, 0.6, 4.0, 40.0];

/// What happens before is not counted: how a client begins is another matter.
const WARM_UP: Duration = Duration::from_secs(10);

/// Asks for a permit of a client without waiting.
type Ask = Box<dyn Fn(usize) -> bool>;
/// Makes a limit.
type Limit = fn() -> Ask;

const LIMITS: [(&str, Limit); 5] = [
    ("Shared", || {
        let limit = bucket(CAPACITY).shared();
        Box::new(move |_| limit.try_acquire(1).is_pass())
    }),
    ("Keyed, 60 each", || {
        let limits = bucket(SHARE).keyed();
        Box::new(move |client| limits.try_acquire(&client, 1).is_pass())
    }),
    ("FairShare", || {
        let limits = Fair::new(FairShare::new(CAPACITY, CYCLE));
        Box::new(move |client| limits.try_acquire(&client, 1).is_pass())
    }),
    ("FairShare, max-min", || {
        let share = FairShare::new(CAPACITY, CYCLE).with_division(Division::MaxMin);
        let limits = Fair::new(share);
        Box::new(move |client| limits.try_acquire(&client, 1).is_pass())
    }),
    ("GuaranteedShare", || {
        let limits = Fair::new(GuaranteedShare::new(CAPACITY, CYCLE));
        Box::new(move |client| limits.try_acquire(&client, 1).is_pass())
    }),
];

/// With a burst of a cycle.
fn bucket(a_cycle: u32) -> TokenBucket {
    TokenBucket::new(Rate::new(a_cycle, CYCLE), a_cycle)
}

pub(super) fn measure(extent: Extent, notes: &mut Notes) {
    let time = Duration::from_secs(extent.pick(300, 2));
    for (name, limit) in LIMITS {
        let clients = in_virtual_time(run(limit, LENDERS, time));
        for (client, part) in clients.iter().zip(LENDERS).take(3) {
            let refused = 100.0 * (1.0 - client.passed / client.asked);
            let case = format!("at {:.0} %", 100.0 * part);
            notes.add(METRIC, name, &case, refused);
        }
        let passed: f64 = clients.iter().map(|client| client.passed).sum();
        let used = 100.0 * passed / (f64::from(CAPACITY) * time.as_secs_f64());
        notes.add(METRIC, name, "used", used);
        let [_, _, a, b] = in_virtual_time(run(limit, BORROWERS, time));
        let index = jain(a.passed, b.passed);
        notes.add(METRIC, name, "Jain's index", index);
    }
}

#[derive(Clone, Copy, Default)]
struct Count {
    asked: f64,
    passed: f64,
}

/// What each client asks for in this time, and what it gets. The same requests for each limit.
async fn run(limit: Limit, demand: Demand, time: Duration) -> [Count; CLIENTS] {
    let mut random = Rng::with_seed(1);
    let mut requests = Vec::new();
    for (client, shares) in demand.into_iter().enumerate() {
        let a_second = shares * f64::from(SHARE) / CYCLE.as_secs_f64();
        let times = at_random(a_second, WARM_UP + time, &mut random);
        requests.extend(times.map(|at| (at, client)));
    }
    requests.sort_unstable();

    let ask = limit();
    let start = Instant::now();
    let mut counts = [Count::default(); CLIENTS];
    for (at, client) in requests {
        advance(start + at - Instant::now()).await;
        let passes = ask(client);
        if at >= WARM_UP {
            counts[client].asked += 1.0;
            counts[client].passed += f64::from(passes);
        }
    }
    counts
}

/// 1 if both have the same, and a half if one has everything.
fn jain(one: f64, other: f64) -> f64 {
    (one + other).powi(2) / (2.0 * (one * one + other * other))
}
