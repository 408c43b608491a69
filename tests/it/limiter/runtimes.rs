//! Limits and streams that outlive a runtime, on the wall clock: lower bounds and liveness only.

use std::time::Duration;

use futures::{FutureExt, StreamExt, poll, stream};
use paceline::policy::Interval;
use paceline::prelude::*;
use testkit::wakes::Driven;
use tokio::runtime::{Builder, Runtime};

use crate::timed::ms;

const LONG: Duration = Duration::from_secs(20);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

/// The one behind is not asleep on a timer of the runtime that went away.
#[test]
fn a_runtime_that_ends_takes_nobody_else_with_it() {
    let limit = Interval::every(ms(20)).shared();
    let (here, there) = (runtime(), runtime());
    limit.acquire(1).now_or_never().unwrap().unwrap();

    let mut first = Box::pin(limit.acquire(1));
    let mut second = Box::pin(limit.acquire(1));
    there.block_on(async { assert!(poll!(&mut first).is_pending()) });
    here.block_on(async { assert!(poll!(&mut second).is_pending()) });
    there.block_on(first).unwrap();
    drop(there);
    here.block_on(second).unwrap();
}

#[test]
fn who_waited_in_a_runtime_that_ended_does_not_stop_the_one_before() {
    let limit = Interval::every(ms(20)).shared();
    let (here, there) = (runtime(), runtime());
    limit.acquire(1).now_or_never().unwrap().unwrap();

    let mut first = Box::pin(limit.acquire(1));
    let mut behind = Box::pin(limit.acquire(1));
    here.block_on(async { assert!(poll!(&mut first).is_pending()) });
    there.block_on(async { assert!(poll!(&mut behind).is_pending()) });
    drop(there);
    // It sets the alarm of the one behind, whose timers are gone.
    here.block_on(&mut first).unwrap();
    here.block_on(behind).unwrap();

    let mut first = Box::pin(limit.acquire(1));
    let mut behind = Box::pin(limit.acquire(1));
    let there = runtime();
    here.block_on(async { assert!(poll!(&mut first).is_pending()) });
    there.block_on(async { assert!(poll!(&mut behind).is_pending()) });
    drop(there);
    drop(first);
    here.block_on(behind).unwrap();
}

#[test]
fn a_runtime_shut_down_under_a_waiter_stops_nobody() {
    let limit = Interval::every(ms(50)).shared();
    limit.acquire(1).now_or_never().unwrap().unwrap();
    let here = runtime();
    let mut first = Box::pin(limit.acquire(1));
    here.block_on(async { assert!(poll!(&mut first).is_pending()) });

    let there = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .unwrap();
    let (handle, behind) = (there.handle().clone(), limit.acquire(1));
    let (joined, has_joined) = std::sync::mpsc::channel();
    let _blocked = there.spawn_blocking(move || {
        handle.block_on(async {
            let mut behind = Box::pin(behind);
            assert!(poll!(&mut behind).is_pending());
            joined.send(()).unwrap();
            behind.await
        })
    });
    has_joined.recv().unwrap();
    there.shutdown_background();
    here.block_on(first).unwrap();
}

#[test]
fn a_stream_goes_on_in_another_runtime() {
    let mut paced = stream::iter(0..3).min_interval(ms(20));
    let there = runtime();
    there.block_on(async {
        paced.next().await;
        assert!(poll!(paced.next()).is_pending());
    });
    drop(there);

    let here = runtime();
    let rest = async { tokio::time::timeout(LONG, paced.next()).await };
    assert_eq!(here.block_on(rest), Ok(Some(1)));

    // The runtime it came from is there, but nobody drives it.
    let idle = runtime();
    idle.block_on(async { assert!(poll!(paced.next()).is_pending()) });
    let rest = async { tokio::time::timeout(LONG, paced.next()).await };
    assert_eq!(here.block_on(rest), Ok(Some(2)));
}

#[test]
fn a_stream_by_key_goes_on_in_another_runtime() {
    let limits = Interval::every(ms(20)).keyed::<u32>();
    let mut paced = Box::pin(stream::iter([1, 2, 3]).pace_by_key(limits, |_| 0, 10));
    let (idle, here) = (runtime(), runtime());
    idle.block_on(async {
        paced.next().await;
        assert!(poll!(paced.next()).is_pending());
    });
    let rest = async { tokio::time::timeout(LONG, paced.next()).await };
    assert_eq!(here.block_on(rest), Ok(Some(2)));
}

#[test]
fn the_watch_goes_on_when_the_runtime_it_was_in_ends() {
    let limit = Interval::every(ms(200)).shared();
    limit.acquire(1).now_or_never().unwrap().unwrap();
    let many = || {
        Builder::new_multi_thread()
            .worker_threads(1)
            .enable_time()
            .build()
            .unwrap()
    };
    let (there, here) = (many(), many());
    let mut idle = Box::pin(limit.acquire(1));
    here.block_on(async { assert!(poll!(&mut idle).is_pending()) });
    there.block_on(async {
        let mut second = Box::pin(limit.acquire(1));
        assert!(poll!(&mut second).is_pending());
    });
    let waiting = here.spawn(limit.acquire(1));
    drop(there);
    let rest = async { tokio::time::timeout(LONG, waiting).await };
    here.block_on(rest).unwrap().unwrap().unwrap();
}

/// In a runtime that has ended every task is dropped before it runs.
#[test]
fn where_no_watch_can_begin_nobody_wakes_themselves_over_and_over() {
    let limit = Interval::every(ms(60_000)).shared();
    limit.acquire(1).now_or_never().unwrap().unwrap();
    let (here, ended) = (runtime(), runtime().handle().clone());
    let mut first = Box::pin(limit.acquire(1));
    here.block_on(async { assert!(poll!(&mut first).is_pending()) });

    let _inside = ended.enter();
    let mut behind = [1, 1].map(|cost| Driven::new(limit.acquire(cost)));
    assert!(behind[0].poll().is_pending());
    assert_eq!(behind[0].wakes(), 0, "to ask again would help nobody");
    assert!(behind[1].poll().is_pending());
    assert_eq!(behind[0].wakes(), 1, "who may be in another runtime now");
    assert!(behind[0].poll().is_pending());
    assert_eq!(behind.map(|one| one.wakes()), [1, 0]);
}

/// It was started by the second, never ran, and the second has moved.
#[test]
fn the_watch_goes_on_when_the_runtime_that_it_never_ran_in_ends() {
    let limit = Interval::every(ms(60_000)).shared();
    limit.acquire(1).now_or_never().unwrap().unwrap();
    let (here, there) = (runtime(), runtime());
    let mut first = Box::pin(limit.acquire(1));
    here.block_on(async { assert!(poll!(&mut first).is_pending()) });
    let mut second = Driven::new(limit.acquire(1));
    there.block_on(async { assert!(second.poll().is_pending()) });
    here.block_on(async { assert!(second.poll().is_pending()) });
    drop(there);
    assert_eq!(second.wakes(), 1);
}
