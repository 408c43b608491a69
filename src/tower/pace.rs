use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use std::sync::Arc;

use http::Response;
use http::request::Parts;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::limiter::{Limiter, Limits};
use crate::time::OutOfRange;

use super::Refusal;
use super::admission::{AskRate, Patience};
use super::answer::{AsError, AsResponse, Respond};
use super::call::{Call, Config};
use super::failure::{Failures, OnFailure};
use super::terms::{ByKey, Costed, Direct, Terms};

/// Lets requests wait until their limit lets them pass.
///
/// ```
/// use paceline::policy::Interval;
/// use paceline::prelude::*;
/// use paceline::tower::PaceLayer;
/// use std::convert::Infallible;
/// use std::time::Duration;
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let start = tokio::time::Instant::now();
/// let limit = Interval::every(Duration::from_millis(100)).shared();
/// let layer = PaceLayer::new(limit).within(Duration::from_millis(250));
/// let service = layer.layer(service_fn(|_: ()| async { Ok::<_, Infallible>(()) }));
///
/// let calls = (0..5).map(|_| service.clone().oneshot(()));
/// let responses = futures::future::join_all(calls).await;
///
/// // At 0, 100 and 200 ms. The others could not pass within 250 ms, and were refused at once.
/// assert_eq!(responses.iter().filter(|response| response.is_ok()).count(), 3);
/// let late = responses[4].as_ref().unwrap_err();
/// assert!(late.is_too_late());
/// assert_eq!(late.retry_in(), Some(Duration::from_millis(300)));
/// assert_eq!(start.elapsed(), Duration::from_millis(200));
/// # }
/// ```
///
/// **Ready** at once, and that takes nothing from the limit. So an idle clone delays no request.
///
/// **Waits** in its future, first come, first served by the first poll. Then it waits until the inner service is ready, and calls
/// it: what the service waits for is not charged twice, and it reserves nothing while the request waits.
///
/// **Fails** with [`Error`](super::Error), or answers: see [`answering`](Self::answering).
///
/// **Holds** the request while it waits. [`max_waiting`](Self::max_waiting) bounds their number, and [`within`](Self::within) the
/// time.
///
/// **Cancel safety**: a future that is dropped while it waits leaves the queue, and takes nothing. One that is dropped later has
/// passed, and counts.
///
/// **Shares** its limit: services of one layer, and their clones, have one.
///
/// It needs no runtime until it has to wait.
#[derive(Clone, Debug)]
pub struct PaceLayer<T, A = AsError> {
    config: Config<T, A>,
}

impl<L: Limiter + Clone> PaceLayer<Direct<L>> {
    /// One limit for all requests.
    #[must_use]
    pub fn new(limit: L) -> Self {
        Self::with_terms(Direct { limit })
    }
}

impl<M, F> PaceLayer<ByKey<M, F>> {
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

impl<T> PaceLayer<T> {
    /// A rule of your own for which limit a request has, and what it costs.
    #[must_use]
    pub fn with_terms(terms: T) -> Self {
        Self {
            config: Config::new(terms, Patience::new(None)),
        }
    }
}

impl<T, A> PaceLayer<T, A> {
    /// Refuses a request that cannot pass within this time: at once if that is known, and else when the time is over.
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
    /// with all keys together. A request that the limit lets pass at once is never refused.
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

    /// Charges what `cost` says, instead of 1. Zero passes always.
    #[must_use]
    pub fn costing<R, F: Fn(&R) -> u32>(self, cost: F) -> PaceLayer<Costed<T, F>, A> {
        PaceLayer {
            config: self.config.costing(cost),
        }
    }

    /// Answers refused requests with HTTP responses, instead of an error. The error is that of the inner service then.
    #[must_use]
    pub fn answering<N>(self, answer: N) -> PaceLayer<T, AsResponse<N>> {
        PaceLayer {
            config: self.config.answering(answer),
        }
    }

    /// [`answering`](Self::answering), with a closure.
    #[must_use]
    pub fn answering_with<F, B>(self, answer: F) -> PaceLayer<T, AsResponse<F>>
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

impl<S, T: Clone, A: Clone> Layer<S> for PaceLayer<T, A> {
    type Service = Pace<S, T, A>;

    fn layer(&self, inner: S) -> Pace<S, T, A> {
        Pace {
            inner,
            config: Arc::new(self.config.clone()),
        }
    }
}

/// Service of [`PaceLayer`].
#[derive(Debug)]
pub struct Pace<S, T, A = AsError> {
    inner: S,
    config: Arc<Config<T, A>>,
}

impl<S: Clone, T, A> Clone for Pace<S, T, A> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            config: Arc::clone(&self.config),
        }
    }
}

impl<S, T, A, R> Service<R> for Pace<S, T, A>
where
    S: Service<R> + Clone,
    T: Terms<R, Limit: Limiter<Error: fmt::Display>>,
    A: Respond<R, S::Response, S::Error>,
{
    type Response = S::Response;
    type Error = A::Error;
    type Future = PaceFuture<S, R, T, A>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), A::Error>> {
        Poll::Ready(Ok(()))
    }

    /// The future has a clone of the inner service, and makes it ready when the request has passed.
    fn call(&mut self, request: R) -> PaceFuture<S, R, T, A> {
        PaceFuture {
            call: Call::new(&self.config, self.inner.clone(), request, AskRate::new),
        }
    }
}

pin_project! {
    /// Future of [`Pace`].
    #[must_use = "futures do nothing unless you `.await` or poll them"]
    pub struct PaceFuture<S, R, T, A>
    where
        S: Service<R>,
        T: Terms<R>,
        T::Limit: Limiter,
    {
        #[pin]
        call: Call<AskRate<T::Limit>, S, R, T, A>,
    }
}

impl<S, R, T, A> Future for PaceFuture<S, R, T, A>
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

impl<S, R, T, A> fmt::Debug for PaceFuture<S, R, T, A>
where
    S: Service<R>,
    T: Terms<R>,
    T::Limit: Limiter,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PaceFuture").finish_non_exhaustive()
    }
}
