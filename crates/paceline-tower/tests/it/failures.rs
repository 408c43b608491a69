//! Limiters, keys, costs and policies that fail.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use ::tower::{Layer, ServiceExt};
use futures::future::join_all;
use http::Response;
use http::request::Parts;
use paceline::concurrency::{Admit, Permits};
use paceline::limiter::{Event, PolicyExt};
use paceline::policy::{Decision, Interval, Policy};
use paceline::time::Tick;
use paceline_tower::{ConcurrencyLayer, EnforceLayer, Failures, OnFailure, PaceLayer};
use testkit::wakes::Driven;

use super::{Remote, call, echo, get, no_content, per_second};
use crate::timed::{ms, sleep};

fn counted(count: impl FnOnce(&mut Failures)) -> Failures {
    let mut failures = Failures::default();
    count(&mut failures);
    failures
}

#[tokio::test(start_paused = true)]
async fn when_the_limiter_fails_a_request_passes_by_default() {
    let layer = EnforceLayer::new(Remote::failing_after(0));
    let mut service = layer.layer(echo());
    for n in 0..3 {
        assert_eq!(call(&mut service, n).await.unwrap(), n);
    }
    assert_eq!(layer.failures(), counted(|f| f.errors = 3));
}

#[tokio::test(start_paused = true)]
async fn closed_a_request_is_refused_when_the_limiter_fails() {
    let layer = EnforceLayer::new(Remote::failing_after(2)).on_failure(OnFailure::Closed);
    let error = call(&mut layer.layer(echo()), 0).await.unwrap_err();
    assert!(error.is_limiter_failed() && !error.refusal().unwrap().is_quota_exceeded());
    assert_eq!(error.to_string(), "the limiter failed");
    assert_eq!(layer.failures(), counted(|f| f.errors = 1));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_feels_the_failure_too() {
    let remote = Remote::failing_after(3);
    let open = PaceLayer::new(remote.clone());
    assert_eq!(call(&mut open.layer(echo()), 1).await.unwrap(), 1);
    let closed = PaceLayer::new(remote).on_failure(OnFailure::Closed);
    assert!(
        call(&mut closed.layer(echo()), 1)
            .await
            .unwrap_err()
            .is_limiter_failed()
    );
    assert_eq!(open.failures(), closed.failures());
}

#[tokio::test(start_paused = true)]
async fn a_failure_can_be_answered() {
    let layer = EnforceLayer::new(Remote::failing_after(0))
        .on_failure(OnFailure::Closed)
        .answering_with(|_: &Parts, refusal| {
            let status = if refusal.is_limiter_failed() {
                503
            } else {
                429
            };
            Response::builder()
                .status(status)
                .body(String::new())
                .unwrap()
        });
    let inner = ::tower::service_fn(|_| async { Ok::<_, Infallible>(no_content()) });
    let Ok(response) = call(&mut layer.layer(inner), get("/")).await;
    assert_eq!(response.status(), 503);
}

#[tokio::test(start_paused = true)]
async fn a_key_function_that_panics_is_a_failure() {
    let limits = Interval::every(ms(100)).keyed::<u32>();
    let layer = EnforceLayer::by_key(limits, |n: &u32| {
        assert!(*n != 13, "planted");
        Some(*n)
    });
    let mut service = layer.layer(echo());
    assert!(call(&mut service, 13).await.is_ok());
    assert!(call(&mut service, 13).await.is_ok());
    assert_eq!(layer.failures(), counted(|f| f.key_panics = 2));
    assert!(call(&mut service, 1).await.is_ok());
    assert!(call(&mut service, 1).await.unwrap_err().is_too_soon());

    let layer = layer.on_failure(OnFailure::Closed);
    let error = call(&mut layer.layer(echo()), 13).await.unwrap_err();
    assert!(error.is_limiter_failed());
}

#[tokio::test(start_paused = true)]
async fn a_cost_function_that_panics_is_a_failure() {
    let layer = PaceLayer::new(per_second(1)).costing(|n: &u32| 26 / (13 - n));
    let mut service = layer.clone().layer(echo());
    assert!(call(&mut service, 13).await.is_ok());
    assert_eq!(layer.failures(), counted(|f| f.cost_panics = 1));
    let closed = layer.clone().on_failure(OnFailure::Closed);
    let error = call(&mut closed.layer(echo()), 13).await.unwrap_err();
    assert!(error.is_limiter_failed());
    assert_eq!(layer.failures(), counted(|f| f.cost_panics = 2));
}

/// An interval that panics while the test wants it.
#[derive(Clone)]
struct Fragile {
    interval: Interval,
    panics: Arc<AtomicBool>,
}

impl Fragile {
    fn new() -> Self {
        Self {
            interval: Interval::every(ms(100)),
            panics: Arc::default(),
        }
    }

    fn set_panics(&self, panics: bool) {
        self.panics.store(panics, Ordering::Relaxed);
    }

    fn check(&self) {
        assert!(!self.panics.load(Ordering::Relaxed), "planted");
    }
}

impl Policy for Fragile {
    type State = <Interval as Policy>::State;

    fn fresh(&self, now: Tick) -> Self::State {
        self.interval.fresh(now)
    }

    fn decide(&self, state: &mut Self::State, now: Tick, cost: u32) -> Decision {
        self.check();
        self.interval.decide(state, now, cost)
    }

    fn peek(&self, state: &Self::State, now: Tick, cost: u32) -> Decision {
        self.check();
        self.interval.peek(state, now, cost)
    }

    fn refund(&self, state: &mut Self::State, now: Tick, cost: u32) {
        self.interval.refund(state, now, cost);
    }

    fn retune(&self, old: &Self, state: &mut Self::State, now: Tick) {
        self.interval.retune(&old.interval, state, now);
    }

    fn settled_at(&self, state: &Self::State) -> Tick {
        self.interval.settled_at(state)
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_panics_is_a_failure_and_the_limit_goes_on_after_it() {
    let policy = Fragile::new();
    let layer = EnforceLayer::new(policy.clone().shared());
    let mut service = layer.layer(echo());
    assert!(call(&mut service, 0).await.is_ok());
    policy.set_panics(true);
    assert!(call(&mut service, 0).await.is_ok());
    assert!(call(&mut service, 0).await.is_ok());
    assert_eq!(layer.failures(), counted(|f| f.panics = 2));
    policy.set_panics(false);
    assert!(call(&mut service, 0).await.unwrap_err().is_too_soon());
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_panics_while_requests_wait_lets_all_of_them_go() {
    for on_failure in [OnFailure::Open, OnFailure::Closed] {
        let policy = Fragile::new();
        let layer = PaceLayer::new(policy.clone().shared()).on_failure(on_failure);
        let service = layer.layer(echo());
        let calls: Vec<_> = (0..5)
            .map(|n| tokio::spawn(service.clone().oneshot(n)))
            .collect();
        sleep(50).await;
        policy.set_panics(true);
        let done = join_all(calls).await;
        let passed = done.iter().filter(|done| done.as_ref().unwrap().is_ok());
        let expected = if on_failure == OnFailure::Open { 5 } else { 1 };
        assert_eq!(passed.count(), expected);
        assert_eq!(layer.failures(), counted(|f| f.panics = 4));

        policy.set_panics(false);
        assert!(call(&mut service.clone(), 0).await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_can_be_dropped_while_its_policy_panics() {
    let policy = Fragile::new();
    let service = PaceLayer::new(policy.clone().shared()).layer(echo());
    call(&mut service.clone(), 0).await.unwrap();
    let calls = (0..3).map(|n| Driven::new(service.clone().oneshot(n)));
    let mut calls: Vec<_> = calls.collect();
    assert!(calls.iter_mut().all(|call| call.poll().is_pending()));
    policy.set_panics(true);
    drop(calls);
    policy.set_panics(false);
    assert!(call(&mut service.clone(), 0).await.is_ok());
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

#[tokio::test(start_paused = true)]
async fn permits_that_fail_are_a_failure() {
    for panics in [false, true] {
        let layer = ConcurrencyLayer::new(Broken { panics }).until_response();
        assert_eq!(call(&mut layer.layer(echo()), 1).await.unwrap(), 1);
        let layer = layer.at_once().on_failure(OnFailure::Closed);
        let error = call(&mut layer.layer(echo()), 1).await.unwrap_err();
        assert!(error.is_limiter_failed());
        let failures = layer.failures();
        assert_eq!(
            (failures.errors, failures.panics),
            if panics { (0, 2) } else { (2, 0) }
        );
    }
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
