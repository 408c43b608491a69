use core::fmt;
use core::future::Future;
use core::marker::PhantomData;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use std::sync::Arc;

use http::Response;
use http::request::Parts;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use paceline::concurrency::Permits;
use paceline::limiter::{Limiter, Limits};

use super::Refusal;
use super::admission::{AskRate, Patience};
use super::answer::{AsError, AsResponse, Respond};
use super::call::{Call, Config};
use super::failure::{Failures, OnFailure};
use super::refusal::RefusalKind;
use super::terms::{For, OnMissingKey, Terms};

/// A layer with a limit. `K` is the kind of layer, which refuses a request that does not pass now or lets it wait: an
/// [`EnforceLayer`](super::EnforceLayer), a [`PaceLayer`](super::PaceLayer), a [`ConcurrencyLayer`](super::ConcurrencyLayer), an
/// [`AdaptiveLayer`](super::AdaptiveLayer) or a [`ShedLayer`](super::ShedLayer).
#[derive(Clone, Debug)]
pub struct LimitLayer<K, T, A = AsError> {
    config: Config<T, A>,
    kind: PhantomData<fn() -> K>,
}

impl<K, T> LimitLayer<K, T> {
    pub(super) fn with(terms: T, patience: Patience) -> Self {
        Self::of(Config::new(terms, patience))
    }
}

impl<K, T, A> LimitLayer<K, T, A> {
    const fn of(config: Config<T, A>) -> Self {
        let kind = PhantomData;
        Self { config, kind }
    }

    /// Answers refused requests with HTTP responses, instead of an error. The error is that of the inner service then.
    #[must_use]
    pub fn answering<N>(self, answer: N) -> LimitLayer<K, T, AsResponse<N>> {
        LimitLayer::of(self.config.answering(answer))
    }

    /// [`answering`](Self::answering), with a closure.
    #[must_use]
    pub fn answering_with<F, B>(self, answer: F) -> LimitLayer<K, T, AsResponse<F>>
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

    pub(super) fn map_terms<N>(self, map: impl FnOnce(T) -> N) -> LimitLayer<K, N, A> {
        LimitLayer::of(self.config.map_terms(map))
    }

    pub(super) const fn terms(&self) -> &T {
        &self.config.terms
    }

    pub(super) fn of_kind<N>(self) -> LimitLayer<N, T, A> {
        LimitLayer::of(self.config)
    }

    pub(super) const fn patience(&mut self) -> &mut Patience {
        &mut self.config.patience
    }
}

/// A layer whose requests are charged: it limits their rate.
pub trait Charges {
    /// Whether a request that cannot pass now is refused.
    const IS_AT_ONCE: bool;
}

impl<K: Charges, R, L: Limiter> LimitLayer<K, For<R, L>> {
    /// One limit for all requests.
    #[must_use]
    pub fn new(limit: L) -> Self
    where
        L: Clone,
    {
        Self::with_terms(For::all(limit))
    }

    /// A limit for each key. A request without a key is not limited, unless [`on_missing_key`](Self::on_missing_key) says otherwise.
    ///
    /// The closure needs the type of the request: `|request: &http::Request<Body>| …`.
    #[must_use]
    pub fn by_key<M, Key>(
        limits: M,
        key: impl Fn(&R) -> Option<Key> + Send + Sync + 'static,
    ) -> Self
    where
        M: Limits<Key, Limit = L> + Send + Sync + 'static,
    {
        Self::with_terms(For::key(limits, key))
    }

    /// Another rule for which limit a request has.
    #[must_use]
    pub fn with_terms(terms: For<R, L>) -> Self {
        let refuses = K::IS_AT_ONCE.then_some(RefusalKind::TooSoon);
        Self::with(terms, Patience::new(refuses))
    }
}

