//! Many keys with a limit of 1/s each, and a waiter for each key, in one process on a healthy server.
#![expect(
    clippy::disallowed_types,
    reason = "servers know nothing of a paused clock"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use paceline::policy::TokenBucket;
use paceline::time::Rate;
use paceline_redis::OutagePolicy;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::failing::hasty;
use crate::limits::pause;
use crate::servers::{PATIENCE, Server};

const KEYS: usize = 10_000;

/// How many waiters start at the same time. A debug build takes longer than a deadline to poll thousands of new tasks.
const START: usize = 100;

/// How often a round is tried: a stall of the machine looks like a fault of the server.
const ROUNDS: usize = 3;

/// How long a herd asks at least.
const WHILE: Duration = Duration::from_secs(3);

/// Asks for a while, and until every key has passed twice. A round with an outage is a failure.
async fn round() -> Result<(), String> {
    let server = Server::start().await;
    let redis = hasty(&server.url(), OutagePolicy::closed()).await;
    let bucket = TokenBucket::new(Rate::per_second(1), 1);
    let limits = redis.keyed("herd", bucket).unwrap();
    let passes: Arc<Vec<_>> = Arc::new((0..KEYS).map(|_| AtomicU32::new(0)).collect());
    let counts = || passes.iter().map(|count| count.load(Ordering::Relaxed));
    let began = Instant::now();
    let starting = Arc::new(Semaphore::new(START));
    let mut waiters = JoinSet::new();
    for key in 0..KEYS {
        let start = Arc::clone(&starting).acquire_owned().await;
        let limit = limits.at(&key.to_string()).unwrap();
        let passes = Arc::clone(&passes);
        waiters.spawn(async move {
            drop(start);
            loop {
                limit.acquire(1).await.unwrap();
                passes[key].fetch_add(1, Ordering::Relaxed);
            }
        });
    }

    let asking = Instant::now();
    let (starved, stats) = loop {
        let starved = counts().filter(|count| *count < 2).count();
        let stats = redis.stats();
        let is_over = starved == 0 || stats.outages > 0 || asking.elapsed() > PATIENCE;
        if is_over && asking.elapsed() >= WHILE {
            break (starved, stats);
        }
        pause(Duration::from_millis(20)).await;
    };
    // Read before the clock: what passes meanwhile is not counted, but its time is.
    let most = counts().max().unwrap();
    let allowed = 1 + began.elapsed().as_secs();
    assert!(u64::from(most) <= allowed, "{most} of {allowed}");
    if starved == 0 && stats.outages == 0 {
        return Ok(());
    }
    let (sum, took) = (counts().sum::<u32>(), began.elapsed());
    Err(format!(
        "{sum} passed in {took:?}, {starved} keys starved, {stats:?}"
    ))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_for_each_of_10_000_keys_is_no_outage() {
    let mut faults = Vec::new();
    for _ in 0..ROUNDS {
        match round().await {
            Ok(()) => return,
            Err(fault) => faults.push(fault),
        }
    }
    panic!("no round was calm: {}", faults.join("; "));
}
