//! Replies that come late, are read late, or never come.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_reply_that_has_come_is_taken_however_late_the_process_wakes() {
    for late in [ms(26), ms(99), ms(1_000), MINUTE] {
        let (server, process, limit) = distant(3, plenty()).await;
        server.world().late_after_reply = late;
        limit.acquire(1).await.unwrap();
        process.assert_calm();
    }
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_comes_while_the_process_stands_still_is_taken() {
    for stands_still in [ms(25), ms(26), ms(101), MINUTE] {
        let (_server, process, _) = distant(10, plenty()).await;
        let limits: Vec<_> = (0..100).map(|key| process.limit(key, plenty())).collect();
        let _waiters: Vec<_> = limits.iter().map(|limit| limit.join(1)).collect();
        settle().await;
        clock::jump(stands_still).await;
        settle().await;
        join_all(limits.iter().map(|limit| limit.acquire(1))).await;
        process.assert_calm();
    }
}

/// The reply comes when the process runs again, but not at once. The process has waited for 14 ms of its own time.
#[tokio::test(start_paused = true)]
async fn time_in_which_the_process_did_not_run_is_no_silence_of_the_server() {
    for stands_still in [ms(20), ms(100), MINUTE] {
        let (server, process, limit) = one(OutagePolicy::open(), SlidingLog::new(4, MINUTE)).await;
        server.world().reply_in = stands_still + ms(14);
        let waiting = acquiring(&limit, 4);
        sleep(ms(7)).await;
        clock::jump(stands_still).await;
        // A permit that was perhaps counted long ago is void, and asked for again.
        server.world().reply_in = ms(0);
        waiting.await.unwrap();
        assert!(!limit.passes(1).await);
        process.assert_calm();
    }
}

/// A caller that tries, a question, and a change have deadlines of their own.
#[tokio::test(start_paused = true)]
async fn the_deadline_of_a_caller_does_not_end_because_the_process_did_not_run() {
    let (server, process, limit) = one(OutagePolicy::open(), SlidingLog::new(4, MINUTE)).await;
    server.world().reply_in = ms(114);
    let of_caller = limit.clone();
    let trying = tokio::spawn(async move { of_caller.try_acquire(4).await });
    let of_caller = limit.clone();
    let asking = tokio::spawn(async move { of_caller.peek(1).await });
    let paused = limit.clone();
    let changing = async move { paused.queue.change(&Change::Mode(Mode::Active)).await };
    let changing = tokio::spawn(changing);
    sleep(ms(7)).await;
    clock::jump(ms(100)).await;
    assert_eq!(trying.await.unwrap(), Ok(Decision::Pass));
    assert!(asking.await.unwrap().is_ok());
    assert_eq!(changing.await.unwrap(), Ok(()));
    assert_eq!(counted(&server), 4);
    process.assert_calm();
}

