//! Costs that are known afterwards.
#![expect(
    clippy::disallowed_methods,
    reason = "a clock of their own, which is paused"
)]

use std::future::Future;
use std::pin::pin;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::thread;

use futures::executor::block_on;
use paceline::limiter::{
    Combined, Event, KeyedAt, Limits, Mode, Observed, Reservation, Settle, Shared, Switch,
    Switched, WhenFull,
};
use paceline::policy::{All, Decision, FixedWindow, PerRequest};
use paceline::prelude::*;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, advance, sleep};

const MINUTE: Duration = Duration::from_secs(60);

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn wait(retry_in: Duration) -> Decision {
    Decision::Wait { retry_in }
}

/// Ten tokens a second, a hundred at once.
fn bucket() -> Shared<TokenBucket> {
    TokenBucket::new(Rate::per_second(10), 100).shared()
}

fn remaining<L: paceline::limiter::Limiter>(limit: &L) -> u32 {
    limit.status().unwrap().remaining
}

/// Begins to wait for `cost`, and says when it has passed.
async fn waiter(limit: &Shared<TokenBucket>, cost: u32) -> JoinHandle<Duration> {
    let (start, request) = (Instant::now(), limit.acquire(cost));
    let waiter = tokio::spawn(async move {
        request.await.unwrap();
        start.elapsed()
    });
    yield_now().await;
    waiter
}

#[tokio::test(start_paused = true)]
async fn what_was_not_used_comes_back_and_what_is_missing_is_charged() {
    let limit = bucket();
    for (estimate, actual, left) in [(40, 10, 90), (40, 40, 50), (20, 45, 5), (5, 0, 5)] {
        let reserved = limit.reserve(estimate).await.unwrap();
        assert_eq!(reserved.estimate(), estimate);
        let before = remaining(&limit);
        reserved.settle(actual);
        assert_eq!(remaining(&limit) + actual, before + estimate);
        assert_eq!(remaining(&limit), left);
    }
}

#[tokio::test(start_paused = true)]
async fn an_estimate_of_nothing_is_charged_in_full() {
    let limit = bucket();
    limit.reserve(0).await.unwrap().settle(30);
    assert_eq!(remaining(&limit), 70);
    limit.charge(0);
    assert_eq!(remaining(&limit), 70);
}

#[tokio::test(start_paused = true)]
async fn a_debt_delays_the_waiters_by_what_is_owed() {
    let limit = bucket();
    let reserved = limit.reserve(100).await.unwrap();
    let first = waiter(&limit, 10).await;
    let second = waiter(&limit, 20).await;
    assert_eq!(limit.peek(1), wait(ms(3_100)));

    sleep(ms(500)).await;
    reserved.settle(125);
    assert_eq!(limit.peek(1), wait(ms(5_100)));
    assert_eq!(first.await.unwrap(), ms(3_500));
    assert_eq!(second.await.unwrap(), ms(5_500));
}

