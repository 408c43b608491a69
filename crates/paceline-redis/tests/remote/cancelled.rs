//! Requests that are dropped, and permits that no caller fetches.

use std::task::Wake;

use fastrand::Rng;

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

#[tokio::test(start_paused = true)]
async fn permits_of_a_dropped_request_go_to_a_waiter_of_its_cost_or_are_returned_with_the_next_question()
 {
    for (permits, next, took, calls_made) in [
        (2, &[2][..], 10, 1),
        (3, &[3], 20, 2),
        (2, &[1, 1], 20, 2),
        (3, &[1, 2], 20, 2),
    ] {
        let (server, _process, limit) = distant(10, SlidingLog::new(permits, MINUTE)).await;
        let first = limit.join(2);
        settle().await;
        let mut waiters: Vec<_> = next.iter().map(|cost| limit.join(*cost)).collect();
        drop(first);
        let watch = Stopwatch::start();
        for (waiter, cost) in waiters.iter_mut().zip(next) {
            let answer = waiter.again(*cost, WaitMode::Wait).await;
            let expected = (Ok(Decision::Pass), ms(took));
            assert_eq!((answer, watch.elapsed()), expected, "{next:?}");
        }
        assert_eq!(calls(&server), calls_made, "{next:?}");
        assert_eq!(limit.take_all().await, Ok(0), "{next:?}");
    }
}

/// It took one slot, and a debt took one moment at which the bucket was full.
#[tokio::test(start_paused = true)]
async fn a_dropped_request_of_a_high_cost_lets_only_one_other_pass_in_its_place() {
    async fn of<P: Rule>(policy: P, passed_at: [u64; 3]) {
        let (_server, _process, limit) = distant(5, policy).await;
        let dropped = limit.join(3);
        settle().await;
        let waiting = [(); 3].map(|()| acquiring(&limit, 1));
        sleep(ms(2)).await;
        drop(dropped);
        let waited = join_all(waiting).await.into_iter().map(Result::unwrap);
        // Those behind have asked again at the time of the denial, on the server's side of the way.
        assert_eq!(waited.collect::<Vec<_>>(), passed_at.map(ms));
    }
    of(Interval::every(ms(1_000)), [10, 1_015, 2_020]).await;
    let bucket = TokenBucket::new(Rate::new(1, ms(1_000)), 1).with_debt();
    of(bucket, [10, 1_015, 2_020]).await;
}

/// Each request that passed was one of the server's, of its cost: none shares the permits of another that was dropped.
#[tokio::test(start_paused = true)]
async fn each_request_that_passed_is_counted_alone_whatever_is_dropped() {
    async fn of<P: Rule>(random: &mut Rng, policy: P) {
        let (server, _process, limit) = distant(random.u64(0..8), policy.clone()).await;
        let requests = (0..40).map(|_| {
            let (cost, limit) = (random.u32(1..4), limit.clone());
            let (comes, gives_up) = (ms(random.u64(0..300)), ms(random.u64(1..200)));
            async move {
                sleep(comes).await;
                let passed = within(gives_up, limit.acquire(cost)).await;
                passed.map(|passed| passed.map(|()| cost).unwrap())
            }
        });
        let passed = join_all(requests).await.into_iter().flatten();
        let mut passed = passed.collect::<Vec<_>>();
        sleep(ms(200)).await;
        let counted = server.world().counted.clone().into_iter();
        let counted = counted.map(|(.., cost)| cost).filter(|cost| *cost > 0);
        let mut counted = counted.collect::<Vec<_>>();
        passed.sort_unstable();
        counted.sort_unstable();
        assert_eq!(passed, counted, "{policy:?}");
        assert!(passed.len() > 3, "{passed:?}");
    }
    let mut random = Rng::with_seed(7);
    for _ in 0..20 {
        of(&mut random, Interval::every(ms(30))).await;
        let bucket = TokenBucket::new(Rate::new(1, ms(20)), 1);
        of(&mut random, bucket.with_debt()).await;
        of(&mut random, SlidingLog::new(3, ms(40))).await;
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
