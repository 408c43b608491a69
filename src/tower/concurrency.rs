use core::fmt;
use core::future::Future;
use core::marker::PhantomData;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;
use std::sync::Arc;

use http::Response;
use http::request::Parts;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::concurrency::{Admit, AdmitByKey};
use crate::time::OutOfRange;

use super::Refusal;
use super::admission::{AskPermit, Patience};
use super::answer::{AsError, AsResponse, Respond};
use super::call::{Call, Config};
use super::failure::{Failures, OnFailure};
use super::held::{Hold, UntilBody, UntilResponse};
use super::refusal::RefusalKind;
use super::terms::{Direct, PermitsByKey, Terms};

/// Bounds how many requests are under way.
///
/// ```
/// use http::{Request, Response};
/// use http_body_util::{BodyExt, Full};
/// use paceline::concurrency::Permits;
/// use paceline::tower::ConcurrencyLayer;
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
/// ready, and calls it. [`at_once`](Self::at_once) refuses instead of waiting.
///
/// **Holds** its permit until the body of the response has ended, failed or was dropped: the body is a [`Held`](super::Held). With
/// [`until_response`](Self::until_response) it ends with the head; a service that is not for HTTP needs that.
///
/// **Fails** with [`Error`](super::Error), or answers: see [`answering`](Self::answering).
///
/// **Cancel safety**: a future that is dropped leaves the queue, or gives its permit back after the future of the inner service is
/// dropped.
///
/// **Shares** its permits: services of one layer, and their clones, have the same.
pub struct ConcurrencyLayer<T, A = AsError, H = UntilBody> {
    config: Config<T, A>,
    hold: PhantomData<fn() -> H>,
}

impl<P: Admit + Clone> ConcurrencyLayer<Direct<P>> {
    /// The same permits for all requests.
    #[must_use]
    pub fn new(permits: P) -> Self {
        Self::with_terms(Direct { limit: permits })
    }
}

impl<M, F> ConcurrencyLayer<PermitsByKey<M, F>> {
    /// Permits for each key, such as [`KeyedPermits`](crate::concurrency::KeyedPermits). A request without a key is not limited.
    ///
    /// The closure needs the type of the request: `|request: &http::Request<Body>| …`.
    #[must_use]
    pub fn by_key<R, K>(permits: M, key: F) -> Self
    where
        M: AdmitByKey<K>,
        F: Fn(&R) -> Option<K>,
    {
        Self::with_terms(PermitsByKey { permits, key })
    }
}

impl<T> ConcurrencyLayer<T> {
    /// A rule of your own for which permits a request needs.
    #[must_use]
    pub fn with_terms(terms: T) -> Self {
        Self {
            config: Config::new(terms, Patience::new(None)),
            hold: PhantomData,
        }
    }
}

impl<T, A, H> ConcurrencyLayer<T, A, H> {
    /// Refuses a request for which there is no permit, instead of waiting for one.
    ///
    /// The refusal is [`is_no_room`](super::Error::is_no_room). It does not overtake a request that waits, such as one of another
    /// layer with the same permits.
    #[must_use]
    pub fn at_once(mut self) -> Self {
        self.config.patience.refuses = Some(RefusalKind::NoRoom);
        self
    }

    /// Gives the permit back when there is a response, or an error. The response keeps its type, which may be any.
    #[must_use]
    pub fn until_response(self) -> ConcurrencyLayer<T, A, UntilResponse> {
        ConcurrencyLayer {
            config: self.config,
            hold: PhantomData,
        }
    }

    /// Refuses a request that gets no permit within this time, when the time is over.
    ///
    /// The refusal is [`is_too_late`](super::Error::is_too_late). The time of a request begins with the first poll of its future. What
    /// the inner service takes does not count.
    ///
    /// # Panics
    ///
    /// If it is zero; see [`try_within`](Self::try_within).
    #[must_use]
    #[track_caller]
    pub fn within(self, within: Duration) -> Self {
        match self.try_within(within) {
            Ok(layer) => layer,
            Err(error) => error.panic(),
        }
    }

