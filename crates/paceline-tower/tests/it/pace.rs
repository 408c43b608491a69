use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::tower::{Layer, Service, ServiceExt, service_fn};
use futures::FutureExt;
use futures::future::join_all;
use paceline::limiter::{Event, Observed, PolicyExt, Shared, Switch, SwitchExt};
use paceline::policy::Interval;
use paceline_tower::future::Pacing;
use paceline_tower::{Error, LimitLayer, PaceLayer};
use testkit::clock::Stopwatch;
use testkit::probe::service::Inner;
use testkit::wakes::Driven;

use super::{Answering, Remote, call, echo, per_second};
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

/// When each of `n` calls at once ends, and how.
async fn ends<S: Service<u32> + Clone>(service: &S, n: u32) -> Vec<(u128, Option<S::Error>)> {
    let watch = Stopwatch::start();
    let calls = (0..n).map(|n| {
        let call = service.clone().oneshot(n);
        call.map(|done| (watch.elapsed_ms(), done.err()))
    });
    join_all(calls).await
}

fn instants<E>(ends: &[(u128, Option<E>)]) -> Vec<(u128, bool)> {
    let ends = ends.iter();
    ends.map(|(at, error)| (*at, error.is_none())).collect()
}

#[tokio::test(start_paused = true)]
async fn requests_pass_in_order_at_exact_times_and_keys_do_not_wait_for_each_other() {
    let times = Times::default();
    let service = PaceLayer::new(every(100)).layer(noting(&times));
    join_all((0..4).map(|n| service.clone().oneshot(n))).await;
    let expected = [(0, 0), (1, 100), (2, 200), (3, 300)];
    assert_eq!(*times.lock().unwrap(), expected);

    let times = Times::default();
    let users = Interval::every(ms(100)).keyed::<u32>();
    let service = PaceLayer::by_key(users, |n: &u32| Some(n % 2)).layer(noting(&times));
    join_all((0..6).map(|n| service.clone().oneshot(n))).await;
    let expected = [(0, 0), (1, 0), (2, 100), (3, 100), (4, 200), (5, 200)];
    assert_eq!(*times.lock().unwrap(), expected);
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
async fn what_cannot_pass_in_time_is_refused_at_once_and_says_when() {
    let limit = every(100);
    let service = PaceLayer::new(limit.clone()).within(ms(150)).layer(echo());
    let ends = ends(&service, 4).await;
    let expected = [(0, true), (100, true), (0, false), (0, false)];
    assert_eq!(instants(&ends), expected);
    let error = ends[3].1.as_ref().unwrap();
    assert!(error.is_too_late());
    assert_eq!(error.retry_in(), Some(ms(200)));
    assert_eq!(error.to_string(), "could not pass within 150ms");
    assert_eq!((limit.stats().passed, limit.stats().refused), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_key_an_observer_and_a_switch_know_at_once_what_is_too_late() {
    async fn second_is_too_late<T, S>(layer: LimitLayer<Pacing, T>)
    where
        LimitLayer<Pacing, T>: Layer<Answering<u32, u32>, Service = S>,
        S: Service<u32, Error = Error<std::convert::Infallible>>,
    {
        let mut service = layer.within(ms(99)).layer(echo());
        let watch = Stopwatch::start();
        assert!(call(&mut service, 0).await.is_ok());
        let error = call(&mut service, 0).await.err().unwrap();
        assert!(error.is_too_late());
        assert_eq!(watch.elapsed_ms(), 0);
    }
    let users = Interval::every(ms(100)).keyed::<u32>();
    second_is_too_late(PaceLayer::by_key(users, |n: &u32| Some(*n))).await;
    let observed = Observed::new(every(100), |_: Event| ());
    second_is_too_late(PaceLayer::new(observed)).await;
    second_is_too_late(PaceLayer::new(every(100).switched(&Switch::new()))).await;
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
async fn an_answer_that_never_comes_is_too_late_with_a_place_and_without_one() {
    for remote in [Remote::refusing_after(0, Duration::MAX), Remote::silent()] {
        let layer = PaceLayer::new(remote).max_waiting(1).within(ms(30));
        let watch = Stopwatch::start();
        let error = call(&mut layer.layer(echo()), 0).await.unwrap_err();
        assert!(error.is_too_late());
        assert_eq!((watch.elapsed_ms(), error.retry_in()), (30, None));
    }
    let silent = PaceLayer::new(Remote::silent()).max_waiting(1);
    for (at, error) in ends(&silent.within(ms(30)).layer(echo()), 2).await {
        assert!(at == 30 && error.unwrap().is_too_late());
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_requests_wait_than_there_are_places() {
    let service = PaceLayer::new(every(100)).max_waiting(2).layer(echo());
    let first = ends(&service, 5).await;
    let expected = [(0, true), (100, true), (200, true), (0, false), (0, false)];
    assert_eq!(instants(&first), expected);
    let error = first[4].1.as_ref().unwrap();
    assert!(error.is_no_room() && !error.refusal().unwrap().is_quota_exceeded());
    assert_eq!(error.retry_in(), Some(ms(300)));
    assert_eq!(error.to_string(), "too many requests are under way");

    // The places are free again.
    let again = ends(&service, 3).await;
    assert_eq!(instants(&again), [(100, true), (200, true), (0, false)]);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_wait_leaves_its_place_and_the_queue() {
    let limit = every(100);
    let layer = PaceLayer::new(limit.clone()).max_waiting(1);
    let mut service = layer.layer(echo());
    call(&mut service, 0).await.unwrap();
    for _ in 0..10 {
        let mut waiting = Driven::new(service.clone().oneshot(1));
        assert!(waiting.poll().is_pending());
        assert!(call(&mut service, 2).await.unwrap_err().is_no_room());
        drop(waiting);
        assert_eq!(limit.stats().waiting, 0);
    }
    let watch = Stopwatch::start();
    call(&mut service, 3).await.unwrap();
    assert_eq!((watch.elapsed_ms(), limit.stats().passed), (100, 2));
}

#[tokio::test(start_paused = true)]
async fn a_cost_is_waited_for_and_too_much_is_refused() {
    let layer = PaceLayer::new(per_second(5)).costing(|cost: &u32| *cost);
    let mut service = layer.layer(echo());
    let watch = Stopwatch::start();
    for cost in [5, 4] {
        call(&mut service, cost).await.unwrap();
    }
    assert!(call(&mut service, 6).await.unwrap_err().is_too_costly());
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
