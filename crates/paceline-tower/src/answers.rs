use core::hash::BuildHasher;
use core::time::Duration;
use std::hash::RandomState;

use http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use http::request::Parts;
use http::{Response, StatusCode};

use paceline::config::ConfigError;
use paceline::feedback::LimitHeaders;
use paceline::limiter::{Quota, Status};

use super::answer::Answer;
use super::client_ip::or_panic;
use super::problem::{Problem, ProblemFormat};
use super::refusal::Refusal;

/// Answers refused requests as the standards say: a status, `Retry-After`, the headers of the limit, and a problem in JSON.
///
/// ```
/// use http::{Request, Response};
/// use paceline::policy::FixedWindow;
/// use paceline::prelude::*;
/// use paceline_tower::{Answers, EnforceLayer};
/// use std::convert::Infallible;
/// use std::time::Duration;
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let limit = FixedWindow::new(1, Duration::from_secs(60)).shared();
/// let hello = service_fn(|_: Request<()>| async {
///     Ok::<_, Infallible>(Response::new("hello".to_owned()))
/// });
/// let service = EnforceLayer::new(limit).answering(Answers::new("api")).layer(hello);
///
/// assert_eq!(service.clone().oneshot(Request::new(())).await.unwrap().body(), "hello");
/// tokio::time::advance(Duration::from_secs(48)).await;
///
/// let refused = service.oneshot(Request::new(())).await.unwrap();
/// assert_eq!(refused.status(), 429);
/// assert_eq!(refused.headers()["retry-after"], "12");
/// assert_eq!(refused.headers()["ratelimit-policy"], r#""api";q=1;w=60"#);
/// assert_eq!(refused.headers()["ratelimit"], r#""api";r=0;t=12"#);
/// let problem: serde_json::Value = serde_json::from_str(refused.body()).unwrap();
/// assert_eq!(problem["title"], "Quota Exceeded");
/// assert_eq!(problem["detail"], "rate limit exceeded (1 per 60s), retry in 12 s");
/// # }
/// ```
///
/// | refused because | status | problem | gRPC |
/// |---|---|---|---|
/// | the caller exceeded its quota: [`is_quota_exceeded`](Refusal::is_quota_exceeded) | 429 | `#quota-exceeded`, with `violated-policies` | 8, resource exhausted |
/// | there is no room, at once or in time, the service sheds load, or the limiter failed: [`is_limiter_failed`](Refusal::is_limiter_failed) | 503 | `#temporary-reduced-capacity` | 14, unavailable |
/// | the key cannot be used, or is [missing](super::OnMissingKey::Refuse) | 400 | `about:blank` | 3, invalid argument |
///
/// * **`Retry-After`** is in whole seconds: the wait until the request could have passed, rounded up, and at least 1. If that is not
///   known, it is the time until the limit is reset, and else 1. A request that can never pass has none.
/// * **`RateLimit-Policy`** and **`RateLimit`** are those of [`LimitHeaders`]; `t` is the wait of `Retry-After`, without jitter. A refusal
///   has them if the status of the limit is known. They are appended, so several layers can describe their limits in one response.
///   Responses of the service get them by [`with_success_headers`](Self::with_success_headers).
/// * **The body** is a [`Problem`], whose docs have the format, that of gRPC and of `HEAD` included. Its detail has both numbers, the
///   quota and the wait, and never the key.
///
/// The body of the responses has to be made of a `String`. For another one, such as that of tonic, see
/// [`with_body`](Self::with_body).
#[doc(alias("429", "RateLimit-Policy", "problem details"))]
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each part has a switch")]
pub struct Answers {
    headers: LimitHeaders,
    jitter: Duration,
    has_retry_after: bool,
    has_limit_headers: bool,
    has_success_headers: bool,
    has_legacy: bool,
    has_problem: bool,
    knows_grpc: bool,
}

impl Answers {
    /// Answers for the policy of this name.
    ///
    /// # Panics
    ///
    /// If the name cannot be written in a header; see [`try_new`](Self::try_new).
    #[must_use]
    #[track_caller]
    pub fn new(name: &str) -> Self {
        or_panic(Self::try_new(name))
    }

    /// [`new`](Self::new), for a name from a configuration.
    ///
    /// # Errors
    ///
    /// If the name is empty, or has a character outside of printable ASCII.
    pub fn try_new(name: &str) -> Result<Self, ConfigError> {
        LimitHeaders::try_new(name).map(Self::from)
    }

