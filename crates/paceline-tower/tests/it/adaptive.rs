//! The layer whose permits follow what the responses say.

use std::convert::Infallible;

use ::tower::{Layer, Service, ServiceExt, service_fn};
use futures::FutureExt;
use futures::future::join_all;
use http::{Request, Response};
use http_body_util::BodyExt;
use paceline::concurrency::{Adaptive, Aimd, Controller, Gradient, Outcome};
use paceline::time::Tick;
use paceline_tower::{AdaptiveLayer, BadKey, Failures, For};
use testkit::clock::jump;
use testkit::probe::service::{Inner, InnerError, Part, Stage};
use testkit::wakes::Driven;

use super::{NeverReady, call, echo, get, hello};
use crate::recorded::{Recorded, outcomes, success};
use crate::timed::{ms, now, since, sleep};

#[tokio::test(start_paused = true)]
async fn by_default_429_and_503_are_drops_and_other_failures_say_nothing() {
    let inner = service_fn(|request: Request<()>| async move {
        sleep(5).await;
        let status = request.uri().path()[1..].parse::<u16>();
        let response = Response::builder().status(status.map_err(|_| InnerError)?);
        Ok::<_, InnerError>(response.body(String::new()).unwrap())
    });
    let adaptive = Adaptive::new(Recorded::at(9));
    let mut service = AdaptiveLayer::new(adaptive.clone()).layer(inner);
    let (dropped, ignored) = (Outcome::Dropped, Outcome::Ignored);
    let expected = [
        ("/200", success(5)),
        ("/204", success(5)),
        ("/304", success(5)),
        ("/400", success(5)),
        ("/404", success(5)),
        ("/429", dropped),
        ("/503", dropped),
        ("/500", ignored),
        ("/501", ignored),
        ("/502", ignored),
        ("/504", ignored),
        ("/error", ignored),
    ];
    for (path, _) in expected {
        let _ = call(&mut service, get(path)).await;
    }
    assert_eq!(outcomes(&adaptive), expected.map(|(_, outcome)| outcome));
    assert_eq!(adaptive.permits().in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_latency_ends_with_the_head_and_the_permit_with_the_body() {
    let adaptive = Adaptive::new(Recorded::at(1));
    let frames = [Part::Pause, Part::Data(b"one"), Part::Pause, Part::Trailers];
    let inner = Inner::new().taking(ms(10)).with_body(&frames);
    let layer = AdaptiveLayer::new(adaptive.clone());
    let response = call(&mut layer.layer(inner.clone()), get("/"))
        .await
        .unwrap();
    assert_eq!(outcomes(&adaptive), [success(10)]);
    assert_eq!(adaptive.permits().in_use(), 1);
    assert!(response.body().is_held());
    response.into_body().collect().await.unwrap();
    assert_eq!(outcomes(&adaptive), [success(10)]);
    assert_eq!(adaptive.permits().in_use(), 0);

    let mut service = layer.until_response().layer(inner);
    let response = call(&mut service, get("/")).await.unwrap();
    assert_eq!(adaptive.permits().in_use(), 0);
    drop(response);
    assert_eq!(outcomes(&adaptive), [success(10); 2]);
}

#[tokio::test(start_paused = true)]
async fn the_latency_has_no_wait_for_a_permit_and_has_the_wait_for_the_service() {
    let adaptive = Adaptive::new(Recorded::at(1));
    let inner = Inner::new().taking(ms(10));
    let service = AdaptiveLayer::new(adaptive.clone()).layer(inner.clone());
    let start = now();
    let calls = (0..3).map(|_| service.clone().oneshot(get("/")).map(|_| since(start)));
    assert_eq!(join_all(calls).await, [10, 20, 30]);
    assert_eq!(outcomes(&adaptive), [success(10); 3]);

    inner.set_ready(false);
    let late = tokio::spawn(service.oneshot(get("/")));
    sleep(20).await;
    inner.set_ready(true);
    late.await.unwrap().unwrap();
    assert_eq!(outcomes(&adaptive)[3], success(30));
}

#[tokio::test(start_paused = true)]
async fn a_future_that_is_woken_late_counts_from_its_permit() {
    let adaptive = Adaptive::new(Recorded::at(1));
    let service = AdaptiveLayer::new(adaptive.clone()).layer(Inner::new().taking(ms(10)));
    let held = adaptive.acquire().await;
    let mut late = Driven::new(service.oneshot(get("/")));
    assert!(late.poll().is_pending());
    held.success();
    jump(ms(500)).await;
    assert!(late.poll().is_pending());
    jump(ms(25)).await;
    assert!(late.poll().is_ready());
    assert_eq!(outcomes(&adaptive), [success(0), success(25)]);
}

#[tokio::test(start_paused = true)]
async fn a_future_that_is_dropped_says_nothing() {
    let adaptive = Adaptive::new(Recorded::at(1));
    let inner = Inner::new().taking(ms(10));
    let service = AdaptiveLayer::new(adaptive.clone()).layer(inner.clone());
    let mut calls: Vec<_> = (0..3)
        .map(|_| Driven::new(service.clone().oneshot(get("/"))))
        .collect();
    for call in &mut calls {
        assert!(call.poll().is_pending());
    }
    // The one that is called has a permit. The others wait, and are no calls.
    drop(calls);
    assert_eq!(outcomes(&adaptive), [Outcome::Ignored]);
    let permits = adaptive.permits();
    assert_eq!((permits.in_use(), permits.stats().waiting), (0, 0));
    assert_eq!(inner.used().in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_does_not_become_ready_says_nothing() {
    let adaptive = Adaptive::new(Recorded::at(1));
    let layer = AdaptiveLayer::new(adaptive.clone());
    let error = layer.layer(NeverReady).oneshot(get("/")).await.unwrap_err();
    assert_eq!(error.into_inner(), Ok(InnerError));
    assert_eq!(outcomes(&adaptive), [Outcome::Ignored]);
    assert_eq!(adaptive.permits().in_use(), 0);
}

/// A controller that panics when it is used.
struct Panicking;

impl Controller for Panicking {
    fn observe(&mut self, _: Tick, _: u32, _: Outcome) {
        panic!("as it should");
    }

    fn limit(&self) -> u32 {
        1
    }
}

#[tokio::test(start_paused = true)]
async fn a_classifier_or_a_controller_that_panics_is_counted_and_the_response_goes_on() {
    let mut expected = Failures::default();
    expected.outcome_panics = 3;

    let adaptive = Adaptive::new(Recorded::at(1));
    let layer = AdaptiveLayer::new(adaptive.clone())
        .classifying(|_: &Result<u32, Infallible>, _| -> Outcome { panic!("as it should") })
        .until_response();
    for n in 0..3 {
        assert_eq!(call(&mut layer.layer(echo()), n).await.unwrap(), n);
    }
    assert_eq!(layer.failures(), expected);
    assert_eq!(outcomes(&adaptive), [Outcome::Ignored; 3]);
    assert_eq!(adaptive.permits().in_use(), 0);

    let adaptive = Adaptive::new(Panicking);
    let layer = AdaptiveLayer::new(adaptive.clone());
    for _ in 0..3 {
        assert!(call(&mut layer.layer(hello()), get("/")).await.is_ok());
    }
    assert_eq!(layer.failures(), expected);
    assert_eq!(adaptive.permits().in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_panics_on_a_dropped_call_panics_its_task_and_the_permit_comes_back() {
    let adaptive = Adaptive::new(Panicking);
    let layer = AdaptiveLayer::new(adaptive.clone());
    let mut cancelled = Driven::new(layer.layer(Inner::new().taking(ms(10))).oneshot(get("/")));
    assert!(cancelled.poll().is_pending());
    assert_eq!(adaptive.permits().in_use(), 1);
    let dropped = tokio::spawn(async move { drop(cancelled) }).await;
    assert!(dropped.unwrap_err().is_panic());
    assert_eq!(adaptive.permits().in_use(), 0);
    assert_eq!(layer.failures(), Failures::default());
}

#[tokio::test(start_paused = true)]
async fn at_once_a_refusal_can_be_answered_and_reports_nothing() {
    let adaptive = Adaptive::new(Recorded::at(1));
    let layer = AdaptiveLayer::new(adaptive.clone())
        .at_once()
        .answering_with(|_, refusal| {
            assert!(refusal.is_no_room());
            let response = Response::builder().status(503);
            response.body(refusal.to_string()).unwrap()
        });
    let mut service = layer.layer(hello());
    let Ok(first) = call(&mut service, get("/")).await;
    let Ok(second) = call(&mut service, get("/")).await;
    assert_eq!(
        (first.status().as_u16(), second.status().as_u16()),
        (200, 503)
    );
    assert!(first.body().is_held() && !second.body().is_held());
    assert_eq!(outcomes(&adaptive), [success(0)]);
}

#[tokio::test(start_paused = true)]
async fn terms_choose_the_limit_of_a_request() {
    let hosts = [1, 2].map(|n| Adaptive::new(Recorded::at(n)));
    let [a, b] = hosts.clone();
    let layer = AdaptiveLayer::with_terms(For::each(move |request: &Request<()>| {
        match request.uri().path() {
            "/a" => Ok(Some(a.clone())),
            "/b" => Ok(Some(b.clone())),
            "/bad" => Err(BadKey::default()),
            _ => Ok(None),
        }
    }));
    let mut service = layer.layer(hello());
    for path in ["/a", "/b", "/b", "/free", "/bad"] {
        let passes = call(&mut service, get(path)).await.is_ok();
        assert_eq!(passes, path != "/bad", "{path}");
    }
    assert_eq!(hosts.map(|host| outcomes(&host).len()), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn in_flight_is_never_above_the_limit_of_the_moment_on_random_schedules() {
    for seed in 0..2_000 {
        fastrand::seed(seed);
        let start = fastrand::u32(1..=6);
        if fastrand::bool() {
            let aimd = Aimd::new(1, 6).with_start(start);
            random_schedule(Adaptive::new(aimd)).await;
        } else {
            let gradient = Gradient::new(1, 6).with_start(start).with_window(ms(5));
            random_schedule(Adaptive::new(gradient)).await;
        }
    }
}

async fn random_schedule<C: Controller + Clone>(adaptive: Adaptive<C>) {
    let frames = [Part::Data(b"a"), Part::Trailers];
    let inner = Inner::new().with_body(&frames).taking(ms(2));
    let drops = fastrand::u8(1..9);
    let outcome = move |_: &Result<_, _>, latency| match fastrand::u8(..10) {
        dice if dice < drops => Outcome::Dropped,
        9 => Outcome::Ignored,
        _ => Outcome::Success { latency },
    };
    let layer = AdaptiveLayer::new(adaptive.clone()).classifying(outcome);
    let service = layer.layer(inner.clone());
    let mut calls = Vec::new();
    for _ in 0..60 {
        let before = (adaptive.permits().in_use(), adaptive.permits().limit());
        match fastrand::usize(..=calls.len()) {
            index if index == calls.len() => {
                let mut service = service.clone();
                calls.push(Stage::new(service.call(get("/"))));
            }
            index if fastrand::u8(..6) == 0 => drop(calls.swap_remove(index)),
            _ if fastrand::u8(..6) == 0 => jump(ms(fastrand::u64(..4))).await,
            index => Stage::step(&mut calls, index),
        }
        let (in_use, limit) = (adaptive.permits().in_use(), adaptive.permits().limit());
        assert!(
            in_use <= before.0.max(before.1),
            "{in_use} after {before:?}"
        );
        assert!(inner.used().in_flight <= in_use);
        assert_eq!(limit, adaptive.controller().limit());
        assert_eq!(inner.used().calls_unready, 0);
    }
    while !calls.is_empty() {
        for _ in 0..calls.len() {
            Stage::step(&mut calls, 0);
        }
        jump(ms(2)).await;
    }
    assert_eq!(adaptive.permits().in_use(), 0);
    assert_eq!((inner.used().in_flight, inner.used().reserved), (0, 0));
}
