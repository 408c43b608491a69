use std::convert::Infallible;

use ::tower::{Layer, Service, ServiceExt};
use futures::FutureExt;
use futures::future::join_all;
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::BodyExt;
use paceline::limiter::{Mode, Switch, SwitchExt};
use paceline::shed::{Class, FleetUsage, WorkerUtilization};
use paceline_tower::{Answers, Error, Failures, Held, OnFailure, ShedLayer, http_class};
use testkit::probe::service::{Inner, InnerError, Part, TestBody};
use testkit::wakes::Driven;

use super::{call, echo, get, no_content};
use crate::timed::{ms, sleep};

const LONG: [Part; 3] = [Part::Data(b"one"), Part::Pause, Part::Data(b"two")];

const fn by_evenness(n: u32) -> Class {
    match n % 2 {
        0 => Class::Critical,
        _ => Class::Sheddable(0),
    }
}

fn sheddable<R>(_: &R) -> Class {
    Class::Sheddable(0)
}

fn in_use(usage: &FleetUsage) -> (u32, u32) {
    let in_use = usage.in_use();
    (in_use.critical, in_use.sheddable)
}

/// A worker that was overloaded for so long.
async fn overloaded_for(seconds: u64) -> WorkerUtilization {
    let shedder = WorkerUtilization::new(|| 1.0).with_classes(3);
    assert!(shedder.admits(Class::Critical));
    sleep(seconds * 1_000 + 1).await;
    shedder
}

fn health_check_or_test() -> impl Fn(&Request<()>) -> Class + Clone {
    http_class(
        |request: &Request<()>| request.uri().path() == "/health",
        |request| request.headers().contains_key("x-test"),
    )
}