impl<K, R, L, A> LimitLayer<K, For<R, L>, A> {
    /// What happens to a request without a key, whose key function returns `None`. By default it passes, and is not limited.
    ///
    /// ```
    /// use http::{Request, Response};
    /// use paceline::policy::FixedWindow;
    /// use paceline::prelude::*;
    /// use paceline_tower::{Answers, EnforceLayer, OnMissingKey, header_key};
    /// use std::convert::Infallible;
    /// use std::time::Duration;
    /// use tower::{Layer, ServiceExt, service_fn};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let users = FixedWindow::new(2, Duration::from_secs(60)).keyed();
    /// let nobody = users.at("(nobody)".to_owned());
    /// let by_user = EnforceLayer::by_key(users, header_key("x-user")).answering(Answers::new("users"));
    /// let hello = service_fn(|_: Request<()>| async {
    ///     Ok::<_, Infallible>(Response::new("hello".to_owned()))
    /// });
    ///
    /// let shared = by_user.clone().on_missing_key(OnMissingKey::Share(nobody)).layer(hello);
    /// for expected in [200, 200, 429] {
    ///     let response = shared.clone().oneshot(Request::new(())).await.unwrap();
    ///     assert_eq!(response.status(), expected);
    /// }
    ///
    /// let refusing = by_user.on_missing_key(OnMissingKey::Refuse).layer(hello);
    /// let response = refusing.oneshot(Request::new(())).await.unwrap();
    /// assert_eq!(response.status(), 400);
    /// assert!(response.body().contains("the key of the request is missing"));
    /// # }
    /// ```
    ///
    /// The first call decides. A layer with one limit for all requests has no keys.
    #[must_use]
    pub fn on_missing_key(self, rule: OnMissingKey<L>) -> Self
    where
        R: 'static,
        L: Clone + Send + Sync + 'static,
    {
        self.map_terms(|terms| terms.on_missing_key(rule))
    }
}

impl<K: Charges, R, L, A> LimitLayer<K, For<R, L>, A> {
    /// Charges what `cost` says, instead of 1. Zero passes always.
    ///
    /// ```
    /// use paceline::policy::TokenBucket;
    /// use paceline::prelude::*;
    /// use paceline::time::Rate;
    /// use paceline_tower::EnforceLayer;
    /// use std::convert::Infallible;
    /// use tower::{Layer, ServiceExt, service_fn};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let bytes = TokenBucket::new(Rate::per_second(1_000), 1_000).shared();
    /// let layer = EnforceLayer::new(bytes).costing(|body: &Vec<u8>| body.len() as u32);
    /// let service = layer.layer(service_fn(|_| async { Ok::<_, Infallible>(()) }));
    ///
    /// assert!(service.clone().oneshot(vec![0; 800]).await.is_ok());
    /// assert!(service.clone().oneshot(vec![0; 300]).await.unwrap_err().is_too_soon());
    /// assert!(service.oneshot(vec![0; 1_001]).await.unwrap_err().is_too_costly());
    /// # }
    /// ```
    #[must_use]
    pub fn costing(self, cost: impl Fn(&R) -> u32 + Send + Sync + 'static) -> Self {
        self.map_terms(|terms| terms.costing(cost))
    }
}

/// A layer whose requests can wait.
#[diagnostic::on_unimplemented(
    message = "the requests of a layer that is `{Self}` never wait",
    note = "an `EnforceLayer` and a `ShedLayer` refuse at once; a `PaceLayer` lets requests wait for a rate, and a `ConcurrencyLayer` \
            for a permit"
)]
pub trait Waits {}

impl<K, T, A> LimitLayer<K, T, A> {
    /// Refuses a request that cannot pass within this time: at once if that is known, and else when the time is over.
    ///
    /// The refusal is [`is_too_late`](super::Error::is_too_late). The time of a request begins with the first poll of its future. What
    /// the inner service takes does not count.
    ///
    /// # Panics
    ///
    /// If it is zero.
    #[must_use]
    #[track_caller]
    pub fn within(mut self, within: Duration) -> Self
    where
        K: Waits,
    {
        assert!(
            !within.is_zero(),
            "a request needs more than 0 s to wait, got 0 s; a layer that refuses at once does not wait"
        );
        self.config.patience.within = Some(within);
        self
    }

