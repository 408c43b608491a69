//! What passes a shared limit without a look at the clock, and without its lock. The clock is real: a paused one gives no credit.

use std::convert::Infallible;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;

use paceline::limiter::{Keyed, Limiter, Mode, PolicyExt, Shared};
use paceline::policy::{All, Decision, Interval, SlidingLog, TokenBucket, Unlimited};
use paceline::prelude::*;
use paceline::time::{Rate, Tick};
use testkit::clock::jump;
use tokio::runtime::Builder;

use super::noted::Noted;
use super::odd::Odd;
use crate::timed::ms;

/// As good as never refilled, and gives credit of 256.
pub(super) const LARGE: TokenBucket = TokenBucket::new(Rate::per_day(1), 10_000);

fn passes(limit: &Shared<TokenBucket>, cost: u32) -> bool {
    limit.try_acquire(cost).is_pass()
}

fn is_pass(answer: Poll<Result<Decision, Infallible>>) -> bool {
    matches!(answer, Poll::Ready(Ok(Decision::Pass)))
}

#[test]
fn a_large_burst_passes_at_once_and_no_more() {
    let limit = LARGE.shared();
    for n in 0..10_000 {
        assert!(passes(&limit, 1), "{n}");
    }
    assert!(!passes(&limit, 1));
    assert_eq!((limit.stats().passed, limit.stats().refused), (10_000, 1));
}

#[test]
fn tasks_that_ask_at_once_pass_as_often_as_one_would() {
    for _ in 0..20 {
        let limit = LARGE.shared();
        let asker = |cost: u32| {
            let limit = limit.clone();
            let asks = move || (0..6_000).filter(|_| passes(&limit, cost)).count();
            thread::spawn(move || u32::try_from(asks()).unwrap())
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
fn whoever_looks_sees_all_that_has_passed() {
    let limit = LARGE.shared();
    for _ in 0..100 {
        assert!(passes(&limit, 1));
    }
    assert_eq!(limit.stats().passed, 100);
    assert!(limit.peek(9_900).is_pass());
    assert!(!limit.peek(9_901).is_pass());
}

#[test]
fn to_look_takes_nothing() {
    let limit = LARGE.shared();
    let passed = (0..20_000).filter(|_| limit.peek(1).is_pass() && passes(&limit, 1));
    assert_eq!(passed.count(), 10_000);
}

#[test]
fn streams_under_one_limit_pass_as_much_as_it_has() {
    let limit = LARGE.shared();
    let cx = &mut Context::from_waker(Waker::noop());
    let mut streams = [1, 2].map(|_| Box::pin(futures::stream::repeat(()).pace(limit.clone())));
    let mut passed = 0;
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let _inside = runtime.enter();
    while streams
        .iter_mut()
        .any(|stream| futures::Stream::poll_next(stream.as_mut(), cx).is_ready())
    {
        passed += 1;
    }
    assert_eq!(passed, 10_000);
}

#[test]
fn nobody_overtakes_on_credit_those_who_wait() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let limit = LARGE.shared();
        assert!(passes(&limit, 1));
        let mut dear = pin!(limit.acquire(10_000));
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(dear.as_mut().poll(cx).is_pending());
        assert!(
            !passes(&limit, 1),
            "there is enough, but somebody waits for more"
        );

        let mut other = pin!(limit.acquire(1));
        assert!(other.as_mut().poll(cx).is_pending());
    });
}

