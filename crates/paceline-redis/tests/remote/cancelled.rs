//! Requests that are dropped, and permits that no caller fetches.

use std::task::Wake;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_request_dropped_before_it_is_sent_takes_no_call() {
    let (server, _process, limit) = closed(SlidingLog::new(3, MINUTE)).await;
    drop(limit.join(1));
    settle().await;
    assert_eq!(calls(&server), 0);
}

/// A waker that owns a handle, as that of a task without an executor does.
#[derive(Debug)]
struct Owner {
    _handle: Limit<SlidingLog>,
}

impl Wake for Owner {
    fn wake(self: Arc<Self>) {}
}

#[tokio::test(start_paused = true)]
async fn a_waker_that_owns_a_waiter_is_dropped_outside_the_lock() {
    let (_server, _process, limit) = closed(SlidingLog::new(1, MINUTE)).await;
    for is_polled_again in [false, true] {
        let owner = Owner {
            _handle: limit.join(1),
        };
        let waker = Waker::from(Arc::new(owner));
        let mut handle = limit.clone();
        let mut cx = Context::from_waker(&waker);
        assert!(handle.poll_ask(1, WaitMode::Wait, &mut cx).is_pending());
        drop(waker);
        if is_polled_again {
            let mut cx = Context::from_waker(Waker::noop());
            assert!(handle.poll_ask(1, WaitMode::Wait, &mut cx).is_pending());
        }
        drop(handle);
    }
    limit.acquire(1).await.unwrap();
}

/// Where requests count, two small ones could else use the permits of a large one, which was one request.
#[tokio::test(start_paused = true)]
async fn permits_of_a_dropped_request_go_to_the_next_waiter_or_are_returned_with_its_question() {
    for (case, counts_requests, permits, next, took, calls_made) in [
        ("they are enough", false, 2, &[2][..], 10, 1),
        ("they are too few", false, 3, &[3], 20, 2),
        ("requests count", true, 2, &[1, 1], 20, 2),
    ] {
        let (server, _process, mut limit) = distant(10, SlidingLog::new(permits, MINUTE)).await;
        if counts_requests {
            limit = limit.counting_requests();
        }
        let first = limit.join(2);
        settle().await;
        let mut waiters: Vec<_> = next.iter().map(|cost| limit.join(*cost)).collect();
        drop(first);
        let watch = Stopwatch::start();
        for (waiter, cost) in waiters.iter_mut().zip(next) {
            let answer = waiter.again(*cost, WaitMode::Wait).await;
            let expected = (Ok(Decision::Pass), ms(took));
            assert_eq!((answer, watch.elapsed()), expected, "{case}");
        }
        assert_eq!(calls(&server), calls_made, "{case}");
        assert_eq!(limit.take_all().await, Ok(0), "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn all_permits_taken_at_once_are_returned_if_their_caller_has_gone() {
    let (server, _process, limit) = distant(10, SlidingLog::new(3, MINUTE)).await;
    assert!(within(ms(5), limit.take_all()).await.is_none());
    sleep(ms(40)).await;
    // Taken, and returned.
    assert_eq!(calls(&server), 2);
    assert_eq!(limit.take_all().await, Ok(3));
}

#[tokio::test(start_paused = true)]
async fn permits_of_a_dropped_request_are_returned_alone_if_nothing_else_is_asked() {
    let (server, _process, limit) = distant(10, SlidingLog::new(3, MINUTE)).await;
    for dropped_after in [0, 5, 10, 15, 90] {
        let before = calls(&server);
        let asking = limit.join(2);
        settle().await;
        sleep(ms(dropped_after)).await;
        drop(asking);
        sleep(ms(40)).await;
        // Asked, and returned.
        assert_eq!(calls(&server), before + 2, "{dropped_after} ms");
        assert_eq!(limit.take_all().await, Ok(3), "{dropped_after} ms");
        sleep(MINUTE).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_returned_permit_is_never_the_permit_of_another() {
    let (server, _processes, [far, near]) = two(Interval::every(ms(20))).await;
    server.world().reply_in = ms(15);
    let cancelled = far.join(1);
    settle().await;
    server.world().reply_in = ms(0);
    drop(cancelled);
    // The reply is on its way. Another process waits for the next permit, and gets it at 20 ms, before or after the return.
    let watch = Stopwatch::start();
    near.acquire(1).await.unwrap();
    let first = watch.elapsed();
    near.acquire(1).await.unwrap();
    far.acquire(1).await.unwrap();
    near.acquire(1).await.unwrap();
    assert_eq!((first, watch.elapsed()), (ms(20), ms(80)));
}

#[tokio::test(start_paused = true)]
async fn a_permit_is_kept_for_100_ms_and_then_void_and_returned() {
    for (idle, calls_made) in [(99, 1), (100, 2), (101, 2)] {
        let (server, _process, limit) = closed(SlidingLog::new(3, MINUTE)).await;
        let mut handle = limit.join(2);
        settle().await;
        sleep(ms(idle)).await;
        let answer = handle.again(2, WaitMode::Wait).await;
        assert_eq!(answer, Ok(Decision::Pass));
        assert_eq!(calls(&server), calls_made, "{idle} ms");
        assert_eq!(limit.take_all().await, Ok(1));
    }
}

#[tokio::test(start_paused = true)]
async fn permits_of_the_outage_policy_are_not_returned_to_the_server() {
    let (server, process, limit) = one(OutagePolicy::open(), SlidingLog::new(5, MINUTE)).await;
    limit.acquire(3).await.unwrap();
    for _ in 0..5 {
        let asking = limit.join(1);
        server.cut();
        settle().await;
        drop(asking);
        process.connect().await;
        settle().await;
    }
    assert!(process.stats().passed_alone >= 5, "{:?}", process.stats());
    assert_eq!(limit.take_all().await, Ok(2));
}
