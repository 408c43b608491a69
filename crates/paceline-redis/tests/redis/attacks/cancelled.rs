//! Requests that are cancelled while their reply is under way, beside other processes. Their permits are given back late: then
//! others have passed.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fastrand::Rng;
use futures::FutureExt;
use futures::future::join_all;
use paceline::policy::{Decision, FixedWindow, Interval, SlidingCounter, SlidingLog, TokenBucket};
use paceline::time::Rate;
use paceline_redis::{OutagePolicy, RedisLimiter, RedisPolicy};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{Pass, closest, process};
use crate::limits::{PATIENT, pause};
use crate::servers::{Relay, Server};

/// Two permits are at least this far apart.
const APART: Duration = Duration::from_millis(100);

/// The round trip of the process that cancels.
const FAR: Duration = Duration::from_millis(150);

async fn limit<P: RedisPolicy>(url: &str, name: &str, policy: &P) -> RedisLimiter<P> {
    let redis = process(url, OutagePolicy::closed(), PATIENT).await;
    redis.limit(name, policy.clone()).unwrap()
}

async fn several<P: RedisPolicy>(
    count: usize,
    server: &Server,
    name: &str,
    policy: &P,
) -> Vec<RedisLimiter<P>> {
    let url = server.url();
    join_all((0..count).map(|_| limit(&url, name, policy))).await
}

/// Asks once. A caller that never cancels and asks one thing after the other gets what was counted for this request.
async fn ask<P: RedisPolicy>(limit: &RedisLimiter<P>) -> Option<Pass> {
    let asked = Instant::now();
    let answer = limit.try_acquire(1).await.unwrap();
    (answer == Decision::Pass).then(|| Pass::since(asked))
}

/// A asks at 0 and is cancelled at 60 ms, and its reply comes at 150 ms. B passes at about 100 ms. Others ask in the next 90 ms,
/// each once. Returns the passes of all but A.
async fn one_cancelled<P: RedisPolicy>(server: &Server, name: &str, policy: P) -> Vec<Pass> {
    let relay = Relay::start(server.address());
    let a = limit(&relay.url(), name, &policy).await;
    let b = limit(&server.url(), name, &policy).await;
    let others = several(9, server, name, &policy).await;
    // The server knows the script from here on: it counts the first request as soon as it comes.
    let _ = b.peek(1).await.unwrap();
    relay.delay_replies(FAR).await;

    let _ = timeout(Duration::from_millis(60), a.acquire(1)).await;
    let mut passes = Vec::new();
    while passes.is_empty() {
        pause(Duration::from_millis(1)).await;
        passes.extend(ask(&b).await);
    }
    for other in &others {
        pause(APART / 10).await;
        passes.extend(ask(other).await);
    }
    passes
}

/// Six far processes ask and cancel at random, and six near ones ask at random.
async fn many_cancelled<P: RedisPolicy>(
    server: &Server,
    name: &str,
    policy: P,
    seed: u64,
) -> Vec<Pass> {
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
    for limit in several(6, server, name, &policy).await {
        let (passes, mut rng) = (Arc::clone(&passes), seeds.fork());
        tasks.spawn(async move {
            loop {
                pause(some_of(APART, &mut rng)).await;
                if let Some(pass) = ask(&limit).await {
                    passes.lock().unwrap().push(pass);
                }
            }
        });
    }
    while passes.lock().unwrap().len() < 40 {
        pause(Duration::from_millis(10)).await;
    }
    tasks.shutdown().await;
    let passes = passes.lock().unwrap();
    passes.clone()
}

fn some_of(time: Duration, rng: &mut Rng) -> Duration {
    time.mul_f64(rng.f64())
}

/// The passes by each policy that keeps permits [`APART`]: at random with a seed, else after one request was cancelled.
async fn by_each_policy(server: &Server, seed: Option<u64>) -> Vec<(&'static str, Vec<Pass>)> {
    let bucket = TokenBucket::new(Rate::new(1, APART), 1);
    let counter = SlidingCounter::strict(1, APART, 4);
    join_all([
        by(server, "interval", Interval::every(APART), seed).boxed(),
        by(server, "log", SlidingLog::new(1, APART), seed).boxed(),
        by(server, "window", FixedWindow::new(1, APART), seed).boxed(),
        by(server, "bucket", bucket, seed).boxed(),
        by(server, "counter", counter, seed).boxed(),
    ])
    .await
}

async fn by<P: RedisPolicy>(
    server: &Server,
    name: &'static str,
    policy: P,
    seed: Option<u64>,
) -> (&'static str, Vec<Pass>) {
    let passes = match seed {
        None => one_cancelled(server, name, policy).await,
        Some(seed) => many_cancelled(server, name, policy, seed).await,
    };
    (name, passes)
}

fn are_apart(all: &[(&str, Vec<Pass>)]) {
    let closest: Vec<_> = all
        .iter()
        .map(|(name, passes)| (name, closest(passes)))
        .collect();
    assert!(
        closest.iter().all(|(_, apart)| *apart >= APART),
        "at most this far apart: {closest:?}"
    );
}

#[tokio::test]
async fn a_cancelled_request_does_not_give_back_the_permit_of_a_later_one() {
    let server = Server::start().await;
    are_apart(&by_each_policy(&server, None).await);
}

#[tokio::test]
async fn permits_stay_apart_while_requests_are_cancelled_at_random() {
    let rounds = [1, 2, 3].map(|seed| async move {
        let server = Server::start().await;
        by_each_policy(&server, Some(seed)).await
    });
    are_apart(&join_all(rounds).await.concat());
}
