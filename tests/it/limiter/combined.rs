//! Limits that pass together or not at all.

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::Poll;

use futures::{FutureExt, SinkExt, StreamExt, sink, stream};
use paceline::limiter::{
    Combined, DynLimiter, Event, Limiter, LimiterExt, Line, Mode, Observed, PolicyExt, Shared,
    Switch, SwitchExt,
};
use paceline::policy::{FixedWindow, Interval, SlidingLog, TokenBucket};
use paceline::sink::PaceSinkExt;
use paceline::stream::PaceStreamExt;
use paceline::time::Rate;

use super::{in_two_orders, queued, remaining, spawned, too_costly, wait};
use crate::timed::{ms, now, since, sleep};

#[tokio::test(start_paused = true)]
async fn a_request_that_one_limit_refuses_is_counted_by_none() {
    let tight = FixedWindow::new(2, ms(1_000)).shared();
    let wide = FixedWindow::new(10, ms(1_000)).shared();
    let both = Combined::new((tight.clone(), wide.clone()));
    assert!(both.try_acquire(2).await.is_pass());
    for _ in 0..5 {
        assert_eq!(both.try_acquire(1).await, wait(1_000));
    }
    assert_eq!((remaining(&tight), remaining(&wide)), (0, 8));
    for limit in [tight, wide] {
        assert_eq!((limit.stats().passed, limit.stats().refused), (1, 5));
    }
}

