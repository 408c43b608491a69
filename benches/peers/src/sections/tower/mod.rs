//! Limits in front of services: what a request costs, in one thread and in several, with a million keys, and over HTTP.

mod http;

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::contenders::{
    Bound, Contended, Crowd, KeyedService, SERVED, SERVED_AT_ONCE, SERVED_BY_KEY,
};
use crate::figures::{Figure, Notes};
use crate::measure::{Extent, bytes, median, median_of, nanos_each, worked};

use super::hot;
use super::pacing::caught;

const COST: &str = "a request";
const AT_ONCE: &str = "ns a request, all threads together";
const NANOS: &str = "ns a request, a million keys";
const BYTES: &str = "bytes a key, a million keys";

pub(super) fn measure(extent: Extent) -> Vec<Figure> {
    let mut notes = Notes::new("tower");
    hot::add_to(&mut notes, &SERVED, COST, extent);
    notes.begin("");
    at_once(&mut notes, extent);
    many_keys(&mut notes, extent);
    http::add_to(&mut notes, extent);
    notes.figures
}

/// A task for each thread, which sends one request after the other.
fn at_once(notes: &mut Notes, extent: Extent) {
    let requests = extent.pick(200_000, 400);
    for threads in [1, 2, 4] {
        let mut rounds: Vec<Vec<Result<f64, String>>> =
            SERVED_AT_ONCE.iter().map(|_| Vec::new()).collect();
        for _ in 0..extent.pick(9, 1) {
            for (contender, rounds) in SERVED_AT_ONCE.iter().zip(&mut rounds) {
                rounds.push(crowded(contender, threads, requests));
            }
        }
        let case = match threads {
            1 => "1 thread".to_owned(),
            _ => format!("{threads} threads"),
        };
        for (contender, rounds) in SERVED_AT_ONCE.iter().zip(rounds) {
            let case = (case.as_str(), f64::from(threads));
            notes.add_at(AT_ONCE, contender.name, case, median_of(rounds));
        }
    }
}

fn crowded(contender: &Contended, threads: u32, requests: u64) -> Result<f64, String> {
    let crowd = Crowd {
        tasks: u64::from(threads),
        each: requests / u64::from(threads),
        patience: Duration::from_secs(10),
    };
    let runtime = runtime(threads);
    let all = caught(|| {
        runtime.block_on(async {
            let all = tokio::spawn((contender.run)(crowd, Bound::None)).await;
            all.expect("a panic is caught outside")
        })
    });
    runtime.shutdown_background();
    let all = all?;
    if all.grants < crowd.tasks * crowd.each {
        return Err(format!("not done after {:?}", crowd.patience));
    }
    Ok(all.took.as_secs_f64() * 1e9 / all.grants as f64)
}

fn runtime(threads: u32) -> Runtime {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder
        .worker_threads(threads as usize)
        .enable_all()
        .build();
    runtime.expect("a runtime can be built where there are threads")
}

/// Each of them sends one request, and then one more, in another order.
fn many_keys(notes: &mut Notes, extent: Extent) {
    let users: Vec<u64> = (0..extent.pick(1_000_000, 2_000)).collect();
    let mut shuffled = users.clone();
    fastrand::Rng::with_seed(1).shuffle(&mut shuffled);
    let mut lives: Vec<Vec<Life>> = SERVED_BY_KEY.iter().map(|_| Vec::new()).collect();
    for _ in 0..extent.pick(3, 1) {
        for (contender, lives) in SERVED_BY_KEY.iter().zip(&mut lives) {
            lives.push(life(contender, &users, &shuffled));
        }
    }
    for (contender, lives) in SERVED_BY_KEY.iter().zip(&lives) {
        let of = |of: fn(&Life) -> f64| median(&lives.iter().map(of).collect::<Vec<_>>());
        notes.add(NANOS, contender.name, "first", of(|life| life.first));
        notes.add(NANOS, contender.name, "known", of(|life| life.known));
        notes.add(BYTES, contender.name, "all there", of(|life| life.bytes));
    }
}

/// What was seen while a million users came, and came again.
struct Life {
    first: f64,
    known: f64,
    bytes: f64,
}

fn life(contender: &KeyedService, users: &[u64], shuffled: &[u64]) -> Life {
    let runtime = hot::runtime();
    let count = users.len();
    let mut service = None;
    let mut first = Duration::ZERO;
    let memory = bytes(|| {
        let service = service.insert((contender.new)());
        let (took, passed) = worked(|| runtime.block_on(service.send(users)));
        assert_eq!(passed, count, "{}: the first of each user", contender.name);
        first = took;
    });
    let mut service = service.expect("made above");
    let (known, passed) = worked(|| runtime.block_on(service.send(shuffled)));
    assert_eq!(passed, count, "{}: the second of each user", contender.name);
    Life {
        first: nanos_each(first, count),
        known: nanos_each(known, count),
        bytes: memory.kept as f64 / count as f64,
    }
}
