//! The rules that every service with a limit keeps, checked on any of them.
//!
//! A [`Subject`] says how to build the service over an [`Inner`], and how many requests pass at once. Within an hour as many have
//! to pass again. It may refuse the others, or let them wait.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! use testkit::conformance::service::Subject;
//!
//! // A service without a limit keeps all rules but one.
//! let found = Subject::new(|inner| inner, 2, Some).violations().await;
//! assert_eq!(found.len(), 1);
//! assert_eq!(
//!     found[0].to_string(),
//!     "ClonesShare (clones share the limit): 5 passed at once, not 2"
//! );
//! # }
//! ```

use std::{fmt, future::Future, panic::Location, pin::Pin, task::Poll, time::Duration};

use http::{Request, Response};
use http_body::{Body, Frame};
use tower_service::Service;

use super::{Violation, violation::assert_none};
use crate::{
    clock::{jump, sleep},
    probe::service::{Inner, InnerError, Part},
    wakes::Driven,
};

/// One promise of every service with a limit.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Rule {
    /// The inner service is called by a clone that is ready, and no clone stays reserved after its request.
    ReadyMeansReady,
    /// Clones that are ready and idle take nothing from the limit.
    ReadyTakesNothing,
    /// All clones share one limit.
    ClonesShare,
    /// Calls that are dropped take nothing from the limit, wherever they are.
    CancelSafe,
    /// After a late wake-up no more requests pass at once than the limit says, and all of them end.
    LateWakeUp,
    /// An error of the inner service arrives unchanged.
    InnerError,
    /// A body arrives down to its trailers or its error, and says the same about its length.
    BodyToItsEnd,
}

impl Rule {
    fn check(self, is_kept: bool, detail: impl FnOnce() -> String) -> Result<(), Violation<Self>> {
        if is_kept {
            return Ok(());
        }
        Err(Violation::new(self, detail()))
    }
}

/// The promise, in a line.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ReadyMeansReady => "the inner service is called when it is ready",
            Self::ReadyTakesNothing => "a service that is ready has taken nothing",
            Self::ClonesShare => "clones share the limit",
            Self::CancelSafe => "a dropped call leaves no trace",
            Self::LateWakeUp => "being late lets no burst pass",
            Self::InnerError => "the inner error is untouched",
            Self::BodyToItsEnd => "a body arrives down to its end",
        })
    }
}

/// More calls than pass at once.
const MORE: u32 = 3;

/// A body with everything in it.
const BODY: [Part; 4] = [
    Part::Data(b"one"),
    Part::Pause,
    Part::Data(b"two"),
    Part::Trailers,
];

/// The description of a service for the suite.
#[must_use = "a subject does nothing unless checked"]
pub struct Subject<S: Service<Request<()>>> {
    build: Box<dyn FnMut(Inner) -> S>,
    passing: u32,
    inner_error: InnerErrorOf<S::Error>,
}

type InnerErrorOf<E> = fn(E) -> Option<InnerError>;

