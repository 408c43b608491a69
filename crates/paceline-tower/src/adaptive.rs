use core::time::Duration;

use http::{Response, StatusCode};

use paceline::concurrency::{AdaptivePermit, Admit, Controller, Outcome};

use super::admission::Patience;
use super::answer::AsError;
use super::concurrency::{Admitting, ConcurrencyFuture};
use super::failure::catch;
use super::held::UntilBody;
use super::layer::{LimitLayer, Waits};
use super::terms::{BadKey, For, Once, Reports, Terms};

/// Bounds how many requests are under way. The bound follows what the responses show of the server's capacity.
///
/// As with a [`ConcurrencyLayer`](super::ConcurrencyLayer), a response that is kept and not read keeps its permit.
///
/// ```
/// use http::{Request, Response};
/// use paceline::concurrency::{Adaptive, Aimd};
/// use paceline_tower::AdaptiveLayer;
/// use std::convert::Infallible;
/// use std::time::Duration;
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let adaptive = Adaptive::new(Aimd::new(1, 100));
/// let in_use = adaptive.clone();
/// // It takes 6 requests at once, and answers the seventh with 503.
/// let server = service_fn(move |_: Request<()>| {
///     let status = if in_use.permits().in_use() > 6 { 503 } else { 200 };
///     async move {
///         tokio::time::sleep(Duration::from_millis(10)).await;
///         let response = Response::builder().status(status).body(String::new());
///         Ok::<_, Infallible>(response.unwrap())
///     }
/// });
///
/// let service = AdaptiveLayer::new(adaptive.clone()).layer(server);
/// let calls = (0..200).map(|_| service.clone().oneshot(Request::new(())));
/// let answers = futures::future::join_all(calls).await;
///
/// let refused = answers.iter().filter(|answer| answer.as_ref().unwrap().status() == 503);
/// assert!(refused.count() < 10); // each makes the limit fall to 3
/// assert!((3..=7).contains(&adaptive.permits().limit()));
/// # }
/// ```
///
/// **Ready** at once, and that takes no permit.
///
/// **Waits** in its future for a permit, first come, first served by the first poll. Then it waits until the inner service is
/// ready, and calls it.
///
/// **Reports** the outcome when the inner service answers, before the body. By default (`ByStatus`) a 429 or 503 is a refusal of
/// an overloaded server, other 5xx and errors say nothing, and the rest are successes. [`classifying`](LimitLayer::classifying)
/// changes that. **A slow success is a success**: with an [`Aimd`](paceline::concurrency::Aimd) the limit goes on growing while the
/// server gets slower. Either a classifier calls what is too slow [`Dropped`](Outcome::Dropped), or a
/// [`Gradient`](paceline::concurrency::Gradient) follows the latency. The latency begins with the permit. A future that is dropped is [ignored](Outcome::Ignored), and so is an inner service that
/// does not become ready.
///
/// **Start**: a new controller has a start and no findings, so the layer waits by default: a burst at the start is queued, and
/// not refused for want of samples. With [`at_once`](LimitLayer::at_once) the start is what a burst gets: give the controller a
/// start that the server bears.
///
/// **Holds** its permit until the body of the response has ended, failed or was dropped: the body is a [`Held`](super::Held). With
/// [`until_response`](LimitLayer::until_response) it ends with the head; a service that is not for HTTP needs that.
///
/// **Fails** with [`Error`](super::Error), or answers: see [`answering`](LimitLayer::answering). A classifier or a controller that
/// panics is counted in [`failures`](LimitLayer::failures), and the response goes on.
///
/// **Cancel safety**: a future that is dropped leaves the queue, or gives its permit back after the future of the inner service is
/// dropped.
///
/// **Shares** permits and controller: services of one layer, their clones, and all clones of the [`Adaptive`](paceline::concurrency::Adaptive).
#[doc(alias("adaptive concurrency limit", "load shedding"))]
pub type AdaptiveLayer<T, F = ByStatus, A = AsError, H = UntilBody> =
    LimitLayer<Admitting<H, Adapting>, Classified<T, F>, A>;

/// What an [`AdaptiveLayer`] does.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Adapting;

impl<H> Waits for Admitting<H, Adapting> {}

impl<R, P: Admit<Guard: ReportOutcome>> AdaptiveLayer<For<R, P>> {
    /// One limit for all requests.
    #[must_use]
    pub fn new(adaptive: P) -> Self
    where
        P: Clone,
    {
        Self::with_terms(For::all(adaptive))
    }

    /// Another rule for which limit a request has, such as one for each upstream host.
    #[must_use]
    pub fn with_terms(terms: For<R, P>) -> Self {
        let classify = ByStatus;
        Self::with(Classified { terms, classify }, Patience::new(None))
    }
}

