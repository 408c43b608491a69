use std::ops::Range;

use super::*;

/// The number of keys of each call, in order.
fn sizes(server: &Server<SlidingLog>) -> Vec<usize> {
    let world = server.world();
    world.calls.iter().map(|(_, keys, _)| *keys).collect()
}

#[tokio::test(start_paused = true)]
async fn one_request_is_sent_at_once_and_keys_asked_at_once_share_full_calls() {
    for (keys, calls, took) in [
        (1, vec![1], 7),
        (64, vec![64], 7),
        // The last call is not full, and gathers.
        (65, vec![64, 1], 8),
        (200, vec![64, 64, 64, 8], 8),
    ] {
        let (server, process, _) = distant(7, plenty()).await;
        let limits: Vec<_> = (0..keys).map(|key| process.limit(key, plenty())).collect();

        let watch = Stopwatch::start();
        join_all(limits.iter().map(|limit| limit.acquire(1))).await;
        assert_eq!((sizes(&server), watch.elapsed()), (calls, ms(took)));
    }
}

#[tokio::test(start_paused = true)]
async fn keys_gather_for_a_millisecond_while_a_call_is_under_way() {
    let (server, process, _) = distant(10, plenty()).await;
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

/// Of one key a call holds 256. After the first denial no call is made.
#[tokio::test(start_paused = true)]
async fn requests_of_one_key_share_a_call_and_ten_thousand_are_answered_in_forty() {
    for (requests, permits, most_calls) in [(100, 70, 1), (10_000, 7_000, 40)] {
        let (server, _process, limit) = distant(1, SlidingLog::new(permits, MINUTE)).await;
        let answers = join_all((0..requests).map(|_| limit.passes(1))).await;
        let passed = answers.into_iter().map(u32::from).sum::<u32>();
        assert_eq!(passed, permits);
        assert!(calls(&server) <= most_calls, "{}", calls(&server));
    }
}
