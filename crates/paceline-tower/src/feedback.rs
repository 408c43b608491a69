use core::convert::Infallible;
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;
use std::sync::Arc;

use http::header::RETRY_AFTER;
use http::{Response, StatusCode};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use paceline::feedback::{Caps, Feedback};
use paceline::limiter::future::Obeying;
use paceline::limiter::{Limits, Obey, RateCall};
use paceline::time::WallClock;

use super::failure::{FailureLog, Failures, Fault, catch};
use super::terms::{For, Terms};

/// Reads what the responses of an outbound client say about the limit of their host, and pauses that limit.
///
/// **A refusal that is kept and not read keeps its connection, and its permit** if there is a
/// [`ConcurrencyLayer`](super::ConcurrencyLayer) too: read its body or drop it before the next attempt, [as below](#with-permits).
///
/// It delays nothing itself. Put it inside a [`PaceLayer`](super::PaceLayer) with the same limits, so that every attempt waits,
/// retries included. [`PaceLayer::obeying`](super::PaceLayer::obeying) makes both:
///
/// ```
/// use http::{Request, Response};
/// use paceline::policy::TokenBucket;
/// use paceline::prelude::*;
/// use paceline::time::Rate;
/// use paceline_tower::{PaceLayer, host_key};
/// use std::convert::Infallible;
/// use std::time::Duration;
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// # let start = tokio::time::Instant::now();
/// # let client = service_fn(|request: Request<()>| async move {
/// #     let refused = request.uri().path() == "/refused";
/// #     let response = Response::builder().header("retry-after", if refused { "2" } else { "0" });
/// #     Ok::<_, Infallible>(response.status(if refused { 429 } else { 200 }).body(()).unwrap())
/// # });
/// // Each host allows 100 requests a minute.
/// let hosts = TokenBucket::new(Rate::per_minute(100), 10).keyed();
/// let client = PaceLayer::by_key(hosts, host_key()).obeying().layer(client);
///
/// let get = |uri| client.clone().oneshot(Request::get(uri).body(()).unwrap());
/// let refused = get("http://a.example/refused").await.unwrap();
/// assert_eq!(refused.status(), 429);
/// assert_eq!(refused.headers()["retry-after"], "2");
///
/// get("http://b.example/").await.unwrap();
/// assert_eq!(start.elapsed(), Duration::ZERO);
/// get("http://a.example/").await.unwrap();
/// assert_eq!(start.elapsed(), Duration::from_secs(2));
/// # }
/// ```
///
/// # With permits
///
/// The permits are inside, so that a request that waits for a pause holds none:
///
/// ```
/// use http::{Request, Response};
/// use http_body_util::{BodyExt, Full};
/// use paceline::concurrency::Permits;
/// use paceline::policy::TokenBucket;
/// use paceline::prelude::*;
/// use paceline::time::Rate;
/// use paceline_tower::{ConcurrencyLayer, PaceLayer};
/// use std::convert::Infallible;
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// # let start = tokio::time::Instant::now();
/// # let client = service_fn(move |_: Request<()>| async move {
/// #     let status = if start.elapsed().is_zero() { 429 } else { 200 };
/// #     let response = Response::builder().status(status).header("retry-after", if status == 429 { "2" } else { "0" });
/// #     Ok::<_, Infallible>(response.body(Full::new(&b"a body"[..])).unwrap())
/// # });
/// let limit = TokenBucket::new(Rate::per_minute(100), 10).shared();
/// let one_at_a_time = ConcurrencyLayer::new(Permits::new(1));
/// let client = PaceLayer::new(limit).obeying().layer(one_at_a_time.layer(client));
///
/// let body = loop {
///     let response = client.clone().oneshot(Request::new(())).await.unwrap();
///     if response.status() == 200 {
///         break response.into_body().collect().await.unwrap().to_bytes();
///     }
///     // The refusal and its permit are dropped here. The next attempt waits as long as the host asks.
/// };
/// assert_eq!(body, "a body");
/// # assert_eq!(start.elapsed().as_secs(), 2);
/// # }
/// ```
///
/// # What it obeys
///
/// | response | pause |
/// |---|---|
/// | any, if its [headers](paceline::feedback) ask for a pause: `Retry-After`, or nothing remains until a reset | as long as they say |
/// | 429 without such a header | until the reset, if one is named; else [1 s](Self::with_fallback_pause) |
/// | 201, 202 or 3xx with `Retry-After` | none: it is about that resource |
/// | any other | none |
///
/// An [`AdaptiveRate`](paceline::limiter::AdaptiveRate) also gets the outcome: 429 and 503 are refusals, other 5xx and errors say nothing,
/// and the rest are accepted. After a refusal without a header it waits by its own rule.
///
/// Requests that wait already wait for the pause too. Requests that have passed are under way, and their refusals can prolong it. The
/// rate of the limit stays as it is: a quota in the headers that is not exhausted changes nothing.
///
/// A client that follows redirects or repeats requests by itself does so behind the limit, and only its last response is read: turn
/// both off. A cache belongs outside of this layer, since its responses are old.
///
/// **Ready** as the inner service is.
///
/// **Waits** for the inner service only. With a limit in Redis, a response that asks for a pause also waits until the other processes
/// can know of it: for a round trip, or the deadline of a call.
///
/// **Fails** with the error of the inner service. The response is that of the inner service, untouched. If the pause cannot be made
/// known, or the key function, an observer or the policy panics, [`failures`](Self::failures) counts it.
///
/// **Cancel safety**: a future that is dropped before the response has come has read nothing.
///
/// **Shares** the limits that it is given.
#[derive(Clone, Debug)]
#[doc(alias("429", "retry-after"))]
pub struct FeedbackLayer<T> {
    config: Config<T>,
}

