//! Limiters, keys, costs and policies that fail.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use ::tower::{Layer, Service, ServiceExt};
use futures::future::join_all;
use paceline::concurrency::{Admit, Permits};
use paceline::limiter::{Event, PolicyExt};
use paceline::policy::{AlignedWindow, Alignment, Interval};
use paceline::shed::{Class, WorkerUtilization};
use paceline::time::WallClock;
use paceline_tower::{
    ConcurrencyLayer, EnforceLayer, Error, Failures, LimitLayer, OnFailure, PaceLayer, ShedLayer,
};
use testkit::clock::jump;
use testkit::wakes::Driven;

use super::{Answering, Remote, call, echo, per_second};
use crate::timed::{ms, sleep};

fn counted(count: impl FnOnce(&mut Failures)) -> Failures {
    let mut failures = Failures::default();
    count(&mut failures);
    failures
}

/// Permits that cannot be reached, or panic.
#[derive(Clone)]
struct Broken {
    panics: bool,
}

impl Admit for Broken {
    type Guard = ();
    type Error = &'static str;

    fn poll_admit(
        &mut self,
        (): (),
        _: &mut Context<'_>,
    ) -> Poll<Result<Option<()>, &'static str>> {
        assert!(!self.panics, "planted");
        Poll::Ready(Err("the server is gone"))
    }

    fn give_up(&mut self) {}
}

/// The limiter of `layer` fails for the request `n`, and that is `counted` both times.
async fn passes_by_default_and_is_refused_if_closed<K, T, S>(
    layer: LimitLayer<K, T>,
    n: u32,
    counted: Failures,
) where
    LimitLayer<K, T>: Layer<Answering<u32, u32>, Service = S> + Clone,
    S: Service<u32, Response = u32, Error = Error<Infallible>>,
{
    assert_eq!(call(&mut layer.layer(echo()), n).await.unwrap(), n);
    let closed = layer.clone().on_failure(OnFailure::Closed);
    let error = call(&mut closed.layer(echo()), n).await.unwrap_err();
    assert!(error.is_limiter_failed() && !error.is_shed());
    assert!(!error.refusal().unwrap().is_quota_exceeded());
    assert_eq!(error.to_string(), "the limiter failed");
    assert_eq!(layer.failures(), counted);
}

