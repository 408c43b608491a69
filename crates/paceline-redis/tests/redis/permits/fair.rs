//! Several processes that want more permits than there are: each gets its share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use tokio::task::JoinSet;

use super::*;

/// For how long a caller holds its lease.
const HELD: Duration = Duration::from_millis(50);

/// How many leases each of these processes gets in this time, if each has that many callers that take one lease after another.
async fn leases(fleet: &[RedisPermits], callers: u32, time: Duration) -> Vec<u32> {
    let counts: Vec<_> = fleet.iter().map(|_| Arc::new(AtomicU32::new(0))).collect();
    let end = Instant::now() + time;
    let mut tasks = JoinSet::new();
    for (permits, count) in fleet.iter().zip(&counts) {
        for _ in 0..callers {
            let (permits, count) = (permits.clone(), Arc::clone(count));
            tasks.spawn(async move {
                while Instant::now() < end {
                    let lease = permits.acquire().await.unwrap();
                    count.fetch_add(1, Ordering::Relaxed);
                    sleep(HELD).await;
                    drop(lease);
                }
            });
        }
    }
    sleep(time).await;
    let counts = counts.iter().map(|count| count.load(Ordering::Relaxed));
    let counts: Vec<_> = counts.collect();
    println!("leases of each process: {counts:?}");
    counts
}

/// Each process gets at least half of an equal share.
fn assert_fair(counts: &[u32]) {
    let total: u32 = counts.iter().sum();
    let processes = u32::try_from(counts.len()).unwrap();
    for count in counts {
        assert!(count * processes * 2 >= total, "{counts:?}");
    }
}

/// Replies to distant processes take 20 ms.
#[tokio::test]
async fn near_and_distant_processes_with_any_number_of_permits_and_callers_get_their_shares() {
    for (n, near, distant, callers) in [
        (1, 2, 0, 1),
        (2, 3, 0, 4),
        (10, 4, 0, 10),
        (1, 1, 1, 1),
        (2, 1, 1, 4),
        (10, 1, 1, 10),
    ] {
        let (server, relay) = relayed().await;
        let urls = [vec![server.url(); near], vec![relay.url(); distant]].concat();
        let mut fleet = Vec::new();
        for url in urls {
            let redis = process(&url);
            redis.connect().await.unwrap();
            fleet.push(permits(&redis, n, LONG));
        }
        relay.delay_replies(Duration::from_millis(20)).await;
        assert_fair(&leases(&fleet, callers, Duration::from_secs(3)).await);
    }
}
