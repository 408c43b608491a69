use std::convert::Infallible;
use std::task::{Context, Poll, Waker};

use paceline::limiter::{Limiter, Owned};
use paceline::policy::{Decision, Interval, TokenBucket};
use paceline::prelude::*;
use paceline::time::{Rate, Tick};
use testkit::clock::jump;

use super::prefetch::Records;
use crate::timed::ms;

fn decided(poll: Poll<Result<Decision, Infallible>>) -> Decision {
    let Poll::Ready(Ok(decision)) = poll else {
        panic!("a limit in memory answers at once");
    };
    decision
}

#[tokio::test(start_paused = true)]
async fn its_clock_starts_when_it_is_first_asked() {
    let cx = &mut Context::from_waker(Waker::noop());
    let mut limit = Interval::every(ms(100)).with_delayed_start().owned();
    jump(ms(500)).await;

    assert_eq!(
        decided(limit.poll_decide(1, cx)),
        Decision::Wait { retry_in: ms(100) }
    );
    jump(ms(100)).await;
    assert_eq!(decided(limit.poll_decide(1, cx)), Decision::Pass);
}

#[tokio::test(start_paused = true)]
async fn a_look_counts_nothing() {
    let cx = &mut Context::from_waker(Waker::noop());
    let mut limit: Owned<Interval> = Interval::every(ms(100)).owned();

    assert_eq!(decided(limit.poll_open(1, cx)), Decision::Pass);
    assert_eq!(decided(limit.poll_open(1, cx)), Decision::Pass);
    assert_eq!(decided(limit.poll_try(1, cx)), Decision::Pass);
    assert_eq!(
        decided(limit.poll_open(1, cx)),
        Decision::Wait { retry_in: ms(100) }
    );
    limit.give_up();
    assert_eq!(limit.policy().interval(), ms(100));
}

/// On the real clock permits are prefetched: a burst is complete, and no permit comes on top.
#[tokio::test]
async fn a_large_burst_passes_at_once_and_no_more() {
    let cx = &mut Context::from_waker(Waker::noop());
    let mut limit = TokenBucket::new(Rate::per_day(1), 10_000).owned();
    for n in 0..10_000 {
        assert_eq!(decided(limit.poll_decide(1, cx)), Decision::Pass, "{n}");
    }
    assert!(!decided(limit.poll_decide(1, cx)).is_pass());
    assert!(!decided(limit.poll_open(1, cx)).is_pass());
}

/// A bucket of 480 prefetches 15 permits, which are counted when it is full again.
#[tokio::test]
async fn after_a_long_pause_the_next_burst_is_smaller_by_what_was_prefetched() {
    let cx = &mut Context::from_waker(Waker::noop());
    let mut limit = TokenBucket::new(Rate::per_second(1), 480).owned();
    let mut passes = || decided(limit.poll_decide(1, cx)).is_pass();
    assert!(passes());
    // From here on time is exact, and nothing more is prefetched.
    tokio::time::pause();
    assert!((0..15).all(|_| passes()));
    for burst in [465, 480] {
        jump(ms(3_600_000)).await;
        assert_eq!((0..1_000).filter(|_| passes()).count(), burst);
    }
}

#[tokio::test(start_paused = true)]
async fn on_a_paused_clock_nothing_is_counted_late() {
    let cx = &mut Context::from_waker(Waker::noop());
    let mut limit = TokenBucket::new(Rate::new(10_000, ms(1_000)), 10_000).owned();
    for _ in 0..2 {
        for n in 0..10_000 {
            assert_eq!(decided(limit.poll_decide(1, cx)), Decision::Pass, "{n}");
        }
        assert!(!decided(limit.poll_decide(1, cx)).is_pass());
        jump(ms(1_000)).await;
    }
}

#[test]
fn can_live_in_a_static_and_be_asked_without_a_runtime() {
    static LIMIT: std::sync::Mutex<Owned<Interval>> =
        std::sync::Mutex::new(Owned::new(Interval::every(ms(86_400_000))));

    let cx = &mut Context::from_waker(Waker::noop());
    let mut limit = LIMIT.lock().unwrap();
    assert_eq!(decided(limit.poll_decide(1, cx)), Decision::Pass);
    assert_ne!(decided(limit.poll_decide(1, cx)), Decision::Pass);
}

fn counted(limit: &Owned<Records>) -> (Vec<Tick>, Vec<u32>) {
    limit.policy().counted().into_iter().unzip()
}

/// At an earlier time a policy need not have the permits that were prefetched.
#[test]
fn permits_are_not_counted_at_a_time_before_they_were_prefetched() {
    let earlier = testkit::clock::paused_runtime();
    let cx = &mut Context::from_waker(Waker::noop());
    let mut limit = Records::default().owned();
    let mut ask = |cost| decided(limit.poll_decide(cost, cx)).is_pass();
    assert!(ask(1));
    std::thread::sleep(ms(2));
    assert!(ask(6) && ask(5), "the first is prefetched");
    assert!(ask(2) && ask(3), "both");
    earlier.block_on(async { assert!(ask(20)) });

    let (at, costs) = counted(&limit);
    assert_eq!(costs, [1, 6, 5, 5, 20]);
    assert!(at[1] >= at[0].after(ms(2)));
    assert_eq!(at[3], at[2], "at the reading that prefetched them");
    assert_eq!(at[4], at[0], "the clock has gone back");
}

#[test]
fn nothing_is_prefetched_that_would_not_suffice_for_the_same_request_again() {
    let cx = &mut Context::from_waker(Waker::noop());
    let mut limit = Records::default().owned();
    for cost in [10, 2, 2, 9, 20, 1, 1, 1] {
        assert!(decided(limit.poll_decide(cost, cx)).is_pass());
    }
    let (_, costs) = counted(&limit);
    assert_eq!(costs, [10, 2, 2, 9, 20, 1], "and two prefetched ones");
}