    /// Refuses a request that would have to wait while `n` requests wait already.
    ///
    /// The refusal is [`is_no_room`](super::Error::is_no_room). The number is that of all services of this layer and of its clones,
    /// with all keys together. A request that can pass at once is never refused.
    ///
    /// ```
    /// use paceline::policy::Interval;
    /// use paceline::prelude::*;
    /// use paceline_tower::PaceLayer;
    /// use std::convert::Infallible;
    /// use std::time::Duration;
    /// use tower::{Layer, ServiceExt, service_fn};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let limit = Interval::every(Duration::from_millis(100)).shared();
    /// let inner = service_fn(|n| async move { Ok::<u32, Infallible>(n) });
    /// let service = PaceLayer::new(limit).max_waiting(1).layer(inner);
    ///
    /// let calls = (0..3).map(|n| service.clone().oneshot(n));
    /// let done = futures::future::join_all(calls).await;
    /// assert!(done[0].is_ok() && done[1].is_ok());
    /// assert!(done[2].as_ref().unwrap_err().is_no_room());
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If it is zero.
    #[must_use]
    #[track_caller]
    pub fn max_waiting(mut self, n: u32) -> Self
    where
        K: Waits,
    {
        let Ok(places) = Permits::try_new(n) else {
            panic!(
                "there must be room for at least 1 waiting request, got 0; a layer that refuses at once has none"
            )
        };
        self.config.patience.places = Some(places);
        self
    }
}

impl<S, K, T: Clone, A: Clone> Layer<S> for LimitLayer<K, T, A> {
    type Service = Limited<K, S, T, A>;

    fn layer(&self, inner: S) -> Limited<K, S, T, A> {
        Limited {
            inner,
            config: Arc::new(self.config.clone()),
            kind: PhantomData,
        }
    }
}

/// Service of a [`LimitLayer`].
pub struct Limited<K, S, T, A = AsError> {
    pub(super) inner: S,
    pub(super) config: Arc<Config<T, A>>,
    kind: PhantomData<fn() -> K>,
}

impl<K, S: Clone, T, A> Clone for Limited<K, S, T, A> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            config: Arc::clone(&self.config),
            kind: PhantomData,
        }
    }
}

impl<K, S: fmt::Debug, T, A> fmt::Debug for Limited<K, S, T, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limited")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

/// An [`EnforceLayer`](super::EnforceLayer) is ready when the inner service is, and asks its limit in `call`. A
/// [`PaceLayer`](super::PaceLayer) is ready at once: its future has a clone of the inner service, and makes it ready when the request
/// has passed.
impl<S, K, T, A, R> Service<R> for Limited<K, S, T, A>
where
    S: Service<R> + Clone,
    K: Charges,
    T: Terms<Request = R, Limit: Limiter<Error: fmt::Display>>,
    A: Respond<R, S::Response, S::Error>,
{
    type Response = S::Response;
    type Error = A::Error;
    type Future = LimitedFuture<S, R, T, A>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), A::Error>> {
        if K::IS_AT_ONCE {
            return self.inner.poll_ready(cx).map_err(A::inner_error);
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: R) -> LimitedFuture<S, R, T, A> {
        let call = if K::IS_AT_ONCE {
            Call::at_once(&self.config, &mut self.inner, request)
        } else {
            Call::new(&self.config, self.inner.clone(), request, AskRate::new)
        };
        LimitedFuture { call }
    }
}

pin_project! {
    /// Future of the service of an [`EnforceLayer`](super::EnforceLayer) and of a [`PaceLayer`](super::PaceLayer).
    #[must_use = "futures do nothing unless you `.await` or poll them"]
    pub struct LimitedFuture<S, R, T, A>
    where
        S: Service<R>,
        T: Terms<Request = R>,
        T::Limit: Limiter,
    {
        #[pin]
        call: Call<AskRate<T::Limit>, S, R, T, A>,
    }
}

impl<S, R, T, A> Future for LimitedFuture<S, R, T, A>
where
    S: Service<R>,
    T: Terms<Request = R, Limit: Limiter<Error: fmt::Display>>,
    A: Respond<R, S::Response, S::Error>,
{
    type Output = Result<S::Response, A::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = self.project().call.poll(cx, |_, _, ()| ());
        answer.map(|(response, _)| response)
    }
}

impl<S: Service<R>, R, T: Terms<Request = R, Limit: Limiter>, A> fmt::Debug
    for LimitedFuture<S, R, T, A>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitedFuture").finish_non_exhaustive()
    }
}
