use core::future::{Future, poll_fn};
use core::pin::Pin;

use http::{Request, Response};
use tower::retry::Policy;

use paceline::retry::{Attempts, Failure, Retry};
use paceline::time::Timer;

/// Retries requests in a [`tower::retry::RetryLayer`], as a [`Retry`] of `paceline` and its budget say. It needs feature `retry`.
///
/// The layer belongs outside of a [`PaceLayer`](super::PaceLayer): then every attempt asks the limit. With
/// [`obeying`](super::PaceLayer::obeying) a `Retry-After` pauses the limit of its key, and the next attempt waits there:
///
/// ```
/// use http::{Request, Response};
/// use paceline::limiter::Share;
/// use paceline::prelude::*;
/// use paceline::retry::{Retry, RetryBudget};
/// use paceline_tower::{PaceLayer, RetryPolicy, host_key};
/// use std::convert::Infallible;
/// use tower::retry::RetryLayer;
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// # let start = tokio::time::Instant::now();
/// # let client = service_fn(move |_: Request<()>| async move {
/// #     let status = if start.elapsed().as_secs() < 2 { 429 } else { 200 };
/// #     let response = Response::builder().header("retry-after", "2").status(status);
/// #     Ok::<_, Infallible>(response.body(()).unwrap())
/// # });
/// let hosts = TokenBucket::new(Rate::per_minute(100), 10).keyed();
/// let client = PaceLayer::by_key(hosts, host_key()).obeying().layer(client);
/// let retry = Retry::new(RetryBudget::new(10, Share::percent(10)));
/// let client = RetryLayer::new(RetryPolicy::by_status(retry)).layer(client);
///
/// let request = Request::get("http://a.example/").body(()).unwrap();
/// assert_eq!(client.oneshot(request).await.unwrap().status(), 200);
/// assert_eq!(start.elapsed(), Duration::from_secs(2));
/// # }
/// ```
///
/// **Waits** for the backoff of the [`Retry`], before it calls the service again.
///
/// **Fails** with the last error, and answers with the last response, when a request is given up.
///
/// **Holds** a clone of the request while it is under way. The response to a failed attempt is dropped, with its permit.
///
/// **Shares** the budget: a request has its own [`Attempts`], and clones of the policy share the [`Retry`].
#[derive(Clone, Debug)]
pub struct RetryPolicy<C> {
    retry: Retry,
    failure_of: C,
    attempts: Attempts,
}

impl<A, B, E> RetryPolicy<fn(&Request<A>, &Result<Response<B>, E>) -> Option<Failure>> {
    /// 429 and 503 are refusals. Other 5xx and errors are transient if the method is idempotent, and else final, since the server may
    /// have done the work.
    ///
    /// A refusal of a [`PaceLayer`](super::PaceLayer), such as of [`within`](super::LimitLayer::within), is an error too.
    #[must_use]
    pub fn by_status(retry: Retry) -> Self {
        Self::new(retry, |request, result| match result {
            Ok(response) if matches!(response.status().as_u16(), 429 | 503) => {
                Some(Failure::Refused { retry_after: None })
            }
            Ok(response) if !response.status().is_server_error() => None,
            _ if request.method().is_idempotent() => Some(Failure::Transient),
            _ => Some(Failure::Final),
        })
    }
}

impl<C> RetryPolicy<C> {
    /// Finds from a request and its result what a failure means; `None` is a success. The closure needs the types of both.
    #[must_use]
    pub fn new<R, P, E>(retry: Retry, failure_of: C) -> Self
    where
        C: Fn(&R, &Result<P, E>) -> Option<Failure>,
    {
        Self {
            retry,
            failure_of,
            attempts: Attempts::default(),
        }
    }
}

impl<R, P, E, C> Policy<R, P, E> for RetryPolicy<C>
where
    R: Clone,
    C: Fn(&R, &Result<P, E>) -> Option<Failure>,
{
    type Future = Pin<Box<dyn Future<Output = ()> + Send>>;

    fn retry(&mut self, request: &mut R, result: &mut Result<P, E>) -> Option<Self::Future> {
        let Some(failure) = (self.failure_of)(request, result) else {
            self.retry.succeeded(&mut self.attempts);
            return None;
        };
        let mut timer = Timer::new();
        timer.arm(self.retry.after(&mut self.attempts, failure)?);
        Some(Box::pin(poll_fn(move |cx| timer.poll_elapsed(cx))))
    }

    fn clone_request(&mut self, request: &R) -> Option<R> {
        Some(request.clone())
    }
}
