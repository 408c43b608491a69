//! A limit whose rate follows the outcomes of calls.

use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use futures::StreamExt;
use futures::future::join_all;
use paceline::feedback::Feedback;
use paceline::limiter::{
    AdaptiveRate, AdditiveIncrease, CallOutcome, Event, HoldAndProbe, Limiter, Line, Obey,
    Observed, RateCall, RateRule, Switch, SwitchExt,
};
use paceline::policy::{Interval, SlidingLog, TokenBucket};
use paceline::prelude::*;
use paceline::time::{Rate, Tick};
use testkit::wakes::Driven;

use crate::timed::{ms, now, since, sleep};

/// 10 calls a second, before the first refusal.
fn ten_a_second() -> AdaptiveRate<HoldAndProbe> {
    let rule = HoldAndProbe::new(Rate::per_second(1), Rate::per_second(10));
    AdaptiveRate::new(rule.with_start(Rate::per_second(10)))
}

/// Refused after a second, so that the limit lets one call pass at a time.
async fn refused() -> AdaptiveRate<HoldAndProbe> {
    let rate = ten_a_second();
    for _ in 0..10 {
        rate.call().await.accepted();
    }
    rate.call().await.refused(None);
    rate
}

#[tokio::test(start_paused = true)]
async fn one_call_at_a_time_until_one_is_accepted() {
    let rate = refused().await;
    let start = now();
    let mut one = Driven::new(rate.call());
    let mut two = Driven::new(rate.call());
    assert!(one.poll().is_pending() && two.poll().is_pending());
    sleep(1_000).await;
    let one = ready(one.poll());
    assert!(two.poll().is_pending() && rate.try_call().is_none());
    sleep(10_000).await;
    assert!(two.poll().is_pending());

    one.accepted();
    let _two = ready(two.poll());
    assert_eq!(since(start), 11_000);
    sleep(1_000).await;
    assert!(rate.try_call().is_some());
}

fn ready(poll: Poll<RateCall>) -> RateCall {
    match poll {
        Poll::Ready(call) => call,
        Poll::Pending => panic!("it waits"),
    }
}

#[tokio::test(start_paused = true)]
async fn the_wait_after_refusals_in_a_row_doubles_up_to_15_seconds_and_a_longer_retry_after_is_obeyed()
 {
    let rate = refused().await;
    let mut waits = Vec::new();
    for _ in 0..9 {
        let start = now();
        rate.call().await.refused(None);
        waits.push(since(start));
    }
    let first = waits.remove(0);
    assert_eq!(first, 112, "no wait but that of 9 calls a second");
    let expected = [250, 500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000];
    assert_eq!(waits, expected);

    let start = now();
    rate.call().await.refused(Some(ms(40_000)));
    rate.call().await.refused(None);
    assert_eq!(since(start), 55_000);
}

