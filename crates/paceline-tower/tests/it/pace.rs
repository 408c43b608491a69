use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::tower::{Layer, Service, ServiceExt, service_fn};
use futures::FutureExt;
use futures::future::join_all;
use paceline::limiter::{Event, Observed, PolicyExt, Shared, Switch, Switched};
use paceline::policy::{Interval, TokenBucket};
use paceline::time::Rate;
use paceline_tower::PaceLayer;
use testkit::clock::{Stopwatch, jump};
use testkit::probe::service::Inner;
use testkit::wakes::Driven;

use super::enforce::Budgeted;
use super::{Remote, call, echo, per_second};
use crate::timed::{ms, sleep};

type Times = Arc<Mutex<Vec<(u32, u128)>>>;

/// A service that notes the request and the time of each call.
fn noting(
    times: &Times,
) -> impl Service<u32, Response = (), Error = (), Future: Send> + Clone + use<> {
    let (times, watch) = (Arc::clone(times), Stopwatch::start());
    service_fn(move |n| {
        times.lock().unwrap().push((n, watch.elapsed_ms()));
        async { Ok(()) }
    })
}

fn every(millis: u64) -> Shared<Interval> {
    Interval::every(ms(millis)).shared()
}

#[tokio::test(start_paused = true)]
async fn requests_wait_and_pass_in_order_at_exact_times() {
    let times = Times::default();
    let service = PaceLayer::new(every(100)).layer(noting(&times));
    join_all((0..4).map(|n| service.clone().oneshot(n))).await;
    let times = times.lock().unwrap();
    assert_eq!(*times, [(0, 0), (1, 100), (2, 200), (3, 300)]);
}

