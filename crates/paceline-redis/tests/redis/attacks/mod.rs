//! Attacks: many keys at once, cancelled requests, steps of the server's clock, a deadline close to the round trip, a replica far
//! away. In real time, on real servers.
//!
//! A test counts passes, and asserts bounds that hold on a slow machine too. Where a stall of the machine looks like a fault of
//! the server, one calm round of [`ROUNDS`] is enough.
#![expect(
    clippy::disallowed_types,
    reason = "servers know nothing of a paused clock"
)]

mod cancelled;
mod clock_steps;
mod far;
mod herd;
mod late_joiners;
mod paused;

use std::time::{Duration, Instant};

use paceline_redis::{OutagePolicy, Redis};

use crate::failing::until_up;

/// How often a round is tried.
const ROUNDS: usize = 3;

/// A connected client, which stands for a process.
async fn process(url: &str, when_down: OutagePolicy, deadline: Duration) -> Redis {
    let redis = Redis::open(url, when_down).unwrap();
    let redis = redis.with_deadline(deadline).unwrap();
    until_up(&redis).await;
    redis
}

/// Runs rounds until one of them is calm, and fails with the faults of all if none is.
async fn one_calm_round<F: Future<Output = Result<(), String>>>(mut round: impl FnMut() -> F) {
    let mut faults = Vec::new();
    for _ in 0..ROUNDS {
        match round().await {
            Ok(()) => return,
            Err(fault) => faults.push(fault),
        }
    }
    panic!("no round was calm: {}", faults.join("; "));
}

/// A permit that passed. Redis counted it between these two times.
#[derive(Clone, Copy, Debug)]
struct Pass {
    asked: Instant,
    passed: Instant,
}

impl Pass {
    fn since(asked: Instant) -> Self {
        Self {
            asked,
            passed: Instant::now(),
        }
    }

    /// The longest time that can lie between the moments at which the two were counted.
    fn apart_at_most(self, other: Self) -> Duration {
        let one = self.passed.saturating_duration_since(other.asked);
        one.max(other.passed.saturating_duration_since(self.asked))
    }
}

/// The two passes that are certainly closest. Infinitely far apart if there are fewer than two.
fn closest(passes: &[Pass]) -> Duration {
    let pairs = passes
        .iter()
        .enumerate()
        .flat_map(|(at, one)| passes[..at].iter().map(|other| one.apart_at_most(*other)));
    pairs.min().unwrap_or(Duration::MAX)
}