impl<S, B> Subject<S>
where
    S: Service<Request<()>, Response = Response<B>> + Clone,
    B: Body<Data = &'static [u8], Error = InnerError>,
{
    /// The service that `build` makes, with a new limit for each rule. The limit lets `passing` requests pass at once.
    /// `inner_error` returns the error of the inner service, if this is one.
    pub fn new(
        build: impl FnMut(Inner) -> S + 'static,
        passing: u32,
        inner_error: InnerErrorOf<S::Error>,
    ) -> Self {
        Self {
            build: Box::new(build),
            passing,
            inner_error,
        }
    }

    /// Checks every rule.
    ///
    /// # Panics
    ///
    /// With the list of violations and the caller's line, if there are any; and as [`violations`](Self::violations) does.
    #[track_caller]
    pub fn check(self) -> impl Future<Output = ()> {
        let caller = Location::caller();
        async move { assert_none(&self.violations().await, caller) }
    }

    /// Checks every rule. Returns one violation for each rule that is broken.
    ///
    /// # Panics
    ///
    /// If the clock is not paused.
    pub async fn violations(mut self) -> Vec<Violation<Rule>> {
        // Panics at once if the clock is not paused.
        jump(Duration::ZERO).await;
        let checked = [
            self.ready_means_ready().await,
            self.ready_takes_nothing().await,
            self.clones_share(),
            self.cancel_safe().await,
            self.late_wake_up().await,
            self.inner_error_untouched().await,
            self.body_to_its_end().await,
        ];
        checked.into_iter().filter_map(Result::err).collect()
    }

    async fn ready_means_ready(&mut self) -> Result<(), Violation<Rule>> {
        let inner = Inner::new();
        inner.set_ready(false);
        let mut calls = self.calls(&inner, self.passing + MORE);
        poll_all(&mut calls);
        for is_ready in [true, false, true] {
            sleep(Duration::from_secs(1)).await;
            inner.set_ready(is_ready);
            poll_all(&mut calls);
        }
        let has_ended = end_all(&mut calls).await;
        drop(calls);
        let used = inner.used();
        let is_kept = has_ended && used.calls_unready == 0 && used.reserved == 0;
        Rule::ReadyMeansReady.check(is_kept, || format!("ended: {has_ended}, {used:?}"))
    }

    async fn ready_takes_nothing(&mut self) -> Result<(), Violation<Rule>> {
        let inner = Inner::new();
        let service = (self.build)(inner.clone());
        let mut idle: Vec<S> = (0..10).map(|_| service.clone()).collect();
        for service in &mut idle {
            for _ in 0..2 {
                let mut ready = Driven::new(std::future::poll_fn(|cx| service.poll_ready(cx)));
                let _ = ready.poll();
            }
        }
        sleep(Duration::ZERO).await;
        let mut calls = calls(&service, self.passing);
        poll_all(&mut calls);
        let (passed, passing) = (inner.used().calls, self.passing);
        let detail = || format!("beside 10 idle clones {passed} of {passing} passed");
        Rule::ReadyTakesNothing.check(passed == passing, detail)
    }

    fn clones_share(&mut self) -> Result<(), Violation<Rule>> {
        // The requests that pass are under way for a while.
        let inner = Inner::new().taking(Duration::from_secs(1));
        let mut calls = self.calls(&inner, self.passing + MORE);
        poll_all(&mut calls);
        let (passed, passing) = (inner.used().calls, self.passing);
        let detail = || format!("{passed} passed at once, not {passing}");
        Rule::ClonesShare.check(passed == passing, detail)
    }

    async fn cancel_safe(&mut self) -> Result<(), Violation<Rule>> {
        let inner = Inner::new().taking(Duration::from_secs(1));
        let service = (self.build)(inner.clone());
        let passing = self.passing;
        // Some are under way, some wait or are refused, and some were never polled.
        let mut dropped = calls(&service, passing + MORE);
        poll_all(&mut dropped);
        let unpolled = calls(&service, MORE);
        drop((dropped, unpolled));
        sleep(Duration::from_secs(3600)).await;

        let before = inner.used();
        let mut again = calls(&service, passing + MORE);
        poll_all(&mut again);
        let passed = inner.used().calls - before.calls;
        let is_kept = passed >= passing && before.reserved == 0 && before.in_flight == 0;
        let detail = || format!("an hour later {passed} passed at once, not {passing}; {before:?}");
        Rule::CancelSafe.check(is_kept, detail)
    }

    async fn late_wake_up(&mut self) -> Result<(), Violation<Rule>> {
        let inner = Inner::new();
        let mut calls = self.calls(&inner, self.passing + MORE);
        poll_all(&mut calls);
        let before = inner.used().calls;
        jump(Duration::from_secs(1800)).await;
        poll_all(&mut calls);
        let (burst, passing) = (inner.used().calls - before, self.passing);
        let has_ended = end_all(&mut calls).await;
        let detail = || format!("{burst} passed at once, not {passing}; ended: {has_ended}");
        Rule::LateWakeUp.check(burst <= passing && has_ended, detail)
    }

    async fn inner_error_untouched(&mut self) -> Result<(), Violation<Rule>> {
        let mut calls = self.calls(&Inner::new().failing(), 1);
        end_all(&mut calls).await;
        let arrived = match calls.remove(0).outcome {
            Some(Err(error)) => (self.inner_error)(error),
            _ => None,
        };
        let detail = || "it did not arrive".to_owned();
        Rule::InnerError.check(arrived == Some(InnerError), detail)
    }

    async fn body_to_its_end(&mut self) -> Result<(), Violation<Rule>> {
        let failing = [Part::Data(b"one"), Part::Failure];
        for parts in [&BODY[..], &failing, &[]] {
            let direct = read(&mut calls(&Inner::new().with_body(parts), 1)).await;
            let through = read(&mut self.calls(&Inner::new().with_body(parts), 1)).await;
            let detail = || format!("{through:?}, not {direct:?}");
            Rule::BodyToItsEnd.check(through == direct, detail)?;
        }
        Ok(())
    }

    fn calls(&mut self, inner: &Inner, n: u32) -> Vec<Call<S>> {
        calls(&(self.build)(inner.clone()), n)
    }
}