    /// [`within`](Self::within), for a time from a configuration.
    ///
    /// # Errors
    ///
    /// If it is zero.
    pub fn try_within(mut self, within: Duration) -> Result<Self, OutOfRange> {
        self.config.patience = self.config.patience.within(within)?;
        Ok(self)
    }

    /// Refuses a request that would have to wait while `n` requests wait already.
    ///
    /// The refusal is [`is_no_room`](super::Error::is_no_room). The number is that of all services of this layer and of its clones,
    /// with all keys together. A request that gets a permit at once is never refused.
    ///
    /// # Panics
    ///
    /// If it is zero; see [`try_max_waiting`](Self::try_max_waiting).
    #[must_use]
    #[track_caller]
    pub fn max_waiting(self, n: u32) -> Self {
        match self.try_max_waiting(n) {
            Ok(layer) => layer,
            Err(error) => error.panic(),
        }
    }

    /// [`max_waiting`](Self::max_waiting), for a number from a configuration.
    ///
    /// # Errors
    ///
    /// If it is zero.
    pub fn try_max_waiting(mut self, n: u32) -> Result<Self, OutOfRange> {
        self.config.patience = self.config.patience.max_waiting(n)?;
        Ok(self)
    }

    /// Answers refused requests with HTTP responses, instead of an error. The error is that of the inner service then.
    #[must_use]
    pub fn answering<N>(self, answer: N) -> ConcurrencyLayer<T, AsResponse<N>, H> {
        ConcurrencyLayer {
            config: self.config.answering(answer),
            hold: PhantomData,
        }
    }

    /// [`answering`](Self::answering), with a closure.
    #[must_use]
    pub fn answering_with<F, B>(self, answer: F) -> ConcurrencyLayer<T, AsResponse<F>, H>
    where
        F: Fn(&Parts, &Refusal) -> Response<B>,
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

impl<T: Clone, A: Clone, H> Clone for ConcurrencyLayer<T, A, H> {
    fn clone(&self) -> Self {
        Self {
            config: self.config.clone(),
            hold: PhantomData,
        }
    }
}

impl<T: fmt::Debug, A: fmt::Debug, H> fmt::Debug for ConcurrencyLayer<T, A, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConcurrencyLayer")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl<S, T: Clone, A: Clone, H> Layer<S> for ConcurrencyLayer<T, A, H> {
    type Service = Concurrency<S, T, A, H>;

    fn layer(&self, inner: S) -> Concurrency<S, T, A, H> {
        Concurrency {
            inner,
            config: Arc::new(self.config.clone()),
            hold: PhantomData,
        }
    }
}

/// Service of [`ConcurrencyLayer`].
pub struct Concurrency<S, T, A = AsError, H = UntilBody> {
    inner: S,
    config: Arc<Config<T, A>>,
    hold: PhantomData<fn() -> H>,
}

impl<S: Clone, T, A, H> Clone for Concurrency<S, T, A, H> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            config: Arc::clone(&self.config),
            hold: PhantomData,
        }
    }
}

impl<S: fmt::Debug, T, A, H> fmt::Debug for Concurrency<S, T, A, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Concurrency")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl<S, T, P, A, H, R> Service<R> for Concurrency<S, T, A, H>
where
    S: Service<R> + Clone,
    T: Terms<R, Limit = P>,
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
    /// Future of [`Concurrency`].
    #[must_use = "futures do nothing unless you `.await` or poll them"]
    pub struct ConcurrencyFuture<S, R, T, A, H>
    where
        S: Service<R>,
        T: Terms<R>,
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
    T: Terms<R, Limit = P>,
    P: Admit<Error: fmt::Display>,
    A: Respond<R, S::Response, S::Error>,
    H: Hold<S::Response, P::Guard>,
{
    type Output = Result<H::Response, A::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (response, guard) = ready!(self.project().call.poll(cx));
        Poll::Ready(response.map(|response| H::hold(response, guard)))
    }
}

impl<S, R, T, A, H> fmt::Debug for ConcurrencyFuture<S, R, T, A, H>
where
    S: Service<R>,
    T: Terms<R>,
    T::Limit: Admit,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConcurrencyFuture").finish_non_exhaustive()
    }
}
