use http::request::Parts;
use http::{HeaderMap, Request, Response};

use paceline::limiter::Status;

use super::{Error, Refusal};

/// Answers refused requests of an HTTP service, in place of it.
///
/// A closure `Fn(&Parts, &Refusal) -> Response<B>` is one.
///
/// ```
/// use http::request::Parts;
/// use http::{HeaderMap, Request, Response};
/// use paceline::limiter::Status;
/// use paceline::policy::TokenBucket;
/// use paceline::prelude::*;
/// use paceline::time::Rate;
/// use paceline_tower::{Answer, EnforceLayer, Refusal};
/// use std::convert::Infallible;
/// use tower::{Layer, ServiceExt, service_fn};
///
/// #[derive(Clone)]
/// struct Terse;
///
/// impl Answer<String> for Terse {
///     fn refuse(&self, head: &Parts, _: &Refusal) -> Response<String> {
///         let body = format!("too many requests for {}", head.uri.path());
///         Response::builder().status(429).body(body).unwrap()
///     }
///
///     fn annotates(&self) -> bool {
///         true
///     }
///
///     fn annotate(&self, headers: &mut HeaderMap, status: &Status) {
///         headers.insert("x-remaining", status.remaining.into());
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let limit = TokenBucket::new(Rate::per_second(2), 2).shared();
/// let inner = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
/// let service = EnforceLayer::new(limit).answering(Terse).layer(inner);
/// let get = || service.clone().oneshot(Request::get("/data").body(()).unwrap());
///
/// assert_eq!(get().await.unwrap().headers()["x-remaining"], "1");
/// assert_eq!(get().await.unwrap().headers()["x-remaining"], "0");
/// assert_eq!(get().await.unwrap().into_body(), "too many requests for /data");
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot answer with a body of type `{B}`",
    note = "a closure `|head: &http::request::Parts, refusal: &Refusal| -> http::Response<{B}>` can; the body is that of the \
            service's own responses; `Answers` have `with_body`",
    note = "in front of a `ConcurrencyLayer` a body is `Held`: `answers.with_body(|text| Body::from(text).into())`"
)]
pub trait Answer<B> {
    /// The response to a request that was refused.
    fn refuse(&self, head: &Parts, refusal: &Refusal) -> Response<B>;

    /// Whether responses of the service get headers too. The limit is read for each request then.
    ///
    /// Provided: no.
    fn annotates(&self) -> bool {
        false
    }

    /// Adds headers to a response of the service. `status` is what the limit had left after the request had passed.
    ///
    /// Provided: adds none.
    fn annotate(&self, headers: &mut HeaderMap, status: &Status) {
        let _ = (headers, status);
    }
}

impl<F, B> Answer<B> for F
where
    F: Fn(&Parts, &Refusal) -> Response<B>,
{
    fn refuse(&self, head: &Parts, refusal: &Refusal) -> Response<B> {
        self(head, refusal)
    }
}

/// How the caller of a layer's service learns that its request was refused: by an error, or by a response.
///
/// `R`, `P` and `E` are the request, the response and the error of the inner service.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot answer a request of type `{R}` with a response of type `{P}`",
    note = "the answer has to have the body type of the inner service's own responses, and the inner service has to be for HTTP"
)]
pub trait Respond<R, P, E> {
    /// The error of the layer's service.
    type Error;

    /// What a refused request gets.
    ///
    /// # Errors
    ///
    /// If the caller learns it by an error.
    fn refuse(&self, request: R, refusal: Refusal) -> Result<P, Self::Error>;

    /// Whether a response says what the limit has left. The limit is read for each request then.
    fn annotates(&self) -> bool;

    /// Adds to a response of the inner service what the limit had left after the request had passed.
    fn annotate(&self, response: &mut P, status: &Status);

    /// An error of the inner service.
    fn inner_error(error: E) -> Self::Error;
}

/// A refused request gets an [`Error`]. So it is by default.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct AsError;

impl<R, P, E> Respond<R, P, E> for AsError {
    type Error = Error<E>;

    fn refuse(&self, _: R, refusal: Refusal) -> Result<P, Error<E>> {
        Err(Error::refused(refusal))
    }

    fn annotates(&self) -> bool {
        false
    }

    fn annotate(&self, _: &mut P, _: &Status) {}

    fn inner_error(error: E) -> Error<E> {
        Error::inner(error)
    }
}

/// A refused request gets a response of an [`Answer`]. The error is that of the inner service.
#[derive(Clone, Copy, Debug)]
pub struct AsResponse<A>(A);

impl<A> AsResponse<A> {
    pub(super) const fn new(answer: A) -> Self {
        Self(answer)
    }
}

impl<A, Q, B, E> Respond<Request<Q>, Response<B>, E> for AsResponse<A>
where
    A: Answer<B>,
{
    type Error = E;

    fn refuse(&self, request: Request<Q>, refusal: Refusal) -> Result<Response<B>, E> {
        let (head, _) = request.into_parts();
        Ok(self.0.refuse(&head, &refusal))
    }

    fn annotates(&self) -> bool {
        self.0.annotates()
    }

    fn annotate(&self, response: &mut Response<B>, status: &Status) {
        self.0.annotate(response.headers_mut(), status);
    }

    fn inner_error(error: E) -> E {
        error
    }
}
