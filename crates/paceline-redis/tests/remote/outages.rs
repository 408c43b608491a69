//! The server is silent, breaks connections, is gone, and comes back.

use super::*;
use crate::remote::request::without_outage;

#[tokio::test(start_paused = true)]
async fn the_breaker_opens_after_three_silent_deadlines_and_each_try_is_answered_within_one() {
    let denied = Decision::Wait { retry_in: ms(100) };
    for (when_down, answer, passed_alone) in [
        (OutagePolicy::closed(), denied, 0),
        (OutagePolicy::open(), Decision::Pass, 5),
    ] {
        let (server, process, limit) = one(when_down, SlidingLog::new(1, MINUTE)).await;
        server.world().reply_in = NEVER;
        let watch = Stopwatch::start();
        for (outages, answered_at) in [(0, 25), (0, 50), (0, 75), (1, 75), (1, 75)] {
            assert_eq!(process.stats().outages, outages);
            assert_eq!(process.is_up(), outages == 0);
            assert_eq!(limit.try_acquire(1).await, Ok(answer));
            assert_eq!(watch.elapsed(), ms(answered_at));
        }
        let stats = process.stats();
        assert_eq!((stats.timeouts, stats.passed_alone), (3, passed_alone));
    }
}

#[tokio::test(start_paused = true)]
async fn the_breaker_closes_with_a_new_connection_and_bears_silence_only_after_an_answer() {
    for (is_answered, silences) in [(false, 1), (true, 3)] {
        let (server, process, limit) = closed(plenty()).await;
        server.freeze();
        notice(&process, &limit).await;
        sleep(ms(1_000)).await;
        assert!(!process.is_up());

        server.thaw();
        process.connect().await;
        if is_answered {
            limit.acquire(1).await.unwrap();
        }
        let stats = process.stats();
        let ended = (stats.outages, stats.connects, stats.lost_states);
        assert_eq!(ended, (1, 2, 0));
        server.freeze();
        for _ in 0..silences {
            assert!(process.is_up());
            wait_of(limit.try_acquire(1).await);
        }
        assert_eq!((process.is_up(), process.stats().outages), (false, 2));
    }
}

