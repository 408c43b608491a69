//! What the layers have in common: each keeps the rules for services with a limit.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, ready};

use ::tower::{Layer, Service, ServiceExt};
use futures::FutureExt;
use futures::future::join_all;
use http::{Request, Response};
use http_body::Body;
use paceline::concurrency::{Adaptive, Aimd, Gradient, KeyedPermits, Permits};
use paceline::limiter::{AdaptiveRate, HoldAndProbe, Limiter, PolicyExt};
use paceline::policy::{Decision, Interval, TokenBucket};
use paceline::shed::{Class, FleetUsage};
use paceline::time::Rate;
use paceline_tower::{
    AdaptiveLayer, ConcurrencyLayer, EnforceLayer, Error, FeedbackLayer, PaceLayer, ShedLayer,
};
use testkit::conformance::{Rule, service};
use testkit::probe::service::{Inner, InnerError};
use testkit::wakes::Driven;

use super::{Answering, Remote, call, echo, per_second};
use crate::timed::ms;

fn one_class<R>(_: &R) -> Class {
    Class::Sheddable(0)
}

/// The layer lets `passing` requests pass at once, and keeps every rule of the suite.
async fn check<L, B>(passing: u32, layer: impl Fn() -> L)
where
    L: Layer<Inner>,
    L::Service: Service<Request<()>, Response = Response<B>, Error = Error<InnerError>> + Clone,
    B: Body<Data = &'static [u8], Error = InnerError>,
{
    let inner_error = |error: Error<InnerError>| error.into_inner().ok();
    service::check(passing, inner_error, move |inner| layer().layer(inner)).await;
}

/// It also takes nothing from the limit before the future is polled.
async fn check_lazy<L, B>(passing: u32, layer: impl Fn() -> L)
where
    L: Layer<Inner>,
    L::Service: Service<Request<()>, Response = Response<B>, Error = Error<InnerError>> + Clone,
    B: Body<Data = &'static [u8], Error = InnerError>,
{
    let inner = Inner::new();
    let service = layer().layer(inner.clone());
    let futures = || (0..passing).map(|_| Driven::new(service.clone().call(Request::new(()))));
    let unpolled: Vec<_> = futures().collect();
    for mut future in futures() {
        let _ = future.poll();
    }
    assert_eq!(inner.used().calls, passing, "beside as many unpolled ones");
    drop(unpolled);
    check(passing, layer).await;
}

#[tokio::test(start_paused = true)]
async fn every_layer_keeps_the_rules() {
    let one_key = |_: &Request<()>| Some(());
    let limits = || Interval::every(ms(10)).keyed::<()>();
    check(2, || EnforceLayer::new(per_second(2))).await;
    check(1, || EnforceLayer::by_key(limits(), one_key)).await;

    let limit = || Interval::every(ms(10)).shared();
    check_lazy(2, || PaceLayer::new(per_second(2))).await;
    check(2, || PaceLayer::new(per_second(2)).obeying()).await;
    let rule = || HoldAndProbe::new(Rate::per_second(2), Rate::per_second(2));
    let rate = || AdaptiveRate::around(per_second(2), rule(), |rate| TokenBucket::new(rate, 2));
    check_lazy(2, || PaceLayer::new(rate())).await;
    check(2, || PaceLayer::new(rate()).obeying()).await;
    let layer = || PaceLayer::new(limit()).within(ms(15)).max_waiting(2);
    check(1, layer).await;
    let layer = || PaceLayer::by_key(limits(), one_key).within(ms(15));
    check(1, || layer().max_waiting(2).obeying()).await;

    check_lazy(2, || ConcurrencyLayer::new(Permits::new(2))).await;
    let layer = || ConcurrencyLayer::by_key(KeyedPermits::new(2), one_key);
    check(2, || layer().at_once().until_response()).await;

    check_lazy(2, || AdaptiveLayer::new(Adaptive::new(Aimd::new(2, 2)))).await;
    let layer = || AdaptiveLayer::new(Adaptive::new(Gradient::new(2, 2)));
    check(2, || layer().at_once().until_response()).await;

    check_lazy(2, || ShedLayer::new(FleetUsage::new(2, 0), one_class)).await;
}

