use core::task::{Context, Poll};

use http::{Method, Request};

use paceline::concurrency::Admit;
use paceline::shed::Class;

use super::admission::Patience;
use super::answer::AsError;
use super::concurrency::Admitting;
use super::held::UntilBody;
use super::layer::LimitLayer;
use super::refusal::RefusalKind;
use super::terms::For;

/// Refuses requests that a load shedder does not admit, at once.
///
/// It takes any [`Admit`]: a [`WorkerUtilization`](paceline::shed::WorkerUtilization), and a
/// [`FleetUsage`](paceline::shed::FleetUsage), in memory or in Redis. The closure says which class a request has.
///
/// ```
/// use http::{Request, Response};
/// use paceline::shed::{Class, WorkerUtilization};
/// use paceline_tower::{Answers, ShedLayer, http_class};
/// use std::convert::Infallible;
/// use std::time::Duration;
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let overloaded = || 1.0;
/// let shedder = WorkerUtilization::new(overloaded).with_classes(3);
/// let class = http_class(
///     |request: &Request<()>| request.uri().path() == "/health", // never shed
///     |request| request.headers().contains_key("x-test"),        // shed first
/// );
/// let hello = service_fn(|_: Request<()>| async {
///     Ok::<_, Infallible>(Response::new("hello".to_owned()))
/// });
/// let layer = ShedLayer::new(shedder, class).answering(Answers::new("api"));
/// let service = layer.layer(hello);
/// let status = async |request| service.clone().oneshot(request).await.unwrap().status();
///
/// assert_eq!(status(Request::get("/").body(()).unwrap()).await, 200);
/// tokio::time::sleep(Duration::from_millis(108_001)).await;
/// assert_eq!(status(Request::get("/").body(()).unwrap()).await, 503);
/// assert_eq!(status(Request::post("/").body(()).unwrap()).await, 200);
/// assert_eq!(status(Request::get("/health").body(()).unwrap()).await, 200);
/// # }
/// ```
///
/// **Ready** at once, and that takes nothing.
///
/// **Waits** for nothing but the answer of a shedder on a server. Then it waits until the inner service is ready, and calls it.
///
/// **Holds** the guard of the shedder until the body of the response has ended, failed or was dropped: the body is a
/// [`Held`](super::Held). With [`until_response`](LimitLayer::until_response) it ends with the head; a service that is not for HTTP
/// needs that.
///
/// **Fails** with [`Error`](super::Error), which [`is_shed`](super::Error::is_shed), or answers: see
/// [`answering`](LimitLayer::answering). With [`Answers`](super::Answers) that is a 503, and for gRPC 14.
///
/// **Cancel safety**: a future that is dropped gives its guard back after the future of the inner service is dropped.
///
/// **Shares** its shedder: services of one layer, and their clones, have the same.
#[doc(alias = "LoadShedLayer")]
pub type ShedLayer<T, A = AsError, H = UntilBody> = LimitLayer<Admitting<H, Shedding>, T, A>;

/// What a [`ShedLayer`] does.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Shedding;

impl<R, C, D> ShedLayer<For<R, AtClass<D, C>>> {
    /// Asks `shedder` about each request, by its class.
    ///
    /// The closure needs the type of the request: `|request: &http::Request<Body>| …`. [`http_class`] makes one. If it panics, the
    /// request is admitted: see [`on_failure`](LimitLayer::on_failure).
    #[must_use]
    pub fn new(shedder: D, class: impl Fn(&R) -> C + Send + Sync + 'static) -> Self
    where
        C: Clone,
        D: Admit<C> + Clone + Send + Sync + 'static,
    {
        Self::with_terms(For::each(move |request| {
            let (shedder, class) = (shedder.clone(), class(request));
            Ok(Some(AtClass { shedder, class }))
        }))
    }
}

impl<R, D: Admit> ShedLayer<For<R, D>> {
    /// Another rule for which shedder a request has.
    #[must_use]
    pub fn with_terms(terms: For<R, D>) -> Self {
        Self::with(terms, Patience::new(Some(RefusalKind::Shed)))
    }
}

/// A shedder that is asked for one class.
#[derive(Clone, Debug)]
pub struct AtClass<D, C> {
    shedder: D,
    class: C,
}

impl<D: Admit<C>, C: Clone> Admit for AtClass<D, C> {
    type Guard = D::Guard;
    type Error = D::Error;

    fn poll_admit(
        &mut self,
        (): (),
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<D::Guard>, D::Error>> {
        self.shedder.poll_admit(self.class.clone(), cx)
    }

    fn poll_try_admit(
        &mut self,
        (): (),
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<D::Guard>, D::Error>> {
        self.shedder.poll_try_admit(self.class.clone(), cx)
    }

    fn give_up(&mut self) {
        self.shedder.give_up();
    }
}

/// The class of an HTTP request, for a shedder with [three classes](paceline::shed::WorkerUtilization::with_classes).
///
/// | request | class |
/// |---|---|
/// | `is_critical` says so, such as a health check | [`Critical`](Class::Critical): never shed |
/// | `is_test` says so: traffic that no user waits for | 0: shed first |
/// | `GET` and `HEAD` | 1 |
/// | any other method: it changes something, and a caller may not dare to send it again | 2: shed last |
pub fn http_class<B>(
    is_critical: impl Fn(&Request<B>) -> bool + Clone,
    is_test: impl Fn(&Request<B>) -> bool + Clone,
) -> impl Fn(&Request<B>) -> Class + Clone {
    move |request| match *request.method() {
        _ if is_critical(request) => Class::Critical,
        _ if is_test(request) => Class::Sheddable(0),
        Method::GET | Method::HEAD => Class::Sheddable(1),
        _ => Class::Sheddable(2),
    }
}
