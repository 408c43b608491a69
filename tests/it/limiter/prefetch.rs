//! Prefetched permits pass a shared limit without its lock and without a clock reading. On a paused clock there are none.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;

use paceline::limiter::{Keyed, Limiter, Mode, PolicyExt, Shared, Switch};
use paceline::policy::{All, Decision, Interval, Policy, SlidingLog, TokenBucket, Unlimited};
use paceline::prelude::*;
use paceline::time::{Rate, Tick};
use testkit::clock::jump;
use tokio::runtime::{Builder, Runtime};

use super::queued;
use crate::timed::ms;

/// Practically never refilled. It prefetches 256 permits.
const LARGE: TokenBucket = TokenBucket::new(Rate::per_day(1), 10_000);

/// Passes every request, prefetches ten permits, and records when how many were counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Records {
    counted: Arc<Mutex<Vec<(Tick, u32)>>>,
}

impl Records {
    pub(super) fn counted(&self) -> Vec<(Tick, u32)> {
        self.counted.lock().unwrap().clone()
    }
}

impl Policy for Records {
    type State = ();

    fn fresh(&self, _now: Tick) {}

    fn decide(&self, (): &mut (), now: Tick, cost: u32) -> Decision {
        self.counted.lock().unwrap().push((now, cost));
        Decision::Pass
    }

    fn peek(&self, (): &(), _now: Tick, _cost: u32) -> Decision {
        Decision::Pass
    }

    fn credit(&self, (): &(), _now: Tick) -> u32 {
        10
    }

    fn refund(&self, (): &mut (), _now: Tick, _cost: u32) {}

    fn retune(&self, _old: &Self, (): &mut (), _now: Tick) {}

    fn settled_at(&self, (): &()) -> Tick {
        Tick::MAX
    }
}

/// A bucket that panics once, when a test says so, and refuses a request above the largest cost for ever.
#[derive(Clone, Debug)]
struct Panics {
    is_due: Arc<AtomicBool>,
    largest: u32,
}

impl Panics {
    fn up_to(largest: u32) -> Self {
        Self {
            is_due: Arc::default(),
            largest,
        }
    }

    fn panics_next(&self) {
        self.is_due.store(true, Ordering::Relaxed);
    }
}

impl Policy for Panics {
    type State = <TokenBucket as Policy>::State;

    fn fresh(&self, now: Tick) -> Self::State {
        LARGE.fresh(now)
    }

    fn decide(&self, state: &mut Self::State, now: Tick, cost: u32) -> Decision {
        assert!(!self.is_due.swap(false, Ordering::Relaxed), "once");
        if cost > self.largest {
            return Decision::Never {
                capacity: self.largest,
            };
        }
        LARGE.decide(state, now, cost)
    }

    fn credit(&self, state: &Self::State, now: Tick) -> u32 {
        LARGE.credit(state, now)
    }

    fn refund(&self, state: &mut Self::State, now: Tick, cost: u32) {
        LARGE.refund(state, now, cost);
    }

    fn retune(&self, _old: &Self, state: &mut Self::State, now: Tick) {
        LARGE.retune(&LARGE, state, now);
    }

    fn settled_at(&self, state: &Self::State) -> Tick {
        LARGE.settled_at(state)
    }
}

fn passes(limit: &Shared<impl Policy>, cost: u32) -> bool {
    limit.try_acquire(cost).is_pass()
}

/// How many of so many requests for one permit pass.
fn passed(limit: &Shared<impl Policy>, requests: u32) -> usize {
    (0..requests).filter(|_| passes(limit, 1)).count()
}

/// The cost of each count so far.
fn costs(records: &Records) -> Vec<u32> {
    records.counted().iter().map(|(_, cost)| *cost).collect()
}

fn is_pass(answer: Poll<Result<Decision, Infallible>>) -> bool {
    matches!(answer, Poll::Ready(Ok(Decision::Pass)))
}

