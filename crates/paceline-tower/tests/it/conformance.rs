//! Every layer keeps the rules for services with a limit.

use ::tower::Layer;
use paceline::concurrency::{Adaptive, Aimd, Gradient, KeyedPermits, Permits};
use paceline::limiter::PolicyExt;
use paceline::policy::Interval;
use paceline::shed::{Class, FleetUsage};
use paceline_tower::{
    AdaptiveLayer, ConcurrencyLayer, EnforceLayer, Error, FeedbackLayer, PaceLayer, ShedLayer,
};
use testkit::conformance::service::{Rule, Subject};
use testkit::probe::service::InnerError;

use super::{Remote, per_second};
use crate::timed::ms;

fn inner_error(error: Error<InnerError>) -> Option<InnerError> {
    error.into_inner().ok()
}

#[tokio::test(start_paused = true)]
async fn enforce_keeps_the_rules() {
    let build = |inner| EnforceLayer::new(per_second(2)).layer(inner);
    Subject::new(build, 2, inner_error).check().await;
    let build = |inner| {
        let limits = Interval::every(ms(10)).keyed::<()>();
        EnforceLayer::by_key(limits, |_: &http::Request<()>| Some(())).layer(inner)
    };
    Subject::new(build, 1, inner_error).check().await;
}

#[tokio::test(start_paused = true)]
async fn pace_keeps_the_rules() {
    let build = |inner| PaceLayer::new(per_second(2)).layer(inner);
    Subject::new(build, 2, inner_error).check().await;
    let build = |inner| {
        let layer = PaceLayer::new(Interval::every(ms(10)).shared());
        layer.within(ms(15)).max_waiting(2).layer(inner)
    };
    Subject::new(build, 1, inner_error).check().await;
}

#[tokio::test(start_paused = true)]
async fn concurrency_keeps_the_rules() {
    let build = |inner| ConcurrencyLayer::new(Permits::new(2)).layer(inner);
    Subject::new(build, 2, inner_error).check().await;
    let build = |inner| {
        let permits = KeyedPermits::new(2);
        let layer = ConcurrencyLayer::by_key(permits, |_: &http::Request<()>| Some(()));
        layer.at_once().until_response().layer(inner)
    };
    Subject::new(build, 2, inner_error).check().await;
}

#[tokio::test(start_paused = true)]
async fn adaptive_keeps_the_rules() {
    let build = |inner| AdaptiveLayer::new(Adaptive::new(Aimd::new(2, 2))).layer(inner);
    Subject::new(build, 2, inner_error).check().await;
    let build = |inner| {
        let layer = AdaptiveLayer::new(Adaptive::new(Gradient::new(2, 2)));
        layer.at_once().until_response().layer(inner)
    };
    Subject::new(build, 2, inner_error).check().await;
}

#[tokio::test(start_paused = true)]
async fn shed_keeps_the_rules() {
    let build = |inner| {
        let usage = FleetUsage::new(2, 0);
        ShedLayer::new(usage, |_: &http::Request<()>| Class::Sheddable(0)).layer(inner)
    };
    Subject::new(build, 2, inner_error).check().await;
}

#[tokio::test(start_paused = true)]
async fn pace_that_obeys_keeps_the_rules() {
    let build = |inner| PaceLayer::new(per_second(2)).obeying().layer(inner);
    Subject::new(build, 2, inner_error).check().await;
    let build = |inner| {
        let limits = Interval::every(ms(10)).keyed::<()>();
        let layer = PaceLayer::by_key(limits, |_: &http::Request<()>| Some(()));
        layer.within(ms(15)).max_waiting(2).obeying().layer(inner)
    };
    Subject::new(build, 1, inner_error).check().await;
}

#[tokio::test(start_paused = true)]
async fn feedback_alone_keeps_the_rules_of_a_service_without_a_limit() {
    let build = |inner| FeedbackLayer::new(per_second(2)).layer(inner);
    let found = Subject::new(build, 2, Some).violations().await;
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
    Subject::new(build, 2, inner_error).check().await;
}
