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
use paceline_redis::{OutagePolicy, Redis};
use tokio::sync::{Mutex, MutexGuard, Semaphore};
use tokio::task::JoinSet;

use super::process;
use crate::failing::until_down;
use crate::limits::pause;
use crate::servers::{PATIENCE, Server};

/// The default.
const DEADLINE: Duration = Duration::from_millis(25);

/// How many waiters start at the same time. A debug build takes longer than a deadline to poll thousands of new tasks.
const START: usize = 100;

/// Herds take turns: two of them have too few cores.
static TURN: Mutex<()> = Mutex::const_new(());

/// How often a round is tried: a stall of the machine looks like a fault of the server.
const ROUNDS: usize = 3;

/// How long a herd asks at least.
const WHILE: Duration = Duration::from_secs(3);

struct Herd {
    redis: Redis,
    began: Instant,
    passes: Arc<Vec<AtomicU32>>,
    /// Aborted when the herd is dropped.
    _waiters: JoinSet<()>,
    _turn: MutexGuard<'static, ()>,
}

impl Herd {
    async fn start(server: &Server, keys: usize, when_down: OutagePolicy) -> Self {
        let turn = TURN.lock().await;
        let redis = process(&server.url(), when_down, DEADLINE).await;
        let bucket = TokenBucket::new(Rate::per_second(1), 1);
        let limits = redis.keyed("herd", bucket).unwrap();
        let passes: Vec<_> = (0..keys).map(|_| AtomicU32::new(0)).collect();
        let passes = Arc::new(passes);
        let began = Instant::now();
        let starting = Arc::new(Semaphore::new(START));
        let mut waiters = JoinSet::new();
        for key in 0..keys {
            let start = Arc::clone(&starting).acquire_owned().await;
            if redis.stats().outages > 0 {
                // The round has failed.
                break;
            }
            let limit = limits.at(&key.to_string()).unwrap();
            let passes = Arc::clone(&passes);
            waiters.spawn(async move {
                drop(start);
                loop {
                    limit.acquire(1).await.unwrap();
                    passes[key].fetch_add(1, Ordering::Relaxed);
                    // While a policy lets everything pass, nothing else would run.
                    tokio::task::yield_now().await;
                }
            });
        }
        Self {
            redis,
            began,
            passes,
            _waiters: waiters,
            _turn: turn,
        }
    }

    /// How often each key has passed.
    fn counts(&self) -> Vec<u32> {
        let counts = self.passes.iter();
        counts.map(|count| count.load(Ordering::Relaxed)).collect()
    }

    /// Asks for a while, and until every key has passed more often than at the start. Ends early after more outages than the test
    /// made.
    async fn everyone_passes(&self, since: &[u32], outages: u64) -> Result<(), String> {
        let start = Instant::now();
        loop {
            let counts = self.counts();
            let starved = counts.iter().zip(since).filter(|(now, then)| now <= then);
            let starved = starved.count();
            let stats = self.redis.stats();
            let is_over = starved == 0 || stats.outages > outages || start.elapsed() > PATIENCE;
            if start.elapsed() < WHILE || !is_over {
                pause(Duration::from_millis(20)).await;
                continue;
            }
            if starved == 0 && stats.outages == outages {
                return Ok(());
            }
            let passed: u32 = counts.iter().sum();
            return Err(format!(
                "{} outages, {} timeouts, {passed} passed in {:?}, {starved} keys starved",
                stats.outages,
                stats.timeouts,
                self.began.elapsed(),
            ));
        }
    }

    /// No key passes more than it may, ever.
    fn keeps_each_limit(&self) {
        // Read before the clock: what passes meanwhile is not counted, but its time is.
        let most = self.counts().into_iter().max().unwrap();
        let allowed = 1 + self.began.elapsed().as_secs();
        assert!(u64::from(most) <= allowed, "{most} of {allowed}");
    }
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_for_each_of_10_000_keys_is_no_outage() {
    one_calm_round(async || {
        let server = Server::start().await;
        let herd = Herd::start(&server, 10_000, OutagePolicy::closed()).await;
        let everyone = herd.everyone_passes(&vec![1; 10_000], 0).await;
        herd.keeps_each_limit();
        everyone
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_for_each_of_3_000_keys_does_not_open_an_open_limit() {
    one_calm_round(async || {
        let server = Server::start().await;
        let herd = Herd::start(&server, 3_000, OutagePolicy::open()).await;
        herd.everyone_passes(&[1; 3_000], 0).await?;
        let passed: u32 = herd.counts().iter().sum();
        let allowed = 3_000.0 * (1.0 + herd.began.elapsed().as_secs_f64());
        if f64::from(passed) > 1.05 * allowed {
            return Err(format!("{passed} of {allowed:.0} passed"));
        }
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_comes_back_to_3_000_waiting_keys_is_not_lost_again() {
    one_calm_round(async || {
        let mut server = Server::start().await;
        let herd = Herd::start(&server, 3_000, OutagePolicy::closed()).await;
        herd.everyone_passes(&[0; 3_000], 0).await?;
        server.freeze();
        until_down(&herd.redis).await;
        // All permits that were spent are back, so all keys ask at once.
        pause(Duration::from_secs(1)).await;
        server.thaw();
        let everyone = herd.everyone_passes(&herd.counts(), 1).await;
        herd.keeps_each_limit();
        everyone
    })
    .await;
}