#[tokio::test(start_paused = true)]
async fn when_the_limiter_fails_a_request_passes_by_default_and_closed_it_is_refused() {
    use passes_by_default_and_is_refused_if_closed as fails;
    let error = || counted(|f| f.errors = 2);
    let panic = || counted(|f| f.panics = 2);
    for polls in [0, 2] {
        let remote = Remote::failing_after(polls);
        fails(EnforceLayer::new(remote.clone()), 1, error()).await;
        fails(PaceLayer::new(remote), 1, error()).await;
    }
    for (panics, counted) in [(false, error()), (true, panic())] {
        let layer = || ConcurrencyLayer::new(Broken { panics }).until_response();
        fails(layer(), 1, counted).await;
        fails(layer().at_once(), 1, counted).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_function_for_the_key_the_cost_or_the_class_that_panics_is_a_failure() {
    use passes_by_default_and_is_refused_if_closed as fails;
    let not_13 = |n: &u32| {
        assert!(*n != 13, "planted");
        Some(*n)
    };
    let limits = || Interval::every(ms(100)).keyed::<u32>();
    let key = counted(|f| f.key_panics = 2);
    fails(EnforceLayer::by_key(limits(), not_13), 13, key).await;
    fails(PaceLayer::by_key(limits(), not_13), 13, key).await;
    let class = move |n: &u32| not_13(n).map_or(Class::Critical, |_| Class::Sheddable(0));
    let shed = ShedLayer::new(WorkerUtilization::new(|| 0.0), class);
    fails(shed.until_response(), 13, key).await;
    let cost = counted(|f| f.cost_panics = 2);
    let costing = |n: &u32| 26 / (13 - n);
    fails(EnforceLayer::new(per_second(1)).costing(costing), 13, cost).await;
    fails(PaceLayer::new(per_second(1)).costing(costing), 13, cost).await;
}

/// A policy of one request in 100 ms. After each window it reads its clock, which panics while the flag is set.
fn fragile() -> (AlignedWindow, Arc<AtomicBool>) {
    let panics = Arc::new(AtomicBool::new(false));
    let (flag, wall) = (Arc::clone(&panics), WallClock::starting_at(Duration::ZERO));
    let clock = WallClock::new(move || {
        assert!(!flag.load(Ordering::Relaxed), "planted");
        wall.now()
    });
    let window = AlignedWindow::new(1, Alignment::Every(ms(100)));
    (window.with_clock(clock), panics)
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_panics_is_a_failure_and_the_limit_goes_on_after_it() {
    let (policy, panics) = fragile();
    let layer = EnforceLayer::new(policy.shared());
    let mut service = layer.layer(echo());
    assert!(call(&mut service, 0).await.is_ok());
    sleep(100).await;
    panics.store(true, Ordering::Relaxed);
    assert!(call(&mut service, 0).await.is_ok());
    assert!(call(&mut service, 0).await.is_ok());
    assert_eq!(layer.failures(), counted(|f| f.panics = 2));
    panics.store(false, Ordering::Relaxed);
    assert!(call(&mut service, 0).await.is_ok());
    assert!(call(&mut service, 0).await.unwrap_err().is_too_soon());
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_panics_while_requests_wait_lets_all_of_them_go() {
    for (on_failure, expected) in [(OnFailure::Open, 5), (OnFailure::Closed, 1)] {
        let (policy, panics) = fragile();
        let layer = PaceLayer::new(policy.shared()).on_failure(on_failure);
        let service = layer.layer(echo());
        let calls: Vec<_> = (0..5)
            .map(|n| tokio::spawn(service.clone().oneshot(n)))
            .collect();
        sleep(50).await;
        panics.store(true, Ordering::Relaxed);
        let done = join_all(calls).await;
        let passed = done.iter().filter(|done| done.as_ref().unwrap().is_ok());
        assert_eq!(passed.count(), expected);
        assert_eq!(layer.failures(), counted(|f| f.panics = 4));

        panics.store(false, Ordering::Relaxed);
        assert!(call(&mut service.clone(), 0).await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_can_be_dropped_while_its_policy_panics() {
    let (policy, panics) = fragile();
    let service = PaceLayer::new(policy.shared()).layer(echo());
    call(&mut service.clone(), 0).await.unwrap();
    let calls = (0..3).map(|n| Driven::new(service.clone().oneshot(n)));
    let mut calls: Vec<_> = calls.collect();
    assert!(calls.iter_mut().all(|call| call.poll().is_pending()));
    jump(ms(100)).await;
    panics.store(true, Ordering::Relaxed);
    drop(calls);
    panics.store(false, Ordering::Relaxed);
    assert!(call(&mut service.clone(), 0).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_panics_keeps_no_permit_from_the_requests_after_it() {
    let permits = Permits::new(1);
    let observed = permits.with_observer(|event: Event| {
        assert!(!matches!(event, Event::Passed { .. }), "as it should");
    });
    let layer = ConcurrencyLayer::new(observed.clone()).until_response();
    for n in 0..3 {
        assert_eq!(call(&mut layer.layer(echo()), n).await.unwrap(), n);
        assert_eq!(observed.in_use(), 0);
    }
    assert_eq!(layer.failures(), counted(|f| f.panics = 3));
}

#[cfg(feature = "tracing")]
#[tokio::test(start_paused = true)]
async fn a_failure_is_logged_at_most_once_a_second() {
    use crate::written::Written;

    let (written, guard) = Written::up_to(tracing::Level::DEBUG);
    let layer = EnforceLayer::new(Remote::failing_after(0));
    let mut service = layer.layer(echo());
    for _ in 0..21 {
        for _ in 0..1_000 {
            call(&mut service, 0).await.unwrap();
        }
        sleep(100).await;
    }
    drop(guard);
    let lines = written.lines();
    assert_eq!(lines.len(), 3, "at 0, 1 and 2 s: {lines:?}");
    let line = "message=the limiter of a layer failed fault=the server is gone failures=Failures { errors: 10001";
    assert!(lines[1].starts_with(line), "{}", lines[1]);
    assert_eq!(layer.failures().errors, 21_000);
}
