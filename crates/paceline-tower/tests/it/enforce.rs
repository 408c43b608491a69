use std::convert::Infallible;
use std::error::Error as _;
use std::future::poll_fn;
use std::time::Duration;

use ::tower::{Layer, Service, ServiceExt, service_fn};
use futures::future::join_all;
use http::request::Parts;
use http::{HeaderMap, Request, Response};
use paceline::fair::{FairShare, GuaranteedShare};
use paceline::limiter::{Fair, PolicyExt, Status};
use paceline::policy::Interval;
use paceline_tower::{Answer, EnforceLayer, Error, Refusal};
use testkit::probe::service::{Inner, InnerError};
use testkit::wakes::Driven;

use super::{Remote, call, echo, get, per_second};
use crate::timed::{ms, sleep};

#[tokio::test(start_paused = true)]
async fn what_the_limit_allows_passes_and_a_refusal_says_how_long_to_wait_and_what_is_left() {
    let mut service = EnforceLayer::new(per_second(2)).layer(echo());
    for n in 0..2 {
        assert_eq!(call(&mut service, n).await.unwrap(), n);
    }
    sleep(100).await;
    let error = call(&mut service, 2).await.unwrap_err();
    assert!(error.is_too_soon());
    assert_eq!(error.retry_in(), Some(ms(400)));
    assert_eq!(error.to_string(), "rate limit exceeded, retry in 400ms");
    let refusal = error.refusal().unwrap();
    assert!(refusal.is_quota_exceeded());
    assert_eq!(refusal.status().unwrap().remaining, 0);

    sleep(400).await;
    assert!(call(&mut service, 3).await.is_ok());
    assert!(call(&mut service, 4).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn the_cost_is_charged_zero_passes_and_too_much_is_refused_with_both_numbers() {
    let layer = EnforceLayer::new(per_second(5)).costing(|cost: &u32| *cost);
    let mut service = layer.layer(echo());
    for (cost, passes) in [(3, true), (3, false), (2, true), (1, false), (0, true)] {
        assert_eq!(call(&mut service, cost).await.is_ok(), passes, "{cost}");
    }
    let error = call(&mut service, 6).await.unwrap_err();
    assert!(error.is_too_costly() && !error.is_too_soon());
    assert_eq!(error.retry_in(), None);
    let message = "a cost of 6 can never pass a limit of 5 at once";
    assert_eq!(error.to_string(), message);
}

#[tokio::test(start_paused = true)]
async fn each_key_has_a_limit_and_a_request_without_a_key_has_none() {
    let users = Interval::every(ms(100)).keyed::<u32>();
    let layer = EnforceLayer::by_key(users.clone(), |n: &u32| (*n > 0).then_some(*n));
    let mut service = layer.layer(echo());
    for user in 1..4 {
        assert!(call(&mut service, user).await.is_ok());
        assert!(call(&mut service, user).await.is_err());
    }
    for _ in 0..100 {
        assert!(call(&mut service, 0).await.is_ok());
    }
    assert_eq!(users.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn services_of_one_layer_and_of_its_clones_share_the_limit() {
    let layer = EnforceLayer::new(per_second(2));
    let mut services = [layer.layer(echo()), layer.clone().layer(echo())];
    for passes in [true, false] {
        for service in &mut services {
            assert_eq!(call(service, 0).await.is_ok(), passes);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_ready_when_the_inner_service_is() {
    let inner = Inner::new();
    inner.set_ready(false);
    let service = EnforceLayer::new(per_second(1)).layer(inner.clone());
    let mut ready = Driven::new(ServiceExt::<u32>::ready_oneshot(service));
    assert!(ready.poll().is_pending());
    inner.set_ready(true);
    assert!(ready.is_woken());
    assert!(ready.poll().is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_leaves_the_inner_service_ready() {
    let inner = Inner::new();
    let mut service = EnforceLayer::new(per_second(1)).layer(inner.clone());
    call(&mut service, 0).await.unwrap();

    poll_fn(|cx| Service::<u32>::poll_ready(&mut service, cx))
        .await
        .unwrap();
    assert_eq!(inner.used().reserved, 1);
    service.call(1).await.unwrap_err();
    assert_eq!(inner.used().reserved, 1);

    // So it need not be ready anew.
    inner.set_ready(false);
    sleep(1000).await;
    call(&mut service, 2).await.unwrap();
    let used = inner.used();
    assert_eq!((used.calls, used.calls_unready, used.reserved), (2, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_under_way_is_waited_for_and_a_call_dropped_meanwhile_leaves_no_trace() {
    let inner = Inner::new();
    let limit = Remote::passing_after(3);
    let mut service = EnforceLayer::new(limit.clone()).layer(inner.clone());
    for is_dropped in [true, false] {
        ServiceExt::<u32>::ready(&mut service).await.unwrap();
        let mut response = Driven::new(service.call(0));
        assert_eq!(inner.used().reserved, 1, "the future has the ready service");
        for _ in 0..2 {
            assert!(response.poll().is_pending());
            assert!(response.is_woken());
        }
        if is_dropped {
            drop(response);
            assert_eq!(inner.used(), Inner::new().used());
        } else {
            assert!(response.poll().is_ready());
        }
    }
    let used = inner.used();
    assert_eq!((used.calls, used.calls_unready, used.reserved), (1, 0, 0));
    let asked = limit.asked.lock().unwrap();
    assert_eq!((asked.passed, asked.cancelled, asked.under_way), (1, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_under_way_can_be_a_refusal_and_a_wait_that_is_not_known_is_not_said() {
    for (pending, wait, known, text) in [
        (
            2,
            ms(70),
            Some(ms(70)),
            "rate limit exceeded, retry in 70ms",
        ),
        (2, Duration::MAX, None, "rate limit exceeded"),
        (0, Duration::MAX, None, "rate limit exceeded"),
    ] {
        let inner = Inner::new();
        let layer = EnforceLayer::new(Remote::refusing_after(pending, wait));
        let error = call(&mut layer.layer(inner.clone()), 0).await.unwrap_err();
        assert!(error.is_too_soon());
        assert_eq!((error.retry_in(), &*error.to_string()), (known, text));
        assert_eq!((inner.used().calls, inner.used().reserved), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn the_inner_error_keeps_its_type_and_is_the_source() {
    let mut service = EnforceLayer::new(per_second(1)).layer(Inner::new().failing());
    let error: Error<InnerError> = call(&mut service, 0).await.unwrap_err();
    assert!(error.is_inner() && !error.is_refused());
    assert_eq!(error.to_string(), "the inner service failed");
    let source = error.source().unwrap();
    assert_eq!(source.downcast_ref(), Some(&InnerError));
    assert_eq!(error.into_inner(), Ok(InnerError));

    let refused = call(&mut service, 0).await.unwrap_err();
    assert!(refused.source().is_none());
    assert!(refused.into_inner().unwrap_err().is_too_soon());
}

/// Says in each response how many requests are left.
#[derive(Clone)]
struct Left;

impl Answer<String> for Left {
    fn refuse(&self, _: &Parts, refusal: &Refusal) -> Response<String> {
        let left = refusal.status().unwrap().remaining;
        let response = Response::builder().status(429).header("left", left);
        response.body(String::new()).unwrap()
    }

    fn annotates(&self) -> bool {
        true
    }

    fn annotate(&self, headers: &mut HeaderMap, status: &Status) {
        headers.insert("left", status.remaining.into());
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_reads_what_is_left_after_the_request_had_passed() {
    let inner = service_fn(|_: Request<()>| async {
        sleep(900).await;
        Ok::<_, Infallible>(Response::new(String::new()))
    });
    let layer = EnforceLayer::new(per_second(2)).answering(Left);
    let service = layer.layer(inner);
    let responses = join_all((0..3).map(|_| service.clone().oneshot(get("/")))).await;
    let left = responses.iter().map(|response| {
        let response = response.as_ref().unwrap();
        let left = response.headers()["left"].to_str().unwrap();
        (response.status().as_u16(), left)
    });
    let left: Vec<_> = left.collect();
    assert_eq!(left, [(200, "1"), (200, "0"), (429, "0")]);
}

#[tokio::test(start_paused = true)]
async fn clients_that_share_a_capacity_are_limits_by_key() {
    let clients = Fair::new(FairShare::new(2, ms(100)));
    let mut service = EnforceLayer::by_key(clients, |client: &u32| Some(*client)).layer(echo());
    for _ in 0..2 {
        assert!(call(&mut service, 7).await.is_ok());
    }
    let refused = call(&mut service, 7).await.unwrap_err();
    assert_eq!(refused.retry_in(), Some(ms(100)));
    let left = refused.refusal().and_then(Refusal::status);
    assert_eq!(left.map(|left| left.remaining), Some(0));
}

#[tokio::test(start_paused = true)]
async fn a_client_has_its_guaranteed_share_after_another_has_taken_the_rest() {
    let clients = Fair::new(GuaranteedShare::new(20, ms(1_000)));
    let layer = EnforceLayer::by_key(clients, |client: &u32| Some(*client));
    let mut service = layer.layer(echo());
    assert!(call(&mut service, 7).await.is_ok());
    for _ in 0..14 {
        assert!(call(&mut service, 8).await.is_ok());
    }
    let refused = call(&mut service, 8).await.unwrap_err();
    // Half of the rate, and what flows past the full bucket of the other client.
    assert_eq!(refused.retry_in(), Some(ms(50)));
    for _ in 0..10 {
        assert!(call(&mut service, 7).await.is_ok());
    }
    assert!(call(&mut service, 7).await.is_err());
}
