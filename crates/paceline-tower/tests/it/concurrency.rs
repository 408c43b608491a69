use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use ::tower::{Layer, Service, ServiceExt, service_fn};
use futures::FutureExt;
use futures::future::join_all;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, StreamBody};
use paceline::concurrency::{FairPermits, KeyedPermits, Permits};
use paceline_tower::ConcurrencyLayer;
use testkit::clock::Stopwatch;
use testkit::probe::service::{Inner, InnerError, Part, TestBody};
use testkit::wakes::Driven;

use super::{call, get};
use crate::timed::ms;

const LONG: [Part; 5] = [
    Part::Data(b"one"),
    Part::Pause,
    Part::Data(b"two"),
    Part::Pause,
    Part::Trailers,
];

/// The permits in use before the response with this body is read, and after each frame up to the end or an error.
async fn in_use_while_read<S, B>(inner: S) -> Vec<u32>
where
    S: Service<Request<()>, Response = Response<B>> + Clone,
    B: Body + Unpin,
{
    let permits = Permits::new(1);
    let layer = ConcurrencyLayer::new(permits.clone());
    let response = call(&mut layer.layer(inner), get("/")).await;
    let mut body = response.ok().unwrap().into_body();
    let mut in_use = vec![permits.in_use()];
    loop {
        assert_eq!(body.is_held(), permits.in_use() == 1);
        let frame = body.frame().await;
        in_use.push(permits.in_use());
        if !matches!(frame, Some(Ok(_))) {
            return in_use;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_is_under_way_until_its_body_has_ended_or_failed_trailers_included() {
    let failing = [Part::Data(b"one"), Part::Failure, Part::Data(b"two")];
    for (frames, in_use) in [
        (&LONG[..], &[1, 1, 1, 0, 0][..]),
        (&LONG[..3], &[1, 1, 0, 0]),
        (&failing, &[1, 1, 0]),
        (&[], &[0, 0]),
    ] {
        let inner = Inner::new().with_body(frames);
        assert_eq!(in_use_while_read(inner).await, in_use, "{frames:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_know_its_end_is_held_until_it_says_so_or_has_trailers() {
    let data: fn() -> Frame<&'static [u8]> = || Frame::data(b"a");
    let trailers: fn() -> _ = || Frame::trailers(HeaderMap::new());
    for (frame, in_use) in [(data, [1, 1, 0]), (trailers, [1, 0, 0])] {
        let inner = service_fn(|_: Request<()>| async move {
            let frames = futures::stream::iter([Ok::<_, Infallible>(frame())]);
            Ok::<_, Infallible>(Response::new(StreamBody::new(frames)))
        });
        assert_eq!(in_use_while_read(inner).await, in_use);
    }
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
async fn requests_wait_as_long_and_as_many_as_the_layer_says_and_are_no_excess_of_the_caller() {
    let layer = ConcurrencyLayer::new(Permits::new(1));
    let layer = layer.within(ms(15)).max_waiting(2).until_response();
    let service = layer.layer(Inner::new().taking(ms(10)));
    let watch = Stopwatch::start();
    let calls = (0..4).map(|n| {
        let call = service.clone().oneshot(n);
        call.map(|done| (watch.elapsed_ms(), done.err()))
    });
    let done = join_all(calls).await;
    let ended: Vec<_> = done.iter().map(|(at, _)| *at).collect();
    assert_eq!(ended, [10, 20, 15, 0]);
    assert!(done[0].1.is_none() && done[1].1.is_none());
    let refused = [2, 3].map(|n| done[n].1.as_ref().unwrap());
    assert!(refused[0].is_too_late() && refused[1].is_no_room());
    for error in refused {
        assert!(!error.refusal().unwrap().is_quota_exceeded());
    }
    assert!(service.oneshot(4).await.is_ok());
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
    let inner = service_fn(|_: Request<()>| Noting {
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
    let mut response = Driven::new(layer.layer(Inner::new().failing()).oneshot(get("/")));
    let Poll::Ready(failed) = response.poll() else {
        panic!("it is ready")
    };
    assert_eq!(failed.unwrap_err().into_inner(), Ok(InnerError));
    assert_eq!(permits.in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn keys_that_divide_permits_get_the_next_one_below_their_share() {
    let permits = FairPermits::new(2);
    let layer = ConcurrencyLayer::by_key(permits.clone(), |request: &Request<()>| {
        Some(request.uri().path().to_owned())
    });
    let service = layer.layer(Inner::new().with_body(&LONG));
    let ask = |path| {
        let mut service = service.clone();
        tokio::spawn(async move { call(&mut service, get(path)).await.unwrap() })
    };
    let (first, second) = (ask("/ann").await.unwrap(), ask("/ann").await.unwrap());
    let backlog = [(); 10].map(|()| ask("/ann"));
    tokio::task::yield_now().await;
    let bob = ask("/bob");
    tokio::task::yield_now().await;
    assert!(!bob.is_finished());
    drop(first);
    drop(bob.await.unwrap());
    drop(second);
    for answer in backlog {
        drop(answer.await.unwrap());
    }
    assert_eq!(permits.total().in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn each_key_has_permits_of_its_own_until_its_bodies_are_dropped() {
    let layer = ConcurrencyLayer::by_key(KeyedPermits::new(1), |request: &Request<()>| {
        let user = request.uri().path().to_owned();
        (user != "/free").then_some(user)
    });
    let mut service = layer.at_once().layer(Inner::new().with_body(&LONG));
    let ann = call(&mut service, get("/ann")).await.unwrap();
    let _bob = call(&mut service, get("/bob")).await.unwrap();
    let refused = call(&mut service, get("/ann")).await.unwrap_err();
    assert!(refused.is_no_room());
    assert_eq!(refused.retry_in(), None);
    for _ in 0..10 {
        assert!(call(&mut service, get("/free")).await.is_ok());
    }
    drop(ann);
    assert!(call(&mut service, get("/ann")).await.is_ok());
}
