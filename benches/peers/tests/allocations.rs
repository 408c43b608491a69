//! No adapter takes memory for an element, and no wait queue that has grown takes any for a waiter. (Tests of the library that need a
//! counting allocator, which is here.)

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::{SinkExt, Stream, StreamExt, stream};
use paceline::concurrency::Permits;
use paceline::limiter::{Limiter, Owned};
use paceline::policy::{
    FixedWindow, Interval, Policy, SlidingCounter, SlidingLog, TokenBucket, Unlimited,
};
use paceline::prelude::*;
use paceline::time::Rate;
use tokio::runtime::{Builder, Runtime};

const D: Duration = Duration::from_millis(10);

fn runtime(is_paused: bool) -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().start_paused(is_paused);
    builder.build().unwrap()
}

/// How often memory is taken while it runs `count` times, once it is warm.
fn taken_by(runtime: &Runtime, [warm, count]: [u64; 2], mut run: impl AsyncFnMut(u64)) -> u64 {
    runtime.block_on(run(warm));
    allocation_counter::measure(|| runtime.block_on(run(count))).count_total
}

/// How often memory is taken while `count` elements pass.
fn taken<S: Stream>(runtime: &Runtime, stream: S, count: u64) -> u64 {
    let mut stream = pin!(stream);
    taken_by(runtime, [100, count], async |count| {
        for _ in 0..count {
            assert!(stream.next().await.is_some());
        }
    })
}

#[track_caller]
fn assert_none<S: Stream>(what: &str, stream: S) {
    assert_eq!(taken(&runtime(true), stream, 1_000), 0, "{what}");
}

fn endless() -> impl Stream<Item = u64> {
    stream::iter(0..)
}

fn waiting<P: Policy>(policy: P) -> impl Stream {
    endless().pace(Owned::new(policy))
}

#[test]
fn the_counter_counts() {
    let boxes = endless().map(Box::new);
    assert_eq!(taken(&runtime(true), boxes, 1_000), 1_000);
}

#[test]
fn pace_under_every_policy() {
    assert_none("no limit", waiting(Unlimited));
    assert_none("interval", waiting(Interval::every(D)));
    assert_none("bucket", waiting(TokenBucket::new(Rate::new(3, D), 5)));
    assert_none("log", waiting(SlidingLog::new(5, D)));
    assert_none("strict", waiting(SlidingCounter::strict(5, D, 4)));
    assert_none("smooth", waiting(SlidingCounter::smooth(5, D)));
    assert_none("fixed", waiting(FixedWindow::new(5, D)));
}

#[test]
fn streams_alone_on_a_limit_and_with_others() {
    let all = Interval::every(D).shared();
    assert_none("shared", endless().pace(Interval::every(D).shared()));
    let [a, b, c] = [(); 3].map(|()| endless().pace(all.clone()).boxed());
    assert_none("three in line", stream::select(a, stream::select(b, c)));
    let keyed = Interval::every(D).keyed::<u64>();
    assert_none("one key", endless().pace(keyed.at(1)));
}

/// tokio's own takes memory.
async fn yield_now() {
    let mut polled = false;
    poll_fn(|cx| {
        cx.waker().wake_by_ref();
        if core::mem::replace(&mut polled, true) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

/// Waiters leave from anywhere in the queue, and join again at its end.
#[test]
fn joining_and_leaving_a_queue_that_has_grown() {
    let limit = Interval::every(Duration::from_secs(86_400)).shared();
    assert!(limit.try_acquire(1).is_pass());
    let mut waiters: Vec<_> = (0..1_000).map(|_| limit.clone()).collect();
    let mut random = fastrand::Rng::with_seed(7);
    let taken = taken_by(&runtime(true), [20_000; 2], async |count| {
        for n in 0..count {
            let waiter = random.choice(&mut waiters).unwrap();
            waiter.give_up();
            let _ = waiter.poll_decide(1, &mut Context::from_waker(Waker::noop()));
            if n % 100 == 0 {
                yield_now().await;
            }
        }
    });
    assert_eq!((taken, limit.stats().waiting), (0, 1_000));
}

#[test]
fn the_other_streams() {
    let bucket = || TokenBucket::new(Rate::new(3, D), 5).owned();
    assert_none(
        "pace_by_cost",
        endless().pace_by_cost(bucket(), |n| (n % 4) as u32),
    );
    assert_none("enforce", endless().enforce(bucket()));
    let arriving = || {
        endless().then(async |n| {
            tokio::time::sleep(Duration::from_millis(n % 3 * 7)).await;
            n
        })
    };
    assert_none("shed", arriving().shed(bucket()));
    assert_none("debounce", arriving().debounce(D));
    assert_none("sample", arriving().sample(D));
    assert_none("throttle_first", arriving().throttle_first(D));
    let keys = Interval::every(D).keyed();
    assert_none("many keys", endless().pace_by_key(keys, |n| n % 10, 20));
    let calls = endless().concurrent(Permits::new(10), std::future::ready);
    assert_none("concurrent", calls);
}

#[test]
fn groups_whose_memory_is_given_back() {
    let mut groups = pin!(endless().grouped_within(10, D));
    let taken = taken_by(&runtime(true), [10, 1_000], async |count| {
        for _ in 0..count {
            let group = groups.next().await.unwrap();
            groups.as_mut().recycle(group);
        }
    });
    assert_eq!(taken, 0);
}

/// One for each group, and none for those that grow.
#[test]
fn groups_are_allocated_once() {
    let groups = endless().grouped_within(1_000, D);
    assert_eq!(taken(&runtime(true), groups, 1_000), 1_000);
}

#[test]
fn sinks() {
    let mut sink = pin!(futures::sink::drain().pace_sends(Interval::every(D).owned()));
    let taken = taken_by(&runtime(true), [10, 1_000], async |count| {
        for n in 0..count {
            sink.send(n).await.unwrap();
        }
    });
    assert_eq!(taken, 0);
}

#[test]
fn the_precise_timer() {
    let paced = endless().min_interval(Duration::from_micros(300));
    assert_eq!(taken(&runtime(false), paced, 200), 0);
}

#[test]
fn a_future_that_waits_takes_its_timer_and_no_more() {
    fn count(future: impl Future) -> u64 {
        let runtime = runtime(true);
        allocation_counter::measure(|| {
            runtime.block_on(future);
        })
        .count_total
    }
    let nothing = count(std::future::ready(()));
    let limit = Interval::every(D).shared();
    assert!(limit.try_acquire(1).is_pass());
    assert!(
        count(limit.acquire(1)) <= nothing + 2,
        "a timer, and the first place in the line"
    );
}