#[tokio::test(start_paused = true)]
async fn feedback_alone_keeps_the_rules_of_a_service_without_a_limit() {
    let build = |inner| FeedbackLayer::new(per_second(2)).layer(inner);
    let found = service::violations(2, Some, build).await;
    let found: Vec<_> = found.iter().map(|violation| violation.rule).collect();
    assert_eq!(found, [Rule::ClonesShare], "it delays nothing");
}

#[tokio::test(start_paused = true)]
async fn layers_in_each_other_keep_the_rules() {
    let build = |inner| {
        let permits = ConcurrencyLayer::new(Permits::new(3));
        let shed = ShedLayer::new(FleetUsage::new(3, 0), one_class);
        let rate = PaceLayer::new(per_second(2));
        let remote = EnforceLayer::new(Remote::passing_after(1));
        remote.layer(rate.layer(shed.layer(permits.layer(inner))))
    };
    let inner_error = |error: Error<Error<Error<Error<InnerError>>>>| {
        let error = error.into_inner().ok()?.into_inner().ok()?;
        error.into_inner().ok()?.into_inner().ok()
    };
    service::check(2, inner_error, build).await;
}

#[test]
fn no_layer_needs_a_runtime_until_it_has_to_wait() {
    let mut enforce = EnforceLayer::new(per_second(2)).layer(echo());
    let mut pace = PaceLayer::new(per_second(2)).layer(echo());
    let permits = ConcurrencyLayer::new(Permits::new(1)).until_response();
    let mut permits = permits.layer(echo());
    for n in 0..2 {
        assert_eq!(call(&mut enforce, n).now_or_never().unwrap().unwrap(), n);
        assert_eq!(call(&mut pace, n).now_or_never().unwrap().unwrap(), n);
        assert_eq!(call(&mut permits, n).now_or_never().unwrap().unwrap(), n);
    }
    assert!(call(&mut enforce, 2).now_or_never().unwrap().is_err());
    let waits = catch_unwind(AssertUnwindSafe(|| call(&mut pace, 2).now_or_never()));
    assert!(waits.is_err(), "there is no timer");
}

/// A limiter without a limit that takes part in tokio's cooperative scheduling, as a channel does.
#[derive(Clone)]
struct Budgeted;

impl Limiter for Budgeted {
    type Error = Infallible;

    fn poll_decide(&mut self, _: u32, cx: &mut Context<'_>) -> Poll<Result<Decision, Infallible>> {
        let coop = ready!(tokio::task::coop::poll_proceed(cx));
        coop.made_progress();
        Poll::Ready(Ok(Decision::Pass))
    }

    fn give_up(&mut self) {}
}

#[tokio::test(start_paused = true)]
async fn of_100_000_calls_in_one_task_none_is_refused_while_there_is_room() {
    async fn all_pass<S>(layer: impl Layer<Answering<u32, u32>, Service = S>)
    where
        S: Service<u32> + Clone,
    {
        let service = layer.layer(echo());
        for _ in 0..10 {
            let calls = (0..10_000).map(|n| service.clone().oneshot(n));
            assert!(join_all(calls).await.iter().all(Result::is_ok));
        }
    }
    let bucket = || TokenBucket::new(Rate::per_second(1), 100_000).shared();
    all_pass(EnforceLayer::new(bucket())).await;
    all_pass(EnforceLayer::new(Budgeted)).await;
    all_pass(PaceLayer::new(bucket()).max_waiting(1)).await;
    all_pass(PaceLayer::new(Budgeted).max_waiting(1)).await;
    let permits = ConcurrencyLayer::new(Permits::new(10_000)).at_once();
    all_pass(permits.until_response()).await;
}
