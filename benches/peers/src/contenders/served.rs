//! Services behind a limit: the service that does nothing, the requests to it, and those who send them.

use std::convert::Infallible;
use std::future::{Ready, poll_fn, ready};
use std::hint::black_box;
use std::task::{Context, Poll};
use std::time::Duration;

use ::tower::Service;
use axum::body::Body;
use futures::future::LocalBoxFuture;
use http::{HeaderValue, Request, Response, StatusCode};
use paceline::policy::TokenBucket;
use paceline::time::Rate;

use super::crowd::{Bound, Contended, Crowd, Gathering, Ticket};
use super::hot::{Hot, Part, Work};

/// The limits by key have a key for each value of this header.
pub(super) const USER: &str = "x-user";

pub(super) const HOUR: Duration = Duration::from_secs(3_600);

/// The burst of a limit that never binds.
pub(super) const LARGE: u32 = u32::MAX;

/// The burst of a user, who gets the next permit in a minute: enough for the measurement, and no key settles during it.
pub(super) const A_FEW: u32 = 100;

/// A service that is always ready and does nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hello;

impl Service<Request<()>> for Hello {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok(Response::new(Body::empty())))
    }
}

/// A bucket that never binds.
pub(super) const fn loose() -> TokenBucket {
    TokenBucket::new(Rate::per_second(1_000), LARGE)
}

/// One request an hour.
pub(super) const fn tight() -> TokenBucket {
    TokenBucket::new(Rate::new(1, HOUR), 1)
}

pub(super) fn anonymous() -> Request<()> {
    Request::new(())
}

pub(super) fn of_ann() -> Request<()> {
    of_user(HeaderValue::from_static("ann"))
}

fn of_user(user: HeaderValue) -> Request<()> {
    let mut request = anonymous();
    request.headers_mut().insert(USER, user);
    request
}

/// Readies the service, calls it, and waits for the response. Whether the request has passed.
async fn send<S, B>(service: &mut S, request: Request<()>) -> bool
where
    S: Service<Request<()>, Response = Response<B>>,
{
    if poll_fn(|cx| service.poll_ready(cx)).await.is_err() {
        return false;
    }
    let response = black_box(service.call(request).await);
    response.is_ok_and(|response| response.status() == StatusCode::OK)
}

/// Sends requests that all pass.
pub(super) fn passed<S, B>(count: u64, mut service: S, request: fn() -> Request<()>) -> Work
where
    S: Service<Request<()>, Response = Response<B>> + 'static,
{
    Box::pin(async move {
        for _ in 0..count {
            assert!(send(&mut service, request()).await, "the limit never binds");
        }
    })
}

/// Sends requests that are all refused, but for the first: that one uses the limit up.
pub(super) fn refused<S, B>(count: u64, mut service: S, request: fn() -> Request<()>) -> Work
where
    S: Service<Request<()>, Response = Response<B>> + 'static,
{
    Box::pin(async move {
        send(&mut service, request()).await;
        for _ in 0..count {
            assert!(!send(&mut service, request()).await, "the limit is used up");
        }
    })
}

/// Each task sends its requests through a clone of the service.
pub(super) fn direct<S, B>(crowd: Crowd, service: S) -> Gathering
where
    S: Service<Request<()>, Response = Response<B>, Future: Send, Error: Send>,
    S: Clone + Send + Sync + 'static,
    B: Send + 'static,
{
    crowd.gather(service, |service, ticket| {
        send_all(service, ticket, anonymous)
    })
}

/// The same, and each task has a key of its own.
pub(super) fn by_key<S, B>(crowd: Crowd, service: S) -> Gathering
where
    S: Service<Request<()>, Response = Response<B>, Future: Send, Error: Send>,
    S: Clone + Send + Sync + 'static,
    B: Send + 'static,
{
    crowd.gather(service, |service, ticket| {
        let user = HeaderValue::from(ticket.number());
        send_all(service, ticket, move || of_user(user.clone()))
    })
}

async fn send_all<S, B>(mut service: S, mut ticket: Ticket, request: impl Fn() -> Request<()>)
where
    S: Service<Request<()>, Response = Response<B>>,
{
    while ticket.goes_on() {
        assert!(send(&mut service, request()).await, "the limit never binds");
        ticket.granted();
    }
}

/// A service with a limit for each of many users.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyedService {
    pub(crate) name: &'static str,
    /// No limit of it binds, and none settles soon.
    pub(crate) new: fn() -> Box<dyn Users>,
}

/// Many requests at a time, so that the call through a pointer costs nothing.
pub(crate) trait Users {
    /// Sends a request of each. Returns how many passed.
    fn send<'a>(&'a mut self, users: &'a [u64]) -> LocalBoxFuture<'a, usize>;
}

impl<S, B> Users for S
where
    S: Service<Request<()>, Response = Response<B>>,
{
    fn send<'a>(&'a mut self, users: &'a [u64]) -> LocalBoxFuture<'a, usize> {
        Box::pin(async move {
            let mut passed = 0;
            for &user in users {
                passed += usize::from(send(self, of_user(HeaderValue::from(user))).await);
            }
            passed
        })
    }
}

pub(super) const ALL: &[Hot] = &[
    hot(Part::Direct, BARE, |n| passed(n, Hello, anonymous)),
    hot(Part::DirectRefused, BARE, |n| passed(n, Hello, anonymous)),
    hot(Part::ByKey, BARE, |n| passed(n, Hello, of_ann)),
    hot(Part::ByKeyRefused, BARE, |n| passed(n, Hello, of_ann)),
    hot(Part::UnderWay, BARE, |n| passed(n, Hello, anonymous)),
    hot(Part::UnderWayRefused, BARE, |n| passed(n, Hello, anonymous)),
];

const BARE: &str = "bare service";

pub(crate) const BARE_DIRECT: Contended =
    contended("bare service", |crowd, _| direct(crowd, Hello));

pub(crate) const BARE_BY_KEY: Contended =
    contended("bare service, with a key", |crowd, _| by_key(crowd, Hello));

pub(crate) const BARE_KEYED: KeyedService = KeyedService {
    name: BARE,
    new: || Box::new(Hello),
};

pub(super) const fn hot(part: Part, name: &'static str, run: fn(u64) -> Work) -> Hot {
    Hot { part, name, run }
}

pub(super) const fn contended(name: &'static str, run: fn(Crowd, Bound) -> Gathering) -> Contended {
    Contended {
        name,
        waits: false,
        run,
    }
}