#[tokio::test(start_paused = true)]
async fn each_limit_has_a_cost_of_its_own() {
    let requests = FixedWindow::new(3, ms(1_000)).shared();
    let tokens = FixedWindow::new(100, ms(500)).shared();
    let call = Combined::new((requests, tokens));
    call.acquire_each([1, 70]).await.unwrap();
    assert_eq!(call.try_acquire_each([1, 31]), wait(500));
    assert!(call.try_acquire_each([1, 30]).is_pass());
    let start = now();
    call.acquire_each([1, 100]).await.unwrap();
    assert_eq!(since(start), 500);
    call.acquire_each([1, 1]).await.unwrap();
    assert_eq!(since(start), 1_000);

    let never = call.acquire_each([1, 101]).await.unwrap_err();
    assert_eq!(too_costly(never), (101, 100));
    let never = call.acquire_each([4, 101]).await.unwrap_err();
    assert_eq!(too_costly(never), (4, 3));
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_too_long_fails_at_once_and_counts_nothing() {
    let user = Interval::every(ms(100)).shared();
    let account = Interval::every(ms(300)).shared();
    let both = Combined::new((user.clone(), account));
    both.acquire(1).await.unwrap();
    let late = both.acquire_each_within([1, 1], ms(299)).await.unwrap_err();
    assert_eq!(late.retry_in(), Some(ms(300)));
    assert_eq!((remaining(&user), user.waiting()), (0, 0));
    let start = now();
    both.acquire_each_within([1, 1], ms(300)).await.unwrap();
    assert_eq!(since(start), 300);
}

#[tokio::test(start_paused = true)]
async fn a_user_above_its_limit_holds_up_no_other_user() {
    let users = Interval::every(ms(1_000)).keyed::<u32>();
    let account = Interval::every(ms(10)).shared();
    let call = |user: u32| Combined::new((users.at(user), account.clone())).acquire(1);
    let passed = spawned([0, 0, 0, 1, 2, 0, 3].map(call));
    assert_eq!(passed.await, [0, 1_000, 2_000, 10, 20, 3_000, 30]);
}

#[tokio::test(start_paused = true)]
async fn requests_for_both_and_requests_for_one_pass_in_the_order_of_arrival() {
    let first = Interval::every(ms(10)).shared();
    let last = Interval::every(ms(10)).shared();
    let both = Combined::new((first.clone(), last.clone()));
    both.acquire(1).await.unwrap();
    let order = RefCell::new(Vec::new());
    let for_both = async |number: u32| {
        both.acquire(1).await.unwrap();
        order.borrow_mut().push(number);
    };
    let for_one = async |number: u32, limit: &Shared<Interval>| {
        limit.acquire(1).await.unwrap();
        order.borrow_mut().push(number);
    };
    futures::join!(
        for_both(1),
        for_one(2, &last),
        for_both(3),
        for_one(4, &first),
        for_one(5, &last),
    );
    let of = |limit: &[u32]| {
        let passed = order.borrow().clone().into_iter();
        passed
            .filter(|number| limit.contains(number))
            .collect::<Vec<_>>()
    };
    assert_eq!(of(&[1, 3, 4]), [1, 3, 4], "at the first limit");
    assert_eq!(of(&[1, 2, 3, 5]), [1, 2, 3, 5], "at the last limit");
}

#[tokio::test(start_paused = true)]
async fn two_orders_of_the_same_limits_make_full_progress() {
    let limit = || Interval::every(ms(10)).shared();
    let start = now();
    in_two_orders(100, limit(), limit()).await;
    assert_eq!(since(start), 990);

    let (newest, oldest) = (limit().with_newest_first(ms(0)), limit());
    let start = now();
    in_two_orders(7, newest.clone(), oldest.clone()).await;
    assert_eq!(since(start), 60);
    assert_eq!((newest.waiting(), oldest.waiting()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn three_limits_in_a_ring_do_not_wait_for_each_other() {
    let limits = [(); 3].map(|()| Interval::every(ms(10)).shared());
    let calls = (0..90).map(|number| {
        let first = limits[number % 3].clone();
        Combined::new((first, limits[(number + 1) % 3].clone())).acquire(1)
    });
    // Each limit passes 60 of them, and while two pass their requests the third one waits for either.
    let took = spawned(calls).await.into_iter().max().unwrap();
    assert!((590..=890).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_gives_up_is_in_nobodys_way_and_has_counted_nothing() {
    let user = Interval::every(ms(100)).shared();
    let account = Interval::every(ms(300)).shared();
    let both = Combined::new((user.clone(), account.clone()));
    both.acquire(1).await.unwrap();
    sleep(150).await;
    // It would pass at the user, and waits for the account.
    let waiting = queued(both.acquire(1));
    assert_eq!((user.waiting(), account.waiting()), (1, 1));
    assert_eq!(user.try_acquire(1), wait(100), "behind the head");
    drop(waiting);
    assert_eq!((user.waiting(), account.waiting()), (0, 0));
    assert!(user.try_acquire(1).is_pass());
    assert_eq!(account.try_acquire(1), wait(150));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_not_polled_is_passed_over_in_the_end() {
    let user = Interval::every(ms(1)).shared();
    let account = Interval::every(ms(300)).shared();
    let both = Combined::new((user.clone(), account.clone()));
    both.acquire(1).await.unwrap();
    sleep(100).await;
    let kept = queued(both.acquire(1));
    let start = now();
    user.acquire(1).await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 1, "{:?}", start.elapsed());
    account.acquire(1).await.unwrap();
    // It has not lost its place.
    let (kept, behind) = futures::join!(kept.into_inner(), account.acquire(1));
    kept.and(behind).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pause_of_one_limit_is_felt_by_a_request_that_waits_for_the_other() {
    let user = Interval::every(ms(10)).shared();
    let account = Interval::every(ms(300)).shared();
    let both = Combined::new((user.clone(), account.clone()));
    both.acquire(1).await.unwrap();
    let passed = spawned([both.acquire(1)]);
    sleep(100).await;
    user.pause_for(ms(1_000));
    sleep(250).await;
    // It is not in the way at the account, which is open.
    assert!(account.try_acquire(1).is_pass());
    assert_eq!(passed.await, [1_100]);
}

#[tokio::test(start_paused = true)]
async fn the_same_limit_twice_is_charged_the_sum_and_its_wait_is_known_at_once() {
    let limit = FixedWindow::new(5, ms(1_000)).shared();
    let twice = Combined::new((limit.clone(), limit.clone()));
    assert!(twice.try_acquire_each([2, 1]).is_pass());
    assert_eq!(remaining(&limit), 2);
    let start = now();
    let late = twice.acquire_each_within([2, 1], ms(999)).await;
    assert_eq!(late.unwrap_err().retry_in(), Some(ms(1_000)));
    assert_eq!(since(start), 0);
    let in_time = twice.acquire_each_within([2, 1], ms(1_000)).await;
    assert!(in_time.is_ok() && since(start) == 1_000);

    let users = FixedWindow::new(5, ms(1_000)).keyed::<u32>();
    let twice = Combined::new((users.at(1), users.at(1)));
    assert!(twice.try_acquire(2).await.is_pass());
    assert_eq!(users.peek(&1, 2), wait(1_000));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_says_that_the_request_reaches_the_limit_twice() {
    let limit = FixedWindow::new(5, ms(1_000)).shared();
    let users = FixedWindow::new(5, ms(1_000)).keyed::<u32>();
    let wide = FixedWindow::new(500, ms(1_000)).shared();
    let sum =
        "a cost of 6 can never pass a limit of 5 at once: the request reaches this limit 2 times";
    let one = "a cost of 6 can never pass a limit of 5 at once";

    let twice = Combined::new((wide.clone(), limit.clone(), limit.clone()));
    let never = twice.acquire(3).await.unwrap_err();
    assert_eq!(never.to_string(), sum);
    assert_eq!(too_costly(never), (6, 5));
    for (costs, expected) in [([400, 1, 5], sum), ([400, 0, 6], one), ([1, 6, 0], one)] {
        let never = twice.acquire_each(costs).await.unwrap_err();
        let within = twice.acquire_each_within(costs, ms(1)).await.unwrap_err();
        assert_eq!(
            [never, within].map(|never| never.to_string()),
            [expected; 2]
        );
    }

    let keys = Combined::new((users.at(1), wide.clone(), users.at(1)));
    let switched = keys.clone().switched(&Switch::new());
    let observed = Observed::new(keys.clone(), |_: Event| ());
    let (line, dynamic) = (Line::new(keys.clone()), DynLimiter::new(keys.clone()));
    let refusals = [
        keys.acquire(3).await.unwrap_err().to_string(),
        keys.acquire_within(3, ms(1)).await.unwrap_err().to_string(),
        keys.acquire_blocking(3, ms(1)).unwrap_err().to_string(),
        line.acquire(3).await.unwrap_err().to_string(),
        observed.acquire(3).await.unwrap_err().to_string(),
        switched.acquire(3).await.unwrap_err().to_string(),
        dynamic.acquire(3).await.unwrap_err().to_string(),
    ];
    assert_eq!(refusals, [sum; 7]);

    let mut paced = stream::iter([3, 4]).pace_by_cost(keys.clone(), |cost| *cost);
    let never = paced.next().await.unwrap().unwrap_err();
    assert_eq!(never.to_string(), sum);
    let never = paced.next().await.unwrap().unwrap_err();
    assert_eq!(never.cost(), 8, "of the last request");
    assert_eq!((limit.stats().refused, wide.stats().refused), (7, 0));
    let mut sink = sink::drain().pace_sends_by_cost(keys, |cost| *cost);
    let never = sink.send(3_u32).await.unwrap_err();
    assert_eq!(never.to_string(), sum);
    assert_eq!((limit.stats().passed, wide.stats().passed), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn keys_that_find_no_room_wait_for_some() {
    let users = FixedWindow::new(1, ms(500)).keyed::<u32>().with_max_keys(1);
    let account = FixedWindow::new(100, ms(1_000)).shared();
    let limit = |user| Combined::new((users.at(user), account.clone()));
    limit(1).acquire(1).await.unwrap();
    assert!(!limit(2).try_acquire(1).await.is_pass());
    assert_eq!(remaining(&account), 99);
    let start = now();
    limit(2).acquire(1).await.unwrap();
    assert!(since(start) >= 500);
}

/// A thousand requests of one user cause about one wake-up a grant, and not a herd at the account.
#[tokio::test(start_paused = true)]
async fn waiters_of_one_user_do_not_crowd_the_account() {
    let users = Interval::every(ms(10)).keyed::<u32>();
    let account = Interval::every(ms(1)).shared();
    let both = Combined::new((users.at(1), account.clone()));
    let passed = spawned((0..1_000).map(|_| both.acquire(1)));
    let mut most = 0;
    for _ in 0..1_000 {
        most = most.max(account.waiting());
        sleep(10).await;
    }
    assert_eq!(passed.await.len(), 1_000);
    assert!(most <= 1, "{most} at once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn threads_keep_every_bound_and_lose_nothing() {
    let users = TokenBucket::new(Rate::per_second(2_000), 20).keyed::<u32>();
    let account = SlidingLog::new(100, ms(20)).shared();
    let start = now();
    let calls = (0..2_000).map(|number| {
        let user = users.at(number % 7);
        let account = account.clone();
        tokio::spawn(async move {
            if number % 3 == 0 {
                Combined::new((account, user)).acquire(1).await.unwrap();
            } else {
                let call = Combined::new((user, account)).acquire(1);
                if number % 5 == 0 {
                    // Some give up.
                    if tokio::time::timeout(ms(5), call).await.is_err() {
                        return None;
                    }
                } else {
                    call.await.unwrap();
                }
            }
            Some(start.elapsed())
        })
    });
    let mut passed = Vec::new();
    for call in calls.collect::<Vec<_>>() {
        passed.extend(call.await.unwrap());
    }
    passed.sort_unstable();
    assert!(passed.len() >= 1_500);
    // What passes is read a little later than it was counted, so there are no exact bounds here; the sum is exact.
    assert_eq!(account.stats().passed, passed.len() as u64);
    assert_eq!((account.waiting(), users.stats().waiting), (0, 0));
    assert!(passed.last().unwrap() >= &ms(20 * (passed.len() as u64 / 100 - 1)));
}

#[tokio::test(start_paused = true)]
async fn a_try_on_a_queued_handle_keeps_its_place_at_every_limit() {
    let users = Interval::every(ms(100)).keyed::<u8>();
    let account = Interval::every(ms(1)).shared();
    users.acquire_one(1).await;
    let start = now();
    let mut first = Combined::new((users.at(1), account));
    let asked = poll_fn(|cx| Poll::Ready(first.poll_decide(1, cx))).await;
    assert_eq!(asked, Poll::Ready(Ok(wait(100))));
    let second = spawned([users.acquire(1, 1)]);
    tokio::task::yield_now().await;

    let Ok(tried) = poll_fn(|cx| first.poll_try(1, cx)).await;
    assert!(!tried.is_pass());
    sleep(100).await;
    let Ok(passed) = poll_fn(|cx| first.poll_decide(1, cx)).await;
    assert!(passed.is_pass());
    assert_eq!(second.await, [200]);
    assert_eq!(since(start), 200);
}

#[tokio::test(start_paused = true)]
async fn two_orders_do_not_wait_for_each_other_after_a_switch_was_off() {
    let (switch, account) = (Switch::new(), Interval::every(ms(10)).shared());
    let users = Interval::every(ms(10)).keyed::<u8>();
    let one = Combined::new((account.clone(), users.at(1))).switched(&switch);
    let other = Combined::new((users.at(1), account.clone())).switched(&switch);
    let waiting = || (account.waiting(), users.stats().waiting);
    one.acquire(1).await.unwrap();
    let let_go = spawned([one.acquire(1)]);
    tokio::task::yield_now().await;
    switch.set_mode(Mode::Off);
    assert_eq!(let_go.await, [0]);
    assert_eq!(waiting(), (0, 0));

    switch.set_mode(Mode::Active);
    let passed = spawned([one.acquire(1).boxed(), other.acquire(1).boxed()]);
    assert_eq!(passed.await, [10, 20]);
    assert_eq!(waiting(), (0, 0));
}