#[tokio::test(start_paused = true)]
async fn the_waiters_keep_their_order() {
    let rate = refused().await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let tasks = (0..5).map(|n| {
        let (rate, order) = (rate.clone(), Arc::clone(&order));
        tokio::spawn(async move {
            let call = rate.call().await;
            order.lock().unwrap().push(n);
            sleep(50).await;
            if n < 2 {
                call.refused(None);
            } else {
                call.accepted();
            }
        })
    });
    join_all(tasks.collect::<Vec<_>>()).await;
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_cancelled_gives_its_turn_to_the_next() {
    let rate = refused().await;
    let call = rate.call().await;
    let next = tokio::spawn({
        let rate = rate.clone();
        async move { rate.call().await.accepted() }
    });
    sleep(5_000).await;
    assert!(!next.is_finished());
    drop(call);
    next.await.unwrap();
    assert_eq!(rate.rule().one_at_a_time(), None);
}

#[tokio::test(start_paused = true)]
async fn calls_that_say_nothing_let_no_rate_grow() {
    let (floor, ceiling) = (Rate::per_second(1), Rate::per_second(1_000));
    let hold = AdaptiveRate::new(HoldAndProbe::new(floor, ceiling));
    let additive = AdaptiveRate::new(AdditiveIncrease::new(floor, ceiling));
    for _ in 0..100 {
        drop(hold.call().await);
        drop(additive.call().await);
    }
    for rate in [hold.calls_per_second(), additive.calls_per_second()] {
        assert_eq!(rate.to_string(), "1");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_with_a_deadline_waits_for_the_outcome_of_the_call_before_it() {
    let rate = refused().await;
    sleep(1_000).await;
    let one = rate.call().await;
    let start = now();
    let mut two = Driven::new(rate.call_within(ms(500)));
    let mut late = Driven::new(rate.call_within(ms(100)));
    assert!(two.poll().is_pending() && late.poll().is_pending());
    sleep(400).await;
    assert!(matches!(late.poll(), Poll::Ready(Err(error)) if error.is_too_late()));
    one.accepted();
    assert!(matches!(two.poll(), Poll::Ready(Ok(_))));
    assert_eq!(since(start), 400);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_cancelled_takes_no_turn() {
    let rate = refused().await;
    let mut waits = Driven::new(rate.call());
    assert!(waits.poll().is_pending());
    drop(waits);
    sleep(1_000).await;
    assert!(rate.try_call().is_some());
    assert_eq!(rate.limit().stats().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn a_turn_whose_call_never_began_is_over_after_a_minute() {
    let rate = refused().await;
    let start = now();
    rate.acquire_one().await;
    rate.acquire_one().await;
    assert_eq!(since(start), 60_000);
}

#[tokio::test(start_paused = true)]
async fn calls_that_were_under_way_at_a_refusal_change_nothing() {
    let rate = ten_a_second();
    let calls = [rate.call().await, rate.call().await, rate.call().await];
    let [first, second, third] = calls;
    first.refused(None);
    let cut = rate.calls_per_second();
    second.refused(None);
    third.accepted();
    assert_eq!(rate.calls_per_second().to_bits(), cut.to_bits());
    assert!(rate.rule().one_at_a_time().is_some());
    sleep(1_000).await;
    let _alone = rate.try_call().unwrap();
    sleep(1_000).await;
    assert!(rate.try_call().is_none());
}

#[tokio::test(start_paused = true)]
async fn the_limit_moves_only_if_the_rate_has_moved_by_a_hundredth() {
    /// What it is told.
    struct Told(f64);
    impl RateRule for Told {
        fn observe(&mut self, _: Tick, _: Tick, outcome: CallOutcome) {
            self.0 *= match outcome {
                CallOutcome::Accepted => 1.004,
                _ => f64::NAN,
            };
        }
        fn rate(&self, _: Tick) -> f64 {
            self.0
        }
    }
    let retunes = Arc::new(Mutex::new(0));
    let count = Arc::clone(&retunes);
    let limit = Interval::every(ms(1))
        .shared()
        .with_observer(move |event: Event| {
            *count.lock().unwrap() += u32::from(event == Event::Retuned);
        });
    let rate = AdaptiveRate::around(limit, Told(100.0), Interval::from_rate);
    for _ in 0..6 {
        rate.call().await.accepted();
    }
    // At first, after three steps and after six.
    assert_eq!(*retunes.lock().unwrap(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_quota_in_the_headers_is_the_rate_at_once() {
    let rule = HoldAndProbe::new(Rate::per_second(1), Rate::per_second(1_000));
    let rate = AdaptiveRate::new(rule);
    let headers = [("RateLimit-Policy", r#""default";q=6000;w=60"#)];
    let feedback = Feedback::parse(headers, Duration::ZERO);
    rate.call().await.answered(false, &feedback);
    assert_eq!(rate.calls_per_second().to_string(), "97");
    let start = now();
    for _ in 0..97 {
        rate.call().await.answered(false, &feedback);
    }
    // A paused clock has whole milliseconds, and 97 a second are 10.3 ms.
    assert_eq!(since(start), 97 * 11);
}

#[tokio::test(start_paused = true)]
async fn a_stream_finds_the_rate() {
    let provider = SlidingLog::new(20, ms(1_000)).shared();
    let rule = HoldAndProbe::new(Rate::per_second(1), Rate::per_second(1_000));
    let rate = AdaptiveRate::new(rule);
    let calls = futures::stream::iter(0..2_000).pace(rate.clone()).map(|n| {
        let (call, provider) = (rate.begin(), provider.clone());
        async move {
            sleep(20).await;
            if provider.try_acquire(1).is_pass() {
                call.accepted();
            } else {
                call.refused(None);
            }
            n
        }
    });
    let start = now();
    assert_eq!(calls.buffer_unordered(10).count().await, 2_000);
    let took = since(start);
    assert!(
        took < 115_000,
        "{took} ms, and 100,000 for a client that knows the limit"
    );
    assert!(provider.stats().refused <= 10, "{:?}", provider.stats());
}

#[tokio::test(start_paused = true)]
async fn an_unused_rate_does_not_grow() {
    let rule = AdditiveIncrease::new(Rate::per_second(10), Rate::per_second(100));
    let rate = AdaptiveRate::new(rule);
    for _ in 0..50 {
        rate.call().await.accepted();
        sleep(500).await;
    }
    assert_eq!(rate.calls_per_second().to_string(), "10");
    for _ in 0..100 {
        rate.call().await.accepted();
    }
    assert!(rate.calls_per_second() > 11.0);
}

#[tokio::test(start_paused = true)]
async fn another_policy_follows_the_rate_too() {
    let rule = HoldAndProbe::new(Rate::per_second(1), Rate::per_second(10));
    let limit = TokenBucket::new(Rate::per_second(1), 20).shared();
    let rule = rule.with_start(Rate::per_second(10));
    let rate = AdaptiveRate::around(limit, rule, |rate| TokenBucket::new(rate, 20));
    for _ in 0..19 {
        rate.try_call().unwrap().accepted();
    }
    rate.call().await.refused(None);
    let start = now();
    rate.call().await.accepted();
    assert_eq!(since(start), 112, "9 calls a second");
}

#[tokio::test]
async fn reports_of_many_threads_are_all_applied() {
    /// Each call that is accepted adds to it.
    struct Counting(f64);
    impl RateRule for Counting {
        fn observe(&mut self, _: Tick, _: Tick, _: CallOutcome) {
            self.0 += 1_000.0;
        }
        fn rate(&self, _: Tick) -> f64 {
            self.0
        }
    }
    let last = Arc::new(Mutex::new(Rate::per_day(1)));
    let seen = Arc::clone(&last);
    let limit = Interval::every(ms(1)).shared();
    let rate = AdaptiveRate::around(limit, Counting(1_000.0), move |rate| {
        *seen.lock().unwrap() = rate;
        Interval::from_rate(rate)
    });
    let threads = [(); 8].map(|()| {
        let rate = rate.clone();
        std::thread::spawn(move || (0..500).for_each(|_| rate.begin().accepted()))
    });
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(rate.calls_per_second().to_string(), "4001000");
    let period = last.lock().unwrap().period();
    assert!(period <= Duration::from_nanos(252), "{period:?}");
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_allows_nothing_or_no_number_is_asked_once_a_day() {
    struct Allows(f64);
    impl RateRule for Allows {
        fn observe(&mut self, _: Tick, _: Tick, _: CallOutcome) {}
        fn rate(&self, _: Tick) -> f64 {
            self.0
        }
    }
    for rate in [0.0, -1.0, f64::NAN, f64::NEG_INFINITY] {
        let rate = AdaptiveRate::new(Allows(rate));
        rate.call().await.accepted();
        let start = now();
        rate.call().await.accepted();
        assert_eq!(since(start), 86_400_000);
    }
    let rate = AdaptiveRate::new(Allows(f64::INFINITY));
    rate.call().await.accepted();
    rate.call_within(ms(1)).await.unwrap().accepted();
}

#[tokio::test(start_paused = true)]
async fn limiters_around_it_begin_its_calls() {
    let rate = ten_a_second();
    let observed = Observed::new(rate.clone(), |_: Event| ());
    let switched = rate.clone().switched(&Switch::new());
    let line = Line::new(rate.clone());
    let begun = [
        Obey::begin(&observed),
        Obey::begin(&switched),
        Obey::begin(&line),
    ];
    assert!(begun.iter().all(Option::is_some));
    assert!(Obey::begin(rate.limit()).is_none());
    assert!(observed.status().is_some());
}