#[tokio::test(start_paused = true)]
async fn one_late_reply_is_no_outage() {
    let (server, process, limit) = closed(plenty()).await;
    server.world().reply_in = ms(40);
    wait_of(limit.try_acquire(1).await);
    server.world().reply_in = ms(24);
    limit.acquire(1).await.unwrap();
    let stats = process.stats();
    assert_eq!((stats.timeouts, stats.outages, stats.connects), (1, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_broken_connection_is_replaced_at_once_and_is_no_outage() {
    let (server, process, limit) = closed(plenty()).await;
    limit.acquire(1).await.unwrap();
    server.world().reply_in = ms(5);
    let waiting = acquiring(&limit, 1);
    sleep(ms(2)).await;
    server.cut();
    // 2 ms, two calls to connect, and the call.
    assert_eq!(waiting.await.unwrap(), ms(17));
    let stats = process.stats();
    let broken = (stats.unreachable, stats.outages, stats.connects);
    assert_eq!(broken, (1, 0, 2));
}

#[tokio::test(start_paused = true)]
async fn closed_passes_nothing_until_the_server_is_back() {
    let (server, process, limit) = closed(plenty()).await;
    server.kill();
    notice(&process, &limit).await;
    let mut waiting = acquiring(&limit, 1);
    for _ in 0..50 {
        assert!(!limit.passes(1).await);
        sleep(ms(20)).await;
    }
    assert!(!waiting.is_finished());
    assert_eq!(process.stats().passed_alone, 0);

    server.world().is_reachable = true;
    let watch = Stopwatch::start();
    (&mut waiting).await.unwrap();
    assert!(watch.elapsed() <= ms(250), "{:?}", watch.elapsed());
    assert_eq!(process.stats().outages, 1);
}

#[tokio::test(start_paused = true)]
async fn open_passes_everything_at_once_and_counts_it() {
    let (server, process, limit) = one(OutagePolicy::open(), SlidingLog::new(1, MINUTE)).await;
    limit.acquire(1).await.unwrap();
    server.kill();
    let watch = Stopwatch::start();
    for _ in 0..500 {
        limit.acquire(1).await.unwrap();
        assert!(limit.passes(1).await);
    }
    assert_eq!(watch.elapsed(), ms(0));
    assert_eq!(process.stats().passed_alone, 1_000);
}

#[tokio::test(start_paused = true)]
async fn an_insured_bucket_starts_empty_at_the_first_failure_and_fills_at_its_share() {
    for (replicas, is_silent, expected) in [
        (4, false, [200, 400, 600, 800, 1_000]),
        (2, true, [125, 225, 325, 425, 525]),
    ] {
        let (server, process, limit) = one(OutagePolicy::insured(replicas), four_every(50)).await;
        if is_silent {
            server.world().reply_in = NEVER;
        } else {
            server.kill();
        }
        assert_eq!(passed_at(&limit, &[1; 5]).await, expected.map(ms));
        assert_eq!(process.stats().passed_alone, 5);
    }
}

#[tokio::test(start_paused = true)]
async fn an_insured_window_passes_nothing_before_a_whole_window_is_over() {
    let (server, _process, limit) =
        one(OutagePolicy::insured(2), SlidingLog::new(4, ms(400))).await;
    limit.acquire(1).await.unwrap();
    server.kill();
    let expected = [400, 400, 800, 800, 1_200, 1_200].map(ms);
    assert_eq!(passed_at(&limit, &[1; 6]).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_restarted_server_counts_every_limit_as_spent_once() {
    let (server, process, limit) = closed(SlidingLog::new(3, ms(500))).await;
    limit.acquire(1).await.unwrap();
    server.kill();
    notice(&process, &limit).await;
    server.restart();
    process.connect().await;
    assert_eq!(passed_at(&limit, &[1; 3]).await, [ms(500); 3]);
    assert_eq!(process.stats().lost_states, 1);
}

#[tokio::test(start_paused = true)]
async fn two_insured_processes_stay_inside_the_limit_over_an_outage() {
    const LIMIT: u32 = 20;
    let window = ms(500);
    for (is_restarted, lag) in [(false, 0), (false, 130), (true, 0), (true, 310)] {
        let server = Server::start();
        let mut replicas = JoinSet::new();
        let watch = Stopwatch::start();
        for number in 0..2 {
            let process = process(&server, OutagePolicy::insured(2)).await;
            let limit = process.limit(0, SlidingLog::new(LIMIT, window));
            replicas.spawn(async move {
                // The second one notices the outage later, and its return too.
                sleep((ms(250) + ms(lag)) * number + ms(1)).await;
                passing_until(&limit, watch, ms(5_000)).await
            });
        }
        sleep(ms(300)).await;
        if is_restarted {
            server.kill();
        } else {
            server.freeze();
        }
        sleep(window * 3).await;
        if is_restarted {
            server.restart();
        } else {
            server.thaw();
        }
        let passed = replicas.join_all().await.concat();
        assert!(passed.len() > 80, "{}", passed.len());
        let most = most_within(window, passed);
        assert!(most <= LIMIT, "{is_restarted} {lag}: {most}");
    }
}

#[tokio::test(start_paused = true)]
async fn on_return_a_herd_of_keys_does_not_bring_the_server_down_again() {
    let (server, process, first) = closed(plenty()).await;
    server.world().per_key = Duration::from_micros(20);
    server.kill();
    notice(&process, &first).await;
    let limits = (1..=5_000).map(|key| process.limit(key, plenty()));
    let waiters: Vec<_> = limits.map(|limit| acquiring(&limit, 1)).collect();
    sleep(ms(1_000)).await;
    assert!(!waiters.iter().any(JoinHandle::is_finished));

    server.world().is_reachable = true;
    let before = process.stats();
    let watch = Stopwatch::start();
    for waiter in waiters {
        waiter.await.unwrap();
    }
    let after = process.stats();
    assert_eq!(after.timeouts, before.timeouts);
    assert_eq!((after.outages, after.connects), (1, 2));
    let most = server.world().calls.iter().map(|(_, keys, _)| *keys).max();
    assert!(most.unwrap() <= 64);
    // The pause before connecting, and the work.
    assert!(watch.elapsed() <= ms(250 + 120), "{:?}", watch.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_accepts_connections_and_cannot_serve_is_asked_less_and_less() {
    let bucket = TokenBucket::new(Rate::new(1, ms(100)), 2);
    let (server, process, limit) = one(OutagePolicy::insured(2), bucket).await;
    server.world().failure = Some(Failure::Unavailable("out of memory".into()));
    let watch = Stopwatch::start();
    for _ in 0..20 {
        limit.acquire(1).await.unwrap();
    }
    // One outage: its insurance continues over all new connections.
    assert!(watch.elapsed() <= ms(4_000), "{:?}", watch.elapsed());
    let stats = process.stats();
    assert!(stats.connects <= 24, "{stats:?}");
    assert_eq!((stats.passed_alone, stats.faults), (20, 0));
    // Three opened the breaker, and then each.
    assert_eq!(stats.unavailable, stats.outages + 2);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_too_slow_is_down_until_it_is_fast_again() {
    let (server, process, limit) = one(OutagePolicy::open(), plenty()).await;
    server.world().reply_in = ms(80);
    for _ in 0..20 {
        assert!(limit.passes(1).await);
    }
    assert_eq!(process.stats().timeouts, 3);
    // Connections can be opened. The server is too slow to be used.
    sleep(ms(3_000)).await;
    assert!(!process.is_up());
    server.world().reply_in = ms(0);
    process.connect().await;
    assert!(limit.passes(1).await);
    assert_eq!(process.stats().outages, 1);
}

#[tokio::test(start_paused = true)]
async fn in_a_silent_network_an_attempt_to_connect_begins_each_250_ms_or_four_deadlines() {
    for (deadline, each) in [
        (ms(1), 250),
        (DEADLINE, 250),
        (ms(100), 400),
        (ms(600), 1_000),
    ] {
        let server = Server::start();
        let process = Process::with(&server, OutagePolicy::closed(), deadline);
        process.connect().await;
        server.world().connects_in = NEVER;
        server.freeze();
        notice(&process, &process.limit(0, plenty())).await;
        sleep(ms(3_000)).await;
        let before = server.world().attempts;
        sleep(ms(each) * 20).await;
        let attempts = server.world().attempts - before;
        assert_eq!(attempts, 20, "{deadline:?}");

        // It is not too short for a server that is far away.
        server.world().connects_in = ms(each - 1);
        server.thaw();
        process.connect().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_first_connection_is_not_taken_for_a_restart() {
    let server = Server::start();
    server.world().reply_in = ms(60);
    let process = Process::of(&server, OutagePolicy::closed());
    let limit = process.limit(0, plenty());
    wait_of(limit.try_acquire(1).await);
    sleep(ms(1_000)).await;
    assert!(!process.is_up());
    server.world().reply_in = ms(0);
    limit.acquire(1).await.unwrap();
    assert_eq!(process.stats().lost_states, 0);
}

#[tokio::test(start_paused = true)]
async fn a_lost_state_is_noticed_after_all_permits_were_taken_at_once() {
    let (server, process, limit) = closed(SlidingLog::new(3, MINUTE)).await;
    assert_eq!(limit.take_all().await, Ok(3));
    server.flush();
    assert_eq!(limit.take_all().await, Ok(0));
    assert_eq!(process.stats().lost_states, 1);
    sleep(MINUTE).await;
    assert_eq!(limit.take_all().await, Ok(3));
}

/// The process that asks first has never used the key, or its own permits no longer count.
#[tokio::test(start_paused = true)]
async fn a_flush_is_noticed_though_the_process_that_asks_first_does_not_remember_the_key() {
    for has_used in [false, true] {
        let log = SlidingLog::new(3, ms(1_000));
        let (server, [process, _], [limit, of_other]) = two(log).await;
        process.limit(1, log).acquire(1).await.unwrap();
        if has_used {
            limit.acquire(1).await.unwrap();
        }
        sleep(ms(1_000)).await;
        of_other.acquire(2).await.unwrap();
        server.flush();
        assert_eq!(passed_at(&limit, &[1]).await, [ms(1_000)]);
        assert_eq!(process.stats().lost_states, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_of_a_closed_limit_asks_once_a_second_during_an_outage() {
    let (server, process, limit) = closed(plenty()).await;
    server.kill();
    let waiting = acquiring(&limit, 1);
    sleep(MINUTE).await;
    let skipped = process.stats().skipped;
    assert!((59..=61).contains(&skipped), "{skipped}");
    server.restart();
    waiting.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_closed_limit_decides_nothing_without_the_server_but_what_it_has_denied() {
    let (server, process, used_up) = closed(SlidingLog::new(1, MINUTE)).await;
    let free = process.limit(1, plenty());
    used_up.acquire(1).await.unwrap();
    let retry_in = MINUTE;
    assert_eq!(used_up.ask(1).await, Ok(Decision::Wait { retry_in }));

    // From the first silence on, before the breaker opens.
    server.world().reply_in = NEVER;
    for _ in 0..5 {
        assert_eq!(free.ask(1).await, outage(ms(100)));
    }
    assert_eq!(process.stats().timeouts, 3);
    let retry_in = MINUTE.saturating_sub(DEADLINE * 3);
    assert_eq!(used_up.ask(1).await, Ok(Decision::Wait { retry_in }));
    sleep(MINUTE).await;
    assert_eq!(used_up.ask(1).await, outage(ms(100)));

    server.world().reply_in = ms(0);
    process.connect().await;
    assert_eq!(used_up.ask(1).await, Ok(Decision::Pass));
}

#[tokio::test(start_paused = true)]
async fn behind_a_waiter_of_a_closed_limit_nothing_is_decided_for_as_long_as_the_outage_lasts() {
    let (server, process, limit) = closed(plenty()).await;
    server.kill();
    notice(&process, &limit).await;
    let waiter = limit.join(1);
    for _ in 0..30 {
        sleep(ms(97)).await;
        assert!(matches!(limit.ask(1).await, Err(Undecided::Outage { .. })));
    }
    assert!(waiter.queue.is_undecided());
}

#[tokio::test(start_paused = true)]
async fn an_insurance_decides_but_for_a_cost_above_its_share_which_waits_for_the_server() {
    let (server, process, limit) = one(OutagePolicy::insured(2), four_every(500)).await;
    server.kill();
    notice(&process, &limit).await;
    sleep(ms(100)).await;
    let waits = wait_of(without_outage(limit.ask(1).await));
    assert_eq!(limit.ask(1).await, Ok(Decision::Wait { retry_in: waits }));
    sleep(waits).await;
    assert_eq!(limit.ask(1).await, Ok(Decision::Pass));
    assert_eq!(limit.ask(3).await, outage(ms(100)));
    let waiting = acquiring(&limit, 3);
    sleep(MINUTE).await;
    assert!(!waiting.is_finished());
    server.world().is_reachable = true;
    waiting.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pause_is_a_decision_in_an_outage_too() {
    let (server, _process, limit) = closed(plenty()).await;
    let pause = Change::Pause(MINUTE);
    limit.queue.change(&pause).await.unwrap();
    server.kill();
    let wait = |retry_in| Ok(Decision::Wait { retry_in });
    assert_eq!(limit.ask(1).await, wait(MINUTE));
    let waiter = limit.join(1);
    sleep(ms(59_000)).await;
    assert_eq!(limit.ask(1).await, wait(ms(1_000)));
    assert!(!waiter.queue.is_undecided());
    sleep(ms(1_000)).await;
    settle().await;
    assert!(waiter.queue.is_undecided());
    assert!(matches!(limit.ask(1).await, Err(Undecided::Outage { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_undecided_only_while_the_server_does_not_answer() {
    let (server, _process, limit) = closed(SlidingLog::new(1, ms(500))).await;
    limit.acquire(1).await.unwrap();
    let waiter = limit.join(1);
    settle().await;
    assert!(!waiter.queue.is_undecided());
    server.world().reply_in = NEVER;
    sleep(ms(499)).await;
    assert!(!waiter.queue.is_undecided());
    sleep(ms(1)).await;
    // From the first deadline without an answer on.
    for _ in 0..4 {
        sleep(DEADLINE + ms(1)).await;
        assert!(waiter.queue.is_undecided());
    }
}
