//! One binary; its modules mirror `src/`.

mod adaptive;
mod adaptive_rate;
mod answers;
mod axum;
mod bad_input;
mod client_ip;
mod concurrency;
mod conformance;
mod enforce;
mod failures;
mod feedback;
mod keys;
mod lent;
mod names;
mod pace;
mod problem;
#[path = "../../../../tests/it/concurrency/recorded.rs"]
mod recorded;
#[cfg(feature = "retry")]
mod retry;
mod shed;
mod timed;
mod vectors;
mod wrapped;
#[cfg(feature = "tracing")]
#[path = "../../../../tests/it/written.rs"]
mod written;

use std::convert::Infallible;
use std::future::{Pending, Ready, ready};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use ::tower::util::ServiceFn;
use ::tower::{Service, ServiceExt, service_fn};
use http::{Request, Response};
use paceline::limiter::{Limiter, PolicyExt, Shared};
use paceline::policy::{Decision, TokenBucket};
use paceline::time::Rate;
use testkit::probe::service::InnerError;

/// A request and its response.
async fn call<S: Service<R>, R>(service: &mut S, request: R) -> Result<S::Response, S::Error> {
    service.ready().await?.call(request).await
}

type Answering<R, P> = ServiceFn<fn(R) -> Ready<Result<P, Infallible>>>;

/// A service that answers with the request.
fn echo() -> Answering<u32, u32> {
    service_fn(|n| ready(Ok(n)))
}

/// An HTTP service that answers with 200.
fn hello() -> Answering<Request<()>, Response<String>> {
    service_fn(|_| ready(Ok(Response::new("hello".to_owned()))))
}

/// It fails instead of becoming ready.
#[derive(Clone)]
struct NeverReady;

impl Service<Request<()>> for NeverReady {
    type Response = Response<String>;
    type Error = InnerError;
    type Future = Pending<Result<Response<String>, InnerError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), InnerError>> {
        Poll::Ready(Err(InnerError))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        unreachable!("it is never ready")
    }
}

/// `n` at once, then `n` a second.
fn per_second(n: u32) -> Shared<TokenBucket> {
    TokenBucket::new(Rate::per_second(n), n).shared()
}

fn get(path: &str) -> Request<()> {
    Request::get(path).body(()).unwrap()
}

/// A limiter whose answer is under way for some polls, as that of a server. A clone is another handle.
#[derive(Clone)]
struct Remote {
    asked: Arc<Mutex<Asked>>,
    /// How often it is pending, for each request.
    pending: u32,
    answer: Result<Decision, &'static str>,
    /// Of this request.
    polls: u32,
}

#[derive(Default)]
struct Asked {
    passed: u32,
    cancelled: u32,
    under_way: u32,
}

impl Remote {
    fn answering_after(pending: u32, answer: Result<Decision, &'static str>) -> Self {
        Self {
            asked: Arc::default(),
            pending,
            answer,
            polls: 0,
        }
    }

    fn passing_after(pending: u32) -> Self {
        Self::answering_after(pending, Ok(Decision::Pass))
    }

    fn refusing_after(pending: u32, retry_in: Duration) -> Self {
        Self::answering_after(pending, Ok(Decision::Wait { retry_in }))
    }

    fn failing_after(pending: u32) -> Self {
        Self::answering_after(pending, Err("the server is gone"))
    }

    /// It never answers.
    fn silent() -> Self {
        Self::passing_after(u32::MAX)
    }
}

impl Limiter for Remote {
    type Error = &'static str;

    fn poll_decide(
        &mut self,
        _: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Decision, &'static str>> {
        let mut asked = self.asked.lock().unwrap();
        if self.polls == 0 {
            asked.under_way += 1;
        }
        if self.polls < self.pending {
            self.polls += 1;
            if self.pending < u32::MAX {
                cx.waker().wake_by_ref();
            }
            return Poll::Pending;
        }
        self.polls = 0;
        asked.under_way -= 1;
        asked.passed += u32::from(self.answer == Ok(Decision::Pass));
        Poll::Ready(self.answer)
    }

    fn give_up(&mut self) {
        if self.polls > 0 {
            self.polls = 0;
            let mut asked = self.asked.lock().unwrap();
            asked.cancelled += 1;
            asked.under_way -= 1;
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.give_up();
    }
}