impl<R, L: Obey> FeedbackLayer<For<R, L>> {
    /// One limit for all requests.
    #[must_use]
    pub fn new(limit: L) -> Self
    where
        L: Clone,
    {
        Self::with_terms(For::all(limit))
    }

    /// A limit for each key, such as [`host_key`](super::host_key). The response to a request without a key pauses none, unless
    /// [`For::on_missing_key`] has one for it.
    #[must_use]
    pub fn by_key<M, K>(limits: M, key: impl Fn(&R) -> Option<K> + Send + Sync + 'static) -> Self
    where
        M: Limits<K, Limit = L> + Send + Sync + 'static,
    {
        Self::with_terms(For::key(limits, key))
    }

    /// Another rule for which limit a request has. The cost is not used.
    #[must_use]
    pub fn with_terms(terms: For<R, L>) -> Self {
        Self::of(terms)
    }
}

impl<T> FeedbackLayer<T> {
    pub(super) fn of(terms: T) -> Self {
        Self {
            config: Config {
                terms,
                caps: Caps::new(),
                fallback_pause: Duration::from_secs(1),
                now_unix: || WallClock::system().now(),
                failures: FailureLog::default(),
            },
        }
    }

    /// The pause after a 429 whose headers name neither a pause nor a reset; 1 s by default. Zero is none.
    #[must_use]
    pub const fn with_fallback_pause(mut self, pause: Duration) -> Self {
        self.config.fallback_pause = pause;
        self
    }

    /// The largest values that are believed; a pause of 31 days by default.
    #[must_use]
    pub const fn with_caps(mut self, caps: Caps) -> Self {
        self.config.caps = caps;
        self
    }

    /// The time since 1970, for dates in a response without a `Date`. The clock of the machine by default; for tests.
    #[must_use]
    pub const fn with_now_unix(mut self, now_unix: fn() -> Duration) -> Self {
        self.config.now_unix = now_unix;
        self
    }

    /// How often the limit or the key function failed, for all services of this layer and of its clones.
    #[must_use]
    pub fn failures(&self) -> Failures {
        self.config.failures.failures()
    }
}

impl<S, T: Clone> Layer<S> for FeedbackLayer<T> {
    type Service = FeedbackService<S, T>;

    fn layer(&self, inner: S) -> FeedbackService<S, T> {
        FeedbackService {
            inner,
            config: Arc::new(self.config.clone()),
        }
    }
}

/// Service of [`FeedbackLayer`].
#[derive(Debug)]
pub struct FeedbackService<S, T> {
    inner: S,
    config: Arc<Config<T>>,
}

impl<S, T, R, B> Service<R> for FeedbackService<S, T>
where
    S: Service<R, Response = Response<B>>,
    T: Terms<Request = R, Limit: Obey>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = FeedbackFuture<S, R, T>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> FeedbackFuture<S, R, T> {
        let limit = self.config.limit(&request);
        let call = limit.as_ref().and_then(Obey::begin);
        FeedbackFuture {
            config: Arc::clone(&self.config),
            state: State::Calling {
                response: self.inner.call(request),
                limit,
                call,
            },
        }
    }
}

impl<S: Clone, T> Clone for FeedbackService<S, T> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            config: Arc::clone(&self.config),
        }
    }
}