#[tokio::test(start_paused = true)]
async fn a_head_that_sleeps_for_an_earlier_instant_waits_again() {
    let limit = bucket();
    limit.acquire(100).await.unwrap();
    let head = waiter(&limit, 10).await;
    sleep(ms(999)).await;
    limit.charge(5);
    limit.charge(5);
    sleep(ms(1)).await;
    assert!(!head.is_finished());
    assert_eq!(head.await.unwrap(), secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_settlement_lets_a_waiter_pass_at_once() {
    let limit = bucket();
    let reserved = limit.reserve(100).await.unwrap();
    let first = waiter(&limit, 50).await;
    let second = waiter(&limit, 10).await;
    sleep(ms(200)).await;
    reserved.settle(47);
    assert_eq!(first.await.unwrap(), ms(200));
    assert_eq!(second.await.unwrap(), ms(700), "5 of 10 are left");
}

#[tokio::test(start_paused = true)]
async fn a_reservation_that_is_dropped_keeps_its_estimate() {
    let limit = bucket();
    drop(limit.reserve(40).await.unwrap());
    assert_eq!(remaining(&limit), 60);

    let task = tokio::spawn({
        let limit = limit.clone();
        async move {
            let _reserved = limit.reserve(10).await.unwrap();
            sleep(MINUTE).await;
        }
    });
    yield_now().await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert_eq!(remaining(&limit), 50);
}

#[tokio::test(start_paused = true)]
async fn what_comes_back_after_its_window_makes_no_room_in_the_next() {
    let window = FixedWindow::new(100, MINUTE).shared();
    let log = SlidingLog::new(100, MINUTE).shared();
    let late = (
        window.reserve(60).await.unwrap(),
        log.reserve(60).await.unwrap(),
    );
    sleep(secs(59)).await;
    let in_time = (
        window.reserve(40).await.unwrap(),
        log.reserve(30).await.unwrap(),
    );

    sleep(secs(1)).await;
    window.acquire(70).await.unwrap();
    log.acquire(70).await.unwrap();
    late.0.settle(0);
    late.1.settle(0);
    assert_eq!((remaining(&window), remaining(&log)), (30, 0));
    in_time.0.settle(0);
    in_time.1.settle(10);
    assert_eq!((remaining(&window), remaining(&log)), (30, 20));
}

#[tokio::test(start_paused = true)]
async fn an_estimate_that_can_never_pass_is_refused() {
    let limit = bucket();
    let never = limit.reserve(101).await.unwrap_err();
    assert_eq!(
        (
            never.too_costly().unwrap().cost(),
            never.too_costly().unwrap().capacity()
        ),
        (101, 100)
    );
    let never = limit.reserve_within(101, MINUTE).await.unwrap_err();
    assert!(never.is_too_costly());
    let never = limit.try_reserve(101).unwrap_err();
    assert_eq!(never, Decision::Never { capacity: 100 });
    assert_eq!(remaining(&limit), 100);
}

#[tokio::test(start_paused = true)]
async fn a_reservation_that_would_be_late_is_refused_at_once_and_counts_nothing() {
    let (start, limit) = (Instant::now(), bucket());
    let reserved = limit.reserve_within(100, Duration::ZERO).await.unwrap();
    let late = limit.reserve_within(10, ms(999)).await.unwrap_err();
    assert_eq!(late.retry_in(), Some(secs(1)));
    assert_eq!(limit.try_reserve(10).unwrap_err(), wait(secs(1)));
    assert_eq!(start.elapsed(), Duration::ZERO);

    let second = limit.reserve_within(10, secs(1)).await.unwrap();
    assert_eq!(start.elapsed(), secs(1));
    second.settle(0);
    reserved.settle(0);
    assert_eq!(remaining(&limit), 100);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_reserve_leaves_no_trace() {
    let limit = bucket();
    limit.acquire(100).await.unwrap();
    {
        let cx = &mut Context::from_waker(Waker::noop());
        let never_polled = limit.reserve(1);
        let mut cancelled = pin!(limit.reserve(50));
        assert!(cancelled.as_mut().poll(cx).is_pending());
        let mut with_deadline = pin!(limit.reserve_within(30, MINUTE));
        assert!(with_deadline.as_mut().poll(cx).is_pending());
        assert_eq!(limit.waiting(), 2);
        drop(never_polled);
    }
    assert_eq!(limit.waiting(), 0);
    assert_eq!(limit.peek(10), wait(secs(1)));
    sleep(secs(10)).await;
    assert_eq!(remaining(&limit), 100);
}

#[tokio::test(start_paused = true)]
async fn a_reserve_that_is_behind_a_waiter_passes_after_it() {
    let limit = bucket();
    limit.acquire(100).await.unwrap();
    let first = waiter(&limit, 20).await;
    assert!(limit.try_reserve(1).is_err());
    let start = Instant::now();
    limit.reserve(10).await.unwrap().settle(10);
    assert_eq!(start.elapsed(), secs(3));
    assert_eq!(first.await.unwrap(), secs(2));
}

#[test]
fn two_threads_that_settle_leave_what_they_have_used() {
    let limit = FixedWindow::new(1_000_000, MINUTE * 60).shared();
    let threads = [0, 1].map(|_| {
        let limit = limit.clone();
        thread::spawn(move || {
            for actual in 0..1_000 {
                limit.try_reserve(500).unwrap().settle(actual);
            }
        })
    });
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(remaining(&limit), 1_000_000 - 2 * 499_500);
}

#[test]
fn a_reservation_may_be_settled_in_another_thread_without_a_runtime() {
    fn movable<T: Send + 'static>(_: &T) {}
    let limit = FixedWindow::new(100, MINUTE * 60).shared();
    let reserved = limit.try_reserve(60).unwrap();
    movable(&reserved);
    movable(&limit.reserve(1));
    thread::spawn(move || reserved.settle(10)).join().unwrap();
    assert_eq!(remaining(&limit), 90);
}

/// A request that passes leaves prefetched permits for the next one, which are counted later than they pass.
#[test]
fn prefetched_permits_come_back_too() {
    type Log = Shared<SlidingLog>;
    let reserves: [fn(&Log) -> Reservation<Log>; 3] = [
        |limit| limit.try_reserve(10).unwrap(),
        |limit| block_on(limit.reserve(10)).unwrap(),
        |limit| block_on(limit.reserve_within(10, Duration::ZERO)).unwrap(),
    ];
    for reserve in reserves {
        let limit = SlidingLog::new(1_000, MINUTE * 60).shared();
        let estimates = [(); 4].map(|()| reserve(&limit));
        for estimate in estimates {
            estimate.settle(1);
        }
        assert_eq!(remaining(&limit), 996);
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_settles_for_itself() {
    let users = TokenBucket::new(Rate::per_second(10), 100).keyed::<&str>();
    let ann = users.at("ann").reserve(60).await.unwrap();
    let bob = users.at("bob").reserve(60).await.unwrap();
    ann.settle(10);
    bob.settle(90);
    let left = |user| users.status(&user).unwrap().remaining;
    assert_eq!((left("ann"), left("bob")), (90, 10));
    users.charge(&"bob", 20);
    assert_eq!(users.peek(&"bob", 1), wait(ms(1_100)));

    let late = users
        .at("bob")
        .reserve_within(10, secs(1))
        .await
        .unwrap_err();
    assert_eq!(late.retry_in(), Some(secs(2)));
    assert!(users.at("bob").try_reserve(10).is_err());
    assert!(users.at("ann").try_reserve(10).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_debt_of_a_key_delays_its_waiter() {
    let users = TokenBucket::new(Rate::per_second(10), 100).keyed::<&str>();
    let start = Instant::now();
    let reserved = users.at("ann").reserve(100).await.unwrap();
    let waiter = tokio::spawn(users.acquire("ann", 10));
    yield_now().await;
    reserved.settle(110);
    waiter.await.unwrap().unwrap();
    assert_eq!(start.elapsed(), secs(2));
    assert_eq!(users.with(&"ann", |limit| limit.waiting()), 0);
    users.forget_settled();
    sleep(secs(10)).await;
    users.forget_settled();
    assert!(users.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_evicted_in_between_is_charged_and_has_nothing_to_give_back() {
    let users = FixedWindow::new(100, MINUTE).keyed::<&str>();
    let reserve = || async { users.at("ann").reserve(60).await.unwrap() };
    let (below, above) = (reserve().await, users.at("ann").reserve(40).await.unwrap());
    sleep(MINUTE).await;
    users.forget_settled();
    assert!(users.is_empty());

    below.settle(0);
    users.charge(&"bob", 0);
    assert!(users.is_empty(), "a key that has spent nothing is not kept");
    above.settle(90);
    assert_eq!(users.status(&"ann").unwrap().remaining, 50);
    assert_eq!(users.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_key_without_room_is_charged_to_the_limit_for_such_keys() {
    let each = TokenBucket::new(Rate::per_second(10), 100);
    let charged = |when_full| {
        let users = each
            .keyed::<u32>()
            .with_max_keys(1)
            .with_when_full(when_full);
        assert!(users.try_acquire(&1, 50).is_pass());
        users.charge(&1, 10);
        users.charge(&2, 30);
        assert_eq!((users.len(), users.status(&1).unwrap().remaining), (1, 40));
        users.status(&2).unwrap().remaining
    };
    assert_eq!(charged(WhenFull::Share(each)), 70);
    assert_eq!(charged(WhenFull::Pass), u32::MAX);
    assert_eq!(charged(WhenFull::Wait), 0, "there is no room");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_passes_without_room_settles_nothing() {
    let each = TokenBucket::new(Rate::per_second(10), 100);
    let users = each.keyed::<u32>().with_max_keys(1);
    let users = users.with_when_full(WhenFull::Pass);
    let first = users.at(1).reserve(50).await.unwrap();
    let second = users.at(2).reserve(50).await.unwrap();
    first.settle(100);
    users.forget_settled();
    sleep(secs(10)).await;
    users.forget_settled();
    second.settle(100);
    assert!(users.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_is_off_charges_nothing_and_a_shadowed_one_does() {
    let (limit, switch) = (bucket(), Switch::new().with_mode(Mode::Off));
    let switched = limit.clone().switched(&switch);
    switched.charge(30);
    switched.reserve(1_000).await.unwrap().settle(2_000);
    switch.set_mode(Mode::Shadow);
    assert_eq!(remaining(&limit), 100);
    switched.charge(30);
    assert_eq!(remaining(&limit), 70);
    switched.reserve(40).await.unwrap().settle(20);
    assert_eq!(remaining(&limit), 50);
    switch.set_mode(Mode::Off);
    switched.reserve(40).await.unwrap().settle(0);
    switch.set_mode(Mode::Active);
    assert_eq!(remaining(&limit), 50, "nothing was spent");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_only_a_shadow_lets_pass_settles_nothing() {
    let (limit, switch) = (bucket(), Switch::new());
    let switched = limit.clone().switched(&switch);
    switched.acquire(90).await.unwrap();
    switch.set_mode(Mode::Shadow);
    let shadowed = [
        switched.reserve(20).await.unwrap(),
        switched.try_reserve(20).unwrap(),
    ];
    let counted = switched.reserve(10).await.unwrap();
    switch.set_mode(Mode::Active);

    let [below, above] = shadowed;
    below.settle(0);
    above.settle(90);
    assert_eq!(limit.peek(1), wait(ms(100)));
    counted.settle(0);
    assert_eq!(remaining(&limit), 10);
}

#[tokio::test(start_paused = true)]
async fn a_limiter_around_another_settles_with_that_one() {
    let (sender, events) = mpsc::channel();
    let (limit, switch) = (bucket(), Switch::new());
    let around = Switched::new(limit.clone(), switch.clone());
    let around = Observed::new(around, move |event: Event| sender.send(event).unwrap());

    around.reserve(40).await.unwrap().settle(10);
    assert_eq!(remaining(&limit), 90);
    around
        .reserve_within(40, Duration::ZERO)
        .await
        .unwrap()
        .settle(50);
    assert_eq!(remaining(&limit), 40);
    assert_eq!(around.try_reserve(50).unwrap_err(), wait(secs(1)));
    assert_eq!(
        events.try_iter().count(),
        3,
        "the requests, and not what was settled"
    );

    switch.set_mode(Mode::Off);
    around.reserve(1_000).await.unwrap().settle(2_000);
    around.charge(10);
    assert_eq!(remaining(&limit), 40);
}

#[tokio::test(start_paused = true)]
async fn whatever_settles_can_be_behind_a_pointer() {
    let limit = bucket();
    let erased: &dyn Settle = &limit;
    erased.charge(30);
    erased.refund_from(Instant::now(), 10);
    assert_eq!(remaining(&limit), 80);
}

#[tokio::test(start_paused = true)]
async fn a_future_that_is_done_cannot_be_polled_again() {
    let limit = bucket();
    let mut reserve = limit.reserve(10);
    let reserved: Reservation<Shared<TokenBucket>> = (&mut reserve).await.unwrap();
    reserved.settle(10);
    let again = tokio::spawn(reserve).await;
    assert!(again.unwrap_err().is_panic());
    assert_eq!(remaining(&limit), 90);
}

#[tokio::test(start_paused = true)]
async fn a_reset_forgets_what_was_spent_and_what_is_owed_and_wakes_the_waiters() {
    let limit = bucket();
    limit.retune(TokenBucket::new(Rate::per_second(10), 50));
    limit.acquire(50).await.unwrap();
    limit.charge(500);
    limit.pause_for(MINUTE);
    limit.set_remaining(0, MINUTE);
    let first = waiter(&limit, 30).await;
    let second = waiter(&limit, 30).await;
    sleep(ms(100)).await;
    limit.reset();
    assert_eq!(first.await.unwrap(), ms(100));
    assert_eq!(second.await.unwrap(), ms(1_100));
    assert_eq!(limit.paused_for(), None);
    sleep(MINUTE).await;
    assert_eq!(remaining(&limit), 50, "of the last retune");
}

#[tokio::test(start_paused = true)]
async fn no_more_pass_than_remain_until_the_reset() {
    let (start, limit) = (Instant::now(), bucket());
    limit.set_remaining(3, secs(30));
    let status = limit.status().unwrap();
    assert_eq!((status.remaining, status.reset_in), (3, secs(30)));

    limit.acquire(2).await.unwrap();
    assert_eq!(limit.peek(2), wait(secs(30)));
    assert!(limit.try_acquire(1).is_pass());
    assert_eq!(limit.peek(1), wait(secs(30)));
    assert_eq!(limit.paused_for(), Some(secs(30)));
    assert_eq!(limit.peek(101), Decision::Never { capacity: 100 });
    assert!(limit.try_acquire(0).is_pass());

    limit.acquire(90).await.unwrap();
    assert_eq!(start.elapsed(), secs(30));
    assert_eq!(
        remaining(&limit),
        10,
        "after the reset the policy decides alone"
    );
}

#[tokio::test(start_paused = true)]
async fn the_policy_decides_where_it_is_stricter() {
    let (start, limit) = (Instant::now(), bucket());
    limit.acquire(100).await.unwrap();
    limit.set_remaining(50, secs(2));
    let status = limit.status().unwrap();
    assert_eq!((status.remaining, status.reset_in), (0, secs(10)));
    assert_eq!(limit.peek(10), wait(secs(1)));
    assert_eq!(limit.peek(51), wait(ms(5_100)));
    limit.set_remaining(9, secs(2));
    assert_eq!(limit.peek(10), wait(secs(2)));
    limit.acquire(10).await.unwrap();
    assert_eq!(start.elapsed(), secs(2));
}

#[tokio::test(start_paused = true)]
async fn of_two_replies_the_later_counts() {
    let limit = bucket();
    limit.set_remaining(0, MINUTE);
    let first = waiter(&limit, 10).await;
    limit.set_remaining(15, secs(5));
    assert_eq!(first.await.unwrap(), Duration::ZERO);
    limit.set_remaining(100, secs(5));
    assert_eq!(remaining(&limit), 90);
    limit.set_remaining(1, secs(5));
    assert_eq!(remaining(&limit), 1);
    limit.set_remaining(0, Duration::ZERO);
    assert_eq!(remaining(&limit), 90, "its reset is over");
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_leaves_less_makes_the_waiters_wait_longer() {
    let limit = bucket();
    limit.acquire(100).await.unwrap();
    let head = waiter(&limit, 10).await;
    let next = waiter(&limit, 10).await;
    sleep(ms(500)).await;
    limit.set_remaining(10, ms(4_500));
    assert_eq!(limit.peek(1), wait(ms(4_500)));
    assert_eq!(head.await.unwrap(), secs(1));
    assert_eq!(next.await.unwrap(), secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_wait_behind_others_is_exact_while_little_remains() {
    let limit = Interval::every(secs(1)).shared();
    limit.set_remaining(2, ms(2_500));
    let waiters = [(); 4].map(|()| tokio::spawn(limit.acquire_one()));
    yield_now().await;
    // They pass after 0, 1, 2.5 and 3.5 s.
    let (start, expected) = (Instant::now(), limit.peek(1));
    assert_eq!(expected, wait(ms(4_500)));
    assert!(limit.acquire_within(1, ms(4_499)).await.is_err());
    limit.acquire_within(1, ms(4_500)).await.unwrap();
    assert_eq!(start.elapsed(), ms(4_500));
    for waiter in waiters {
        waiter.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_and_what_remains_both_hold() {
    let limit = bucket();
    limit.pause_for(secs(5));
    limit.set_remaining(10, secs(2));
    assert_eq!(limit.peek(10), wait(secs(5)));
    assert_eq!(limit.status().unwrap().remaining, 0);
    limit.set_remaining(10, secs(9));
    assert_eq!(
        (limit.peek(10), limit.peek(11)),
        (wait(secs(5)), wait(secs(9)))
    );
    sleep(secs(5)).await;
    assert_eq!(remaining(&limit), 10);

    limit.resume();
    assert_eq!(remaining(&limit), 100);
}

#[tokio::test(start_paused = true)]
async fn a_charge_lowers_what_remains_and_a_refund_does_not_raise_it() {
    let limit = bucket();
    limit.set_remaining(10, secs(9));
    let reserved = limit.reserve(5).await.unwrap();
    reserved.settle(8);
    assert_eq!(remaining(&limit), 2);
    limit.refund(8);
    limit.reserve(2).await.unwrap().settle(0);
    assert_eq!(limit.peek(1), wait(secs(9)));
    limit.charge(20);
    sleep(secs(9)).await;
    assert_eq!(remaining(&limit), 100);
}

#[tokio::test(start_paused = true)]
async fn a_retune_leaves_what_remains() {
    let limit = bucket();
    limit.set_remaining(10, secs(9));
    limit.retune(TokenBucket::new(Rate::per_second(100), 1_000));
    assert_eq!(remaining(&limit), 10);
    assert_eq!(limit.peek(11), wait(secs(9)));
    limit.retune(TokenBucket::new(Rate::per_second(1), 5));
    assert_eq!(limit.peek(11), Decision::Never { capacity: 5 });
    assert_eq!(remaining(&limit), 5);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_wakes_long_after_the_reset_passes_then() {
    let (start, limit) = (Instant::now(), Interval::every(secs(1)).shared());
    limit.set_remaining(0, secs(3));
    let waiters = [(); 2].map(|()| tokio::spawn(limit.acquire_one()));
    yield_now().await;
    advance(ms(7_500)).await;
    let [first, second] = waiters;
    first.await.unwrap();
    assert_eq!(start.elapsed(), ms(7_500));
    second.await.unwrap();
    assert_eq!(start.elapsed(), ms(8_500));
}

#[tokio::test(start_paused = true)]
async fn what_remains_for_a_key_is_remembered_until_the_reset() {
    let hosts = Interval::every(ms(10)).keyed::<&str>();
    let a: KeyedAt<_, _> = hosts.at("a.example");
    hosts.with(&"a.example", |limit| limit.set_remaining(2, secs(5)));
    hosts.acquire("a.example", 1).await.unwrap();
    sleep(secs(1)).await;
    hosts.forget_settled();
    assert_eq!(hosts.len(), 1);
    assert_eq!(hosts.status(&"a.example").unwrap().remaining, 1);
    assert!(hosts.try_acquire(&"a.example", 1).is_pass());
    assert_eq!(hosts.peek(&"a.example", 1), wait(secs(4)));
    assert_eq!(
        hosts.with(&"a.example", |limit| limit.paused_for()),
        Some(secs(4))
    );
    assert!(hosts.try_acquire(&"b.example", 1).is_pass());

    let start = Instant::now();
    a.acquire(1).await.unwrap();
    assert_eq!(start.elapsed(), secs(4));
    sleep(secs(1)).await;
    hosts.forget_settled();
    assert!(hosts.is_empty());

    hosts.with(&"a.example", |limit| limit.set_remaining(0, MINUTE));
    hosts.with(&"a.example", |limit| limit.resume());
    assert!(hosts.is_empty());
}

#[test]
fn nothing_is_prefetched_while_little_remains() {
    let limit = TokenBucket::new(Rate::new(1, MINUTE * 60), 10_000).shared();
    assert!(limit.try_acquire(1).is_pass());
    limit.set_remaining(3, MINUTE * 60);
    let passed = (0..10).filter(|_| limit.try_acquire(1).is_pass()).count();
    assert_eq!(passed, 3);
}

#[tokio::test(start_paused = true)]
async fn a_settlement_leaves_the_number_of_requests() {
    let requests = PerRequest::new(FixedWindow::new(2, MINUTE));
    let limit = All::new((requests, TokenBucket::new(Rate::per_second(10), 100))).shared();
    limit.reserve(60).await.unwrap().settle(0);
    limit.reserve(60).await.unwrap().settle(90);
    assert_eq!(limit.peek(1), wait(MINUTE));
    sleep(MINUTE).await;
    assert_eq!(limit.peek(100), Decision::Pass);
}

/// A random limit and what it has to obey, on a clock that moves to any nanosecond.
#[tokio::test(start_paused = true)]
async fn waits_are_exact_and_no_more_pass_than_remain_in_random_traces() {
    for seed in 0..100 {
        let mut random = fastrand::Rng::with_seed(seed);
        let limit = bucket();
        let (mut left, mut reset_at) = (u32::MAX, Instant::now());
        for _ in 0..50 {
            let number = random.u32(1..120);
            match random.u32(0..6) {
                0 => {
                    let reset_in = ms(random.u64(0..5_000));
                    limit.set_remaining(number, reset_in);
                    (left, reset_at) = (number, Instant::now() + reset_in);
                }
                1 => {
                    limit.charge(number / 4);
                    left = left.saturating_sub(number / 4);
                }
                2 => limit.refund(number / 4),
                3 => advance(Duration::from_nanos(random.u64(0..2_000_000_000))).await,
                _ if limit.try_acquire(number).is_pass() => {
                    let held = Instant::now() < reset_at;
                    assert!(!held || number <= left, "seed {seed}");
                    left = left.saturating_sub(number);
                }
                _ => {}
            }
            let cost = random.u32(1..=100);
            if let Some(retry_in) = limit.peek(cost).retry_in() {
                let last = Duration::from_nanos(1);
                advance(retry_in.saturating_sub(last)).await;
                assert_eq!(limit.peek(cost), wait(last), "seed {seed}");
                advance(last).await;
                assert!(limit.peek(cost).is_pass(), "seed {seed}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_settlement_is_counted_while_the_future_of_another_waits() {
    let limit = bucket();
    let reserved = limit.reserve(100).await.unwrap();
    let mut next = pin!(limit.reserve(30));
    let cx = &mut Context::from_waker(Waker::noop());
    assert!(next.as_mut().poll(cx).is_pending());
    reserved.settle(60);
    let Poll::Ready(Ok(next)) = next.poll(cx) else {
        panic!("40 came back, and 30 pass");
    };
    next.settle(30);
    assert_eq!(remaining(&limit), 10);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_passed_while_the_limit_was_off_settles_nothing_when_it_is_active_again() {
    let switch = Switch::new().with_mode(Mode::Off);
    let limit = bucket();
    let keys = TokenBucket::new(Rate::per_second(10), 100).keyed::<u8>();
    let switched = limit.clone().switched(&switch);
    let Ok(of_key) = keys.clone().switched(&switch).at(1);
    let reserved = switched.try_reserve(50).unwrap();
    let reserved_by_key = of_key.reserve(50).await.unwrap();

    switch.set_mode(Mode::Active);
    assert!(switched.try_acquire(60).await.is_pass());
    assert!(of_key.try_acquire(60).await.is_pass());
    reserved.settle(0);
    reserved_by_key.settle(70);
    assert_eq!(remaining(&limit), 40);
    assert_eq!(keys.status(&1).unwrap().remaining, 40);
}

/// Each member of a combined limit settles for itself.
#[tokio::test(start_paused = true)]
async fn a_key_without_room_settles_nothing_in_a_combined_limit_and_the_other_limit_does() {
    let each = TokenBucket::new(Rate::per_second(10), 100);
    let users = each.keyed::<u32>().with_max_keys(1);
    let users = users.with_when_full(WhenFull::Pass);
    let account = each.shared();
    users.acquire(1, 100).await.unwrap();
    let call = Combined::new((users.at(2), account.clone()));
    let reserved = call.reserve(50).await.unwrap();
    let other = call.reserve(20).await.unwrap();
    sleep(secs(10)).await;
    users.forget_settled();
    account.acquire(90).await.unwrap();
    assert!(users.try_acquire(&2, 60).is_pass());
    reserved.settle(0);
    other.settle(30);
    assert_eq!(
        users.status(&2).unwrap().remaining,
        40,
        "nothing was counted"
    );
    assert_eq!(remaining(&account), 50);
}
