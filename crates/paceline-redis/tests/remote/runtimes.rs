//! Several runtimes, and none.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::runtime::{Builder, Runtime};

use super::*;

fn paused() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().start_paused(true).build().unwrap()
}

/// A runtime with a server, and a limit that has not connected yet.
fn unconnected<P: Rule>(policy: P) -> (Runtime, Server<P>, Process<P>, Limit<P>) {
    let runtime = paused();
    let server = runtime.block_on(async { Server::start() });
    let process = Process::of(&server, OutagePolicy::closed());
    let limit = process.limit(0, policy);
    (runtime, server, process, limit)
}

#[test]
fn a_limit_continues_when_the_runtime_of_its_task_has_ended() {
    let lasting = paused();
    let (_server, process, limit) = lasting.block_on(distant(3, plenty()));
    for polls in 0..6 {
        let passing = paused();
        let waiter = limit.clone();
        let mut waiting = Box::pin(waiter.acquire(1));
        let is_done = passing.block_on(async {
            for _ in 0..=polls {
                if futures::poll!(waiting.as_mut()).is_ready() {
                    return true;
                }
                tokio::task::yield_now().await;
            }
            false
        });
        assert!(!is_done, "the server does not run");
        drop(passing);
        lasting.block_on(async { limit.acquire(1).await.unwrap() });
        lasting.block_on(waiting).unwrap();
    }
    process.assert_calm();
}

#[test]
fn a_runtime_that_ends_while_connecting_does_not_block_the_next() {
    for polls in 0..8 {
        let (lasting, _server, _process, limit) = unconnected(plenty());
        let passing = paused();
        passing.block_on(async {
            let mut asking = Box::pin(limit.acquire(1));
            for _ in 0..=polls {
                assert!(futures::poll!(asking.as_mut()).is_pending());
                tokio::task::yield_now().await;
            }
        });
        drop(passing);
        lasting.block_on(async { limit.acquire(1).await.unwrap() });
    }
}

#[test]
fn a_request_outside_a_runtime_panics_and_blocks_no_other() {
    let (runtime, _server, _process, limit) = unconnected(plenty());
    let asked = AssertUnwindSafe(|| futures::executor::block_on(limit.acquire(1)));
    assert!(catch_unwind(asked).is_err());
    runtime.block_on(async { limit.acquire(1).await.unwrap() });
}

#[test]
fn permits_dropped_outside_a_runtime_are_returned_with_the_next_request() {
    let (runtime, server, _process, limit) = unconnected(SlidingLog::new(5, MINUTE));
    let handle = runtime.block_on(async {
        let handle = limit.join(2);
        settle().await;
        handle
    });
    drop(handle);
    assert_eq!(calls(&server), 1);
    runtime.block_on(async {
        sleep(ms(150)).await;
        limit.acquire(1).await.unwrap();
        assert_eq!(limit.take_all().await, Ok(4));
    });
}

#[test]
fn a_runtime_that_stands_still_delays_another_by_at_most_the_deadline() {
    let retry_in = ms(100);
    for (outage_policy, answer) in [
        (OutagePolicy::closed(), Decision::Wait { retry_in }),
        (OutagePolicy::open(), Decision::Pass),
    ] {
        let (still, running) = (paused(), paused());
        let (_server, process, limit) = running.block_on(one(outage_policy, plenty()));
        // The task was started in a runtime that does not run.
        let mut asking = Box::pin(limit.acquire(1));
        still.block_on(async { assert!(futures::poll!(asking.as_mut()).is_pending()) });
        running.block_on(async {
            sleep(ms(1)).await;
            let other = process.limit(1, plenty());
            let watch = Stopwatch::start();
            assert_eq!(other.try_acquire(1).await, Ok(answer));
            assert_eq!(watch.elapsed(), DEADLINE + ms(5));

            let late = other.take_all().await.unwrap_err();
            assert!(late.is_timeout() && !late.is_skipped());
            assert_eq!(watch.elapsed(), 2 * (DEADLINE + ms(5)));
        });
        assert_eq!(process.stats().timeouts, 2);
    }
}