    /// Adds a random time up to this to `Retry-After`, so that callers do not come back at once. None by default.
    #[must_use]
    pub fn with_jitter(self, jitter: Duration) -> Self {
        Self { jitter, ..self }
    }

    /// Whether refusals have `Retry-After`. On by default.
    #[must_use]
    pub fn with_retry_after(mut self, has_retry_after: bool) -> Self {
        self.has_retry_after = has_retry_after;
        self
    }

    /// Whether refusals have `RateLimit-Policy` and `RateLimit`. On by default.
    #[must_use]
    pub fn with_limit_headers(mut self, has_limit_headers: bool) -> Self {
        self.has_limit_headers = has_limit_headers;
        self
    }

    /// Whether the responses of the service have them too. Off by default.
    ///
    /// The limit is read once more for each request. Headers of the service stay.
    #[must_use]
    pub fn with_success_headers(mut self, has_success_headers: bool) -> Self {
        self.has_success_headers = has_success_headers;
        self
    }

    /// Whether `X-RateLimit-Limit`, `-Remaining` and `-Reset` go with them. Off by default.
    ///
    /// The reset is in seconds from now. They have room for one limit: that of the innermost layer.
    #[must_use]
    pub fn with_legacy(self, has_legacy: bool) -> Self {
        Self { has_legacy, ..self }
    }

    /// Whether refusals have a problem as body. On by default; else the body is empty.
    #[must_use]
    pub fn with_problem(mut self, has_problem: bool) -> Self {
        self.has_problem = has_problem;
        self
    }

    /// Whether requests of gRPC and gRPC-Web are answered as gRPC does. On by default.
    #[must_use]
    pub fn with_grpc(self, knows_grpc: bool) -> Self {
        Self { knows_grpc, ..self }
    }

    /// Answers with the bodies that this function makes, for a service whose body is not made of a `String`.
    ///
    /// tonic has one: `EnforceLayer::new(limit).answering(answers.with_body(tonic::body::Body::new))`.
    ///
    /// In front of a [`ConcurrencyLayer`](super::ConcurrencyLayer) a body is a [`Held`](super::Held), made of another body by `into()`.
    ///
    /// ```
    /// use http::{Request, Response};
    /// use http_body_util::{BodyExt, Full, combinators::BoxBody};
    /// use paceline::policy::FixedWindow;
    /// use paceline::prelude::*;
    /// use paceline_tower::{Answers, EnforceLayer};
    /// use std::convert::Infallible;
    /// use std::time::Duration;
    /// use tokio_util::bytes::Bytes;
    /// use tower::{Layer, ServiceExt, service_fn};
    ///
    /// fn body(text: String) -> BoxBody<Bytes, Infallible> {
    ///     Full::from(text).boxed()
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let limit = FixedWindow::new(1, Duration::from_secs(60)).shared();
    /// let layer = EnforceLayer::new(limit).answering(Answers::new("api").with_body(body));
    /// let service = layer.layer(service_fn(|_: Request<()>| async {
    ///     Ok::<_, Infallible>(Response::new(body("hello".to_owned())))
    /// }));
    ///
    /// assert_eq!(service.clone().oneshot(Request::new(())).await.unwrap().status(), 200);
    /// let refused = service.oneshot(Request::new(())).await.unwrap();
    /// let problem = refused.into_body().collect().await.unwrap().to_bytes();
    /// assert!(problem.starts_with(br#"{"type":"#));
    /// # }
    /// ```
    #[must_use]
    pub fn with_body<B>(self, body: fn(String) -> B) -> AnswersWithBody<B> {
        AnswersWithBody {
            answers: self,
            body,
        }
    }

    /// The response to a refused request.
    #[must_use]
    pub fn response(&self, head: &Parts, refusal: &Refusal) -> Response<String> {
        let wait = wait(refusal);
        let mut problem = self.problem(refusal);
        if let Some(mut status) = refusal.status().filter(|_| self.has_limit_headers) {
            status.reset_in = wait.unwrap_or(status.reset_in);
            self.add_limit(problem.headers_mut(), &status);
        }
        if let Some(wait) = wait {
            problem = problem.with_wait(wait.saturating_add(self.random_jitter()));
        }
        if !self.has_retry_after {
            problem.headers_mut().remove(RETRY_AFTER);
        }
        let mut format = ProblemFormat::of(&head.method, &head.headers);
        format.is_empty = !self.has_problem;
        if !self.knows_grpc {
            format.grpc = None;
        }
        problem.response(format)
    }