#[tokio::test(start_paused = true)]
async fn a_process_that_never_runs_for_long_still_notices_a_server_that_is_gone() {
    let (server, process, limit) = one(OutagePolicy::open(), plenty()).await;
    server.world().reply_in = NEVER;
    let waiting = acquiring(&limit, 1);
    settle().await;
    let mut turns = 0;
    while !waiting.is_finished() {
        clock::jump(ms(40)).await;
        settle().await;
        turns += 1;
    }
    // Each counts for a quarter of the deadline.
    assert_eq!((turns, process.stats().timeouts), (4, 1));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_sleeps_while_nothing_is_under_way_notices_nothing() {
    let (_server, process, limit) = closed(SlidingLog::new(1, ms(100))).await;
    for _ in 0..3 {
        limit.acquire(1).await.unwrap();
        clock::jump(MINUTE).await;
    }
    process.assert_calm();
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_is_read_late_is_void_and_returned() {
    let (server, _process, limit) = distant(3, SlidingLog::new(10, MINUTE)).await;
    server.world().late_after_reply = DEADLINE + ms(100);
    limit.acquire(4).await.unwrap();
    // The first four were void. If they were not returned, eight would be spent.
    assert_eq!(calls(&server), 2);
    assert_eq!(limit.take_all().await, Ok(6));
}

#[tokio::test(start_paused = true)]
async fn queued_requests_are_answered_at_their_deadlines_during_silence() {
    let (server, _process, limit) = closed(plenty()).await;
    server.world().reply_in = NEVER;
    let asked = (0..30).map(|number| {
        let limit = limit.clone();
        async move {
            sleep(ms(2) * number).await;
            let watch = Stopwatch::start();
            wait_of(limit.try_acquire(1).await);
            watch.elapsed()
        }
    });
    for took in join_all(asked).await {
        assert!(took <= DEADLINE + ms(5), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_takes_most_of_the_deadline_can_be_used_however_long_that_is() {
    for (reply_in, deadline) in [(24, DEADLINE), (150, MINUTE)] {
        let server = Server::start();
        server.world().reply_in = ms(reply_in);
        let process = Process::with(&server, OutagePolicy::closed(), deadline);
        process.connect().await;
        let passed = passed_at(&process.limit(0, plenty()), &[1; 100]).await;
        assert!((1..=100).map(|number| ms(reply_in) * number).eq(passed));
        process.assert_calm();
    }
}

#[tokio::test(start_paused = true)]
async fn callers_that_try_during_a_call_get_their_permits_though_a_call_takes_most_of_the_deadline()
{
    let (server, process, limit) = one(OutagePolicy::open(), SlidingLog::new(50, ms(250))).await;
    server.world().reply_in = ms(23);
    let mut callers = JoinSet::new();
    let watch = Stopwatch::start();
    for number in 0..8 {
        let limit = limit.clone();
        callers.spawn(async move {
            sleep(ms(3) * number).await;
            let mut passed = 0;
            while watch.elapsed() < ms(1_000) {
                match limit.try_acquire(1).await.unwrap() {
                    Decision::Wait { retry_in } => sleep(retry_in.min(ms(2))).await,
                    _ => passed += 1,
                }
            }
            passed
        });
    }
    let passed: u32 = callers.join_all().await.into_iter().sum();
    assert!((180..=250).contains(&passed), "{passed}");
    process.assert_calm();
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_reply_fails_after_four_deadlines_and_alone() {
    let (server, process, healthy) = closed(plenty()).await;
    server.world().key_reply_in.insert(1, MINUTE);
    let stuck = process.limit(1, plenty());
    let stuck = tokio::spawn(async move {
        let watch = Stopwatch::start();
        // The queue has no deadline of its own.
        (stuck.ask(1).await, watch.elapsed())
    });
    settle().await;
    server.world().reply_in = ms(7);
    let watch = Stopwatch::start();
    let mut number = 0;
    while watch.elapsed() < ms(300) {
        let call = Stopwatch::start();
        assert!(healthy.passes(1).await, "at {:?}", watch.elapsed());
        assert!(call.elapsed() <= ms(10), "{:?}", call.elapsed());
        number += 1;
    }
    assert!(number >= 30, "{number}");
    // No decision, though others are answered meanwhile.
    assert_eq!(stuck.await.unwrap(), (outage(ms(100)), DEADLINE * 4));
    assert_eq!((process.stats().timeouts, process.stats().outages), (1, 0));
    assert!(process.is_up());
}

#[tokio::test(start_paused = true)]
async fn a_caller_whose_time_is_over_waits_while_the_server_answers_others() {
    let (server, process, limit) = one(OutagePolicy::open(), plenty()).await;
    server.world().per_key = Duration::from_micros(100);
    let mut waiters = JoinSet::new();
    for key in 1..=5_000 {
        let limit = process.limit(key, plenty());
        waiters.spawn(async move { limit.acquire(1).await });
    }
    settle().await;
    let watch = Stopwatch::start();
    assert_eq!(wait_of(limit.try_acquire(1).await), ms(1));
    assert_eq!(watch.elapsed(), DEADLINE + ms(5));
    waiters.join_all().await;
    process.assert_calm();
}

/// The server is slow for it, so it is not our own queue that makes it late.
#[tokio::test(start_paused = true)]
async fn a_caller_whose_call_is_late_gets_what_the_outage_policy_decides() {
    for (when_down, passes) in [
        (OutagePolicy::open(), true),
        (OutagePolicy::closed(), false),
    ] {
        let (server, process, other) = one(when_down, plenty()).await;
        server.world().key_reply_in.insert(1, MINUTE);
        let late = process.limit(1, plenty());
        let asking = tokio::spawn(async move { late.passes(1).await });
        settle().await;
        // The connection is not silent meanwhile.
        while !asking.is_finished() {
            assert!(other.passes(1).await);
            sleep(ms(1)).await;
        }
        assert_eq!(asking.await.unwrap(), passes);
        assert_eq!(process.stats().timeouts, 1);
    }
}

/// Waits until a reply that takes so many milliseconds has come, while all others take one.
async fn late_reply(server: &Server<SlidingLog>, latency: u64) {
    server.world().reply_in = ms(1);
    sleep(ms(latency)).await;
    settle().await;
}

#[tokio::test(start_paused = true)]
async fn permits_of_a_reply_that_comes_after_its_call_has_failed_are_returned() {
    for (latency, left) in [(30, 0), (990, 0), (1_010, 2)] {
        let (server, _process, limit) = distant(latency, SlidingLog::new(5, MINUTE)).await;
        assert!(!limit.passes(2).await);
        assert_eq!(counted(&server), 2);
        late_reply(&server, latency).await;
        assert_eq!(counted(&server), left, "a reply after {latency} ms");
        assert_eq!(limit.passes(5).await, left == 0);
    }
    // Also all permits taken at once.
    let (server, _process, limit) = distant(30, SlidingLog::new(5, MINUTE)).await;
    assert!(limit.take_all().await.is_err());
    assert_eq!(counted(&server), 5);
    late_reply(&server, 30).await;
    assert_eq!(counted(&server), 0);
}

/// Also if the breaker is open by then.
#[tokio::test(start_paused = true)]
async fn a_request_dropped_while_the_server_is_silent_is_not_counted() {
    for (silent, dropped_after) in [
        (60, 30),
        (300, 20),
        (300, 40),
        (300, 70),
        (300, 200),
        (800, 200),
    ] {
        let (server, process, limit) = closed(plenty()).await;
        for _ in 0..10 {
            server.freeze();
            assert!(within(ms(dropped_after), limit.acquire(1)).await.is_none());
            sleep(ms(silent - dropped_after)).await;
            server.thaw();
            sleep(ms(1_500)).await;
            assert!(process.is_up());
        }
        let counted = counted(&server);
        assert_eq!(
            counted, 0,
            "dropped after {dropped_after} ms of {silent} ms"
        );
    }
}

/// A process without handles ends then.
#[tokio::test(start_paused = true)]
async fn permits_are_returned_if_there_is_a_connection_within_ten_seconds() {
    for (down, left) in [(9_000, 0), (13_000, 1)] {
        let (server, process, limit) = closed(plenty()).await;
        let connection = Arc::downgrade(&process.batcher.connection);
        let granted = limit.join(1);
        settle().await;
        server.kill();
        notice(&process, &process.limit(1, plenty())).await;
        drop((granted, limit, process));
        sleep(ms(down)).await;
        assert_eq!(connection.strong_count() == 0, left > 0, "{down} ms");
        server.world().is_reachable = true;
        sleep(ms(1_000)).await;
        assert_eq!(counted(&server), left, "{down} ms");
        assert_eq!(connection.strong_count(), 0, "{down} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_whose_first_call_is_answered_late_pays_once() {
    let (server, _process, limit) = distant(30, SlidingLog::new(9, MINUTE)).await;
    let waiter = acquiring(&limit, 3);
    settle().await;
    server.world().reply_in = ms(1);
    waiter.await.unwrap();
    assert_eq!(counted(&server), 6);
    late_reply(&server, 30).await;
    assert_eq!(counted(&server), 3);
}

/// The server has to count them, because as many have passed.
#[tokio::test(start_paused = true)]
async fn permits_that_the_outage_policy_has_passed_are_not_returned() {
    let (server, _process, limit) = one(OutagePolicy::open(), SlidingLog::new(5, MINUTE)).await;
    server.world().reply_in = ms(30);
    assert!(limit.passes(2).await);
    late_reply(&server, 60).await;
    assert_eq!(counted(&server), 2);
    assert!(!limit.passes(4).await);
    assert!(limit.passes(3).await);
}

#[tokio::test(start_paused = true)]
async fn a_late_reply_ends_the_wait_that_its_permit_has_caused() {
    let (server, _process, limit) = distant(500, SlidingLog::new(1, MINUTE)).await;
    let waiting = acquiring(&limit, 1);
    sleep(DEADLINE + ms(1)).await;
    server.world().reply_in = ms(1);
    // The second call is denied for a minute, because the server has counted the first.
    let waited = waiting.await.unwrap();
    assert!(waited < ms(510), "{waited:?}");
    assert_eq!(server.world().counted.len(), 2);
}
