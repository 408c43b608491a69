use std::convert::Infallible;
use std::task::{Context, Poll, Waker};

use paceline::limiter::{Limiter, Owned};
use paceline::policy::{Decision, Interval, Policy, TokenBucket};
use paceline::prelude::*;
use paceline::time::{Rate, Tick};
use testkit::clock::jump;

use super::prefetch::Records;
use super::wait;
use crate::timed::ms;

fn decided(poll: Poll<Result<Decision, Infallible>>) -> Decision {
    let Poll::Ready(Ok(decision)) = poll else {
        panic!("a limit in memory answers at once");
    };
    decision
}

fn passes<P: Policy>(limit: &mut Owned<P>, cost: u32) -> bool {
    let cx = &mut Context::from_waker(Waker::noop());
    decided(limit.poll_decide(cost, cx)).is_pass()
}

#[tokio::test(start_paused = true)]
async fn a_look_counts_nothing() {
    let cx = &mut Context::from_waker(Waker::noop());
    let mut limit: Owned<Interval> = Interval::every(ms(100)).owned();

    assert_eq!(decided(limit.poll_open(1, cx)), Decision::Pass);
    assert_eq!(decided(limit.poll_open(1, cx)), Decision::Pass);
    assert_eq!(decided(limit.poll_try(1, cx)), Decision::Pass);
    assert_eq!(decided(limit.poll_open(1, cx)), wait(100));
    limit.give_up();
    assert_eq!(limit.policy().interval(), ms(100));
}

/// On the real clock permits are prefetched: a burst is complete, and no permit comes on top.
#[tokio::test]
async fn a_large_burst_passes_at_once_and_no_more() {
    let cx = &mut Context::from_waker(Waker::noop());
    let mut limit = TokenBucket::new(Rate::per_day(1), 10_000).owned();
    assert!((0..10_000).all(|_| passes(&mut limit, 1)));
    assert!(!passes(&mut limit, 1));
    assert!(!decided(limit.poll_open(1, cx)).is_pass());
}

/// A bucket of 480 prefetches 15 permits, which are counted when it is full again.
#[tokio::test]
async fn after_a_long_pause_the_next_burst_is_smaller_by_what_was_prefetched() {
    let mut limit = TokenBucket::new(Rate::per_second(1), 480).owned();
    assert!(passes(&mut limit, 1));
    // From here on time is exact, and nothing more is prefetched.
    tokio::time::pause();
    assert!((0..15).all(|_| passes(&mut limit, 1)));
    for burst in [465, 480] {
        jump(ms(3_600_000)).await;
        let passed = (0..1_000).filter(|_| passes(&mut limit, 1)).count();
        assert_eq!(passed, burst);
    }
}

#[test]
fn can_live_in_a_static_and_be_asked_without_a_runtime() {
    static LIMIT: std::sync::Mutex<Owned<Interval>> =
        std::sync::Mutex::new(Owned::new(Interval::every(ms(86_400_000))));

    let mut limit = LIMIT.lock().unwrap();
    assert!(passes(&mut limit, 1) && !passes(&mut limit, 1));
}

fn counted(limit: &Owned<Records>) -> (Vec<Tick>, Vec<u32>) {
    limit.policy().counted().into_iter().unzip()
}

/// At an earlier time a policy need not have the permits that were prefetched.
#[test]
fn permits_are_not_counted_at_a_time_before_they_were_prefetched() {
    let earlier = testkit::clock::paused_runtime();
    let mut limit = Records::default().owned();
    let mut ask = |cost| passes(&mut limit, cost);
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
    let mut limit = Records::default().owned();
    for cost in [10, 2, 2, 9, 20, 1, 1, 1] {
        assert!(passes(&mut limit, cost));
    }
    let (_, costs) = counted(&limit);
    assert_eq!(costs, [10, 2, 2, 9, 20, 1], "and two prefetched ones");
}
