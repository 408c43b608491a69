//! Limits in Redis, through the public API, in real time.

use std::time::Duration;

use paceline::policy::{
    All, Decision, FixedWindow, Interval, SlidingCounter, SlidingLog, TokenBucket,
};
use paceline::redis::{Redis, WhenDown};
use paceline::time::Rate;

use crate::servers::Server;

async fn redis(server: &Server) -> Redis {
    let redis = Redis::open(&server.url(), WhenDown::closed()).unwrap();
    redis.connect().await.unwrap();
    redis
}

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn every_policy_passes_its_limit_and_no_more() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let bucket = redis
        .limit("a", TokenBucket::new(Rate::per_minute(1), 3))
        .unwrap();
    let log = redis.limit("a", SlidingLog::new(3, MINUTE)).unwrap();
    let strict = redis
        .limit("a", SlidingCounter::strict(3, MINUTE, 4))
        .unwrap();
    let smooth = redis.limit("b", SlidingCounter::smooth(3, MINUTE)).unwrap();
    let fixed = redis.limit("a", FixedWindow::new(3, MINUTE)).unwrap();
    let all = redis
        .limit(
            "a",
            All::new((SlidingLog::new(3, MINUTE), FixedWindow::new(9, MINUTE))),
        )
        .unwrap();
    let interval = redis.limit("c", Interval::every(MINUTE)).unwrap();

    macro_rules! passes {
        ($limit:expr, $most:expr) => {
            for _ in 0..$most {
                assert_eq!($limit.try_acquire(1).await, Ok(Decision::Pass));
            }
            let Ok(Decision::Wait { retry_in }) = $limit.try_acquire(1).await else {
                panic!("{:?} lets more pass", $limit);
            };
            assert!(
                retry_in <= 2 * MINUTE && retry_in > MINUTE - Duration::from_secs(10),
                "{retry_in:?}"
            );
        };
    }
    passes!(bucket, 3);
    passes!(log, 3);
    passes!(strict, 3);
    passes!(smooth, 3);
    passes!(fixed, 3);
    passes!(all, 3);
    passes!(interval, 1);
    assert_eq!(redis.stats().lost_states, 0);
}
