//! The server refuses, and the client library panics.

use super::*;

#[tokio::test(start_paused = true)]
async fn the_fault_of_one_key_harms_no_other_key_of_the_call() {
    let (server, process, _) = one(OutagePolicy::open(), plenty()).await;
    server.world().refused_keys.insert(3);
    let limits: Vec<_> = (0..10).map(|key| process.limit(key, plenty())).collect();
    let answers = join_all(limits.iter().map(|limit| limit.acquire(1))).await;
    for (key, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer.is_err(), key == 3, "{key}");
    }
    assert_eq!(calls(&server), 1);
    let stats = process.stats();
    assert_eq!((stats.answered, stats.faults), (1, 1));
    assert_eq!((stats.outages, stats.passed_alone), (0, 0));
    let cause = Some(Failure::Fault("this key is refused".into()));
    assert_eq!(process.batcher.connection.last_failure(), cause);
}

#[tokio::test(start_paused = true)]
async fn a_refused_key_or_call_is_asked_again_each_second_and_is_no_outage() {
    let refused = Failure::Fault("this key is refused".into());
    for is_whole_call in [false, true] {
        let (server, process, limit) = one(OutagePolicy::open(), plenty()).await;
        if is_whole_call {
            server.world().failure = Some(refused.clone());
        } else {
            server.world().refused_keys.insert(0);
        }
        let watch = Stopwatch::start();
        let _waiter = limit.join(1);
        for _ in 0..5 {
            settle().await;
            for _ in 0..10 {
                let error = limit.acquire(1).await.unwrap_err().to_string();
                assert_eq!(error, "the server refused: this key is refused");
            }
            sleep(ms(1_000)).await;
        }
        settle().await;
        let stats = process.stats();
        assert_eq!((stats.faults, stats.outages, stats.passed_alone), (6, 0, 0));
        assert!(process.is_up());
        server.world().refused_keys.clear();
        server.world().failure = None;
        assert!(limit.acquire(1).await.is_err(), "it is not asked before");
        sleep(ms(1_000)).await;
        limit.acquire(1).await.unwrap();
        assert_eq!(watch.elapsed(), ms(6_000));
    }
}

/// The start of an outage is one: nothing says yet that the server will refuse the login.
#[tokio::test(start_paused = true)]
async fn a_refused_login_has_one_answer_for_as_long_as_it_lasts_also_after_an_outage() {
    let wrong = Failure::Fault("the password is wrong".into());
    for was_up in [false, true] {
        let server = Server::start();
        let process = Process::of(&server, OutagePolicy::open());
        let limit = process.limit(0, plenty());
        if was_up {
            process.connect().await;
            limit.acquire(1).await.unwrap();
            server.kill();
            notice(&process, &limit).await;
            server.restart();
        }
        server.world().login_failure = Some(wrong.clone());
        while process.batcher.connection.is_down() {
            sleep(ms(1)).await;
        }
        let alone = process.stats().passed_alone;
        for _ in 0..1_000 {
            let refused = "the server refused: the password is wrong";
            let tried = limit.try_acquire(1).await.unwrap_err();
            let waited = limit.acquire(1).await.unwrap_err();
            let up_to = limit.try_acquire_up_to(9).await.unwrap_err();
            for error in [tried, waited, up_to] {
                assert_eq!(error.to_string(), refused);
            }
            sleep(ms(10)).await;
        }
        let stats = process.stats();
        assert_eq!(stats.passed_alone, alone, "{stats:?}");
        assert_eq!(stats.outages, u64::from(was_up), "{stats:?}");

        server.world().login_failure = None;
        sleep(ms(2_000)).await;
        limit.acquire(1).await.unwrap();
    }
}

/// A process that is busy may get its own answer late. It knows of the fault all the same.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_not_answered_in_time_hears_of_a_refused_login() {
    let (server, process, limit) = one(OutagePolicy::open(), plenty()).await;
    server.world().login_failure = Some(Failure::Fault("the password is wrong".into()));
    server.cut();
    while limit.try_acquire(1).await.is_ok() {
        sleep(ms(1)).await;
    }
    sleep(ms(2_000)).await;
    // The queue of this key is asked, and the task that asks the server is not run before the caller's time is over.
    let since = process.batcher.connection.now();
    let mut position = None;
    let late = limit.queue.decide_after_timeout(&mut position, since, 1);
    assert!(late.is_err(), "{late:?}");
}

