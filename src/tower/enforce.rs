use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;

use http::Response;
use http::request::Parts;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::limiter::{Limiter, Limits};

use super::admission::{AskRate, Patience};
use super::answer::{AsError, AsResponse, Respond};
use super::call::{Call, Config};
use super::failure::{Failures, OnFailure};
use super::refusal::RefusalKind;
use super::terms::{ByKey, Costed, Direct, Terms};

/// Refuses requests that come too soon, at once.
///
/// ```
/// use paceline::policy::TokenBucket;
/// use paceline::prelude::*;
/// use paceline::time::Rate;
/// use paceline::tower::EnforceLayer;
/// use std::convert::Infallible;
/// use std::time::Duration;
/// use tower::{Layer, Service, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let users = TokenBucket::new(Rate::per_second(1), 2).keyed::<String>();
/// let layer = EnforceLayer::by_key(users, |user: &String| Some(user.clone()));
/// let greet = service_fn(|user: String| async move { Ok::<_, Infallible>(format!("hello {user}")) });
/// let mut service = layer.layer(greet);
///
/// for _ in 0..2 {
///     let greeting = service.ready().await.unwrap().call("ann".to_owned()).await;
///     assert_eq!(greeting.unwrap(), "hello ann");
/// }
/// let refused = service.ready().await.unwrap().call("ann".to_owned()).await.unwrap_err();
/// assert!(refused.is_too_soon());
/// assert_eq!(refused.retry_in(), Some(Duration::from_secs(1)));
///
/// assert!(service.ready().await.unwrap().call("bob".to_owned()).await.is_ok());
/// # }
/// ```
///
/// **Ready** when the inner service is. That takes nothing from the limit.
///
/// **Waits** for nothing but the answer of a limit on a server. A limit in memory is asked in `call`.
///
/// **Fails** with [`Error`](super::Error), or answers: see [`answering`](Self::answering). A refusal leaves the inner service ready.
/// Where the answer of a limit was under way, the readiness is given back: the clone that was ready is dropped.
///
/// **Cancel safety**: a future that is dropped while the answer is under way takes nothing. After that the request has passed, and
/// counts.
///
/// **Shares** its limit: services of one layer, and their clones, have one.
#[derive(Clone, Debug)]
pub struct EnforceLayer<T, A = AsError> {
    config: Config<T, A>,
}

impl<L: Limiter + Clone> EnforceLayer<Direct<L>> {
    /// One limit for all requests.
    #[must_use]
    pub fn new(limit: L) -> Self {
        Self::with_terms(Direct { limit })
    }
}

impl<M, F> EnforceLayer<ByKey<M, F>> {
    /// A limit for each key. A request without a key is not limited.
    ///
    /// The closure needs the type of the request: `|request: &http::Request<Body>| …`.
    #[must_use]
    pub fn by_key<R, K>(limits: M, key: F) -> Self
    where
        M: Limits<K>,
        F: Fn(&R) -> Option<K>,
    {
        Self::with_terms(ByKey { limits, key })
    }
}

impl<T> EnforceLayer<T> {
    /// A rule of your own for which limit a request has, and what it costs.
    #[must_use]
    pub fn with_terms(terms: T) -> Self {
        let patience = Patience::new(Some(RefusalKind::TooSoon));
        Self {
            config: Config::new(terms, patience),
        }
    }
}

impl<T, A> EnforceLayer<T, A> {
    /// Charges what `cost` says, instead of 1. Zero passes always.
    #[must_use]
    pub fn costing<R, F: Fn(&R) -> u32>(self, cost: F) -> EnforceLayer<Costed<T, F>, A> {
        EnforceLayer {
            config: self.config.costing(cost),
        }
    }

    /// Answers refused requests with HTTP responses, instead of an error. The error is that of the inner service then.
    #[must_use]
    pub fn answering<N>(self, answer: N) -> EnforceLayer<T, AsResponse<N>> {
        EnforceLayer {
            config: self.config.answering(answer),
        }
    }

    /// [`answering`](Self::answering), with a closure.
    #[must_use]
    pub fn answering_with<F, B>(self, answer: F) -> EnforceLayer<T, AsResponse<F>>
    where
        F: Fn(&Parts, &super::Refusal) -> Response<B>,
    {
        self.answering(answer)
    }

    /// What happens to a request when the limiter fails; it passes by default.
    #[must_use]
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.config.on_failure = on_failure;
        self
    }

    /// How often the limiter failed, for all services of this layer and of its clones.
    #[must_use]
    pub fn failures(&self) -> Failures {
        self.config.failures.failures()
    }
}

impl<S, T: Clone, A: Clone> Layer<S> for EnforceLayer<T, A> {
    type Service = Enforce<S, T, A>;

    fn layer(&self, inner: S) -> Enforce<S, T, A> {
        Enforce {
            inner,
            config: Arc::new(self.config.clone()),
        }
    }
}

/// Service of [`EnforceLayer`].
#[derive(Debug)]
pub struct Enforce<S, T, A = AsError> {
    inner: S,
    config: Arc<Config<T, A>>,
}

impl<S: Clone, T, A> Clone for Enforce<S, T, A> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            config: Arc::clone(&self.config),
        }
    }
}

impl<S, T, A, R> Service<R> for Enforce<S, T, A>
where
    S: Service<R> + Clone,
    T: Terms<R, Limit: Limiter<Error: fmt::Display>>,
    A: Respond<R, S::Response, S::Error>,
{
    type Response = S::Response;
    type Error = A::Error;
    type Future = EnforceFuture<S, R, T, A>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), A::Error>> {
        self.inner
            .poll_ready(cx)
            .map_err(|error| self.config.answer.inner_error(error))
    }

    fn call(&mut self, request: R) -> EnforceFuture<S, R, T, A> {
        EnforceFuture {
            call: Call::at_once(&self.config, &mut self.inner, request, AskRate::new),
        }
    }
}

pin_project! {
    /// Future of [`Enforce`].
    #[must_use = "futures do nothing unless you `.await` or poll them"]
    pub struct EnforceFuture<S, R, T, A>
    where
        S: Service<R>,
        T: Terms<R>,
        T::Limit: Limiter,
    {
        #[pin]
        call: Call<AskRate<T::Limit>, S, R, T, A>,
    }
}

impl<S, R, T, A> Future for EnforceFuture<S, R, T, A>
where
    S: Service<R>,
    T: Terms<R, Limit: Limiter<Error: fmt::Display>>,
    A: Respond<R, S::Response, S::Error>,
{
    type Output = Result<S::Response, A::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().call.poll(cx).map(|(response, _)| response)
    }
}

impl<S, R, T, A> fmt::Debug for EnforceFuture<S, R, T, A>
where
    S: Service<R>,
    T: Terms<R>,
    T::Limit: Limiter,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnforceFuture").finish_non_exhaustive()
    }
}
