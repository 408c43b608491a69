//! What a permit costs when many tasks ask for it at once.

use std::time::Duration;

use crate::contenders::{Bound, CONTENDED, Contended, Crowd, Gathered, MILLIS_ACQUIRE};
use crate::figures::{Figure, Notes};
use crate::measure::{Extent, median_of, with_commas};

use super::pacing::{Flavour, caught};

const NANOS: &str = "ns a permit";
const SECONDS: &str = "seconds until all are served";
const POLLS: &str = "polls a grant";
const CPU: &str = "µs of processor time a grant";

/// How many wait, and how many of them are served each millisecond.
const WAITERS: [(u64, u32); 5] = [
    (100, 1),
    (1_000, 10),
    (1_000, 200),
    (10_000, 200),
    (100_000, 200),
];

pub(super) fn measure(extent: Extent) -> Vec<Figure> {
    let mut notes = Notes::new("contention");
    unbound(extent, &mut notes);
    bound(extent, &mut notes);
    notes.figures
}

/// The limit does not bind: what is measured is the lock.
fn unbound(extent: Extent, notes: &mut Notes) {
    let permits = extent.pick(400_000, 400);
    for tasks in [1, 2, 4, 8] {
        let crowd = Crowd {
            tasks,
            each: permits / tasks,
            patience: Duration::from_secs(10),
        };
        let mut rounds: Vec<Vec<Result<f64, String>>> =
            CONTENDED.iter().map(|_| Vec::new()).collect();
        for _ in 0..extent.pick(5, 1) {
            for (contender, rounds) in CONTENDED.iter().zip(&mut rounds) {
                let all = run(contender, crowd, Bound::None);
                rounds.push(all.map(|all| all.took.as_secs_f64() * 1e9 / all.grants as f64));
            }
        }
        for (contender, rounds) in CONTENDED.iter().zip(rounds) {
            let case = if tasks == 1 {
                "1 task".to_owned()
            } else {
                format!("{tasks} tasks")
            };
            notes.add_at(
                NANOS,
                contender.name,
                (&case, tasks as f64),
                median_of(rounds),
            );
        }
    }
}

/// All of them wait at once, and are served as fast as the limit allows.
fn bound(extent: Extent, notes: &mut Notes) {
    for &(tasks, rate) in &WAITERS[..extent.pick(WAITERS.len(), 1)] {
        let crowd = Crowd {
            tasks,
            each: 1,
            patience: extent.pick(Duration::from_secs(10), Duration::from_secs(1)),
        };
        let waiting = CONTENDED.iter().filter(|contender| contender.waits);
        let waiting: Vec<&Contended> = waiting.chain([&MILLIS_ACQUIRE]).collect();
        let mut rounds: Vec<Vec<Result<Gathered, String>>> =
            waiting.iter().map(|_| Vec::new()).collect();
        for _ in 0..extent.pick(3, 1) {
            for (contender, rounds) in waiting.iter().zip(&mut rounds) {
                // One that was not done is not tried again.
                if rounds.last().is_none_or(Result::is_ok) {
                    rounds.push(served(contender, crowd, rate));
                }
            }
        }
        for (contender, rounds) in waiting.iter().zip(rounds) {
            let case = format!("{} waiters, {rate} a ms", with_commas(&tasks.to_string()));
            let case = (case.as_str(), tasks as f64);
            let of = |of: fn(&Gathered) -> f64| {
                let rounds = rounds.iter();
                median_of(
                    rounds
                        .map(|all| all.as_ref().map(of).map_err(Clone::clone))
                        .collect(),
                )
            };
            let name = contender.name;
            notes.add_at(SECONDS, name, case, of(|all| all.took.as_secs_f64()));
            notes.add_at(
                POLLS,
                name,
                case,
                of(|all| all.polls as f64 / all.grants as f64),
            );
            notes.add_at(
                CPU,
                name,
                case,
                of(|all| all.cpu.as_secs_f64() * 1e6 / all.grants as f64),
            );
        }
    }
}

/// Once everybody was served.
fn served(contender: &Contended, crowd: Crowd, rate: u32) -> Result<Gathered, String> {
    let all = run(contender, crowd, Bound::PerMillisecond(rate))?;
    if all.grants == crowd.tasks {
        return Ok(all);
    }
    let (patience, grants, tasks) = (crowd.patience, all.grants, crowd.tasks);
    Err(format!("not done after {patience:?}: {grants} of {tasks}"))
}

fn run(contender: &Contended, crowd: Crowd, bound: Bound) -> Result<Gathered, String> {
    let runtime = Flavour::TwoThreads.runtime();
    let all = caught(|| {
        runtime.block_on(async {
            let all = tokio::spawn((contender.run)(crowd, bound)).await;
            all.expect("a panic is caught outside")
        })
    });
    runtime.shutdown_background();
    all
}
