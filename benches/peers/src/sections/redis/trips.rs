//! How often Redis is asked for a permit, and how often not.

use std::time::{Duration, Instant};

use paceline::policy::TokenBucket;
use paceline::time::Rate;
use paceline_redis::{OutagePolicy, Redis, RedisLimiter};
use tokio::task::JoinSet;

use crate::figures::Notes;
use crate::measure::{Extent, median};

use super::super::pacing::Flavour;
use super::run;
use super::servers::Server;

const TRIPS: &str = "trips a permit";
const RATE: &str = "thousand permits a second";

/// The callers, and what they ask.
struct Crowd {
    name: &'static str,
    callers: u32,
    permits: u32,
    limit: TokenBucket,
}

/// It never binds.
const WIDE: TokenBucket = TokenBucket::new(Rate::per_second(1_000_000), 1_000_000);

const CROWDS: [Crowd; 3] = [
    Crowd {
        name: "1 caller",
        callers: 1,
        permits: 2_000,
        limit: WIDE,
    },
    Crowd {
        name: "64 callers",
        callers: 64,
        permits: 20_000,
        limit: WIDE,
    },
    Crowd {
        name: "64 callers, 2,000 permits a second",
        callers: 64,
        permits: 1_000,
        limit: TokenBucket::new(Rate::per_second(2_000), 100),
    },
];

const PREFETCHES: [(&str, u32); 3] = [
    ("no prefetch", 0),
    ("prefetch of 10", 10),
    ("prefetch of 100", 100),
];

const LASTS: Duration = Duration::from_secs(1);

pub(super) fn add_to(notes: &mut Notes, extent: Extent) {
    for crowd in &CROWDS {
        let permits = extent.pick(crowd.permits, 200);
        let mut rounds = PREFETCHES.map(|_| Vec::new());
        let done = run(Flavour::OneThread, async {
            let server = Server::start().await;
            for _ in 0..extent.pick(3, 1) {
                for ((_, prefetch), rounds) in PREFETCHES.iter().zip(&mut rounds) {
                    rounds.push(round(crowd, *prefetch, permits, &server).await);
                }
            }
        });
        for ((case, _), rounds) in PREFETCHES.iter().zip(&rounds) {
            let of = |of: fn(&(f64, f64)) -> f64| {
                let values: Vec<f64> = rounds.iter().map(of).collect();
                done.clone().map(|()| median(&values))
            };
            notes.add(TRIPS, crowd.name, case, of(|round| round.0));
            notes.add(RATE, crowd.name, case, of(|round| round.1));
        }
    }
    let refused = run(Flavour::OneThread, refused(extent.pick(100_000, 100)));
    let of = |of: fn((f64, f64)) -> f64| refused.clone().map(of);
    notes.add(
        TRIPS,
        "1 caller, all refused",
        PREFETCHES[0].0,
        of(|all| all.0),
    );
    notes.add(
        RATE,
        "1 caller, all refused",
        PREFETCHES[0].0,
        of(|all| all.1),
    );
}

/// Trips for each permit, and thousands of permits a second.
async fn round(crowd: &Crowd, prefetch: u32, permits: u32, server: &Server) -> (f64, f64) {
    server.flush_all().await;
    let (redis, limit) = limit(server, crowd.limit).await;
    let limit = match prefetch {
        0 => limit,
        permits => limit
            .with_prefetch(permits, LASTS)
            .expect("the limit has that many at once"),
    };
    limit.acquire(1).await.expect("it passes");
    let before = redis.stats().answered;
    let start = Instant::now();
    let each = permits / crowd.callers;
    let mut callers = JoinSet::new();
    for _ in 0..crowd.callers {
        let limit = limit.clone();
        callers.spawn(async move {
            for _ in 0..each {
                limit.acquire(1).await.expect("it passes");
            }
        });
    }
    callers.join_all().await;
    let took = start.elapsed().as_secs_f64();
    let passed = f64::from(each * crowd.callers);
    let trips = (redis.stats().answered - before) as f64;
    (trips / passed, passed / took / 1e3)
}

/// What is known to have no permit is not asked again.
async fn refused(count: u32) -> (f64, f64) {
    let server = Server::start().await;
    let narrow = TokenBucket::new(Rate::new(1, Duration::from_secs(3_600)), 1);
    let (redis, limit) = limit(&server, narrow).await;
    limit.acquire(1).await.expect("it passes");
    let before = redis.stats().answered;
    let start = Instant::now();
    for _ in 0..count {
        let said = limit.try_acquire(1).await.expect("it is no fault");
        assert!(!said.is_pass(), "an hour is not over");
    }
    let (took, count) = (start.elapsed().as_secs_f64(), f64::from(count));
    let trips = (redis.stats().answered - before) as f64;
    (trips / count, count / took / 1e3)
}

async fn limit(server: &Server, policy: TokenBucket) -> (Redis, RedisLimiter<TokenBucket>) {
    let redis = Redis::open(&server.url(), OutagePolicy::closed()).expect("it is a URL");
    let redis = redis.with_deadline(LASTS).expect("it is long enough");
    redis.connect().await.expect("a server answers");
    let limit = redis.limit("measured", policy).expect("it fits");
    (redis, limit)
}
