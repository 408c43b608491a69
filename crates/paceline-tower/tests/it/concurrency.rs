use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use ::tower::{Layer, Service, ServiceExt};
use futures::FutureExt;
use futures::future::join_all;
use http::request::Parts;
use http::{Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full, StreamBody};
use paceline::concurrency::{KeyedPermits, Permits};
use paceline_tower::{ConcurrencyLayer, Held};
use testkit::clock::Stopwatch;
use testkit::probe::service::{Inner, InnerError, Part, TestBody};
use testkit::wakes::Driven;

use super::{call, echo, get};
use crate::timed::{ms, sleep};

const LONG: [Part; 5] = [
    Part::Data(b"one"),
    Part::Pause,
    Part::Data(b"two"),
    Part::Pause,
    Part::Trailers,
];

async fn respond(permits: &Permits, frames: &[Part]) -> Response<Held<TestBody>> {
    let layer = ConcurrencyLayer::new(permits.clone());
    let inner = Inner::new().with_body(frames);
    call(&mut layer.layer(inner), get("/")).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_request_is_under_way_until_its_body_has_ended_trailers_included() {
    let permits = Permits::new(1);
    let response = respond(&permits, &LONG).await;
    let mut body = response.into_body();
    for frame in 0..3 {
        assert_eq!(permits.in_use(), 1, "before frame {frame}");
        assert!(body.is_held());
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.is_trailers(), permits.in_use() == 0);
    }
    assert_eq!(permits.in_use(), 0);
    assert!(body.frame().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_know_its_end_is_held_until_it_says_so() {
    let permits = Permits::new(1);
    let inner = ::tower::service_fn(|_: http::Request<()>| async {
        let frames = futures::stream::iter([Ok::<_, Infallible>(Frame::data(&b"a"[..]))]);
        Ok::<_, Infallible>(Response::new(StreamBody::new(frames)))
    });
    let layer = ConcurrencyLayer::new(permits.clone());
    let response = call(&mut layer.layer(inner), get("/")).await.unwrap();
    let mut body = response.into_body();
    assert!(body.frame().await.is_some());
    assert_eq!(permits.in_use(), 1);
    assert!(body.frame().await.is_none());
    assert_eq!(permits.in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn trailers_end_the_request_of_a_body_that_does_not_know_its_end() {
    let permits = Permits::new(1);
    let inner = ::tower::service_fn(|_: http::Request<()>| async {
        let trailers = Frame::<&[u8]>::trailers(http::HeaderMap::new());
        let frames = futures::stream::iter([Ok::<_, Infallible>(trailers)]);
        Ok::<_, Infallible>(Response::new(StreamBody::new(frames)))
    });
    let layer = ConcurrencyLayer::new(permits.clone());
    let response = call(&mut layer.layer(inner), get("/")).await.unwrap();
    let mut body = response.into_body();
    assert_eq!(permits.in_use(), 1);
    let frame = body.frame().await.unwrap().unwrap();
    assert!(frame.is_trailers() && !body.is_end_stream());
    assert_eq!(permits.in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_dropped_ends_the_request() {
    let permits = Permits::new(1);
    let response = respond(&permits, &LONG).await;
    assert_eq!(permits.in_use(), 1);
    drop(response);
    assert_eq!(permits.in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_fails_ends_the_request() {
    let permits = Permits::new(1);
    let frames = [Part::Data(b"one"), Part::Failure, Part::Data(b"two")];
    let mut body = respond(&permits, &frames).await.into_body();
    body.frame().await.unwrap().unwrap();
    assert_eq!(permits.in_use(), 1);
    assert_eq!(body.frame().await.unwrap().unwrap_err(), InnerError);
    assert_eq!(permits.in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_empty_body_ends_the_request_with_the_head() {
    let permits = Permits::new(1);
    let response = respond(&permits, &[]).await;
    assert!(response.body().is_end_stream());
    assert_eq!(permits.in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_body_says_of_itself_what_the_inner_body_says() {
    let mut body = respond(&Permits::new(1), &LONG).await.into_body();
    assert_eq!(body.size_hint().exact(), Some(6));
    assert!(!body.is_end_stream());
    let collected = (&mut body).collect().await.unwrap();
    assert_eq!(collected.trailers().unwrap()["part"], "trailers");
    assert_eq!(collected.to_bytes(), "onetwo");
    assert!(body.is_end_stream());
    assert_eq!(body.size_hint().exact(), Some(0));
}

#[tokio::test(start_paused = true)]
async fn until_response_it_ends_with_the_head_and_the_body_keeps_its_type() {
    let permits = Permits::new(1);
    let layer = ConcurrencyLayer::new(permits.clone()).until_response();
    let inner = Inner::new().with_body(&LONG).taking(ms(10));
    let mut service = layer.layer(inner.clone());
    let mut response = Driven::new(service.call(get("/")));
    assert!(response.poll().is_pending());
    assert_eq!(permits.in_use(), 1);
    let response: Response<TestBody> = response.into_pin().await.unwrap();
    assert_eq!(permits.in_use(), 0);
    drop(response);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_not_for_http_has_until_response() {
    let layer = ConcurrencyLayer::new(Permits::new(1)).until_response();
    assert_eq!(call(&mut layer.layer(echo()), 7).await.unwrap(), 7);
}

#[tokio::test(start_paused = true)]
async fn requests_wait_in_line_for_a_permit() {
    let permits = Permits::new(2);
    let inner = Inner::new().with_body(&LONG).taking(ms(8));
    let service = ConcurrencyLayer::new(permits.clone()).layer(inner.clone());
    let watch = Stopwatch::start();
    let calls = (0..6).map(|_| {
        let service = service.clone();
        async move {
            let response = service.oneshot(get("/")).await.unwrap();
            response.into_body().collect().await.unwrap();
            watch.elapsed_ms()
        }
    });
    assert_eq!(join_all(calls).await, [10, 10, 20, 20, 30, 30]);
    let used = inner.used();
    assert_eq!((used.most_in_flight, used.calls_unready), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn at_once_there_is_a_permit_or_a_refusal() {
    let permits = Permits::new(1);
    let service = ConcurrencyLayer::new(permits)
        .at_once()
        .layer(Inner::new().with_body(&LONG));
    let first = call(&mut service.clone(), get("/")).await.unwrap();
    let error = call(&mut service.clone(), get("/")).await.unwrap_err();
    assert!(error.is_no_room());
    assert_eq!(error.retry_in(), None);
    drop(first);
    assert!(call(&mut service.clone(), get("/")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn no_more_requests_wait_than_there_are_places() {
    let permits = Permits::new(1);
    let layer = ConcurrencyLayer::new(permits)
        .max_waiting(2)
        .until_response();
    let service = layer.layer(Inner::new().taking(ms(10)));
    let watch = Stopwatch::start();
    let calls = (0..5).map(|_| {
        service
            .clone()
            .oneshot(0)
            .map(|done| (watch.elapsed_ms(), done.is_ok()))
    });
    let done = join_all(calls).await;
    assert_eq!(
        done,
        [(10, true), (20, true), (30, true), (0, false), (0, false)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_permit_ends_when_the_time_is_over() {
    let permits = Permits::new(1);
    let layer = ConcurrencyLayer::new(permits.clone())
        .within(ms(30))
        .until_response();
    let permit = permits.acquire().await;
    let watch = Stopwatch::start();
    let error = call(&mut layer.layer(echo()), 0).await.unwrap_err();
    assert!(error.is_too_late());
    let refusal = error.into_inner().unwrap_err();
    assert!(
        !refusal.is_quota_exceeded(),
        "it is no excess of the caller"
    );
    assert_eq!(watch.elapsed_ms(), 30);
    drop(permit);
    assert!(call(&mut layer.layer(echo()), 0).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn to_be_ready_takes_no_permit_and_an_idle_clone_blocks_no_request() {
    let permits = Permits::new(1);
    let layer = ConcurrencyLayer::new(permits.clone()).until_response();
    let service = layer.layer(echo());
    let mut idle: Vec<_> = (0..100).map(|_| service.clone()).collect();
    for service in &mut idle {
        service.ready().await.unwrap();
    }
    let unpolled: Vec<_> = idle.iter_mut().map(|service| service.call(0)).collect();
    assert_eq!(permits.in_use(), 0);
    assert!(call(&mut service.clone(), 0).await.is_ok());
    drop(unpolled);
}

#[tokio::test(start_paused = true)]
async fn the_inner_service_is_made_ready_under_the_permit() {
    let permits = Permits::new(1);
    let inner = Inner::new();
    inner.set_ready(false);
    let mut service = ConcurrencyLayer::new(permits.clone()).layer(inner.clone());
    let mut response = Driven::new(service.call(get("/")));
    assert!(response.poll().is_pending());
    assert_eq!((permits.in_use(), inner.used().calls), (1, 0));
    inner.set_ready(true);
    assert!(response.poll().is_ready());
    assert_eq!(inner.used().calls_unready, 0);
}

#[tokio::test(start_paused = true)]
async fn cancelled_calls_leave_no_trace() {
    let permits = Permits::new(1);
    let inner = Inner::new().taking(ms(10));
    let service = ConcurrencyLayer::new(permits.clone()).layer(inner.clone());
    let calls = || -> Vec<_> {
        (0..3)
            .map(|_| Driven::new(service.clone().oneshot(get("/"))))
            .collect()
    };
    let mut waiting = calls();
    for call in &mut waiting {
        assert!(call.poll().is_pending());
    }
    assert_eq!((permits.in_use(), inner.used().calls), (1, 1));
    // One that waits, the one that is called, and one that waits.
    drop(waiting.remove(1));
    drop(waiting.remove(0));
    assert_eq!((permits.in_use(), inner.used().in_flight), (0, 0));
    assert!(waiting[0].is_woken());
    drop(waiting);
    assert_eq!((permits.in_use(), inner.used().in_flight), (0, 0));
    assert!(call(&mut service.clone(), get("/")).await.is_ok());
}

/// A future that never ends, and notes how many permits are in use when it is dropped.
struct Noting {
    permits: Permits,
    noted: Arc<Mutex<Vec<u32>>>,
}

impl Future for Noting {
    type Output = Result<Response<String>, Infallible>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Pending
    }
}

impl Drop for Noting {
    fn drop(&mut self) {
        self.noted.lock().unwrap().push(self.permits.in_use());
    }
}

#[tokio::test(start_paused = true)]
async fn a_permit_comes_back_after_the_future_of_the_inner_service_is_gone() {
    let (permits, noted) = (Permits::new(1), Arc::default());
    let layer = ConcurrencyLayer::new(permits.clone());
    let inner = ::tower::service_fn(|_: http::Request<()>| Noting {
        permits: permits.clone(),
        noted: Arc::clone(&noted),
    });
    let mut response = Driven::new(layer.layer(inner).oneshot(get("/")));
    assert!(response.poll().is_pending());
    drop(response);
    assert_eq!((&*noted.lock().unwrap(), permits.in_use()), (&vec![1], 0));
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_inner_service_ends_the_request() {
    let permits = Permits::new(1);
    let layer = ConcurrencyLayer::new(permits.clone());
    let service = layer.layer(Inner::new().failing());
    for _ in 0..3 {
        let mut response = Driven::new(service.clone().oneshot(get("/")));
        let Poll::Ready(response) = response.poll() else {
            panic!("it is ready")
        };
        assert_eq!(response.unwrap_err().into_inner(), Ok(InnerError));
        assert_eq!(permits.in_use(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn each_key_has_permits_of_its_own() {
    let permits = KeyedPermits::new(1);
    let layer = ConcurrencyLayer::by_key(permits, |request: &http::Request<()>| {
        let user = request.uri().path().to_owned();
        (user != "/free").then_some(user)
    });
    let service = layer.at_once().layer(Inner::new().with_body(&LONG));
    let ann = call(&mut service.clone(), get("/ann")).await.unwrap();
    let bob = call(&mut service.clone(), get("/bob")).await.unwrap();
    assert!(
        call(&mut service.clone(), get("/ann"))
            .await
            .unwrap_err()
            .is_no_room()
    );
    for _ in 0..10 {
        assert!(call(&mut service.clone(), get("/free")).await.is_ok());
    }
    drop(ann);
    assert!(call(&mut service.clone(), get("/ann")).await.is_ok());
    drop(bob);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_can_be_answered_and_its_body_holds_nothing() {
    let permits = Permits::new(1);
    let layer = ConcurrencyLayer::new(permits.clone())
        .at_once()
        .answering_with(|_: &Parts, refusal| {
            let body = Full::new(refusal.to_string().into_bytes().into());
            Response::builder().status(503).body(body).unwrap()
        });
    let inner = ::tower::service_fn(|_: http::Request<()>| async {
        let body = Full::<std::collections::VecDeque<u8>>::new(b"body".to_vec().into());
        Ok::<_, Infallible>(Response::new(body))
    });
    let mut service = layer.layer(inner);
    let Ok(first) = call(&mut service, get("/")).await;
    let Ok(second) = call(&mut service, get("/")).await;
    assert_eq!(second.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(!second.body().is_held());
    let body = second.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "too many requests are under way");
    assert_eq!(permits.in_use(), 1);
    drop(first);
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_zero_is_a_pause() {
    let permits = Permits::new(1);
    permits.resize(0);
    let layer = ConcurrencyLayer::new(permits.clone()).until_response();
    let waiting = tokio::spawn(layer.layer(echo()).oneshot(1));
    sleep(60_000).await;
    assert!(!waiting.is_finished());
    permits.resize(1);
    assert_eq!(waiting.await.unwrap().unwrap(), 1);
}

#[test]
fn it_works_outside_a_runtime_while_there_is_a_permit() {
    let layer = ConcurrencyLayer::new(Permits::new(1)).until_response();
    let mut service = layer.layer(echo());
    for n in 0..3 {
        assert_eq!(call(&mut service, n).now_or_never().unwrap().unwrap(), n);
    }
}

#[tokio::test(start_paused = true)]
async fn of_100_000_calls_in_one_task_none_is_refused_while_there_is_a_permit() {
    let permits = Permits::new(1_000);
    let layer = ConcurrencyLayer::new(permits.clone()).at_once();
    let service = layer.until_response().layer(echo());
    for _ in 0..100 {
        let calls = (0..1_000).map(|n| service.clone().oneshot(n));
        let done = join_all(calls).await;
        assert!(done.iter().all(Result::is_ok));
    }
    assert_eq!(permits.in_use(), 0);
}
