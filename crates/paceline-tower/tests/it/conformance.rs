//! Every layer keeps the rules for services with a limit.

use std::future::Future;

use ::tower::{Layer, Service};
use http::{Request, Response};
use http_body::Body;
use paceline::concurrency::{Adaptive, Aimd, Gradient, KeyedPermits, Permits};
use paceline::limiter::PolicyExt;
use paceline::policy::Interval;
use paceline::shed::{Class, FleetUsage};
use paceline_tower::{
    AdaptiveLayer, ConcurrencyLayer, EnforceLayer, Error, FeedbackLayer, PaceLayer, ShedLayer,
};
use testkit::conformance::{Rule, service};
use testkit::probe::service::{Inner, InnerError};

use super::{Remote, per_second};
use crate::timed::ms;

/// A layer that lets `passing` requests pass at once.
#[track_caller]
fn check<L, B>(passing: u32, layer: impl Fn() -> L) -> impl Future<Output = ()>
where
    L: Layer<Inner>,
    L::Service: Service<Request<()>, Response = Response<B>, Error = Error<InnerError>> + Clone,
    B: Body<Data = &'static [u8], Error = InnerError>,
{
    let inner_error = |error: Error<InnerError>| error.into_inner().ok();
    service::check(passing, inner_error, move |inner| layer().layer(inner))
}

#[tokio::test(start_paused = true)]
async fn every_layer_keeps_the_rules() {
    let one_key = |_: &Request<()>| Some(());
    let limits = || Interval::every(ms(10)).keyed::<()>();
    check(2, || EnforceLayer::new(per_second(2))).await;
    check(1, || EnforceLayer::by_key(limits(), one_key)).await;

    let limit = || Interval::every(ms(10)).shared();
    check(2, || PaceLayer::new(per_second(2))).await;
    check(2, || PaceLayer::new(per_second(2)).obeying()).await;
    let layer = || PaceLayer::new(limit()).within(ms(15)).max_waiting(2);
    check(1, layer).await;
    let layer = || PaceLayer::by_key(limits(), one_key).within(ms(15));
    check(1, || layer().max_waiting(2).obeying()).await;

    check(2, || ConcurrencyLayer::new(Permits::new(2))).await;
    let layer = || ConcurrencyLayer::by_key(KeyedPermits::new(2), one_key);
    check(2, || layer().at_once().until_response()).await;

    check(2, || AdaptiveLayer::new(Adaptive::new(Aimd::new(2, 2)))).await;
    let layer = || AdaptiveLayer::new(Adaptive::new(Gradient::new(2, 2)));
    check(2, || layer().at_once().until_response()).await;

    let class = |_: &Request<()>| Class::Sheddable(0);
    check(2, || ShedLayer::new(FleetUsage::new(2, 0), class)).await;
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
        let rate = PaceLayer::new(per_second(2));
        let remote = EnforceLayer::new(Remote::passing_after(1));
        remote.layer(rate.layer(permits.layer(inner)))
    };
    let inner_error = |error: Error<Error<Error<InnerError>>>| {
        let error = error.into_inner().ok()?.into_inner().ok()?;
        error.into_inner().ok()
    };
    service::check(2, inner_error, build).await;
}
