use std::convert::Infallible;
use std::error::Error as _;
use std::future::poll_fn;
use std::time::Duration;

use ::tower::{Layer, Service, ServiceExt, service_fn};
use futures::FutureExt;
use futures::future::join_all;
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode};
use paceline::fair::FairShare;
use paceline::limiter::{Fair, Limits, Mode, PolicyExt, Status, Switch, Switched};
use paceline::policy::{Interval, TokenBucket};
use paceline::time::Rate;
use paceline_tower::{Answer, EnforceLayer, Error, Refusal};
use testkit::probe::service::{Inner, InnerError};
use testkit::wakes::Driven;

use super::{Remote, call, echo, get, no_content, per_second};
use crate::timed::{ms, sleep};

#[tokio::test(start_paused = true)]
async fn what_the_limit_allows_passes_and_the_rest_is_refused() {
    let mut service = EnforceLayer::new(per_second(5)).layer(echo());
    for n in 0..5 {
        assert_eq!(call(&mut service, n).await.unwrap(), n);
    }
    for n in 5..10 {
        assert!(call(&mut service, n).await.unwrap_err().is_too_soon());
    }
    sleep(200).await;
    assert_eq!(call(&mut service, 10).await.unwrap(), 10);
    assert!(call(&mut service, 11).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_says_how_long_to_wait_and_what_is_left() {
    let mut service = EnforceLayer::new(per_second(2)).layer(echo());
    for n in 0..2 {
        call(&mut service, n).await.unwrap();
    }
    sleep(100).await;
    let error = call(&mut service, 2).await.unwrap_err();
    assert_eq!(error.retry_in(), Some(ms(400)));
    assert_eq!(error.to_string(), "rate limit exceeded, retry in 400ms");
    let refusal = error.refusal().unwrap();
    assert!(refusal.is_quota_exceeded());
    assert_eq!(refusal.status().unwrap().remaining, 0);

    sleep(400).await;
    assert!(call(&mut service, 3).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn what_costs_more_than_can_ever_pass_is_refused_with_both_numbers() {
    let layer = EnforceLayer::new(per_second(5)).costing(|cost: &u32| *cost);
    let mut service = layer.layer(echo());
    let error = call(&mut service, 6).await.unwrap_err();
    assert!(error.is_too_costly() && !error.is_too_soon());
    assert_eq!(error.retry_in(), None);
    let message = "a cost of 6 can never pass a limit of 5 at once";
    assert_eq!(error.to_string(), message);
    assert_eq!(call(&mut service, 5).await.unwrap(), 5);
}

#[tokio::test(start_paused = true)]
async fn the_cost_is_charged_and_zero_passes_always() {
    let layer = EnforceLayer::new(per_second(5)).costing(|cost: &u32| *cost);
    let mut service = layer.layer(echo());
    assert!(call(&mut service, 3).await.is_ok());
    assert!(call(&mut service, 3).await.is_err());
    assert!(call(&mut service, 2).await.is_ok());
    assert!(call(&mut service, 1).await.is_err());
    assert!(call(&mut service, 0).await.is_ok());
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
async fn of_1_500_requests_over_100_clones_on_5_a_second_5_pass() {
    let service = EnforceLayer::new(per_second(5)).layer(echo());
    let clones = (0..100).map(|_| service.clone());
    let responses = clones.map(|mut service| async move {
        let mut passed = 0;
        for n in 0..15 {
            passed += u32::from(call(&mut service, n).await.is_ok());
            tokio::task::yield_now().await;
        }
        passed
    });
    assert_eq!(join_all(responses).await.iter().sum::<u32>(), 5);
}

#[tokio::test(start_paused = true)]
async fn services_of_one_layer_and_of_its_clones_share_the_limit() {
    let layer = EnforceLayer::new(per_second(2));
    let mut one = layer.layer(echo());
    let mut two = layer.clone().layer(echo());
    assert!(call(&mut one, 0).await.is_ok());
    assert!(call(&mut two, 0).await.is_ok());
    assert!(call(&mut one, 0).await.is_err());
    assert!(call(&mut two, 0).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn to_be_ready_takes_nothing_from_the_limit() {
    let limit = per_second(1);
    let service = EnforceLayer::new(limit.clone()).layer(echo());
    let mut idle: Vec<_> = (0..100).map(|_| service.clone()).collect();
    for service in &mut idle {
        for _ in 0..10 {
            service.ready().await.unwrap();
        }
    }
    assert_eq!(limit.stats().passed, 0);
    assert!(call(&mut service.clone(), 0).await.is_ok());
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
async fn an_answer_that_is_under_way_is_waited_for() {
    let inner = Inner::new();
    let limit = Remote::passing_after(3);
    let mut service = EnforceLayer::new(limit.clone()).layer(inner.clone());
    ServiceExt::<u32>::ready(&mut service).await.unwrap();
    let mut response = Driven::new(service.call(0));
    assert_eq!(inner.used().reserved, 1, "the future has the ready service");
    for _ in 0..2 {
        assert!(response.poll().is_pending());
        assert!(response.is_woken());
    }
    assert!(response.poll().is_ready());
    let used = inner.used();
    assert_eq!((used.calls, used.calls_unready, used.reserved), (1, 0, 0));
    assert_eq!(limit.asked.lock().unwrap().passed, 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_under_way_can_be_a_refusal() {
    let inner = Inner::new();
    let layer = EnforceLayer::new(Remote::refusing_after(2, ms(70)));
    let mut service = layer.layer(inner.clone());
    let error = call(&mut service, 0).await.unwrap_err();
    assert!(error.is_too_soon());
    assert_eq!(error.retry_in(), Some(ms(70)));
    assert_eq!(inner.used().calls, 0);
    assert_eq!(inner.used().reserved, 0);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_wait_is_not_reported() {
    let layer = EnforceLayer::new(Remote::refusing_after(0, Duration::MAX));
    let error = call(&mut layer.layer(echo()), 0).await.unwrap_err();
    assert_eq!(error.retry_in(), None);
    assert_eq!(error.to_string(), "rate limit exceeded");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_cancelled_while_its_answer_is_under_way_leaves_no_trace() {
    let inner = Inner::new();
    let limit = Remote::passing_after(3);
    let mut service = EnforceLayer::new(limit.clone()).layer(inner.clone());
    ServiceExt::<u32>::ready(&mut service).await.unwrap();
    let mut response = Driven::new(service.call(0));
    assert!(response.poll().is_pending());
    drop(response);

    let asked = limit.asked.lock().unwrap();
    assert_eq!((asked.passed, asked.cancelled, asked.under_way), (0, 1, 0));
    drop(asked);
    assert_eq!(inner.used(), Inner::new().used());
}

#[test]
fn it_works_outside_a_runtime() {
    let mut service = EnforceLayer::new(per_second(2)).layer(echo());
    let mut passes = || call(&mut service, 0).now_or_never().unwrap().is_ok();
    assert_eq!([passes(), passes(), passes()], [true, true, false]);
}

#[tokio::test(start_paused = true)]
async fn of_100_000_calls_in_one_task_none_is_shed_while_there_is_room() {
    let bucket = TokenBucket::new(Rate::per_second(1), 100_000).shared();
    let in_memory = EnforceLayer::new(bucket).layer(echo());
    let by_budget = EnforceLayer::new(Budgeted).layer(echo());
    for _ in 0..100 {
        let calls = (0..1_000).map(|n| in_memory.clone().oneshot(n));
        assert!(join_all(calls).await.iter().all(Result::is_ok));
        let calls = (0..1_000).map(|n| by_budget.clone().oneshot(n));
        assert!(join_all(calls).await.iter().all(Result::is_ok));
    }
    assert!(call(&mut in_memory.clone(), 0).await.is_err());
}

/// A limiter without a limit that takes part in tokio's cooperative scheduling, as a channel does.
#[derive(Clone)]
pub(super) struct Budgeted;

impl paceline::limiter::Limiter for Budgeted {
    type Error = Infallible;

    fn poll_decide(
        &mut self,
        _: u32,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<paceline::policy::Decision, Infallible>> {
        let coop = std::task::ready!(tokio::task::coop::poll_proceed(cx));
        coop.made_progress();
        std::task::Poll::Ready(Ok(paceline::policy::Decision::Pass))
    }

    fn give_up(&mut self) {}
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

#[tokio::test(start_paused = true)]
async fn with_answers_the_error_is_that_of_the_inner_service() {
    let layer = EnforceLayer::new(per_second(1)).answering_with(|head: &Parts, refusal| {
        let body = format!("{} {refusal}", head.uri.path());
        Response::builder().status(429).body(body).unwrap()
    });
    let inner = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(no_content()) });
    let mut service = layer.layer(inner);
    let Ok(response) = call(&mut service, get("/a")).await;
    assert_eq!(response.status(), StatusCode::NO_CONTENT);
    let Ok(response) = call(&mut service, get("/b")).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(response.body(), "/b rate limit exceeded, retry in 1s");
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
        Ok::<_, Infallible>(no_content())
    });
    let service = EnforceLayer::new(per_second(2))
        .answering(Left)
        .layer(inner);
    let responses = join_all((0..3).map(|_| service.clone().oneshot(get("/")))).await;
    let left = responses.into_iter().map(|response| {
        let Ok(response) = response;
        (
            response.status().as_u16(),
            response.headers()["left"].to_str().unwrap().to_owned(),
        )
    });
    let expected = [(204, "1"), (204, "0"), (429, "0")].map(|(s, l)| (s, l.to_owned()));
    assert_eq!(left.collect::<Vec<_>>(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_switch_around_the_limits_turns_the_layer_off_and_on() {
    let switch = Switch::new();
    let users = Interval::every(ms(100)).keyed::<u32>();
    let users = Switched::new(users, switch.clone());
    let layer = EnforceLayer::by_key(users, |n: &u32| Some(*n));
    let mut service = layer.layer(echo());
    assert!(call(&mut service, 0).await.is_ok());
    for (mode, passes) in [
        (Mode::Active, false),
        (Mode::Shadow, true),
        (Mode::Off, true),
        (Mode::Active, false),
    ] {
        switch.set_mode(mode);
        assert_eq!(call(&mut service, 0).await.is_ok(), passes, "{mode:?}");
    }
}

/// Limits that refuse the key 13.
#[derive(Clone)]
struct NoThirteen;

impl Limits<u32> for NoThirteen {
    type Limit = Remote;
    type Error = &'static str;

    fn at(&self, key: u32) -> Result<Remote, &'static str> {
        if key == 13 {
            Err("unlucky")
        } else {
            Ok(Remote::default())
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_the_limits_refuse_is_refused_and_no_failure() {
    let layer = EnforceLayer::by_key(NoThirteen, |n: &u32| Some(*n));
    let mut service = layer.layer(echo());
    assert!(call(&mut service, 12).await.is_ok());
    let error = call(&mut service, 13).await.unwrap_err();
    assert!(error.is_bad_key() && !error.is_limiter_failed());
    assert_eq!(error.to_string(), "the key of the request cannot be used");
    assert_eq!(layer.failures(), paceline_tower::Failures::default());
}

#[tokio::test(start_paused = true)]
async fn clients_that_share_a_capacity_are_limits_by_key() {
    let clients = Fair::new(FairShare::new(2, ms(100)));
    let layer = EnforceLayer::by_key(clients, |client: &&'static str| Some(*client));
    let mut service = layer.layer(service_fn(|client: &'static str| async move {
        Ok::<_, Infallible>(client)
    }));
    for _ in 0..2 {
        assert!(call(&mut service, "a").await.is_ok());
    }
    let refused = call(&mut service, "a").await.unwrap_err();
    assert_eq!(refused.retry_in(), Some(ms(100)));
    let left = refused.refusal().and_then(Refusal::status);
    assert_eq!(left.map(|left| left.remaining), Some(0));
}
