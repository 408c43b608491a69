use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use paceline::policy::{Decision, SlidingLog, TokenBucket};
use paceline::redis::Redis;
use paceline::time::Rate;
use tokio::task::JoinSet;

use super::{MINUTE, Passed, logged, pause, redis, wait_of};
use crate::servers::Server;

fn passes(answers: &[Result<Decision, paceline::redis::ServerError>]) -> usize {
    answers
        .iter()
        .filter(|answer| **answer == Ok(Decision::Pass))
        .count()
}

#[tokio::test]
async fn simultaneous_requests_share_one_round_trip() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let limit = redis.limit("a", SlidingLog::new(70, MINUTE)).unwrap();

    let answers = join_all((0..100).map(|_| limit.try_acquire(1))).await;
    assert_eq!(passes(&answers), 70);
    assert!(redis.stats().answered <= 2, "{:?}", redis.stats());
}

#[tokio::test]
async fn requests_are_served_in_order_and_a_cheaper_one_does_not_overtake() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let limit = redis.limit("a", SlidingLog::new(10, MINUTE)).unwrap();

    let costs = [4, 4, 4, 1, 2];
    let answers = join_all(costs.map(|cost| limit.try_acquire(cost))).await;
    assert_eq!(passes(&answers[..2]), 2);
    assert_eq!(passes(&answers[2..]), 0);
}

#[tokio::test]
async fn a_denial_is_cached_until_its_retry_time() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let limit = redis.limit("a", SlidingLog::new(3, MINUTE)).unwrap();

    assert_eq!(limit.try_acquire(2).await, Ok(Decision::Pass));
    let first = wait_of(limit.try_acquire(2).await);
    let trips = redis.stats().answered;
    for _ in 0..100 {
        assert!(wait_of(limit.try_acquire(2).await) <= first);
        assert!(wait_of(limit.try_acquire(3).await) <= first);
    }
    assert_eq!(redis.stats().answered, trips);
    assert_eq!(
        limit.try_acquire(1).await,
        Ok(Decision::Pass),
        "a cheaper one may pass"
    );
}

#[tokio::test]
async fn a_cancelled_request_leaves_no_trace() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let limit = redis
        .limit(
            "a",
            TokenBucket::new(Rate::new(1, Duration::from_secs(1)), 2),
        )
        .unwrap();

    limit.acquire(2).await.unwrap();
    for cost in [1, 2, 1] {
        let left = tokio::time::timeout(Duration::from_millis(10), limit.acquire(cost)).await;
        assert!(left.is_err());
    }
    pause(Duration::from_millis(2_100)).await;
    assert_eq!(limit.try_acquire_up_to(9).await, Ok(2));
}

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
async fn prefetching_saves_round_trips_and_counts_no_more_than_the_limit() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let limit = redis.limit("a", SlidingLog::new(100, MINUTE)).unwrap();
    let limit = limit.prefetch(25, Duration::from_secs(20)).unwrap();

    let mut passed = 0;
    while limit.try_acquire(1).await == Ok(Decision::Pass) {
        passed += 1;
    }
    assert_eq!(passed, 100);
    assert!(redis.stats().answered <= 5, "{:?}", redis.stats());
}

#[tokio::test]
async fn prefetched_permits_are_void_after_their_time() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let limit = redis.limit("a", SlidingLog::new(10, MINUTE)).unwrap();
    let limit = limit.prefetch(9, Duration::from_millis(20)).unwrap();

    assert_eq!(limit.try_acquire(1).await, Ok(Decision::Pass));
    pause(Duration::from_millis(30)).await;
    assert!(wait_of(limit.try_acquire(1).await) > MINUTE / 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prefetching_exceeds_a_window_by_at_most_replicas_times_its_size() {
    const LIMIT: u32 = 40;
    const LEASE: u32 = 10;
    const REPLICAS: u32 = 3;
    let window = Duration::from_secs(1);
    let server = Server::start().await;
    let passed = Arc::new(Mutex::new(Passed::default()));
    let mut replicas = JoinSet::new();
    for _ in 0..REPLICAS {
        let limit = redis(&server)
            .await
            .limit("a", SlidingLog::new(LIMIT, window))
            .unwrap();
        let limit = limit.prefetch(LEASE, window / 2).unwrap();
        let passed = Arc::clone(&passed);
        replicas.spawn(async move {
            for _ in 0..3 {
                // Takes one permit and prefetches, waits until the prefetched ones are nearly void, and then takes all it can for a window.
                limit.acquire(1).await.unwrap();
                passed.lock().unwrap().note();
                pause(window * 2 / 5).await;
                let rest = async {
                    loop {
                        limit.acquire(1).await.unwrap();
                        passed.lock().unwrap().note();
                    }
                };
                let _ = tokio::time::timeout(window, rest).await;
                pause(window).await;
            }
        });
    }
    while let Some(done) = replicas.join_next().await {
        done.unwrap();
    }
    // A permit that is not fetched within 100 ms of its answer is void.
    let most = passed.lock().unwrap().most_in(window * 3 / 4);
    println!("at most {most} in a window");
    assert!(most <= (LIMIT + REPLICAS * LEASE) as usize, "{most}");
}

#[tokio::test]
async fn a_prefetch_of_nothing_or_too_much_is_refused() {
    let redis = Redis::open(
        "redis://127.0.0.1/",
        paceline::redis::OutagePolicy::closed(),
    )
    .unwrap();
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
                .prefetch(permits, lasts)
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