fn request(method: Method, path: &str) -> Request<()> {
    Request::builder()
        .method(method)
        .uri(path)
        .body(())
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_the_shedder_refuses_is_refused_at_once_as_shed() {
    let usage = FleetUsage::new(2, 1);
    let inner = Inner::new().taking(ms(10));
    let layer = ShedLayer::new(usage.clone(), |n: &u32| by_evenness(*n)).until_response();
    let service = layer.layer(inner.clone());
    let requests = [1, 3, 2, 4, 5];
    let calls = requests.map(|n| service.clone().oneshot(n));
    let mut calls = join_all(calls);
    assert!((&mut calls).now_or_never().is_none());
    assert_eq!((in_use(&usage), inner.used().calls), ((2, 1), 3));
    let answers = calls.await;
    let refused = |n: usize| answers[n].as_ref().unwrap_err();
    assert!(answers[0].is_ok() && answers[2].is_ok() && answers[3].is_ok());
    for n in [1, 4] {
        assert!(refused(n).is_shed() && refused(n).is_refused() && !refused(n).is_no_room());
        assert_eq!(refused(n).retry_in(), None);
        assert_eq!(refused(n).to_string(), "the service sheds load");
    }
    assert_eq!(in_use(&usage), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_request_is_under_way_until_its_body_has_ended() {
    let usage = FleetUsage::new(1, 0);
    let layer = ShedLayer::new(usage.clone(), sheddable);
    let service = layer.layer(Inner::new().with_body(&LONG));
    let response = call(&mut service.clone(), get("/")).await.unwrap();
    assert_eq!(in_use(&usage), (0, 1));
    let refused = call(&mut service.clone(), get("/")).await.unwrap_err();
    assert!(refused.is_shed());
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        "onetwo"
    );
    assert_eq!(in_use(&usage), (0, 0));
    let dropped = call(&mut service.clone(), get("/")).await.unwrap();
    assert_eq!(in_use(&usage), (0, 1));
    drop(dropped);
    assert_eq!(in_use(&usage), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn until_response_it_ends_with_the_head_and_the_body_keeps_its_type() {
    let usage = FleetUsage::new(1, 0);
    let layer = ShedLayer::new(usage.clone(), sheddable).until_response();
    let mut service = layer.layer(Inner::new().with_body(&LONG).taking(ms(10)));
    let mut response = Driven::new(service.call(get("/")));
    assert!(response.poll().is_pending());
    assert_eq!(in_use(&usage), (0, 1));
    let _: Response<TestBody> = response.into_pin().await.unwrap();
    assert_eq!(in_use(&usage), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_future_that_is_dropped_is_no_longer_under_way() {
    let usage = FleetUsage::new(1, 0);
    let layer = ShedLayer::new(usage.clone(), sheddable).until_response();
    let mut service = layer.layer(Inner::new().taking(ms(10)));
    let mut response = Driven::new(service.call(1));
    assert!(response.poll().is_pending());
    assert_eq!(in_use(&usage), (0, 1));
    drop(response);
    assert_eq!(in_use(&usage), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn to_be_ready_asks_nothing_and_a_call_that_is_not_polled_neither() {
    let shedder = WorkerUtilization::new(|| 0.0);
    let layer = ShedLayer::new(shedder.clone(), |_: &u32| Class::Sheddable(0)).until_response();
    let mut service = layer.layer(echo());
    service.ready().await.unwrap();
    drop(service.call(1));
    assert_eq!(shedder.stats()[0].admitted, 0);
    assert_eq!(call(&mut service, 1).await.unwrap(), 1);
    assert_eq!(shedder.stats()[0].admitted, 1);
}

#[tokio::test(start_paused = true)]
async fn http_requests_are_shed_by_what_a_retry_would_cost() {
    let class = health_check_or_test();
    let mut test = request(Method::POST, "/");
    test.headers_mut().insert("x-test", "1".parse().unwrap());
    assert_eq!(class(&test), Class::Sheddable(0));
    *test.uri_mut() = "/health".parse().unwrap();
    assert_eq!(class(&test), Class::Critical, "critical before all else");
    for (method, expected) in [
        (Method::GET, 1),
        (Method::HEAD, 1),
        (Method::POST, 2),
        (Method::PUT, 2),
        (Method::DELETE, 2),
        (Method::OPTIONS, 2),
    ] {
        let class = class(&request(method, "/"));
        assert_eq!(class, Class::Sheddable(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn an_overloaded_worker_answers_503_to_the_least_important_first() {
    let mut answered = Vec::new();
    for seconds in [0, 68, 108, 148] {
        let shedder = overloaded_for(seconds).await;
        let layer = ShedLayer::new(shedder, health_check_or_test());
        let layer = layer.answering_with(|_, refusal| {
            assert!(refusal.is_shed() && !refusal.is_quota_exceeded());
            let status = StatusCode::SERVICE_UNAVAILABLE;
            Response::builder()
                .status(status)
                .body(String::new())
                .unwrap()
        });
        let inner =
            ::tower::service_fn(|_: Request<()>| async { Ok::<_, Infallible>(no_content()) });
        let service = layer.layer(inner);
        let mut test = get("/");
        test.headers_mut().insert("x-test", "1".parse().unwrap());
        let health = get("/health");
        let requests = [test, get("/"), request(Method::POST, "/"), health];
        let calls = requests.map(|request| service.clone().oneshot(request));
        let statuses = join_all(calls).await.into_iter();
        answered.push(
            statuses
                .map(|one| one.unwrap().status().as_u16())
                .collect::<Vec<_>>(),
        );
    }
    assert_eq!(
        answered,
        [
            [204, 204, 204, 204],
            [503, 204, 204, 204],
            [503, 503, 204, 204],
            [503, 503, 503, 204],
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn answers_say_that_the_capacity_is_reduced_for_now() {
    let shedder = overloaded_for(148).await;
    let layer = ShedLayer::new(shedder, |_: &Request<()>| Class::Sheddable(0));
    let inner = ::tower::service_fn(|_: Request<()>| async { Ok::<_, Infallible>(no_content()) });
    let service = layer.answering(Answers::new("api")).layer(inner);

    let refused = service.clone().oneshot(get("/")).await.unwrap();
    assert_eq!(refused.status(), 503);
    assert_eq!(refused.headers()["retry-after"], "1");
    assert!(!refused.headers().contains_key("ratelimit"));
    let body = refused.into_body().collect().await.unwrap().to_bytes();
    let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let kind = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
    assert_eq!(problem["type"], kind);
    assert_eq!(problem["status"], 503);
    assert_eq!(problem["detail"], "the service sheds load, retry in 1 s");

    let mut grpc = request(Method::POST, "/");
    let content_type = "application/grpc".parse().unwrap();
    grpc.headers_mut().insert("content-type", content_type);
    let refused = service.oneshot(grpc).await.unwrap();
    assert_eq!(refused.status(), 200);
    assert_eq!(refused.headers()["grpc-status"], "14");
}

#[tokio::test(start_paused = true)]
async fn a_class_function_that_panics_is_a_fault_and_the_request_passes_or_not() {
    let class = |n: &u32| match *n {
        0 => panic!("no class"),
        _ => Class::Critical,
    };
    let shedder = || WorkerUtilization::new(|| 0.0);
    let layer = ShedLayer::new(shedder(), class).until_response();
    assert_eq!(call(&mut layer.layer(echo()), 0).await.unwrap(), 0);
    let mut expected = Failures::default();
    expected.key_panics = 1;
    assert_eq!(layer.failures(), expected);
    let closed = layer.on_failure(OnFailure::Closed);
    let error = call(&mut closed.layer(echo()), 0).await.unwrap_err();
    assert!(error.is_limiter_failed() && !error.is_shed());
}

#[tokio::test(start_paused = true)]
async fn services_and_clones_of_one_layer_share_the_shedder() {
    let usage = FleetUsage::new(1, 0);
    let layer = ShedLayer::new(usage, sheddable).until_response();
    let inner = || Inner::new().taking(ms(10));
    let (one, other) = (layer.layer(inner()), layer.clone().layer(inner()));
    let calls = join_all([one.oneshot(1), other.oneshot(2)]).await;
    assert!(calls[0].is_ok() && calls[1].as_ref().unwrap_err().is_shed());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_fails_is_no_longer_under_way() {
    let usage = FleetUsage::new(1, 0);
    let layer = ShedLayer::new(usage.clone(), sheddable);
    let mut service = layer.layer(Inner::new().failing());
    let error: Error<InnerError> = call(&mut service, get("/")).await.unwrap_err();
    assert!(error.is_inner() && !error.is_shed());
    assert_eq!(in_use(&usage), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn both_shedders_can_be_stacked() {
    let usage = ShedLayer::new(FleetUsage::new(1, 0), sheddable);
    let worker = ShedLayer::new(overloaded_for(0).await, health_check_or_test());
    let service = worker.layer(usage.layer(Inner::new().with_body(&LONG)));
    let response = service.clone().oneshot(get("/")).await.unwrap();
    let _: &Held<Held<TestBody, _>, ()> = response.body();
    assert!(!response.body().is_end_stream());
    let refused = service.oneshot(get("/")).await.unwrap_err();
    assert!(refused.into_inner().unwrap().is_shed());
}

#[tokio::test(start_paused = true)]
async fn in_shadow_mode_it_counts_what_it_would_shed_and_holds_what_it_would_admit() {
    let (usage, switch) = (FleetUsage::new(1, 0), Switch::new().with_mode(Mode::Shadow));
    let layer = ShedLayer::new(usage.clone().switched(&switch), sheddable).until_response();
    let service = layer.layer(Inner::new().taking(ms(10)));
    let both = || join_all([1, 2].map(|n| service.clone().oneshot(n)));
    let mut shadowed = both();
    assert!((&mut shadowed).now_or_never().is_none());
    assert_eq!(in_use(&usage), (0, 1));
    assert!(shadowed.await.iter().all(Result::is_ok));
    assert_eq!(switch.stats().held_back, 1);
    assert_eq!(in_use(&usage), (0, 0));

    switch.set_mode(Mode::Active);
    let answers = both().await;
    assert!(answers[0].is_ok() && answers[1].as_ref().unwrap_err().is_shed());
}