impl<S: Service<Request<()>>> fmt::Debug for Subject<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject")
            .field("passing", &self.passing)
            .finish_non_exhaustive()
    }
}

/// A request that makes its clone ready, and calls it.
struct Call<S: Service<Request<()>>> {
    service: S,
    response: Option<Driven<S::Future>>,
    /// With the response, if it is kept.
    outcome: Option<Result<Option<S::Response>, S::Error>>,
    is_kept: bool,
}

/// A request for each of `n` clones.
fn calls<S: Service<Request<()>> + Clone>(service: &S, n: u32) -> Vec<Call<S>> {
    let call = |_| Call {
        service: service.clone(),
        response: None,
        outcome: None,
        is_kept: false,
    };
    (0..n).map(call).collect()
}

impl<S: Service<Request<()>>> Call<S> {
    fn poll(&mut self) {
        if self.outcome.is_some() {
            return;
        }
        if self.response.is_none() {
            let service = &mut self.service;
            let mut ready = Driven::new(std::future::poll_fn(|cx| service.poll_ready(cx)));
            match ready.poll() {
                Poll::Pending => return,
                Poll::Ready(Err(error)) => self.outcome = Some(Err(error)),
                Poll::Ready(Ok(())) => {}
            }
            drop(ready);
            self.response = Some(Driven::new(self.service.call(Request::new(()))));
        }
        if let Some(response) = &mut self.response {
            if let Poll::Ready(outcome) = response.poll() {
                self.outcome =
                    Some(outcome.map(|response| Some(response).filter(|_| self.is_kept)));
                self.response = None;
            }
        }
    }
}

/// Polls all calls, more than once, since one can give way to another.
fn poll_all<S: Service<Request<()>>>(calls: &mut [Call<S>]) {
    for _ in 0..3 {
        calls.iter_mut().for_each(Call::poll);
    }
}

/// Polls all calls until they have ended, for an hour at most.
async fn end_all<S: Service<Request<()>>>(calls: &mut [Call<S>]) -> bool {
    for _ in 0..3600 {
        poll_all(calls);
        if calls.iter().all(|call| call.outcome.is_some()) {
            return true;
        }
        sleep(Duration::from_secs(1)).await;
    }
    false
}

/// What the body of the response says of itself before each part, and the part.
async fn read<S, B>(calls: &mut [Call<S>]) -> Vec<String>
where
    S: Service<Request<()>, Response = Response<B>>,
    B: Body<Data = &'static [u8], Error = InnerError>,
{
    calls[0].is_kept = true;
    end_all(calls).await;
    let mut seen = Vec::new();
    let Some(Ok(Some(response))) = calls[0].outcome.take() else {
        return seen;
    };
    let mut body: Pin<Box<B>> = Box::pin(response.into_body());
    loop {
        let (size, is_end) = (body.size_hint().exact(), body.is_end_stream());
        let frame = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await;
        let part = match &frame {
            None => "the end".to_owned(),
            Some(Err(error)) => error.to_string(),
            Some(Ok(frame)) => format!("{:?} {:?}", frame.data_ref(), frame.trailers_ref()),
        };
        seen.push(format!("{size:?} {is_end} {part}"));
        if !matches!(frame.map(|frame| frame.map(Frame::into_data)), Some(Ok(_))) {
            return seen;
        }
    }
}