#[tokio::test(start_paused = true)]
async fn it_is_ready_at_once_and_makes_the_inner_service_ready_after_the_limit() {
    let inner = Inner::new();
    inner.set_ready(false);
    let limit = every(100);
    let mut service = PaceLayer::new(limit.clone()).layer(inner.clone());
    limit.acquire(1).await.unwrap();

    assert!(
        ServiceExt::<u32>::ready(&mut service)
            .now_or_never()
            .is_some()
    );
    let mut response = Driven::new(service.call(0));
    assert!(response.poll().is_pending());
    inner.set_ready(true);
    assert!(response.poll().is_pending());
    assert_eq!(
        inner.used().reserved,
        0,
        "it reserves nothing while it waits"
    );
    inner.set_ready(false);

    sleep(100).await;
    assert!(response.poll().is_pending());
    assert_eq!(limit.stats().passed, 2);
    assert_eq!(inner.used().calls, 0);
    inner.set_ready(true);
    assert!(response.is_woken());
    assert!(response.poll().is_ready());
    let used = inner.used();
    assert_eq!((used.calls, used.calls_unready, used.reserved), (1, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn to_be_ready_takes_nothing_and_an_idle_clone_delays_no_request() {
    let limit = every(100);
    let service = PaceLayer::new(limit.clone()).layer(echo());
    let mut idle: Vec<_> = (0..100).map(|_| service.clone()).collect();
    for service in &mut idle {
        service.ready().await.unwrap();
    }
    // Futures that are never polled take nothing either.
    let unpolled: Vec<_> = idle.iter_mut().map(|service| service.call(0)).collect();
    let watch = Stopwatch::start();
    call(&mut service.clone(), 0).await.unwrap();
    call(&mut service.clone(), 0).await.unwrap();
    assert_eq!(watch.elapsed_ms(), 100);
    drop(unpolled);
    assert_eq!(limit.stats().passed, 2);
}

#[tokio::test(start_paused = true)]
async fn of_1_500_requests_over_100_clones_on_5_a_second_5_pass_within_a_moment() {
    let layer = PaceLayer::new(per_second(5)).within(ms(1));
    let service = layer.layer(echo());
    let watch = Stopwatch::start();
    let calls = (0..1_500).map(|n| service.clone().oneshot(n));
    let passed = join_all(calls).await.iter().filter(|r| r.is_ok()).count();
    assert_eq!((passed, watch.elapsed_ms()), (5, 0));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_pass_in_time_is_refused_at_once_and_says_when() {
    let limit = every(100);
    let service = PaceLayer::new(limit.clone()).within(ms(150)).layer(echo());
    let watch = Stopwatch::start();
    let calls = (0..4).map(|n| {
        service
            .clone()
            .oneshot(n)
            .map(|done| (watch.elapsed_ms(), done))
    });
    let done = join_all(calls).await;
    let times: Vec<_> = done.iter().map(|(at, done)| (*at, done.is_ok())).collect();
    assert_eq!(times, [(0, true), (100, true), (0, false), (0, false)]);
    let error = done[3].1.as_ref().unwrap_err();
    assert!(error.is_too_late());
    assert_eq!(error.retry_in(), Some(ms(200)));
    assert_eq!(error.to_string(), "could not pass within 150ms");
    assert_eq!((limit.stats().passed, limit.stats().refused), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_key_an_observer_and_a_switch_know_at_once_what_is_too_late() {
    let users = Interval::every(ms(100)).keyed::<u32>();
    let by_key = PaceLayer::by_key(users, |n: &u32| Some(*n)).within(ms(99));
    let observed = Observed::new(every(100), |_: Event| ());
    let observed = PaceLayer::new(observed).within(ms(99));
    let switched = Switched::new(every(100), Switch::new());
    let switched = PaceLayer::new(switched).within(ms(99));
    let watch = Stopwatch::start();
    let (mut by_key, mut observed) = (by_key.layer(echo()), observed.layer(echo()));
    let mut switched = switched.layer(echo());
    assert!(call(&mut switched, 0).await.is_ok());
    assert!(call(&mut switched, 0).await.unwrap_err().is_too_late());
    assert!(call(&mut by_key, 0).await.is_ok());
    assert!(call(&mut by_key, 0).await.unwrap_err().is_too_late());
    assert!(call(&mut observed, 0).await.is_ok());
    assert!(call(&mut observed, 0).await.unwrap_err().is_too_late());
    assert_eq!(watch.elapsed_ms(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_turns_out_too_late_is_refused_when_the_time_is_over() {
    let limit = every(100);
    let service = PaceLayer::new(limit.clone()).within(ms(150)).layer(echo());
    call(&mut service.clone(), 0).await.unwrap();
    let waiting = tokio::spawn(service.oneshot(1));
    tokio::task::yield_now().await;
    let watch = Stopwatch::start();
    limit.pause_for(ms(400));
    let error = waiting.await.unwrap().unwrap_err();
    assert!(error.is_too_late());
    assert_eq!(watch.elapsed_ms(), 150);
    assert_eq!(error.retry_in(), Some(ms(250)));
    assert_eq!(limit.stats().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_never_comes_is_too_late() {
    let layer = PaceLayer::new(Remote::refusing_after(0, Duration::MAX)).within(ms(30));
    let watch = Stopwatch::start();
    let error = call(&mut layer.layer(echo()), 0).await.unwrap_err();
    assert!(error.is_too_late());
    assert_eq!((watch.elapsed_ms(), error.retry_in()), (30, None));
}

#[tokio::test(start_paused = true)]
async fn without_a_place_an_answer_that_never_comes_is_too_late_too() {
    let silent = Remote::silent();
    let service = PaceLayer::new(silent)
        .max_waiting(1)
        .within(ms(30))
        .layer(echo());
    let watch = Stopwatch::start();
    let calls = (0..2).map(|n| service.clone().oneshot(n));
    for done in join_all(calls).await {
        assert!(done.unwrap_err().is_too_late());
    }
    assert_eq!(watch.elapsed_ms(), 30);
}

#[tokio::test(start_paused = true)]
async fn no_more_requests_wait_than_there_are_places() {
    let limit = every(100);
    let service = PaceLayer::new(limit.clone()).max_waiting(2).layer(echo());
    let watch = Stopwatch::start();
    let calls = (0..5).map(|n| {
        service
            .clone()
            .oneshot(n)
            .map(|done| (watch.elapsed_ms(), done))
    });
    let done = join_all(calls).await;
    let times: Vec<_> = done.iter().map(|(at, done)| (*at, done.is_ok())).collect();
    assert_eq!(
        times,
        [(0, true), (100, true), (200, true), (0, false), (0, false)]
    );
    let error = done[4].1.as_ref().unwrap_err();
    assert!(error.is_no_room() && !error.refusal().unwrap().is_quota_exceeded());
    assert_eq!(error.retry_in(), Some(ms(300)));
    assert_eq!(error.to_string(), "too many requests are under way");

    // The places are free again.
    let done = join_all((0..3).map(|n| service.clone().oneshot(n))).await;
    assert_eq!(done.iter().filter(|done| done.is_ok()).count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_wait_leaves_its_place() {
    let layer = PaceLayer::new(every(100)).max_waiting(1);
    let service = layer.layer(echo());
    call(&mut service.clone(), 0).await.unwrap();
    for _ in 0..10 {
        let mut waiting = Driven::new(service.clone().oneshot(1));
        assert!(waiting.poll().is_pending());
        assert!(
            call(&mut service.clone(), 2)
                .await
                .unwrap_err()
                .is_no_room()
        );
    }
    assert!(call(&mut service.clone(), 3).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn of_100_000_calls_in_one_task_none_is_shed_while_there_is_room() {
    let bucket = TokenBucket::new(Rate::per_second(1), 100_000).shared();
    let in_memory = PaceLayer::new(bucket).max_waiting(1).layer(echo());
    let by_budget = PaceLayer::new(Budgeted).max_waiting(1).layer(echo());
    for _ in 0..100 {
        let calls = (0..1_000).map(|n| in_memory.clone().oneshot(n));
        assert!(join_all(calls).await.iter().all(Result::is_ok));
        let calls = (0..1_000).map(|n| by_budget.clone().oneshot(n));
        assert!(join_all(calls).await.iter().all(Result::is_ok));
    }
}

#[tokio::test(start_paused = true)]
async fn cancelled_calls_leave_no_trace() {
    let limit = every(100);
    let service = PaceLayer::new(limit.clone()).layer(echo());
    call(&mut service.clone(), 0).await.unwrap();
    for polls in 0..3 {
        let calls = (0..50).map(|n| Driven::new(service.clone().oneshot(n)));
        let mut calls: Vec<_> = calls.collect();
        for _ in 0..polls {
            assert!(calls.iter_mut().all(|call| call.poll().is_pending()));
        }
        drop(calls);
        assert_eq!(limit.stats().waiting, 0);
    }
    let watch = Stopwatch::start();
    call(&mut service.clone(), 0).await.unwrap();
    assert_eq!(watch.elapsed_ms(), 100);
    assert_eq!(limit.stats().passed, 2);
}

#[tokio::test(start_paused = true)]
async fn an_observed_limit_reports_each_request_once() {
    let reports = Arc::new(Mutex::new([0; 3]));
    let send = Arc::clone(&reports);
    let observer = move |event: Event| {
        let of = match event {
            Event::Passed { .. } => 0,
            Event::Refused { .. } => 1,
            _ => 2,
        };
        send.lock().unwrap()[of] += 1;
    };
    let layer = PaceLayer::new(Observed::new(every(100), observer));
    let service = layer.within(ms(250)).max_waiting(1).layer(echo());
    let mut calls: Vec<_> = (0..5)
        .map(|n| Driven::new(service.clone().oneshot(n)))
        .collect();
    let ready = calls.iter_mut().map(|call| call.poll().is_ready());
    // One passes, one waits, and for the others there is no place.
    assert_eq!(ready.collect::<Vec<_>>(), [true, false, true, true, true]);
    drop(calls);
    assert_eq!(*reports.lock().unwrap(), [1, 3, 1]);
}

#[tokio::test(start_paused = true)]
async fn after_a_late_wake_up_requests_keep_their_spacing() {
    let times = Times::default();
    let service = PaceLayer::new(every(100)).layer(noting(&times));
    let calls: Vec<_> = (0..4)
        .map(|n| tokio::spawn(service.clone().oneshot(n)))
        .collect();
    sleep(50).await;
    jump(ms(230)).await;
    join_all(calls).await;
    let times: Vec<u128> = times.lock().unwrap().iter().map(|(_, at)| *at).collect();
    assert_eq!(times, [0, 280, 380, 480]);
}

#[tokio::test(start_paused = true)]
async fn keys_do_not_wait_for_each_other() {
    let users = Interval::every(ms(100)).keyed::<u32>();
    let layer = PaceLayer::by_key(users, |n: &u32| Some(n % 2));
    let times = Times::default();
    let service = layer.layer(noting(&times));
    join_all((0..6).map(|n| service.clone().oneshot(n))).await;
    let times = times.lock().unwrap();
    assert_eq!(
        *times,
        [(0, 0), (1, 0), (2, 100), (3, 100), (4, 200), (5, 200)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_cost_is_waited_for_and_too_much_is_refused() {
    let layer = PaceLayer::new(per_second(5)).costing(|cost: &u32| *cost);
    let service = layer.layer(echo());
    let watch = Stopwatch::start();
    for cost in [5, 4] {
        call(&mut service.clone(), cost).await.unwrap();
    }
    assert_eq!(watch.elapsed_ms(), 800);
    assert!(
        call(&mut service.clone(), 6)
            .await
            .unwrap_err()
            .is_too_costly()
    );
    assert_eq!(watch.elapsed_ms(), 800);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_under_way_is_waited_for() {
    let service = PaceLayer::new(Remote::passing_after(5)).layer(echo());
    let polls = testkit::wakes::count_polls(service.oneshot(7));
    let count = polls.polls();
    assert_eq!(polls.await.unwrap(), 7);
    assert_eq!(count.count(), 6);
}

#[test]
fn it_works_outside_a_runtime_until_it_has_to_wait() {
    let mut service = PaceLayer::new(per_second(2)).layer(echo());
    for _ in 0..2 {
        assert!(call(&mut service, 0).now_or_never().unwrap().is_ok());
    }
    let waits = catch_unwind(AssertUnwindSafe(|| call(&mut service, 0).now_or_never()));
    assert!(waits.is_err(), "there is no timer");
}
