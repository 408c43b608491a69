//! What this process keeps of a key of a limit in Redis. (A test of the library that needs a counting allocator, which is here.)

#[allow(
    unfulfilled_lint_expectations,
    reason = "here tokio's sleep is not banned, and an expectation of this cannot be expected"
)]
#[expect(dead_code, unused_imports, reason = "one server is enough")]
#[path = "../../../crates/paceline-redis/tests/redis/servers/mod.rs"]
mod servers;

use std::ops::Range;
use std::time::Duration;

use futures::future::join_all;
use paceline::policy::TokenBucket;
use paceline::time::Rate;
use paceline_redis::{OutagePolicy, Redis, RedisKeyed};
use tokio::runtime::Builder;

use servers::Server;

/// Uses each key once.
async fn used(keyed: &RedisKeyed<TokenBucket>, keys: Range<usize>) {
    let keys: Vec<_> = keys.map(|key| format!("user {key}")).collect();
    for some in keys.chunks(100) {
        join_all(some.iter().map(|key| keyed.at(key).unwrap().try_acquire(1))).await;
    }
    // The last calls are put down.
    tokio::time::sleep(Duration::from_millis(50)).await;
}

#[test]
fn a_key_in_redis_that_is_not_in_use_takes_at_most_200_bytes() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let server = runtime.block_on(Server::start());
    let redis = Redis::open(&server.url(), OutagePolicy::closed()).unwrap();
    let redis = redis.with_deadline(Duration::from_secs(30)).unwrap();
    let bucket = TokenBucket::new(Rate::new(1, Duration::from_secs(3_600)), 5);
    let keyed = redis.keyed("users", bucket).unwrap();
    // Beyond the queues that stay complete.
    runtime.block_on(used(&keyed, 0..20_000));
    let before = keyed.remembered();

    // A table has just doubled then, so this is the most for each key.
    let taken = allocation_counter::measure(|| runtime.block_on(used(&keyed, 20_000..60_000)));
    let keys = keyed.remembered() - before;
    assert_eq!(keys, 40_000);
    let bytes = taken.bytes_current / 40_000;
    println!("{bytes} bytes a key");
    assert!(bytes <= 200, "{bytes}");
}