#[test]
fn a_large_burst_passes_at_once_and_no_more() {
    let limit = LARGE.shared();
    assert_eq!(passed(&limit, 10_001), 10_000);
    assert_eq!((limit.stats().passed, limit.stats().refused), (10_000, 1));

    let log = SlidingLog::new(1_000, ms(3_600_000)).shared();
    assert_eq!(passed(&log, 2_000), 1_000);
}

#[test]
fn concurrent_tasks_pass_as_often_as_one_task_would() {
    for _ in 0..20 {
        let limit = LARGE.shared();
        let asker = |cost: u32| {
            let limit = limit.clone();
            let asks = move || {
                (0..6_000)
                    .map(|_| u32::from(passes(&limit, cost)))
                    .sum::<u32>()
            };
            thread::spawn(asks)
        };
        let askers = [1, 1, 3].map(|cost| (cost, asker(cost)));
        let passed = askers.map(|(cost, asker)| (cost, asker.join().unwrap()));

        let requests: u32 = passed.iter().map(|(_, requests)| requests).sum();
        let permits: u32 = passed.iter().map(|(cost, requests)| cost * requests).sum();
        assert_eq!(permits, 10_000, "{passed:?}");
        assert_eq!(limit.stats().passed, u64::from(requests));
    }
}

#[test]
fn peeking_takes_no_prefetched_permit() {
    let limit = LARGE.shared();
    let passed = (0..20_000).filter(|_| limit.peek(1).is_pass() && passes(&limit, 1));
    assert_eq!(passed.count(), 10_000);
}

#[tokio::test]
async fn no_prefetched_permit_overtakes_a_waiter() {
    let limit = LARGE.shared();
    assert!(passes(&limit, 1));
    let _dear = queued(limit.acquire(10_000));
    assert!(
        !passes(&limit, 1),
        "there are enough, but a waiter is ahead"
    );
    let _other = queued(limit.acquire(1));
}

#[test]
fn a_pause_holds_for_prefetched_permits_too() {
    let limit = LARGE.shared();
    assert!(passes(&limit, 1));
    limit.pause_for(ms(3_600_000));
    assert!(!passes(&limit, 1));
    assert!(passes(&limit, 0), "passes always, and opens nothing");
    assert!(!passes(&limit, 1));
    limit.resume();
    assert!(passes(&limit, 1));
}

#[test]
fn new_parameters_hold_at_once() {
    let limit = LARGE.shared();
    assert_eq!(passed(&limit, 9_700), 9_700);
    limit.retune(TokenBucket::new(Rate::per_day(1), 1_000));
    let left = passed(&limit, 2_000);
    assert_eq!(left, 300, "what was there, and not what is new");
}

#[test]
fn permits_refunded_after_a_prefetch_can_be_taken_once() {
    let limit = LARGE.shared();
    assert_eq!(passed(&limit, 100), 100);
    assert_eq!(limit.stats().passed, 100);
    assert!(limit.peek(9_900).is_pass() && !limit.peek(9_901).is_pass());
    limit.refund(50);
    assert!(limit.peek(9_950).is_pass() && !limit.peek(9_951).is_pass());
    limit.refund(1_000);
    assert!(limit.peek(10_000).is_pass());
}

#[test]
fn in_shadow_mode_requests_that_would_have_waited_are_counted() {
    let switch = Switch::new();
    let limit = TokenBucket::new(Rate::per_day(1), 480).shared();
    let mut limit = limit.switched(&switch);
    let cx = &mut Context::from_waker(Waker::noop());
    assert!(is_pass(limit.poll_try(1, cx)));
    switch.set_mode(Mode::Shadow);
    assert!((0..499).all(|_| is_pass(limit.poll_try(1, cx))));
    let stats = switch.stats();
    assert_eq!((stats.shadowed, stats.held_back), (499, 20));
}

