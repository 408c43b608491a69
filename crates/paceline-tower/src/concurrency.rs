use core::convert::Infallible;
use core::fmt;
use core::future::Future;
use core::marker::PhantomData;
use core::pin::Pin;
use core::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_service::Service;

use paceline::concurrency::Admit;
use paceline::limiter::Limits;

use super::admission::{AskPermit, Patience};
use super::answer::{AsError, Respond};
use super::call::Call;
use super::failure::Fault;
use super::held::{Hold, UntilBody, UntilResponse};
use super::layer::{LimitLayer, Limited, Waits};
use super::refusal::RefusalKind;
use super::terms::{For, Reports, Terms};

/// Bounds how many requests are under way, each until the body of its response has ended.
///
/// **A response that is kept and not read keeps its permit.** So a test that collects more responses than there are permits, such as
/// by `join_all`, never ends. Read each body or drop it, or let the permit end with the head:
/// [`until_response`](LimitLayer::until_response).
///
/// ```
/// use http::{Request, Response};
/// use http_body_util::{BodyExt, Full};
/// use paceline::concurrency::Permits;
/// use paceline_tower::ConcurrencyLayer;
/// use std::convert::Infallible;
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let permits = Permits::new(1);
/// let layer = ConcurrencyLayer::new(permits.clone()).at_once();
/// let service = layer.layer(service_fn(|_: Request<()>| async {
///     Ok::<_, Infallible>(Response::new(Full::new(&b"a long body"[..])))
/// }));
///
/// // The request is under way until its body has ended.
/// let response = service.clone().oneshot(Request::new(())).await.unwrap();
/// assert_eq!(permits.in_use(), 1);
/// let refused = service.clone().oneshot(Request::new(())).await.unwrap_err();
/// assert!(refused.is_no_room());
///
/// assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "a long body");
/// assert_eq!(permits.in_use(), 0);
/// # }
/// ```
///
/// **Ready** at once, and that takes no permit. So an idle clone blocks no request.
///
/// **Waits** in its future for a permit, first come, first served by the first poll. Then it waits until the inner service is
/// ready, and calls it. [`at_once`](LimitLayer::at_once) refuses instead of waiting.
///
/// **Holds** its permit until the body of the response has ended, failed or was dropped: the body is a [`Held`](super::Held). With
/// [`until_response`](LimitLayer::until_response) it ends with the head; a service that is not for HTTP needs that. A connection
/// that is upgraded has no body, and its permit ends with the head.
///
/// **Fails** with [`Error`](super::Error), or answers: see [`answering`](LimitLayer::answering).
///
/// **Cancel safety**: a future that is dropped leaves the queue, or gives its permit back after the future of the inner service is
/// dropped.
///
/// **Shares** its permits: services of one layer, and their clones, have the same.
#[doc(alias = "ConcurrencyLimitLayer")]
pub type ConcurrencyLayer<T, A = AsError, H = UntilBody> = LimitLayer<Admitting<H>, T, A>;

/// What a [`ConcurrencyLayer`] does: `H` says when a request is no longer under way. With a `K` it is another layer whose requests hold
/// a guard.
#[derive(Clone, Copy, Debug)]
pub struct Admitting<H, K = ()> {
    hold: PhantomData<fn() -> (H, K)>,
}

impl<H> Waits for Admitting<H> {}

impl<R, P: Admit> ConcurrencyLayer<For<R, P>> {
    /// The same permits for all requests.
    #[must_use]
    pub fn new(permits: P) -> Self
    where
        P: Clone,
    {
        Self::with_terms(For::all(permits))
    }