#[test]
fn a_pause_holds_for_those_on_credit_too() {
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
fn other_parameters_hold_at_once() {
    let limit = LARGE.shared();
    for _ in 0..9_700 {
        assert!(passes(&limit, 1));
    }
    limit.retune(TokenBucket::new(Rate::per_day(1), 1_000));
    let passed = (0..2_000).filter(|_| passes(&limit, 1)).count();
    assert_eq!(passed, 300, "what was there, and not what is new");
}

#[test]
fn what_is_given_back_after_credit_can_be_had_once() {
    let limit = LARGE.shared();
    for _ in 0..100 {
        assert!(passes(&limit, 1));
    }
    limit.refund(50);
    assert!(limit.peek(9_950).is_pass() && !limit.peek(9_951).is_pass());
    limit.refund(1_000);
    assert!(limit.peek(10_000).is_pass());
}

#[test]
fn a_limit_that_is_only_watched_counts_who_would_have_waited() {
    let limit = TokenBucket::new(Rate::per_day(1), 480).shared();
    assert!(passes(&limit, 1));
    limit.set_mode(Mode::Shadow);
    for _ in 0..499 {
        assert!(passes(&limit, 1));
    }
    assert_eq!((limit.stats().passed, limit.stats().held_back), (500, 20));
}

#[test]
fn what_passes_a_limit_that_is_off_is_not_counted() {
    let limit = LARGE.shared();
    limit.set_mode(Mode::Off);
    for _ in 0..1_000 {
        assert!(passes(&limit, 1));
    }
    limit.set_mode(Mode::Enforce);
    assert_eq!(limit.stats().passed, 0);
    assert!(limit.peek(10_000).is_pass());
}

/// Who was let look, and passes on credit of others, has no claim to be first once more.
#[test]
fn whoever_passes_gives_up_the_place_that_was_kept() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (limit, cx) = (LARGE.shared(), &mut Context::from_waker(Waker::noop()));
        let mut kept = limit.clone();
        while passes(&limit, 1) {}
        assert!(!is_pass(kept.poll_open(1, cx)));
        limit.refund(1_000);
        assert!(is_pass(kept.poll_open(1, cx)), "and keeps the place");
        assert!(passes(&limit, 1), "and there is credit");
        assert!(is_pass(kept.poll_decide(1, cx)));
        while passes(&limit, 1) {}

        let mut first = pin!(limit.acquire(1));
        assert!(first.as_mut().poll(cx).is_pending());
        assert!(!is_pass(kept.poll_decide(1, cx)));
        limit.refund(1);
        assert!(!is_pass(kept.poll_decide(1, cx)), "came later");
        assert!(first.as_mut().poll(cx).is_ready());
    });
}

#[test]
fn on_credit_they_are_counted_when_somebody_looks() {
    let noted = Noted::default();
    let limit = noted.clone().shared();
    for cost in [1, 2, 3, 4] {
        assert!(limit.try_acquire(cost).is_pass());
    }
    let costs = |counted: &[(Tick, u32)]| counted.iter().map(|(_, cost)| *cost).collect::<Vec<_>>();
    assert_eq!(costs(&noted.counted()), [1], "the others are on credit");
    thread::sleep(ms(2));
    assert!(limit.try_acquire(2).is_pass(), "for which there is no more");

    let counted = noted.counted();
    assert_eq!(costs(&counted), [1, 9, 2]);
    assert!(counted[1].0 >= counted[0].0.after(ms(2)));
    assert_eq!(counted[1].0, counted[2].0);
}

#[test]
fn what_passed_is_counted_although_the_policy_panics_over_it() {
    let cx = &mut Context::from_waker(Waker::noop());
    let odd = Odd::up_to(u32::MAX);
    let shared = odd.clone().shared();
    let mut owned = odd.clone().owned();
    let mut asks: [&mut dyn FnMut() -> bool; 2] =
        [&mut || shared.try_acquire(1).is_pass(), &mut || {
            is_pass(owned.poll_decide(1, cx))
        }];
    for ask in &mut asks {
        let mut passed = (0..257).filter(|_| ask()).count();
        odd.panics_next();
        assert!(catch_unwind(AssertUnwindSafe(&mut *ask)).is_err());
        while ask() {
            passed += 1;
        }
        assert_eq!(passed, 10_000);
    }
}

#[test]
fn no_credit_is_given_that_could_not_be_counted_at_once() {
    let limit = Odd::up_to(10).shared();
    assert!(limit.try_acquire(1).is_pass());
    assert!(!limit.try_acquire(11).is_pass());
    let passed = (0..20_000).filter(|_| limit.try_acquire(1).is_pass());
    assert_eq!(passed.count(), 9_999);
}

#[tokio::test]
async fn what_is_left_of_a_credit_passes_on_a_clock_that_is_paused_since() {
    let noted = Noted::default();
    let limit = noted.clone().shared();
    assert!(limit.try_acquire(1).is_pass());
    tokio::time::pause();
    for _ in 0..12 {
        assert!(limit.try_acquire(1).is_pass());
    }
    let costs: Vec<_> = noted.counted().iter().map(|(_, cost)| *cost).collect();
    assert_eq!(costs, [1, 10, 1, 1], "ten on credit, and then one by one");
}