    fn problem(&self, refusal: &Refusal) -> Problem {
        // What happened, with both numbers. The writer adds the wait.
        let what = refusal.with_retry_in(None);
        let quota = refusal.status().and_then(|status| status.quota);
        let quota = quota.map(|Quota { permits, window }| format!(" ({permits} per {window:?})"));
        let detail = format!("{what}{}", quota.unwrap_or_default());
        if refusal.is_quota_exceeded() {
            let binding = refusal.status().and_then(|status| status.binding);
            Problem::quota_exceeded(self.headers.name(binding), detail)
        } else if refusal.is_bad_key() {
            Problem::new(StatusCode::BAD_REQUEST, detail)
        } else {
            Problem::reduced_capacity(detail)
        }
    }

    /// The headers of one limit are appended to those of others. The legacy headers have room for one, so the first stays.
    fn add_limit(&self, headers: &mut HeaderMap, status: &Status) {
        // Few are longer.
        let mut value = String::with_capacity(64);
        self.headers.write_policy(&mut value, status);
        add(headers, RATELIMIT_POLICY.clone(), &value);
        value.clear();
        self.headers.write_state(&mut value, status);
        add(headers, RATELIMIT.clone(), &value);
        if self.has_legacy {
            let legacy: Vec<_> = LimitHeaders::legacy_headers(status).collect();
            if !legacy.iter().any(|(name, _)| headers.contains_key(*name)) {
                for (name, value) in legacy {
                    add(headers, HeaderName::from_static(name), &value);
                }
            }
        }
    }

    fn random_jitter(&self) -> Duration {
        let jitter = u64::try_from(self.jitter.as_nanos()).unwrap_or(u64::MAX);
        let random = RandomState::new().hash_one(());
        let nanos = (u128::from(jitter) * u128::from(random)) >> 64;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(jitter))
    }
}

impl From<LimitHeaders> for Answers {
    /// Answers with these headers, such as those with a name for each limit of an [`All`](paceline::policy::All).
    fn from(headers: LimitHeaders) -> Self {
        Self {
            headers,
            jitter: Duration::ZERO,
            has_retry_after: true,
            has_limit_headers: true,
            has_success_headers: false,
            has_legacy: false,
            has_problem: true,
            knows_grpc: true,
        }
    }
}

impl<B: From<String>> Answer<B> for Answers {
    fn refuse(&self, head: &Parts, refusal: &Refusal) -> Response<B> {
        self.response(head, refusal).map(B::from)
    }

    fn annotates(&self) -> bool {
        self.has_success_headers
    }

    fn annotate(&self, headers: &mut HeaderMap, status: &Status) {
        self.add_limit(headers, status);
    }
}

/// [`Answers`] with bodies of another type: see [`with_body`](Answers::with_body).
#[derive(Debug)]
pub struct AnswersWithBody<B> {
    answers: Answers,
    body: fn(String) -> B,
}

impl<B> Clone for AnswersWithBody<B> {
    fn clone(&self) -> Self {
        Self {
            answers: self.answers.clone(),
            body: self.body,
        }
    }
}

impl<B> Answer<B> for AnswersWithBody<B> {
    fn refuse(&self, head: &Parts, refusal: &Refusal) -> Response<B> {
        self.answers.response(head, refusal).map(self.body)
    }

    fn annotates(&self) -> bool {
        self.answers.has_success_headers
    }

    fn annotate(&self, headers: &mut HeaderMap, status: &Status) {
        self.answers.add_limit(headers, status);
    }
}

static RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
static RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// How long the caller should wait. `None`: the request can never pass.
fn wait(refusal: &Refusal) -> Option<Duration> {
    if refusal.is_too_costly() || refusal.is_bad_key() {
        return None;
    }
    let reset_in = || refusal.status().map(|status| status.reset_in);
    let known = refusal.retry_in().or_else(reset_in);
    // A client of gRPC takes the pushback instead of its own backoff, so an unknown wait must not be a short one.
    let unknown = Duration::from_secs(1);
    Some(known.filter(|wait| !wait.is_zero()).unwrap_or(unknown))
}

/// `value` is made of printable ASCII; an empty one is not added.
fn add(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    // A copy of the right size: one of a `String` that is larger would be freed twice.
    if let Some(Ok(value)) = (!value.is_empty()).then(|| HeaderValue::from_str(value)) {
        headers.append(name, value);
    }
}
