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

/// The server is far away, and the callers come at different times.
#[tokio::test(start_paused = true)]
async fn while_a_limit_has_room_a_permit_takes_one_round_trip() {
    let server = Server::start();
    server.world().reply_in = ms(100);
    let process = Process::with(&server, OutagePolicy::closed(), ms(500));
    process.connect().await;
    let limit = process.limit(0, plenty());
    limit.acquire(1).await.unwrap();
    let mut callers = JoinSet::new();
    let watch = Stopwatch::start();
    for number in 1..=4 {
        let limit = limit.clone();
        callers.spawn(async move {
            sleep(ms(24) * number).await;
            let until = watch.elapsed() + ms(3_050);
            passing_until(&limit, watch, until).await.len()
        });
    }
    assert_eq!(callers.join_all().await, [30; 4]);
}

#[tokio::test(start_paused = true)]
async fn without_room_for_all_who_wait_the_calls_of_a_key_follow_each_other() {
    for (left, under_way) in [(3, 2), (2, 1)] {
        let (server, _process, limit) = distant(20, SlidingLog::new(left + 1, MINUTE)).await;
        limit.acquire(1).await.unwrap();
        let _waiter = limit.join(2);
        sleep(ms(5)).await;
        let _cheaper = limit.join(1);
        sleep(ms(5)).await;
        assert_eq!(calls(&server), 1 + under_way, "{left} are left");
    }
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