#[test]
fn of_small_limits_and_intervals_there_is_no_credit() {
    let every = Interval::every(ms(3_600_000)).shared();
    assert!(every.try_acquire(1).is_pass() && !every.try_acquire(1).is_pass());

    let both = All::new((LARGE, Interval::every(ms(3_600_000)))).shared();
    assert!(both.try_acquire(1).is_pass() && !both.try_acquire(1).is_pass());

    let small = TokenBucket::new(Rate::per_day(1), 479).shared();
    assert_eq!((0..500).filter(|_| passes(&small, 1)).count(), 479);
}

#[test]
fn a_log_passes_its_limit_at_once_and_no_more() {
    let limit = SlidingLog::new(1_000, ms(3_600_000)).shared();
    let passed = (0..2_000).filter(|_| limit.try_acquire(1).is_pass());
    assert_eq!(passed.count(), 1_000);
}

#[test]
fn without_a_limit_all_are_counted() {
    let limit = Unlimited.shared();
    for cost in [1, u32::MAX, u32::MAX, 7, 0, 1] {
        assert!(limit.try_acquire(cost).is_pass());
    }
    assert_eq!(limit.stats().passed, 5);
}

#[test]
fn keys_with_a_limit_of_their_own_pass_what_they_have() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let keyed: Keyed<u8, TokenBucket> = LARGE.keyed();
        let cx = &mut Context::from_waker(Waker::noop());
        let mut passed = 0;
        for round in 0..50 {
            // Somebody waits for the key, which has a limit of its own until they are gone and nobody else has it.
            let mut dear = Box::pin(keyed.acquire(1, 10_000));
            if round > 0 {
                assert!(dear.as_mut().poll(cx).is_pending());
            }
            let mut there = keyed.at(1);
            drop(dear);
            for _ in 0..300 {
                passed += u32::from(is_pass(there.poll_try(1, cx)));
            }
        }
        assert_eq!(passed, 10_000);
        assert_eq!(keyed.stats().passed, 10_000);

        keyed.retune(&2, LARGE);
        let tuned = (0..11_000).filter(|_| keyed.try_acquire(&2, 1).is_pass());
        assert_eq!(tuned.count(), 10_000);
        assert_eq!(keyed.stats().passed, 20_000);
    });
}

/// A key for which somebody waits has a limit of its own, and keeps it until they have left.
#[test]
fn what_passed_a_key_on_credit_is_counted_when_its_limit_goes() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let cx = &mut Context::from_waker(Waker::noop());
        let keyed: Keyed<u8, TokenBucket> = LARGE.keyed();
        let asks = |times: u32| (0..times).filter(|_| keyed.try_acquire(&1, 1).is_pass());
        let mut waits = keyed.at(1);
        keyed.pause_for(&1, ms(3_600_000));
        assert!(!is_pass(waits.poll_open(1, cx)));
        keyed.resume(&1);
        assert!(is_pass(waits.poll_open(1, cx)), "and keeps the place");

        assert_eq!(asks(100).count(), 100);
        drop(waits);
        assert_eq!(asks(20_000).count(), 9_900);
    });
}

/// For a pause a key needs a limit of its own, which goes when the last one who asks there has left.
#[test]
fn a_key_whose_limit_is_needed_no_longer_has_spent_what_passed() {
    let keyed: Keyed<u8, TokenBucket> = LARGE.keyed();
    let is_over = AtomicBool::new(false);
    let passed: usize = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                keyed.pause_for(&1, ms(3_600_000));
                keyed.resume(&1);
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
async fn on_a_paused_clock_each_is_counted_at_once() {
    let (noted, cx) = (Noted::default(), &mut Context::from_waker(Waker::noop()));
    let (limit, mut owned) = (noted.clone().shared(), noted.clone().owned());
    for cost in 1..4 {
        assert!(limit.try_acquire(cost).is_pass());
        assert!(owned.poll_decide(cost, cx).is_ready());
    }
    let costs: Vec<_> = noted.counted().iter().map(|(_, cost)| *cost).collect();
    assert_eq!(costs, [1, 1, 2, 2, 3, 3]);
}

#[tokio::test(start_paused = true)]
async fn on_a_paused_clock_nothing_is_counted_late() {
    let limit = TokenBucket::new(Rate::new(10_000, ms(1_000)), 10_000).shared();
    for _ in 0..2 {
        for n in 0..10_000 {
            assert!(passes(&limit, 1), "{n}");
        }
        assert!(!passes(&limit, 1));
        jump(ms(1_000)).await;
    }
}
