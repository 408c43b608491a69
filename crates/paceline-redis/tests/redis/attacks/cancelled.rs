//! Requests that are cancelled while their reply is under way, beside other processes. Their permits are given back late: then
//! others have passed.
#![expect(
    clippy::disallowed_types,
    reason = "servers know nothing of a paused clock"
)]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fastrand::Rng;
use futures::FutureExt;
use futures::future::join_all;
use paceline::policy::{FixedWindow, Interval, SlidingCounter, SlidingLog, TokenBucket};
use paceline::time::Rate;
use paceline_redis::{OutagePolicy, RedisLimiter, RedisPolicy};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::process;
use crate::limits::{PATIENT, pause};
use crate::servers::{Relay, Server};

/// Two permits are at least this far apart.
const APART: Duration = Duration::from_millis(100);

/// The round trip of the process that cancels.
const FAR: Duration = Duration::from_millis(150);

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

async fn limit<P: RedisPolicy>(url: &str, name: &str, policy: &P) -> RedisLimiter<P> {
    let redis = process(url, OutagePolicy::closed(), PATIENT).await;
    redis.limit(name, policy.clone()).unwrap()
}

/// Six far processes ask and cancel at random, and six near ones ask at random. Returns the passes of the near ones: a
/// caller that never cancels and asks one thing after the other gets what was counted for its request.
async fn beside_cancelled<P: RedisPolicy>(
    server: &Server,
    name: &'static str,
    policy: P,
    seed: u64,
) -> (&'static str, Vec<Pass>) {
    let mut seeds = Rng::with_seed(seed);
    let relay = Relay::start(server.address());
    let mut tasks = JoinSet::new();
    for _ in 0..6 {
        let (limit, mut rng) = (limit(&relay.url(), name, &policy).await, seeds.fork());
        tasks.spawn(async move {
            loop {
                let _ = timeout(some_of(FAR, &mut rng), limit.acquire(1)).await;
                pause(some_of(APART, &mut rng)).await;
            }
        });
    }
    relay.delay_replies(FAR).await;
    let passes = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..6 {
        let limit = limit(&server.url(), name, &policy).await;
        let (passes, mut rng) = (Arc::clone(&passes), seeds.fork());
        tasks.spawn(async move {
            loop {
                pause(some_of(APART, &mut rng)).await;
                let asked = Instant::now();
                if limit.try_acquire(1).await.unwrap().is_pass() {
                    passes.lock().unwrap().push(Pass::since(asked));
                }
            }
        });
    }
    while passes.lock().unwrap().len() < 40 {
        pause(Duration::from_millis(10)).await;
    }
    tasks.shutdown().await;
    let passes = passes.lock().unwrap();
    (name, passes.clone())
}

fn some_of(time: Duration, rng: &mut Rng) -> Duration {
    time.mul_f64(rng.f64())
}

/// The passes by each policy that keeps permits [`APART`].
async fn by_each_policy(seed: u64) -> Vec<(&'static str, Vec<Pass>)> {
    let server = Server::start().await;
    let bucket = TokenBucket::new(Rate::new(1, APART), 1);
    let counter = SlidingCounter::strict(1, APART, 4);
    join_all([
        beside_cancelled(&server, "interval", Interval::every(APART), seed).boxed(),
        beside_cancelled(&server, "log", SlidingLog::new(1, APART), seed).boxed(),
        beside_cancelled(&server, "window", FixedWindow::new(1, APART), seed).boxed(),
        beside_cancelled(&server, "bucket", bucket, seed).boxed(),
        beside_cancelled(&server, "counter", counter, seed).boxed(),
    ])
    .await
}

#[tokio::test]
async fn a_cancelled_request_does_not_give_back_the_permit_of_a_later_one() {
    let passes = join_all([1, 2, 3].map(by_each_policy)).await.concat();
    let closest: Vec<_> = passes
        .iter()
        .map(|(name, passes)| (name, closest(passes)))
        .collect();
    let are_apart = closest.iter().all(|(_, apart)| *apart >= APART);
    assert!(are_apart, "at most this far apart: {closest:?}");
}
