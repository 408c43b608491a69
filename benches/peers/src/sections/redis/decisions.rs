//! The server's time for a decision that passes and for one that is refused, and what the client allocates.

use std::future::ready;
use std::time::Duration;

use futures::{StreamExt, stream};
use paceline::policy::{FixedWindow, SlidingCounter, SlidingLog, TokenBucket};
use paceline::time::Rate;
use paceline_redis::{OutagePolicy, Redis, RedisPolicy};
use tokio::task::JoinSet;

use crate::contenders::{Bucket, Keys, Meeting, STORED, Stored, connection};
use crate::figures::Notes;
use crate::measure::{Extent, allocations, median, with_commas};

use super::super::pacing::{Flavour, caught};
use super::rates::{EACH, TO_STRIPE, script_time};
use super::run;
use super::servers::Server;

const ALLOCATIONS: &str = "allocations a decision";

const CALLERS: u32 = 64;

const HOUR: Duration = Duration::from_secs(3_600);

/// No caller gives up because the machine is busy.
const PATIENCE: Duration = Duration::from_secs(5);

const STRIPE: &str = "Stripe's two keys";

const OURS: [&str; 4] = [
    "paceline TokenBucket",
    "paceline FixedWindow",
    "paceline SlidingCounter, smooth",
    "paceline SlidingLog",
];

/// What the second request for a key gets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Second {
    Passes,
    IsRefused,
}

pub(super) fn add_to(notes: &mut Notes, extent: Extent) {
    let keys = extent.pick(2_000, CALLERS);
    for (second, case) in [
        (Second::Passes, "known keys, all pass"),
        (Second::IsRefused, "known keys, all refused"),
    ] {
        let case = format!("{} {case}", with_commas(&keys.to_string()));
        let mut rounds = vec![Vec::new(); 1 + OURS.len()];
        let done = run(Flavour::OneThread, async {
            let server = Server::start().await;
            for _ in 0..extent.pick(3, 1) {
                rounds[0].push(stripe(&server, keys, second).await);
                for (name, rounds) in OURS.iter().zip(&mut rounds[1..]) {
                    rounds.push(ours(name, &server, keys, second).await);
                }
            }
        });
        let of = |value: f64| done.clone().map(|()| value);
        for (name, micros) in [STRIPE].iter().chain(&OURS).zip(&rounds) {
            notes.add(EACH, name, &case, of(median(micros)));
        }
        for (name, micros) in OURS.iter().zip(&rounds[1..]) {
            let shares = micros.iter().zip(&rounds[0]);
            let shares: Vec<f64> = shares.map(|(ours, stripe)| ours / stripe).collect();
            notes.add(TO_STRIPE, name, &case, of(median(&shares)));
        }
    }
    for (case, callers) in [("1 caller", 1), ("64 callers, own keys", CALLERS)] {
        for contender in STORED {
            let each = caught(|| allocated(contender, callers, extent.pick(200, 5)));
            notes.add(ALLOCATIONS, contender.name, case, each);
        }
    }
}

/// µs in the script, for each decision. The clients of the first and the second request share no cache.
async fn ours(name: &str, server: &Server, keys: u32, second: Second) -> f64 {
    let limit = match second {
        Second::Passes => 1_000,
        Second::IsRefused => 1,
    };
    server.flush_all().await;
    let mut micros = 0.0;
    for expected in [Second::Passes, second] {
        micros = match name {
            "paceline TokenBucket" => {
                let bucket = TokenBucket::new(Rate::new(limit, HOUR), limit);
                with(bucket, server, keys, expected).await
            }
            "paceline FixedWindow" => {
                with(FixedWindow::new(limit, HOUR), server, keys, expected).await
            }
            "paceline SlidingLog" => {
                with(SlidingLog::new(limit, HOUR), server, keys, expected).await
            }
            _ => with(SlidingCounter::smooth(limit, HOUR), server, keys, expected).await,
        };
    }
    micros
}

async fn with(policy: impl RedisPolicy, server: &Server, keys: u32, expected: Second) -> f64 {
    let redis = Redis::open(&server.url(), OutagePolicy::closed()).expect("it is a URL");
    let redis = redis.with_deadline(PATIENCE).expect("it is long enough");
    redis.connect().await.expect("a server answers");
    let limits = redis.keyed("measured", policy).expect("it fits");
    all(server, keys, expected, async |key| {
        let asked = limits.at(&key.to_string()).unwrap().try_acquire(1).await;
        asked.expect("it is no fault").is_pass()
    })
    .await
}

async fn stripe(server: &Server, keys: u32, second: Second) -> f64 {
    let bucket = Bucket {
        rate: 1,
        burst: 3_600,
    };
    let cost = match second {
        Second::Passes => 1,
        Second::IsRefused => bucket.burst,
    };
    server.flush_all().await;
    let mut micros = 0.0;
    for expected in [Second::Passes, second] {
        let connection = connection(&server.url()).await;
        micros = all(server, keys, expected, async |key| {
            let mut connection = connection.clone();
            bucket.ask(&key.to_string(), cost, &mut connection).await
        })
        .await;
    }
    micros
}

/// Requests a permit of each key. Returns the µs in the script for each decision.
async fn all(server: &Server, keys: u32, expected: Second, ask: impl AsyncFn(u32) -> bool) -> f64 {
    server.cli::<()>(&["CONFIG", "RESETSTAT"]).await;
    let asked = stream::iter(0..keys).map(|key| ask(key));
    let asked = asked.buffer_unordered(CALLERS as usize);
    let passed = asked.filter(|passed| ready(*passed)).count().await;
    let all_pass = expected == Second::Passes;
    assert_eq!(
        passed,
        if all_pass { keys as usize } else { 0 },
        "{expected:?}"
    );
    script_time(server, "evalsha").await.micros / f64::from(keys)
}

/// Of all threads only that of the client is counted. One allocation is that of this measurement.
fn allocated(contender: &Stored, callers: u32, each: u32) -> f64 {
    let runtime = Flavour::OneThread.runtime();
    let server = runtime.block_on(Server::start());
    let meeting = Meeting {
        url: server.url(),
        connections: 1,
        callers: callers as usize,
        keys: Keys::Own,
    };
    let askers = runtime.block_on(async {
        let mut askers = (contender.callers)(meeting).await;
        for asker in &mut askers {
            // What is made once is made.
            assert!(asker().await, "its limit does not bind");
        }
        askers
    });
    let count = allocations(|| {
        runtime.block_on(async {
            let mut tasks = JoinSet::new();
            for mut asker in askers {
                tasks.spawn(async move {
                    for _ in 0..each {
                        assert!(asker().await, "its limit does not bind");
                    }
                });
            }
            tasks.join_all().await;
        });
    });
    runtime.shutdown_background();
    count as f64 / f64::from(callers * each)
}