#[tokio::test(start_paused = true)]
async fn where_faults_let_pass_each_passes_is_counted_and_is_no_outage() {
    let refused = Failure::Fault("refused".into());
    for what in ["key", "call", "login"] {
        let (server, process, limit) = one(OutagePolicy::always_open(), plenty()).await;
        match what {
            "key" => _ = server.world().refused_keys.insert(0),
            "call" => server.world().failure = Some(refused.clone()),
            _ => server.world().login_failure = Some(refused.clone()),
        }
        if what == "login" {
            server.cut();
            // The broken connection is an outage. The refusal comes after it.
            while process.stats().faults == 0 {
                assert!(limit.passes(1).await);
                sleep(ms(1)).await;
            }
        }
        let before = process.stats();
        let waiter = acquiring(&limit, 1);
        for _ in 0..300 {
            assert!(limit.passes(1).await, "{what}");
            limit.acquire(1).await.unwrap();
            assert_eq!(limit.try_acquire_up_to(3).await, Ok(3));
            sleep(ms(10)).await;
        }
        assert_eq!(within(MINUTE, waiter).await.unwrap().unwrap(), ms(0));
        let stats = process.stats();
        let passed = stats.passed_alone - before.passed_alone;
        assert_eq!((passed, stats.outages), (1 + 300 * 5, before.outages));
        assert!(stats.faults - before.faults >= 900, "{what}: {stats:?}");

        // What the server answers is in force again.
        server.world().refused_keys.clear();
        (server.world().failure, server.world().login_failure) = (None, None);
        process.connect().await;
        let alone = process.stats().passed_alone;
        limit.acquire(1).await.unwrap();
        assert_eq!(process.stats().passed_alone, alone, "{what}");
    }
}

/// A pause of this process is no fault.
#[tokio::test(start_paused = true)]
async fn where_faults_let_pass_a_pause_is_kept() {
    let (server, _process, limit) = one(OutagePolicy::always_open(), plenty()).await;
    limit
        .change(Change::Pause(ms(500)), paceline::limiter::Event::Resumed)
        .await
        .unwrap();
    server.world().refused_keys.insert(0);
    let waiting = acquiring(&limit, 1);
    assert!(!limit.passes(1).await);
    assert_eq!(within(MINUTE, waiting).await.unwrap().unwrap(), ms(500));
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_call_is_a_failure_and_no_hang() {
    let (server, process, limit) = closed(plenty()).await;
    server.world().panics = true;
    let waiting = acquiring(&limit, 1);
    for _ in 0..20 {
        assert!(!limit.passes(1).await);
        sleep(ms(50)).await;
    }
    assert!(!waiting.is_finished());
    let stats = process.stats();
    assert!((1..=30).contains(&stats.unreachable), "{stats:?}");
    let cause = process.batcher.connection.last_failure().unwrap();
    assert!(cause.to_string().contains("panic"), "{cause}");

    server.world().panics = false;
    within(MINUTE, waiting).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_call_harms_no_other_call_under_way() {
    let (server, process, limit) = distant(5, plenty()).await;
    let watch = Stopwatch::start();
    let mut answered = limit.join(1);
    settle().await;
    server.world().panics = true;
    assert!(!process.limit(1, plenty()).passes(1).await);
    assert_eq!((process.stats().unreachable, watch.elapsed()), (1, ms(1)));
    let answer = answered.again(1, WaitMode::Wait).await;
    assert_eq!((answer, watch.elapsed()), (Ok(Decision::Pass), ms(5)));
}

#[tokio::test(start_paused = true)]
async fn a_panic_on_connecting_is_a_failure_with_the_usual_pauses() {
    let server = Server::start();
    server.world().panics = true;
    let process = Process::of(&server, OutagePolicy::closed());
    let limit = process.limit(0, plenty());
    let watch = Stopwatch::start();
    while watch.elapsed() < ms(2_000) {
        assert!(!limit.passes(1).await);
        sleep(ms(10)).await;
    }
    let cause = process.batcher.connection.last_failure().unwrap();
    assert!(cause.to_string().contains("panic"), "{cause}");
    assert_eq!(process.stats().outages, 1);
    // After 0, 20, 60, 140, 300 and 550 ms, and then each 250 ms.
    assert_eq!(server.world().attempts, 11);
    server.world().panics = false;
    limit.acquire(1).await.unwrap();
}
