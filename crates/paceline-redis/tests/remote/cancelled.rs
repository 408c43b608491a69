//! Requests that are dropped, and permits that no caller fetches.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use testkit::clock::Stopwatch;

use super::server::Server;
use super::{Limit, MINUTE, WaitMode, ms, one, process, settle, wait_of, within};
use crate::remote::OutagePolicy;
use crate::remote::connection::sleep;
use paceline::policy::{Decision, Interval, SlidingLog};

#[tokio::test(start_paused = true)]
async fn a_request_dropped_before_it_is_sent_takes_no_call() {
    let (server, _process, limit) = one(OutagePolicy::closed(), SlidingLog::new(3, MINUTE)).await;
    drop(limit.join(1));
    settle().await;
    assert_eq!(server.world().calls.len(), 0);
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
    let (_server, _process, limit) = one(OutagePolicy::closed(), SlidingLog::new(1, MINUTE)).await;
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

#[tokio::test(start_paused = true)]
async fn permits_of_a_dropped_request_go_to_the_next_waiter_without_a_call() {
    let server = Server::start();
    server.world().reply_in = ms(10);
    let process = process(&server, OutagePolicy::closed()).await;
    let limit = process.limit(0, SlidingLog::new(2, MINUTE));
    let first = limit.join(2);
    settle().await;
    let mut second = limit.join(2);
    drop(first);
    let watch = Stopwatch::start();
    let answer = poll_fn(|cx| second.poll_ask(2, WaitMode::Wait, cx)).await;
    assert_eq!((answer, watch.elapsed()), (Ok(Decision::Pass), ms(10)));
    assert_eq!(server.world().calls.len(), 1);
}

/// Else two small requests could use the permits of a large one, which was one request.
#[tokio::test(start_paused = true)]
async fn where_requests_count_the_permits_of_a_dropped_request_are_returned_and_go_to_no_other() {
    let server = Server::start();
    server.world().reply_in = ms(10);
    let process = process(&server, OutagePolicy::closed()).await;
    let limit = process.limit(0, SlidingLog::new(2, MINUTE));
    let limit = limit.counting_requests();
    let first = limit.join(2);
    settle().await;
    let mut small = [limit.join(1), limit.join(1)];
    drop(first);
    let watch = Stopwatch::start();
    for waiter in &mut small {
        let answer = poll_fn(|cx| waiter.poll_ask(1, WaitMode::Wait, cx)).await;
        assert_eq!((answer, watch.elapsed()), (Ok(Decision::Pass), ms(20)));
    }
    assert_eq!(server.world().calls.len(), 2);
    assert_eq!(limit.take_all().await, Ok(0));
}

#[tokio::test(start_paused = true)]
async fn all_permits_taken_at_once_are_returned_if_their_caller_has_gone() {
    let server = Server::start();
    server.world().reply_in = ms(10);
    let process = process(&server, OutagePolicy::closed()).await;
    let limit = process.limit(0, SlidingLog::new(3, MINUTE));
    let taken = within(ms(5), limit.take_all()).await;
    assert!(taken.is_none());
    sleep(ms(40)).await;
    // Taken, and returned.
    assert_eq!(server.world().calls.len(), 2);
    assert_eq!(limit.take_all().await, Ok(3));
}

#[tokio::test(start_paused = true)]
async fn permits_of_a_dropped_request_are_returned_alone_if_nothing_else_is_asked() {
    let server = Server::start();
    server.world().reply_in = ms(10);
    let process = process(&server, OutagePolicy::closed()).await;
    let limit = process.limit(0, SlidingLog::new(3, MINUTE));
    for dropped_after in [0, 5, 10, 15, 90] {
        let asking = limit.join(2);
        settle().await;
        sleep(ms(dropped_after)).await;
        drop(asking);
        sleep(ms(40)).await;
        let calls = server.world().calls.len();
        assert_eq!(limit.take_all().await.unwrap(), 3, "{dropped_after} ms");
        assert_eq!(server.world().calls.len(), calls + 1);
        sleep(MINUTE).await;
    }
    // Asked, returned, and taken.
    assert_eq!(server.world().calls.len(), 15);
}

#[tokio::test(start_paused = true)]
async fn permits_of_a_dropped_request_are_returned_with_the_next_question() {
    let server = Server::start();
    server.world().reply_in = ms(10);
    let process = process(&server, OutagePolicy::closed()).await;
    let limit = process.limit(0, SlidingLog::new(3, MINUTE));
    let first = limit.join(2);
    settle().await;
    let mut second = limit.join(3);
    drop(first);
    let watch = Stopwatch::start();
    let answer = poll_fn(|cx| second.poll_ask(3, WaitMode::Wait, cx)).await;
    // Two are left of three, if the first two are returned.
    assert_eq!((answer, watch.elapsed()), (Ok(Decision::Pass), ms(20)));
    assert_eq!(server.world().calls.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_returned_permit_is_never_the_permit_of_another() {
    let server = Server::start();
    let every = Interval::every(ms(20));
    let far = process(&server, OutagePolicy::closed()).await;
    let near = process(&server, OutagePolicy::closed()).await;
    let (far, near) = (far.limit(0, every), near.limit(0, every));

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
    assert_eq!(first, ms(20));
    assert_eq!(watch.elapsed(), first + ms(60));
}

#[tokio::test(start_paused = true)]
async fn a_permit_is_kept_for_100_ms_and_then_void() {
    for (idle, calls) in [(99, 1), (100, 2), (101, 2)] {
        let (server, _process, limit) =
            one(OutagePolicy::closed(), SlidingLog::new(3, MINUTE)).await;
        let mut handle = limit.join(2);
        settle().await;
        sleep(ms(idle)).await;
        let answer = poll_fn(|cx| handle.poll_ask(2, WaitMode::Wait, cx)).await;
        assert_eq!(answer, Ok(Decision::Pass));
        assert_eq!(server.world().calls.len(), calls, "{idle} ms");
        // The void ones were returned.
        assert_eq!(limit.take_all().await.unwrap(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_changed_cost_returns_the_permits_of_the_old_one() {
    let (_server, _process, limit) = one(OutagePolicy::closed(), SlidingLog::new(5, MINUTE)).await;
    let mut handle = limit.join(4);
    settle().await;
    let answer = poll_fn(|cx| handle.poll_ask(5, WaitMode::Wait, cx)).await;
    assert_eq!(answer, Ok(Decision::Pass));
    assert_eq!(wait_of(limit.try_acquire(1).await), MINUTE);
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
    assert_eq!(limit.take_all().await.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_leaves_counts_nothing() {
    let (_server, _process, limit) =
        one(OutagePolicy::closed(), SlidingLog::new(2, ms(1_000))).await;
    limit.acquire(2).await.unwrap();
    for cost in [1, 2, 1] {
        let left = within(ms(10), limit.acquire(cost)).await;
        assert!(left.is_none());
    }
    sleep(ms(970)).await;
    assert_eq!(limit.take_all().await.unwrap(), 2);
}