pin_project! {
    /// Future of [`FeedbackService`].
    #[must_use = "futures do nothing unless you `.await` or poll them"]
    pub struct FeedbackFuture<S, R, T>
    where
        S: Service<R>,
        T: Terms<Request = R>,
        T::Limit: Obey,
    {
        config: Arc<Config<T>>,
        #[pin]
        state: State<S::Future, S::Response, T::Limit>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, P, L>
    where
        L: Obey,
    {
        Calling {
            #[pin]
            response: F,
            // `None`: the request is not limited.
            limit: Option<L>,
            // Dropped without a report if there is no response.
            call: Option<RateCall>,
        },
        // Only for a limit on a server.
        Obeying {
            remaining: Obeying<L::Error>,
            response: Option<P>,
        },
    }
}

impl<S, R, T, B> Future for FeedbackFuture<S, R, T>
where
    S: Service<R, Response = Response<B>>,
    T: Terms<Request = R, Limit: Obey>,
{
    type Output = Result<S::Response, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match this.state.as_mut().project() {
                StateProj::Calling {
                    response,
                    limit,
                    call,
                } => {
                    let response = ready!(response.poll(cx))?;
                    let (limit, call) = (limit.take(), call.take());
                    let obeying = limit.and_then(|limit| this.config.obey(&response, &limit, call));
                    let Some(remaining) = obeying else {
                        return Poll::Ready(Ok(response));
                    };
                    let response = Some(response);
                    this.state.set(State::Obeying {
                        remaining,
                        response,
                    });
                }
                StateProj::Obeying {
                    remaining,
                    response,
                } => {
                    ready!(this.config.poll_obeyed(remaining, cx));
                    let response = response.take().expect("polled after it was ready");
                    return Poll::Ready(Ok(response));
                }
            }
        }
    }
}

impl<S, R, T> fmt::Debug for FeedbackFuture<S, R, T>
where
    S: Service<R>,
    T: Terms<Request = R, Limit: Obey>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FeedbackFuture").finish_non_exhaustive()
    }
}

/// What a service, its clones and their futures share.
#[derive(Clone, Debug)]
struct Config<T> {
    terms: T,
    caps: Caps,
    fallback_pause: Duration,
    now_unix: fn() -> Duration,
    failures: FailureLog,
}

impl<T> Config<T> {
    /// A request whose key cannot be used has no limit that could be paused.
    fn limit<R>(&self, request: &R) -> Option<T::Limit>
    where
        T: Terms<Request = R>,
    {
        let limit = catch(|| self.terms.limit(request, None));
        if limit.is_none() {
            self.failures.note(&Fault::<Infallible>::KeyPanic);
        }
        limit?.ok().flatten()
    }

    /// Reports the outcome of the call, pauses the limit as the response asks, and returns what remains to be done.
    fn obey<B, L: Obey>(
        &self,
        response: &Response<B>,
        limit: &L,
        call: Option<RateCall>,
    ) -> Option<Obeying<L::Error>> {
        let read = || {
            let status = response.status();
            let mut feedback = self.read(response);
            let is_refused = matches!(status.as_u16(), 429 | 503);
            match call {
                Some(call) if is_refused || !status.is_server_error() => {
                    call.answered(is_refused, &feedback);
                    return None;
                }
                None if status == StatusCode::TOO_MANY_REQUESTS => {
                    feedback = feedback.or_pause(self.fallback_pause);
                }
                _ => {}
            }
            feedback.pause()?;
            limit.obey(&feedback)
        };
        catch(read).unwrap_or_else(|| {
            self.failures.note(&Fault::<Infallible>::Panic);
            None
        })
    }

    fn read<B>(&self, response: &Response<B>) -> Feedback {
        let status = response.status();
        let is_of_resource =
            status.is_redirection() || matches!(status, StatusCode::CREATED | StatusCode::ACCEPTED);
        let headers = response.headers().iter();
        let of_limit = headers.filter(|(name, _)| !is_of_resource || **name != RETRY_AFTER);
        Feedback::parse_capped(of_limit, (self.now_unix)(), self.caps)
    }

    fn poll_obeyed<E: fmt::Display>(
        &self,
        remaining: &mut Obeying<E>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let fault = match catch(|| remaining.as_mut().poll(cx)) {
            Some(obeyed) => ready!(obeyed).err().map(Fault::Error),
            None => Some(Fault::Panic),
        };
        if let Some(fault) = fault {
            self.failures.note(&fault);
        }
        Poll::Ready(())
    }
}
