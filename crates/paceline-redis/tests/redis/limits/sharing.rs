use std::time::Duration;

use paceline::policy::{Decision, SlidingLog};
use paceline_redis::Redis;
use tokio::task::JoinSet;

use super::{MINUTE, logged, pause, redis};
use crate::servers::Server;

#[tokio::test]
async fn permits_for_a_cancelled_request_are_given_back() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let limit = redis.limit("a", SlidingLog::new(3, MINUTE)).unwrap();

    // The request is dropped before it is sent, while it is in flight, and after its answer.
    for looks in 0..100 {
        let mut asking = Box::pin(limit.acquire(2));
        for _ in 0..=looks {
            if futures::poll!(asking.as_mut()).is_ready() {
                limit.refund(2).await.unwrap();
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(asking);
        pause(Duration::from_millis(5)).await;
    }
    assert!(redis.stats().answered > 100, "{:?}", redis.stats());
    while limit.peek(3).await != Ok(Decision::Pass) {
        pause(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_prefetch_of_nothing_or_too_much_is_refused() {
    let redis = Redis::open("redis://127.0.0.1/", paceline_redis::OutagePolicy::closed()).unwrap();
    let limit = redis.limit("a", SlidingLog::new(10, MINUTE)).unwrap();
    let second = Duration::from_secs(1);

    for (permits, lasts, why) in [
        (0, second, "a prefetch takes 1 to 10 permits here, got 0"),
        (11, second, "a prefetch takes 1 to 10 permits here, got 11"),
        (1, Duration::ZERO, "a prefetch has to last longer than 0"),
    ] {
        assert_eq!(
            limit
                .clone()
                .with_prefetch(permits, lasts)
                .unwrap_err()
                .to_string(),
            why
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_clients_never_exceed_the_limit_by_the_servers_clock() {
    const LIMIT: u32 = 100;
    let window = Duration::from_secs(2);
    let server = Server::start().await;
    let policy = SlidingLog::new(LIMIT, window);
    let mut clients = JoinSet::new();
    for _ in 0..64 {
        let limit = redis(&server).await.limit("a", policy).unwrap();
        clients.spawn(async move {
            for _ in 0..5 {
                limit.acquire(1).await.unwrap();
            }
        });
    }
    // When the server recorded each permit. Read repeatedly, because entries expire.
    let key = redis(&server).await.limit("a", policy).unwrap().keys()[0].clone();
    let mut spent = std::collections::BTreeMap::new();
    loop {
        let are_done = clients.is_empty();
        let entries = logged(&server, &key).await;
        spent.extend(entries);
        if are_done {
            break;
        }
        pause(Duration::from_millis(10)).await;
        while let Some(done) = clients.try_join_next() {
            done.unwrap();
        }
    }
    // A permit that a busy machine fetches too late is void, but counted.
    let each = spent
        .into_iter()
        .map(|(time, permits)| vec![time; usize::try_from(permits).unwrap()]);
    let times: Vec<u64> = each.flatten().collect();
    assert!(times.len() >= 320, "{}", times.len());
    for pair in times.windows(LIMIT as usize + 1) {
        let gap = pair[LIMIT as usize] - pair[0];
        assert!(gap >= 2_000_000, "{} in {gap} µs", LIMIT + 1);
    }
}
