//! Limits that pass together or not at all.
#![expect(
    clippy::disallowed_methods,
    reason = "tests measure on tokio's paused clock"
)]

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use futures::future::join_all;
use futures::{FutureExt, SinkExt, StreamExt, sink, stream};
use paceline::limiter::{
    Combined, DynLimiter, Event, Limiter, LimiterExt, Line, Mode, Observed, PolicyExt, Switch,
    SwitchExt,
};
use paceline::policy::{Decision, FixedWindow, Interval, SlidingLog, TokenBucket};
use paceline::sink::PaceSinkExt;
use paceline::stream::PaceStreamExt;
use paceline::time::Rate;
use tokio::time::{Instant, sleep};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn wait(millis: u64) -> Decision {
    Decision::Wait {
        retry_in: ms(millis),
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_one_limit_refuses_is_counted_by_none() {
    let tight = FixedWindow::new(2, ms(1_000)).shared();
    let wide = FixedWindow::new(10, ms(1_000)).shared();
    let both = Combined::new((tight.clone(), wide.clone()));
    assert!(both.try_acquire(2).await.is_pass());
    for _ in 0..5 {
        assert_eq!(both.try_acquire(1).await, wait(1_000));
    }
    assert_eq!(tight.status().unwrap().remaining, 0);
    assert_eq!(wide.status().unwrap().remaining, 8);
    assert_eq!((tight.stats().refused, wide.stats().refused), (5, 5));
    assert_eq!((tight.stats().passed, wide.stats().passed), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn each_limit_has_a_cost_of_its_own() {
    let requests = FixedWindow::new(3, ms(1_000)).shared();
    let tokens = FixedWindow::new(100, ms(500)).shared();
    let call = Combined::new((requests.clone(), tokens.clone()));
    call.acquire_each([1, 70]).await.unwrap();
    assert_eq!(call.try_acquire_each([1, 31]), wait(500));
    assert!(call.try_acquire_each([1, 30]).is_pass());
    let start = Instant::now();
    call.acquire_each([1, 100]).await.unwrap();
    assert_eq!(start.elapsed(), ms(500));
    call.acquire_each([1, 1]).await.unwrap();
    assert_eq!(start.elapsed(), ms(1_000));

    let never = call.acquire_each([1, 101]).await.unwrap_err();
    assert_eq!(
        (
            never.too_costly().unwrap().cost(),
            never.too_costly().unwrap().capacity()
        ),
        (101, 100)
    );
    let never = call.acquire_each([4, 101]).await.unwrap_err();
    assert_eq!(never.too_costly().unwrap().capacity(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_too_long_fails_at_once_and_counts_nothing() {
    let user = Interval::every(ms(100)).shared();
    let account = Interval::every(ms(300)).shared();
    let both = Combined::new((user.clone(), account));
    both.acquire(1).await.unwrap();
    let late = both.acquire_each_within([1, 1], ms(299)).await.unwrap_err();
    assert_eq!(late.retry_in(), Some(ms(300)));
    assert!(user.status().unwrap().remaining == 0 && user.waiting() == 0);
    let start = Instant::now();
    both.acquire_each_within([1, 1], ms(300)).await.unwrap();
    assert_eq!(start.elapsed(), ms(300));
}

#[tokio::test(start_paused = true)]
async fn a_user_above_its_limit_holds_up_no_other_user() {
    let users = Interval::every(ms(1_000)).keyed::<u32>();
    let account = Interval::every(ms(10)).shared();
    let start = Instant::now();
    let call = |user: u32| {
        let limit = Combined::new((users.at(user), account.clone()));
        async move {
            limit.acquire(1).await.unwrap();
            (user, start.elapsed().as_millis())
        }
    };
    let calls = [0, 0, 0, 1, 2, 0, 3].map(call);
    let mut passed = join_all(calls).await;
    passed.sort_unstable_by_key(|(_, at)| *at);
    let expected = [
        (0, 0),
        (1, 10),
        (2, 20),
        (3, 30),
        (0, 1_000),
        (0, 2_000),
        (0, 3_000),
    ];
    assert_eq!(passed, expected);
}

#[tokio::test(start_paused = true)]
async fn requests_for_both_and_requests_for_one_pass_in_the_order_of_arrival() {
    let first = Interval::every(ms(10)).shared();
    let last = Interval::every(ms(10)).shared();
    let both = Combined::new((first.clone(), last.clone()));
    both.acquire(1).await.unwrap();
    let order = std::cell::RefCell::new(Vec::new());
    let note = |name| order.borrow_mut().push(name);
    let one = async {
        both.acquire(1).await.unwrap();
        note("both, 1");
    };
    let two = async {
        last.acquire(1).await.unwrap();
        note("last, 2");
    };
    let three = async {
        both.acquire(1).await.unwrap();
        note("both, 3");
    };
    let four = async {
        first.acquire(1).await.unwrap();
        note("first, 4");
    };
    let five = async {
        last.acquire(1).await.unwrap();
        note("last, 5");
    };
    futures::join!(one, two, three, four, five);
    let order = order.into_inner();
    let of = |limit: &str| {
        let names = order
            .iter()
            .filter(|name| name.starts_with(limit) || name.starts_with("both"));
        names
            .map(|name| name.split(' ').nth(1).unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(of("last"), ["1", "2", "3", "5"]);
    assert_eq!(of("first"), ["1", "3", "4"]);
}

#[tokio::test(start_paused = true)]
async fn two_orders_of_the_same_limits_make_full_progress() {
    let a = Interval::every(ms(10)).shared();
    let b = Interval::every(ms(10)).shared();
    let start = Instant::now();
    let tasks = (0..100).map(|number| {
        let (a, b) = (a.clone(), b.clone());
        async move {
            if number % 2 == 0 {
                Combined::new((a, b)).acquire(1).await.unwrap();
            } else {
                Combined::new((b, a)).acquire(1).await.unwrap();
            }
        }
    });
    join_all(tasks).await;
    assert_eq!(start.elapsed(), ms(990));
}

#[tokio::test(start_paused = true)]
async fn three_limits_in_a_ring_do_not_wait_for_each_other() {
    let limits = [(); 3].map(|()| Interval::every(ms(10)).shared());
    let start = Instant::now();
    let tasks = (0..90).map(|number| {
        let first = limits[number % 3].clone();
        let second = limits[(number + 1) % 3].clone();
        async move { Combined::new((first, second)).acquire(1).await.unwrap() }
    });
    join_all(tasks).await;
    // Each limit passes 60 of them, and while two pass their requests the third one waits for either.
    let took = start.elapsed();
    assert!(took >= ms(590) && took <= ms(890), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_gives_up_is_in_nobodys_way_and_has_counted_nothing() {
    let user = Interval::every(ms(100)).shared();
    let account = Interval::every(ms(300)).shared();
    let both = Combined::new((user.clone(), account.clone()));
    both.acquire(1).await.unwrap();
    sleep(ms(150)).await;
    // It would pass at the user, and waits for the account.
    let mut waiting = Box::pin(both.acquire(1));
    assert!(waiting.as_mut().now_or_never().is_none());
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
    sleep(ms(100)).await;
    let mut kept = Box::pin(both.acquire(1));
    assert!(kept.as_mut().now_or_never().is_none());
    let start = Instant::now();
    user.acquire(1).await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 1, "{:?}", start.elapsed());
    account.acquire(1).await.unwrap();
    // It has not lost its place.
    let behind = account.acquire(1);
    let ((), behind) = futures::join!(async { kept.await.unwrap() }, behind);
    behind.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pause_of_one_limit_is_felt_by_a_request_that_waits_for_the_other() {
    let user = Interval::every(ms(10)).shared();
    let account = Interval::every(ms(300)).shared();
    let both = Combined::new((user.clone(), account.clone()));
    both.acquire(1).await.unwrap();
    let start = Instant::now();
    let waiting = tokio::spawn(both.acquire(1));
    sleep(ms(100)).await;
    user.pause_for(ms(1_000));
    sleep(ms(250)).await;
    // It is not in the way at the account, which is open.
    assert!(account.try_acquire(1).is_pass());
    waiting.await.unwrap().unwrap();
    assert_eq!(start.elapsed(), ms(1_100));
}

#[tokio::test(start_paused = true)]
async fn the_same_limit_twice_is_charged_the_sum() {
    let limit = FixedWindow::new(5, ms(1_000)).shared();
    let twice = Combined::new((limit.clone(), limit.clone()));
    assert!(twice.try_acquire_each([2, 1]).is_pass());
    assert_eq!(limit.status().unwrap().remaining, 2);
    let start = Instant::now();
    twice.acquire_each([2, 1]).await.unwrap();
    assert_eq!(start.elapsed(), ms(1_000));
    assert!(
        twice
            .acquire(3)
            .await
            .unwrap_err()
            .too_costly()
            .unwrap()
            .capacity()
            == 5
    );

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
    assert_eq!(never.too_costly().unwrap().cost(), 6);
    let never = twice.acquire_each([400, 1, 5]).await.unwrap_err();
    assert_eq!(never.to_string(), sum);
    let never = twice.acquire_each([400, 0, 6]).await.unwrap_err();
    assert_eq!(never.to_string(), one);
    let never = twice
        .acquire_each_within([1, 6, 0], ms(1))
        .await
        .unwrap_err();
    assert_eq!(never.to_string(), one);

    let keys = Combined::new((users.at(1), wide.clone(), users.at(1)));
    assert_eq!(keys.acquire(3).await.unwrap_err().to_string(), sum);
    let never = keys.acquire_within(3, ms(1)).await.unwrap_err();
    assert_eq!(never.to_string(), sum);
    let never = keys.acquire_blocking(3, ms(1)).unwrap_err();
    assert_eq!(never.to_string(), sum);
    let line = Line::new(keys.clone());
    assert_eq!(line.acquire(3).await.unwrap_err().to_string(), sum);
    let observed = Observed::new(keys.clone(), |_: Event| ());
    assert_eq!(observed.acquire(3).await.unwrap_err().to_string(), sum);
    let switched = keys.clone().switched(&Switch::new());
    assert_eq!(switched.acquire(3).await.unwrap_err().to_string(), sum);
    let dynamic = DynLimiter::new(keys.clone());
    assert_eq!(dynamic.acquire(3).await.unwrap_err().to_string(), sum);

    let mut paced = stream::iter([3, 4]).pace_by_cost(keys.clone(), |cost| *cost);
    let never = paced.next().await.unwrap().unwrap_err();
    assert_eq!(never.to_string(), sum);
    let never = paced.next().await.unwrap().unwrap_err();
    assert_eq!(never.cost(), 8, "of the last request");
    assert_eq!((limit.stats().refused, wide.stats().refused), (4, 0));
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
    assert_eq!(account.status().unwrap().remaining, 99);
    let start = Instant::now();
    limit(2).acquire(1).await.unwrap();
    assert!(start.elapsed() >= ms(500));
}

#[tokio::test(start_paused = true)]
async fn a_stream_keeps_every_bound() {
    let spacing = Interval::every(ms(50)).shared();
    let window = FixedWindow::new(2, ms(1_000)).shared();
    let start = Instant::now();
    let paced = stream::iter(0..4).pace(Combined::new((spacing, window)));
    let at: Vec<_> = paced.map(|_| start.elapsed().as_millis()).collect().await;
    assert_eq!(at, [0, 50, 1_000, 1_050]);
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_is_late_keeps_the_spacing() {
    let first = Interval::every(ms(50)).shared();
    let last = Interval::every(ms(20)).shared();
    let start = Instant::now();
    let mut paced = Box::pin(stream::iter(0..4).pace(Combined::new((first, last))));
    let mut at = Vec::new();
    while paced.next().await.is_some() {
        at.push(start.elapsed().as_millis());
        if at.len() == 2 {
            sleep(ms(130)).await;
        }
    }
    assert_eq!(at, [0, 50, 180, 230]);
}

/// A thousand requests of one user cause about one wake-up a grant, and not a herd at the account.
#[tokio::test(start_paused = true)]
async fn waiters_of_one_user_do_not_crowd_the_account() {
    let users = Interval::every(ms(10)).keyed::<u32>();
    let account = Interval::every(ms(1)).shared();
    let calls = (0..1_000).map(|_| {
        let limit = Combined::new((users.at(1), account.clone()));
        tokio::spawn(limit.acquire(1))
    });
    let calls: Vec<_> = calls.collect();
    let mut most = 0;
    for _ in 0..1_000 {
        most = most.max(account.waiting());
        sleep(ms(10)).await;
    }
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert!(most <= 1, "{most} at once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn threads_keep_every_bound_and_lose_nothing() {
    let users = TokenBucket::new(Rate::per_second(2_000), 20).keyed::<u32>();
    let account = SlidingLog::new(100, ms(20)).shared();
    let start = Instant::now();
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
async fn a_wait_for_the_same_limit_twice_is_known_at_once() {
    let limit = TokenBucket::new(Rate::per_second(10), 10).shared();
    let twice = Combined::new((limit.clone(), limit.clone()));
    twice.acquire(5).await.unwrap();
    let start = Instant::now();
    let refused = twice.acquire_each_within([2, 2], ms(399)).await;
    assert_eq!(refused.unwrap_err().retry_in(), Some(ms(400)));
    assert_eq!(start.elapsed(), ms(0));
    twice.acquire_each_within([2, 2], ms(400)).await.unwrap();
    assert_eq!(start.elapsed(), ms(400));
}

#[tokio::test(start_paused = true)]
async fn a_try_on_a_queued_handle_keeps_its_place_at_every_limit() {
    let users = Interval::every(ms(100)).keyed::<u8>();
    let account = Interval::every(ms(1)).shared();
    users.acquire_one(1).await;
    let start = Instant::now();
    let mut first = Combined::new((users.at(1), account));
    let queued = poll_fn(|cx| Poll::Ready(first.poll_decide(1, cx))).await;
    assert_eq!(queued, Poll::Ready(Ok(wait(100))));
    let second = tokio::spawn(users.acquire_one(1));
    tokio::task::yield_now().await;

    let Ok(tried) = poll_fn(|cx| first.poll_try(1, cx)).await;
    assert!(!tried.is_pass());
    sleep(ms(100)).await;
    let Ok(passed) = poll_fn(|cx| first.poll_decide(1, cx)).await;
    assert!(passed.is_pass());
    second.await.unwrap();
    assert_eq!(start.elapsed(), ms(200));
}

#[tokio::test(start_paused = true)]
async fn two_orders_do_not_wait_for_each_other_where_the_newest_is_first() {
    let newest = Interval::every(ms(10)).shared().with_newest_first(ms(0));
    let oldest = Interval::every(ms(10)).shared();
    newest.acquire_one().await;
    oldest.acquire_one().await;
    let start = Instant::now();
    let calls = join_all((0..6).map(|number| {
        let (newest, oldest) = (newest.clone(), oldest.clone());
        async move {
            sleep(Duration::from_micros(number)).await;
            if number % 2 == 0 {
                Combined::new((oldest, newest)).acquire(1).await.unwrap();
            } else {
                Combined::new((newest, oldest)).acquire(1).await.unwrap();
            }
        }
    }));
    calls.await;
    assert_eq!(start.elapsed(), ms(60));
    assert_eq!((newest.waiting(), oldest.waiting()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn two_orders_do_not_wait_for_each_other_after_a_switch_was_off() {
    let (switch, account) = (Switch::new(), Interval::every(ms(10)).shared());
    let users = Interval::every(ms(10)).keyed::<u8>();
    let one = Combined::new((account.clone(), users.at(1))).switched(&switch);
    let other = Combined::new((users.at(1), account.clone())).switched(&switch);
    one.acquire(1).await.unwrap();
    let start = Instant::now();
    let let_go = tokio::spawn(one.acquire(1));
    tokio::task::yield_now().await;
    switch.set_mode(Mode::Off);
    let_go.await.unwrap().unwrap();
    assert_eq!((account.waiting(), users.stats().waiting), (0, 0));

    switch.set_mode(Mode::Active);
    let (first, second) = (tokio::spawn(one.acquire(1)), tokio::spawn(other.acquire(1)));
    first.await.unwrap().unwrap();
    second.await.unwrap().unwrap();
    assert_eq!(start.elapsed(), ms(20));
    assert_eq!((account.waiting(), users.stats().waiting), (0, 0));
}
