use super::*;

/// A limit that takes permits ahead, at a server whose replies take so many milliseconds.
async fn ahead(
    reply_in: u64,
    log: SlidingLog,
    prefetch: (u32, Duration),
) -> (Server<SlidingLog>, Limit<SlidingLog>) {
    let (server, process, _) = distant(reply_in, log).await;
    (server, process.limit_with(0, log, Some(prefetch)))
}

#[tokio::test(start_paused = true)]
async fn a_prefetch_saves_calls_and_counts_no_more_than_the_limit() {
    let (server, limit) = ahead(0, SlidingLog::new(100, MINUTE), (24, MINUTE)).await;
    let mut passed = 0;
    while limit.passes(1).await {
        passed += 1;
    }
    assert_eq!(passed, 100);
    // Four of 25 permits, and one that is denied.
    assert_eq!(calls(&server), 5);
}

#[tokio::test(start_paused = true)]
async fn prefetched_permits_are_void_when_their_time_since_the_call_was_sent_is_over() {
    for (idle, is_usable) in [(14, true), (15, false)] {
        let (_server, limit) = ahead(5, SlidingLog::new(10, MINUTE), (9, ms(20))).await;
        assert!(limit.passes(1).await);
        sleep(ms(idle)).await;
        let watch = Stopwatch::start();
        if is_usable {
            assert!(limit.passes(1).await);
            assert_eq!(watch.elapsed(), ms(0));
        } else {
            assert!(wait_of(limit.try_acquire(1).await) > ms(50_000));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn only_one_call_at_a_time_takes_permits_ahead() {
    let (server, limit) = ahead(20, SlidingLog::new(100, MINUTE), (10, MINUTE)).await;
    let tries = (0..5).map(|number| {
        let limit = limit.clone();
        async move {
            sleep(ms(3) * number).await;
            assert!(limit.passes(1).await);
        }
    });
    join_all(tries).await;
    assert_eq!(calls(&server), 5);
    assert_eq!(limit.take_all().await, Ok(100 - 5 - 10));
}

#[tokio::test(start_paused = true)]
async fn prefetched_permits_wait_for_waiters() {
    let (_server, limit) = ahead(0, SlidingLog::new(10, MINUTE), (4, MINUTE)).await;
    limit.acquire(1).await.unwrap();
    // Six are asked for, of which the server has five.
    let waiter = limit.join(6);
    wait_of(limit.try_acquire(1).await);
    drop(waiter);
    assert!(limit.passes(4).await);
}

#[tokio::test(start_paused = true)]
async fn prefetches_exceed_a_window_by_at_most_their_sizes() {
    const LIMIT: u32 = 40;
    const AHEAD: u32 = 10;
    const PROCESSES: u32 = 3;
    let window = ms(1_000);
    let server = Server::start();
    let watch = Stopwatch::start();
    let mut callers = JoinSet::new();
    for _ in 0..PROCESSES {
        let process = process(&server, OutagePolicy::closed()).await;
        let log = SlidingLog::new(LIMIT, window);
        let limit = process.limit_with(0, log, Some((AHEAD, window / 2)));
        callers.spawn(async move {
            let mut passed = Vec::new();
            for _ in 0..3 {
                // Takes permits ahead, and uses them when they are nearly void, with all that it can get then.
                limit.acquire(1).await.unwrap();
                passed.push((watch.elapsed(), 1));
                sleep(ms(499)).await;
                let until = watch.elapsed() + window;
                passed.extend(passing_until(&limit, watch, until).await);
                sleep(window).await;
            }
            passed
        });
    }
    let most = most_within(window, callers.join_all().await.concat());
    assert!(most > LIMIT, "{most}");
    assert!(most <= LIMIT + PROCESSES * AHEAD, "{most}");
}
