use ::tower::{Layer, ServiceExt};
use futures::FutureExt;
use futures::future::join_all;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use paceline::limiter::{Mode, Switch, SwitchExt};
use paceline::shed::{Class, FleetUsage, WorkerUtilization};
use paceline_tower::{Answers, Held, ShedLayer, http_class};
use testkit::probe::service::{Inner, Part, TestBody};

use super::{call, get, hello};
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
    let request = Request::builder().method(method).uri(path);
    request.body(()).unwrap()
}

fn of_test(path: &str) -> Request<()> {
    let request = Request::post(path).header("x-test", "1");
    request.body(()).unwrap()
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
async fn http_requests_are_shed_by_what_a_retry_would_cost() {
    let class = health_check_or_test();
    assert_eq!(class(&of_test("/")), Class::Sheddable(0));
    assert_eq!(class(&of_test("/health")), Class::Critical, "before all");
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
    for (seconds, expected) in [
        (0, [200, 200, 200, 200]),
        (68, [503, 200, 200, 200]),
        (108, [503, 503, 200, 200]),
        (148, [503, 503, 503, 200]),
    ] {
        let layer = ShedLayer::new(overloaded_for(seconds).await, health_check_or_test());
        let layer = layer.answering_with(|_, refusal| {
            assert!(refusal.is_shed() && !refusal.is_quota_exceeded());
            let response = Response::builder().status(503);
            response.body(String::new()).unwrap()
        });
        let service = layer.layer(hello());
        let write = request(Method::POST, "/");
        let requests = [of_test("/"), get("/"), write, get("/health")];
        let calls = requests.map(|request| service.clone().oneshot(request));
        let answers = join_all(calls).await.into_iter();
        let statuses: Vec<_> = answers.map(|one| one.unwrap().status().as_u16()).collect();
        assert_eq!(statuses, expected, "after {seconds} s");
    }
}

#[tokio::test(start_paused = true)]
async fn answers_say_that_the_capacity_is_reduced_for_now() {
    let shedder = overloaded_for(148).await;
    let layer = ShedLayer::new(shedder, |_: &Request<()>| Class::Sheddable(0));
    let service = layer.answering(Answers::new("api")).layer(hello());

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

    let grpc = Request::post("/").header("content-type", "application/grpc");
    let refused = service.oneshot(grpc.body(()).unwrap()).await.unwrap();
    assert_eq!(refused.status(), 200);
    assert_eq!(refused.headers()["grpc-status"], "14");
}

#[tokio::test(start_paused = true)]
async fn a_request_is_under_way_until_its_body_has_ended_and_one_that_a_switch_lets_pass_is_not() {
    let (usage, switch) = (FleetUsage::new(1, 0), Switch::new().with_mode(Mode::Shadow));
    let layer = ShedLayer::new(usage.clone().switched(&switch), sheddable);
    let mut service = layer.layer(Inner::new().with_body(&LONG));
    let first = call(&mut service, get("/")).await.unwrap();
    let second = call(&mut service, get("/")).await.unwrap();
    let _: &Held<TestBody, Option<_>> = second.body();
    assert_eq!((in_use(&usage), switch.stats().held_back), ((0, 1), 1));

    // The end of the one that holds nothing ends no other.
    let second = second.into_body().collect().await.unwrap();
    assert_eq!(second.to_bytes(), "onetwo");
    assert_eq!(in_use(&usage), (0, 1));
    switch.set_mode(Mode::Active);
    let refused = call(&mut service, get("/")).await.unwrap_err();
    assert!(refused.is_shed());
    first.into_body().collect().await.unwrap();
    assert_eq!(in_use(&usage), (0, 0));
    assert!(call(&mut service, get("/")).await.is_ok());
}