    /// Permits for each key, such as [`KeyedPermits`](paceline::concurrency::KeyedPermits). A request without a key is not limited, unless
    /// [`on_missing_key`](LimitLayer::on_missing_key) says otherwise.
    ///
    /// The closure needs the type of the request: `|request: &http::Request<Body>| …`.
    #[must_use]
    pub fn by_key<M, K>(permits: M, key: impl Fn(&R) -> Option<K> + Send + Sync + 'static) -> Self
    where
        M: Limits<K, Limit = P> + Send + Sync + 'static,
    {
        Self::with_terms(For::key(permits, key))
    }

    /// Another rule for which permits a request needs.
    #[must_use]
    pub fn with_terms(terms: For<R, P>) -> Self {
        Self::with(terms, Patience::new(None))
    }
}

impl<T, A, H, K> LimitLayer<Admitting<H, K>, T, A> {
    /// Refuses a request for which there is no permit, instead of waiting for one.
    ///
    /// The refusal is [`is_no_room`](super::Error::is_no_room). It does not overtake a request that waits, such as one of another
    /// layer with the same permits. [`within`](LimitLayer::within) and [`max_waiting`](LimitLayer::max_waiting) have no effect then.
    #[must_use]
    pub fn at_once(mut self) -> Self
    where
        Admitting<H, K>: Waits,
    {
        self.patience().refuses = Some(RefusalKind::NoRoom);
        self
    }

    /// Gives the permit or the guard back when there is a response, or an error. The response keeps its type, which may be any.
    #[must_use]
    pub fn until_response(self) -> LimitLayer<Admitting<UntilResponse, K>, T, A> {
        self.of_kind()
    }
}

impl<S, T, P, A, H, K, R> Service<R> for Limited<Admitting<H, K>, S, T, A>
where
    S: Service<R> + Clone,
    T: Terms<Request = R, Limit = P> + Reports<S::Response, S::Error, P::Guard>,
    P: Admit<Error: fmt::Display>,
    A: Respond<R, S::Response, S::Error>,
    H: Hold<S::Response, P::Guard>,
{
    type Response = H::Response;
    type Error = A::Error;
    type Future = ConcurrencyFuture<S, R, T, A, H>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), A::Error>> {
        Poll::Ready(Ok(()))
    }

    /// The future has a clone of the inner service, and makes it ready when there is a permit.
    fn call(&mut self, request: R) -> ConcurrencyFuture<S, R, T, A, H> {
        let ask = |permits, _| AskPermit::new(permits);
        ConcurrencyFuture {
            call: Call::new(&self.config, self.inner.clone(), request, ask),
            hold: PhantomData,
        }
    }
}

pin_project! {
    /// Future of the service of a [`ConcurrencyLayer`] and of a [`ShedLayer`](super::ShedLayer).
    #[must_use = "futures do nothing unless you `.await` or poll them"]
    pub struct ConcurrencyFuture<S, R, T, A, H>
    where
        S: Service<R>,
        T: Terms<Request = R>,
        T::Limit: Admit,
    {
        #[pin]
        call: Call<AskPermit<T::Limit>, S, R, T, A>,
        hold: PhantomData<fn() -> H>,
    }
}

impl<S, R, T, P, A, H> Future for ConcurrencyFuture<S, R, T, A, H>
where
    S: Service<R>,
    T: Terms<Request = R, Limit = P> + Reports<S::Response, S::Error, P::Guard>,
    P: Admit<Error: fmt::Display>,
    A: Respond<R, S::Response, S::Error>,
    H: Hold<S::Response, P::Guard>,
{
    type Output = Result<H::Response, A::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let call = self.project().call.poll(cx, |config, result, guard| {
            if !config.terms.report(result, guard) {
                config.failures.note(&Fault::<Infallible>::OutcomePanic);
            }
        });
        let (response, guard) = ready!(call);
        Poll::Ready(response.map(|response| H::hold(response, guard)))
    }
}

impl<S: Service<R>, R, T: Terms<Request = R, Limit: Admit>, A, H> fmt::Debug
    for ConcurrencyFuture<S, R, T, A, H>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConcurrencyFuture").finish_non_exhaustive()
    }
}
