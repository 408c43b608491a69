//! What a limit takes in the server's memory once it is spent.

use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use paceline::policy::{All, FixedWindow, SlidingCounter, SlidingLog, TokenBucket};
use paceline::time::Rate;
use paceline_redis::{OutagePolicy, Redis, RedisPolicy};
use tokio::time::sleep;

use crate::contenders::{Bucket, connection};
use crate::figures::Notes;
use crate::measure::{Extent, with_commas};

use super::super::pacing::Flavour;
use super::run;
use super::servers::Server;

const BYTES: &str = "bytes a limit in Redis";

/// A tenth of the limit is asked for in each tenth of the window, for longer than one: so what counts in windows has all that
/// it ever counts.
const PARTS: u32 = 10;
const ASKED: u32 = 15;

const NAME: &str = "customer-1234567";

/// No request gives up because the machine is busy.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn add_to(notes: &mut Notes, extent: Extent) {
    let window = extent.pick(Duration::from_secs(2), Duration::from_millis(300));
    for &limit in extent.pick(&[10, 1_000][..], &[10][..]) {
        let case = format!("limit of {}", with_commas(&limit.to_string()));
        let all = run(Flavour::OneThread, async {
            let server = Server::start().await;
            join_all(contenders(&server, limit, window)).await
        });
        match all {
            Ok(all) => {
                for (name, bytes) in all {
                    notes.add(BYTES, name, &case, bytes);
                }
            }
            Err(why) => notes.add(BYTES, "paceline", &case, Err::<f64, _>(why)),
        }
    }
}

type Measured<'a> = BoxFuture<'a, (&'static str, f64)>;

fn contenders(server: &Server, limit: u32, window: Duration) -> Vec<Measured<'_>> {
    let bucket = TokenBucket::new(Rate::new(limit, window * PARTS), limit);
    let fixed = FixedWindow::new(limit, window * 2);
    let smooth = SlidingCounter::smooth(limit, window);
    let strict = SlidingCounter::strict(limit, window, PARTS);
    let log = SlidingLog::new(limit, window);
    let both = All::new((bucket, fixed));
    vec![
        stripe(server, limit).boxed(),
        spent("paceline TokenBucket", server, bucket, limit, window).boxed(),
        spent("paceline FixedWindow", server, fixed, limit, window).boxed(),
        spent(
            "paceline SlidingCounter, smooth",
            server,
            smooth,
            limit,
            window,
        )
        .boxed(),
        spent(
            "paceline SlidingCounter, 10 buckets",
            server,
            strict,
            limit,
            window,
        )
        .boxed(),
        spent("paceline SlidingLog", server, log, limit, window).boxed(),
        spent(
            "paceline All, bucket and window",
            server,
            both,
            limit,
            window,
        )
        .boxed(),
    ]
}

async fn spent(
    name: &'static str,
    server: &Server,
    policy: impl RedisPolicy,
    limit: u32,
    window: Duration,
) -> (&'static str, f64) {
    let redis = Redis::open(&server.url(), OutagePolicy::closed()).expect("it is a URL");
    let redis = redis.with_deadline(PATIENCE).expect("it is long enough");
    // Each has a name of its own, as long as the others: some have a policy in common.
    let own = format!("{:.16}", format!("{}{NAME}", name.len()));
    let remote = redis.limit(&own, policy).expect("it fits");
    let mut passed = 0;
    for _ in 0..ASKED {
        let asked = remote.try_acquire_up_to(limit / PARTS).await;
        passed += asked.expect("it is no fault");
        sleep(window / PARTS).await;
    }
    let rest = remote.try_acquire_up_to(limit).await;
    passed += rest.expect("it is no fault");
    assert!(passed >= limit, "{name}: {passed} of {limit} passed");
    let mut bytes = 0.0;
    for key in remote.keys() {
        bytes += usage(server, key).await;
    }
    (name, bytes)
}

async fn stripe(server: &Server, limit: u32) -> (&'static str, f64) {
    let bucket = Bucket {
        rate: 1,
        burst: limit,
    };
    let mut connection = connection(&server.url()).await;
    assert!(bucket.ask(NAME, limit, &mut connection).await);
    let mut bytes = 0.0;
    for key in Bucket::keys(NAME) {
        bytes += usage(server, &key).await;
    }
    ("Stripe's two keys", bytes)
}

async fn usage(server: &Server, key: &str) -> f64 {
    let bytes: Option<u32> = server.cli(&["MEMORY", "USAGE", key, "SAMPLES", "0"]).await;
    bytes.map_or(f64::NAN, f64::from)
}