/// Otherwise the handle would be ahead of later waiters once more.
#[tokio::test]
async fn a_request_that_passes_on_prefetched_permits_gives_up_its_reserved_position() {
    let (limit, cx) = (LARGE.shared(), &mut Context::from_waker(Waker::noop()));
    let mut kept = limit.clone();
    while passes(&limit, 1) {}
    assert!(!is_pass(kept.poll_open(1, cx)));
    limit.refund(1_000);
    assert!(is_pass(kept.poll_open(1, cx)), "and reserves the position");
    assert!(passes(&limit, 1), "this prefetches");
    assert!(is_pass(kept.poll_decide(1, cx)));
    while passes(&limit, 1) {}

    let mut first = queued(limit.acquire(1));
    assert!(!is_pass(kept.poll_decide(1, cx)));
    limit.refund(1);
    assert!(!is_pass(kept.poll_decide(1, cx)), "it joined later");
    assert!(first.poll().is_ready());
}

#[test]
fn prefetched_permits_are_counted_at_the_next_clock_reading() {
    let records = Records::default();
    let limit = records.clone().shared();
    assert!([1, 2, 3, 4].into_iter().all(|cost| passes(&limit, cost)));
    assert_eq!(costs(&records), [1], "the others are prefetched");
    thread::sleep(ms(2));
    assert!(passes(&limit, 2), "more than is left of the prefetch");

    assert_eq!(costs(&records), [1, 9, 2]);
    let counted = records.counted();
    assert!(counted[1].0 >= counted[0].0.after(ms(2)));
    assert_eq!(counted[1].0, counted[2].0);
}

#[test]
fn prefetched_permits_are_counted_although_the_policy_panics_meanwhile() {
    let cx = &mut Context::from_waker(Waker::noop());
    let panics = Panics::up_to(u32::MAX);
    let shared = panics.clone().shared();
    let mut owned = panics.clone().owned();
    let mut asks: [&mut dyn FnMut() -> bool; 2] =
        [&mut || shared.try_acquire(1).is_pass(), &mut || {
            is_pass(owned.poll_decide(1, cx))
        }];
    for ask in &mut asks {
        let mut passed = (0..257).filter(|_| ask()).count();
        panics.panics_next();
        assert!(catch_unwind(AssertUnwindSafe(&mut *ask)).is_err());
        while ask() {
            passed += 1;
        }
        assert_eq!(passed, 10_000);
    }
}

#[test]
fn nothing_is_prefetched_that_could_not_be_counted_at_once() {
    let limit = Panics::up_to(10).shared();
    assert!(passes(&limit, 1) && !passes(&limit, 11));
    assert_eq!(passed(&limit, 20_000), 9_999);
}

#[tokio::test]
async fn the_rest_of_a_prefetch_passes_after_the_clock_is_paused() {
    let records = Records::default();
    let limit = records.clone().shared();
    assert!(passes(&limit, 1));
    tokio::time::pause();
    assert_eq!(passed(&limit, 12), 12);
    assert_eq!(
        costs(&records),
        [1, 10, 1, 1],
        "ten prefetched ones, then one by one"
    );
}

#[test]
fn small_limits_and_intervals_prefetch_nothing() {
    let every = Interval::every(ms(3_600_000));
    assert_eq!(passed(&every.shared(), 2), 1);
    assert_eq!(passed(&All::new((LARGE, every)).shared(), 2), 1);
    let small = TokenBucket::new(Rate::per_day(1), 479);
    assert_eq!(passed(&small.shared(), 500), 479);
}

#[test]
fn without_a_limit_every_request_is_counted() {
    let limit = Unlimited.shared();
    for cost in [1, u32::MAX, u32::MAX, 7, 0, 1] {
        assert!(passes(&limit, cost));
    }
    assert_eq!(limit.stats().passed, 5);
}