impl<T, F, A, H> AdaptiveLayer<T, F, A, H> {
    /// Finds the outcome of a call from its result and its latency.
    ///
    /// The closure needs the type of the result. If it panics, the call says nothing.
    ///
    /// ```
    /// use paceline::concurrency::{Adaptive, Aimd, Outcome};
    /// use paceline_tower::AdaptiveLayer;
    /// use std::time::Duration;
    /// use tower::{Layer, ServiceExt, service_fn};
    ///
    /// #[derive(Debug)]
    /// struct Busy;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let adaptive = Adaptive::new(Aimd::new(1, 100).with_start(20));
    /// let layer = AdaptiveLayer::new(adaptive.clone())
    ///     .classifying(|result: &Result<(), Busy>, latency| match result {
    ///         Ok(()) if latency < Duration::from_secs(1) => Outcome::Success { latency },
    ///         _ => Outcome::Dropped,
    ///     })
    ///     .until_response();
    ///
    /// let busy = layer.layer(service_fn(|()| async { Err::<(), _>(Busy) }));
    /// assert!(busy.oneshot(()).await.is_err());
    /// assert_eq!(adaptive.permits().limit(), 10);
    /// # }
    /// ```
    #[must_use]
    pub fn classifying<P, E, N>(self, classify: N) -> AdaptiveLayer<T, N, A, H>
    where
        N: Fn(&Result<P, E>, Duration) -> Outcome,
    {
        self.map_terms(|Classified { terms, .. }| Classified { terms, classify })
    }
}

/// Future of the service of an [`AdaptiveLayer`].
pub type AdaptFuture<S, R, T, F, A, H> = ConcurrencyFuture<S, R, Classified<T, F>, A, H>;

impl<T, F: Classify<P, E>, P, E, G: ReportOutcome> Reports<P, E, G> for Classified<T, F> {
    fn report(&self, result: &Result<P, E>, guard: &mut G) -> bool {
        let outcome = |latency| self.classify.outcome(result, latency);
        catch(|| guard.report_with(outcome)).is_some()
    }
}

/// A guard that reports how its call ended: an [`AdaptivePermit`], or an `Option` of one, as of a
/// [`Switched`](paceline::limiter::Switched).
#[diagnostic::on_unimplemented(
    message = "a guard of type `{Self}` reports no outcome",
    note = "the limit has to be an `Adaptive`; `Switched` and `Observed` may wrap it"
)]
pub trait ReportOutcome {
    /// Reports the outcome of a call with this latency, if there is somebody to report it to.
    fn report_with(&mut self, outcome: impl FnOnce(Duration) -> Outcome);
}

impl<C: Controller> ReportOutcome for AdaptivePermit<C> {
    fn report_with(&mut self, outcome: impl FnOnce(Duration) -> Outcome) {
        self.report(outcome(self.latency()));
    }
}

/// A call without a permit reports nothing.
impl<G: ReportOutcome> ReportOutcome for Option<G> {
    fn report_with(&mut self, outcome: impl FnOnce(Duration) -> Outcome) {
        if let Some(guard) = self {
            guard.report_with(outcome);
        }
    }
}

/// What a result of a service says about its capacity: [`ByStatus`], or a closure
/// `Fn(&Result<Response, Error>, Duration) -> Outcome`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say what a result with response `{P}` and error `{E}` says about the service",
    note = "by default the inner service has to be for HTTP; for another one use `.classifying(|result: &Result<_, _>, latency| …)`"
)]
pub trait Classify<P, E> {
    /// The outcome of a call. `latency` is the time from the permit to the result.
    fn outcome(&self, result: &Result<P, E>, latency: Duration) -> Outcome;
}

impl<F, P, E> Classify<P, E> for F
where
    F: Fn(&Result<P, E>, Duration) -> Outcome,
{
    fn outcome(&self, result: &Result<P, E>, latency: Duration) -> Outcome {
        self(result, latency)
    }
}

/// An HTTP response with status 429 or 503 is a refusal of an overloaded server. Other 5xx and errors say nothing about its
/// capacity, and the rest are successes.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ByStatus;

impl<B, E> Classify<Response<B>, E> for ByStatus {
    fn outcome(&self, result: &Result<Response<B>, E>, latency: Duration) -> Outcome {
        match result.as_ref().map(Response::status) {
            Ok(StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) => Outcome::Dropped,
            Ok(status) if !status.is_server_error() => Outcome::Success { latency },
            _ => Outcome::Ignored,
        }
    }
}

/// A limit, and what a result says about it.
#[derive(Clone, Debug)]
pub struct Classified<T, F> {
    terms: T,
    classify: F,
}

impl<R, T: Terms<Request = R>, F> Terms for Classified<T, F> {
    type Request = R;
    type Limit = T::Limit;

    fn limit(&self, request: &R, once: Option<&mut Once<'_>>) -> Result<Option<T::Limit>, BadKey> {
        self.terms.limit(request, once)
    }

    fn cost(&self, request: &R) -> u32 {
        self.terms.cost(request)
    }
}
