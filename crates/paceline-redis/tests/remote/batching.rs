use std::ops::Range;

use futures::future::join_all;
use testkit::clock::Stopwatch;

use super::server::Server;
use super::{acquiring, ms, one, plenty, process, settle};
use crate::remote::OutagePolicy;
use crate::remote::connection::sleep;
use paceline::policy::SlidingLog;

/// The number of keys of each call, in order.
fn sizes(server: &Server<SlidingLog>) -> Vec<usize> {
    let world = server.world();
    world.calls.iter().map(|(_, _, keys)| *keys).collect()
}

#[tokio::test(start_paused = true)]
async fn one_request_is_sent_at_once_and_takes_one_call() {
    let server = Server::start();
    server.world().reply_in = ms(7);
    let process = process(&server, OutagePolicy::closed()).await;
    let limit = process.limit(0, plenty());

    let watch = Stopwatch::start();
    limit.acquire(1).await.unwrap();
    assert_eq!((watch.elapsed(), sizes(&server)), (ms(7), vec![1]));
}

#[tokio::test(start_paused = true)]
async fn keys_asked_at_once_share_full_calls() {
    for (keys, calls) in [
        (64, vec![64]),
        (65, vec![64, 1]),
        (200, vec![64, 64, 64, 8]),
    ] {
        let server = Server::start();
        server.world().reply_in = ms(7);
        let process = process(&server, OutagePolicy::closed()).await;
        let limits: Vec<_> = (0..keys).map(|key| process.limit(key, plenty())).collect();

        let watch = Stopwatch::start();
        join_all(limits.iter().map(|limit| limit.acquire(1))).await;
        assert_eq!(sizes(&server), calls);
        // The last call is not full, and gathers.
        let gathered = u64::from(keys != 64);
        assert_eq!(watch.elapsed(), ms(7 + gathered));
    }
}

#[tokio::test(start_paused = true)]
async fn keys_gather_for_a_millisecond_while_a_call_is_under_way() {
    let server = Server::start();
    server.world().reply_in = ms(10);
    let process = process(&server, OutagePolicy::closed()).await;
    let ask = |keys: Range<u32>| {
        for key in keys {
            let limit = process.limit(key, plenty());
            acquiring(&limit, 1);
        }
        settle()
    };

    ask(0..1).await;
    ask(1..6).await;
    ask(6..8).await;
    assert_eq!(sizes(&server), [1]);
    sleep(ms(1)).await;
    settle().await;
    assert_eq!(sizes(&server), [1, 7]);
    // A full call does not wait.
    ask(10..73).await;
    assert_eq!(sizes(&server), [1, 7]);
    ask(73..74).await;
    assert_eq!(sizes(&server), [1, 7, 64]);
}

#[tokio::test(start_paused = true)]
async fn requests_of_one_key_share_a_call() {
    let (server, _process, limit) =
        one(OutagePolicy::closed(), SlidingLog::new(70, ms(60_000))).await;

    let answers = join_all((0..100).map(|_| limit.passes(1))).await;
    assert_eq!(answers.iter().filter(|passed| **passed).count(), 70);
    assert_eq!(sizes(&server), [1]);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_requests_of_one_key_are_answered_in_forty_calls() {
    let server = Server::start();
    server.world().reply_in = ms(1);
    let process = process(&server, OutagePolicy::closed()).await;
    let limit = process.limit(0, SlidingLog::new(7_000, ms(60_000)));

    let answers = join_all((0..10_000).map(|_| limit.passes(1))).await;
    assert_eq!(answers.iter().filter(|passed| **passed).count(), 7_000);
    // 256 requests each. After the first denial no call is made.
    assert!(sizes(&server).len() <= 40, "{}", sizes(&server).len());
}