/// A key has a queue of its own until its last waiter leaves.
#[tokio::test]
async fn permits_prefetched_for_a_key_are_counted_when_its_queue_goes() {
    let cx = &mut Context::from_waker(Waker::noop());
    let keyed: Keyed<u8, TokenBucket> = LARGE.keyed();
    let asks = |times: u32| (0..times).filter(|_| keyed.try_acquire(&1, 1).is_pass());
    let mut waits = keyed.at(1);
    keyed.with(&1, |limit| limit.pause_for(ms(3_600_000)));
    assert!(!is_pass(waits.poll_open(1, cx)));
    keyed.with(&1, |limit| limit.resume());
    assert!(is_pass(waits.poll_open(1, cx)), "and reserves the position");

    assert_eq!(asks(100).count(), 100);
    drop(waits);
    assert_eq!(asks(20_000).count(), 9_900);
}

/// A paused key has a queue of its own, until the pause ends and its last handle leaves.
#[test]
fn a_key_that_loses_its_queue_has_spent_what_passed() {
    let keyed: Keyed<u8, TokenBucket> = LARGE.keyed();
    let is_over = AtomicBool::new(false);
    let passed: usize = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                keyed.with(&1, |limit| limit.pause_for(ms(3_600_000)));
                keyed.with(&1, |limit| limit.resume());
            }
        });
        let asks = || {
            let passed = (0..100_000).filter(|_| keyed.try_acquire(&1, 1).is_pass());
            passed.count()
        };
        let askers = [scope.spawn(asks), scope.spawn(asks)];
        let passed = askers.map(|asker| asker.join().unwrap());
        is_over.store(true, Ordering::Relaxed);
        passed.into_iter().sum()
    });
    assert_eq!(passed, 10_000);
    assert_eq!(keyed.stats().passed, 10_000);
}

#[tokio::test(start_paused = true)]
async fn on_a_paused_clock_each_request_is_counted_at_once() {
    let (records, cx) = (Records::default(), &mut Context::from_waker(Waker::noop()));
    let (limit, mut owned) = (records.clone().shared(), records.clone().owned());
    for cost in 1..4 {
        assert!(passes(&limit, cost));
        assert!(owned.poll_decide(cost, cx).is_ready());
    }
    assert_eq!(costs(&records), [1, 1, 2, 2, 3, 3]);
}

const DAY: u64 = 86_400_000;

/// A runtime with a real clock, and one with a paused clock that is `millis` ahead.
fn with_one_ahead(millis: u64) -> (Runtime, Runtime) {
    let mut builder = Builder::new_current_thread();
    let here = builder.enable_time().build().unwrap();
    let ahead = builder.start_paused(true).build().unwrap();
    ahead.block_on(jump(ms(millis)));
    (here, ahead)
}

#[test]
fn in_two_runtimes_as_much_passes_as_the_clock_that_is_ahead_allows() {
    // Half a day more, since the limit begins after the clock has moved.
    let (here, ahead) = with_one_ahead(1_000 * DAY + DAY / 2);
    let limit = LARGE.shared();
    let asks = async |times: u32| passed(&limit, times);
    let mut passed = here.block_on(asks(5_000));
    loop {
        let more = here.block_on(asks(100)) + ahead.block_on(asks(33));
        passed += more;
        if more == 0 {
            break;
        }
    }
    assert_eq!(passed, 11_000, "one comes back each day");
    assert_eq!(limit.stats().passed, 11_000);
}

/// A known limitation: what passes without a clock reading passes at a time that is not known.
#[test]
fn permits_that_pass_by_the_clock_that_is_ahead_may_be_counted_by_the_other() {
    let (here, ahead) = with_one_ahead(DAY);
    let records = Records::default();
    let limit = records.clone().shared();
    let ask = async |cost: u32| assert!(passes(&limit, cost));
    here.block_on(ask(1));
    ahead.block_on(ask(4));
    here.block_on(ask(20));
    ahead.block_on(ask(20));

    let half = Tick::ZERO.after(ms(DAY / 2));
    let counted = records.counted().into_iter();
    let counted: Vec<_> = counted.map(|(at, cost)| (cost, at > half)).collect();
    assert_eq!(counted, [(1, false), (4, false), (20, false), (20, true)]);
}
