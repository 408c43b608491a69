//! Shedders with a switch, under a layer.

use std::convert::Infallible;

use ::tower::{Layer, Service, ServiceExt, service_fn};
use futures::future::join_all;
use http::Request;
use http_body_util::BodyExt;
use paceline::limiter::{Mode, Share, Switch, Switched};
use paceline::shed::{Class, FleetUsage, WorkerUtilization};
use paceline_tower::{Answers, Held, ShedLayer, http_class};
use testkit::probe::service::{Inner, Part, TestBody};

use super::{call, echo, get, no_content};
use crate::timed::sleep;

const LONG: [Part; 3] = [Part::Data(b"one"), Part::Pause, Part::Data(b"two")];

/// A worker that was overloaded until all sheddable requests are shed.
async fn overloaded() -> WorkerUtilization {
    let shedder = WorkerUtilization::new(|| 1.0).with_classes(3);
    assert!(shedder.admits(Class::Critical));
    sleep(148_001).await;
    shedder
}

/// How many of these requests are answered with 204, and how many with 503.
async fn statuses<S>(service: &S, path: &str, requests: usize) -> (usize, usize)
where
    S: Service<Request<()>, Response = http::Response<Held<String, Option<()>>>> + Clone,
    S::Error: std::fmt::Debug,
{
    let calls = (0..requests).map(|_| service.clone().oneshot(get(path)));
    let answers = join_all(calls).await.into_iter();
    let statuses: Vec<_> = answers.map(|one| one.unwrap().status().as_u16()).collect();
    let count = |status| statuses.iter().filter(|one| **one == status).count();
    (count(204), count(503))
}

#[tokio::test(start_paused = true)]
async fn a_worker_sheds_as_the_switch_says_while_the_service_runs() {
    let shedder = overloaded().await;
    let switch = Switch::new().with_mode(Mode::Shadow);
    let class = http_class(
        |request: &Request<()>| request.uri().path() == "/health",
        |_| false,
    );
    let layer = ShedLayer::new(Switched::new(shedder.clone(), switch.clone()), class);
    let inner = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(no_content()) });
    let service = layer.answering(Answers::new("workers")).layer(inner);

    assert_eq!(statuses(&service, "/", 100).await, (100, 0));
    assert_eq!(
        (switch.stats().shadowed, switch.stats().held_back),
        (100, 100)
    );
    assert_eq!(shedder.stats()[1].shed, 100);

    switch.set(Mode::Active, Share::percent(1));
    assert_eq!(statuses(&service, "/", 10_000).await, (9_900, 100));
    assert_eq!(switch.stats().held_back, 10_000);
    assert_eq!(statuses(&service, "/health", 100).await, (100, 0));

    switch.set_share(Share::FULL);
    assert_eq!(statuses(&service, "/", 100).await, (0, 100));
    assert_eq!(statuses(&service, "/health", 100).await, (100, 0));

    let counted = (switch.stats(), shedder.stats());
    switch.set_mode(Mode::Off);
    assert_eq!(statuses(&service, "/", 100).await, (100, 0));
    assert_eq!((switch.stats(), shedder.stats()), counted);
}

#[tokio::test(start_paused = true)]
async fn in_shadow_mode_a_request_beyond_the_usage_is_served_and_not_counted_as_under_way() {
    let usage = FleetUsage::new(1, 0);
    let switch = Switch::new().with_mode(Mode::Shadow);
    let switched = Switched::new(usage.clone(), switch.clone());
    let layer = ShedLayer::new(switched, |_: &Request<()>| Class::Sheddable(0));
    let service = layer.layer(Inner::new().with_body(&LONG));
    let first = call(&mut service.clone(), get("/")).await.unwrap();
    let second = call(&mut service.clone(), get("/")).await.unwrap();
    let _: &Held<TestBody, Option<_>> = second.body();
    assert_eq!((usage.in_use().sheddable, switch.stats().held_back), (1, 1));

    // The end of the one that holds nothing ends no other.
    assert_eq!(
        second.into_body().collect().await.unwrap().to_bytes(),
        "onetwo"
    );
    assert_eq!(usage.in_use().sheddable, 1);
    switch.set_mode(Mode::Active);
    let refused = call(&mut service.clone(), get("/")).await.unwrap_err();
    assert!(refused.is_shed());
    drop(first);
    assert_eq!(usage.in_use().sheddable, 0);
    assert!(call(&mut service.clone(), get("/")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn of_requests_beyond_the_usage_a_share_is_refused() {
    let usage = FleetUsage::new(1, 0);
    let switch = Switch::new().with_share(Share::percent(20));
    let held = usage.admit(Class::Sheddable(0));
    let switched = Switched::new(usage, switch.clone());
    let layer = ShedLayer::new(switched, |_: &u32| Class::Sheddable(0)).until_response();
    let mut service = layer.layer(echo());
    let mut shed = 0;
    for n in 0..10_000 {
        shed += u32::from(call(&mut service, n).await.is_err());
    }
    assert_eq!((shed, switch.stats().held_back), (2_000, 8_000));
    drop(held);
    assert!(call(&mut service, 1).await.is_ok());
}
