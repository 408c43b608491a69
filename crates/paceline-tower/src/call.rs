use core::cell::Cell;
use core::convert::Infallible;
use core::fmt;
use core::future::Future;
use core::mem;
use core::pin::Pin;
use core::task::{Context, Poll, Waker, ready};
use std::sync::Arc;

use pin_project_lite::pin_project;
use tower_service::Service;

use paceline::limiter::{Limiter, Status};
use paceline::policy::Decision;

use super::admission::{Admission, Ask, AskRate, Blocked, Patience};
use super::answer::{AsResponse, Respond};
use super::failure::{Contained, FailureLog, Fault, OnFailure, catch};
use super::refusal::RefusalKind;
use super::terms::Terms;
use super::{AsError, Refusal};

/// What the layers have in common: all but the way in which a limit is asked. A service and its clones share one.
#[derive(Clone, Debug)]
pub(super) struct Config<T, A> {
    pub(super) terms: T,
    pub(super) answer: A,
    pub(super) patience: Patience,
    pub(super) on_failure: OnFailure,
    pub(super) failures: FailureLog,
}

impl<T> Config<T, AsError> {
    pub(super) fn new(terms: T, patience: Patience) -> Self {
        Self {
            terms,
            answer: AsError,
            patience,
            on_failure: OnFailure::Open,
            failures: FailureLog::default(),
        }
    }
}

impl<T, A> Config<T, A> {
    pub(super) fn map_terms<N>(self, map: impl FnOnce(T) -> N) -> Config<N, A> {
        Config {
            terms: map(self.terms),
            answer: self.answer,
            patience: self.patience,
            on_failure: self.on_failure,
            failures: self.failures,
        }
    }

    pub(super) fn answering<N>(self, answer: N) -> Config<T, AsResponse<N>> {
        Config {
            terms: self.terms,
            answer: AsResponse::new(answer),
            patience: self.patience,
            on_failure: self.on_failure,
            failures: self.failures,
        }
    }

    /// Puts the request in front of its limit. Without one it passes.
    ///
    /// The admission is made in its place: it is large to be moved.
    fn admit<R, Q>(
        &self,
        request: &R,
        ask: impl FnOnce(T::Limit, u32) -> Q,
        admission: &mut Option<Admission<Q>>,
    ) -> Result<(), Refusal>
    where
        T: Terms<Request = R>,
        Q: Ask,
    {
        let mut fault = Fault::<Infallible>::KeyPanic;
        let limited = catch(|| {
            if let Some(limit) = self.terms.limit(request)? {
                fault = Fault::CostPanic;
                let cost = self.terms.cost(request);
                *admission = Some(Admission::new(ask(limit, cost)));
            }
            Ok(())
        });
        match limited {
            Some(limited) => limited.map_err(|bad| Refusal::new(RefusalKind::BadKey(bad))),
            None => self.failed(&fault),
        }
    }

    /// Ready when the request has passed, or is refused.
    fn poll_pass<R, Q, P, E>(
        &self,
        admission: &mut Option<Admission<Q>>,
        pass: &mut Pass<Q::Guard>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Refusal>>
    where
        Q: Ask<Error: fmt::Display>,
        A: Respond<R, P, E>,
    {
        let Some(asked) = admission else {
            return Poll::Ready(Ok(()));
        };
        let answer = match ready!(asked.poll(&self.patience, cx)) {
            Ok(guard) => {
                pass.guard = Some(guard);
                pass.status = self.answer.annotates().then(|| asked.status()).flatten();
                Ok(())
            }
            Err(blocked) => self.blocked(blocked),
        };
        *admission = None;
        Poll::Ready(answer)
    }

    /// Ready when the inner service was called, or the request is refused.
    ///
    /// The error is that of a service that does not become ready.
    fn poll_call<Q, S, R>(
        &self,
        asking: &mut Asking<Q, S, R>,
        pass: &mut Pass<Q::Guard>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Called<S, R>, A::Error>>
    where
        Q: Ask<Error: fmt::Display>,
        S: Service<R>,
        A: Respond<R, S::Response, S::Error>,
    {
        if let Err(refusal) = ready!(self.poll_pass(&mut asking.admission, pass, cx)) {
            return Poll::Ready(Ok(Err(refusal)));
        }
        let ready = ready!(asking.inner.poll_ready(cx));
        ready.map_err(|error| self.answer.inner_error(error))?;
        let request = taken(&mut asking.request);
        Poll::Ready(Ok(Ok(asking.inner.call(request))))
    }

    /// The response of the inner service, with what the limit has left if the response says that.
    fn annotated<R, P, E>(
        &self,
        response: Result<P, E>,
        status: Option<Status>,
    ) -> Result<P, A::Error>
    where
        A: Respond<R, P, E>,
    {
        let mut response = response.map_err(|error| self.answer.inner_error(error))?;
        if let Some(status) = status {
            self.answer.annotate(&mut response, &status);
        }
        Ok(response)
    }

    fn blocked<E: fmt::Display>(&self, blocked: Blocked<E>) -> Result<(), Refusal> {
        match blocked {
            Blocked::Refused(refusal) => Err(refusal),
            Blocked::Failed(fault) => self.failed(&fault),
        }
    }

    /// The request passes, or is refused.
    fn failed<E: fmt::Display>(&self, fault: &Fault<E>) -> Result<(), Refusal> {
        self.failures.note(fault);
        match self.on_failure {
            OnFailure::Open => Ok(()),
            OnFailure::Closed => Err(Refusal::new(RefusalKind::LimiterFailed)),
        }
    }
}

impl<T, A> Config<T, A> {
    /// Asks the limit of the request without waiting. While the answer is under way, `admission` has the request.
    ///
    /// It does what [`admit`](Self::admit) and [`poll_pass`](Self::poll_pass) do, in one `catch` and without an [`Admission`], which
    /// took most of the time of a request that passes.
    fn ask_at_once<R, P, E>(
        &self,
        request: &R,
        pass: &mut Pass<()>,
        admission: &mut Option<Admission<AskRate<T::Limit>>>,
    ) -> Poll<Result<(), Refusal>>
    where
        T: Terms<Request = R, Limit: Limiter<Error: fmt::Display>>,
        A: Respond<R, P, E>,
    {
        let (mut limit, mut cost) = (Contained::default(), 1);
        let fault = Cell::new(Fault::<Infallible>::KeyPanic);
        let asked = catch(|| {
            let shared = self.terms.shared().and_then(Limiter::for_one_request);
            let handle = shared.map_or_else(|| self.terms.limit(request), |limit| Ok(Some(limit)));
            let Some(handle) = handle? else {
                return Ok(Poll::Ready(Ok(Decision::Pass)));
            };
            let handle = limit.insert(handle);
            fault.set(Fault::CostPanic);
            cost = self.terms.cost(request);
            fault.set(Fault::Panic);
            Ok(handle.poll_try(cost, &mut Context::from_waker(Waker::noop())))
        });
        let decision = match asked {
            Some(Ok(Poll::Ready(decision))) => decision.map_err(Fault::Error),
            Some(Ok(Poll::Pending)) => {
                *admission = Some(Admission::new(AskRate::of(limit, cost)));
                return Poll::Pending;
            }
            Some(Err(bad)) => return Poll::Ready(Err(Refusal::new(RefusalKind::BadKey(bad)))),
            None => return Poll::Ready(self.failed(&fault.into_inner())),
        };
        if matches!(decision, Ok(Decision::Pass)) {
            pass.status = self.answer.annotates().then(|| limit.status()).flatten();
            return Poll::Ready(Ok(()));
        }
        let ask = AskRate::of(limit, cost);
        let answer = ask.decided(decision, RefusalKind::TooSoon);
        let answer = answer.map_err(|blocked| blocked.with_status(&ask));
        Poll::Ready(answer.or_else(|blocked| self.blocked(blocked)))
    }
}

/// The future of the inner service, or why it was not called.
type Called<S, R> = Result<<S as Service<R>>::Future, Refusal>;

/// What a request has that has passed.
struct Pass<G> {
    /// What it holds while it is under way.
    guard: Option<G>,
    /// What the limit had left then, if the response says it.
    status: Option<Status>,
}

impl<G> Pass<G> {
    const NONE: Self = Self {
        guard: None,
        status: None,
    };
}

/// A response or an error, and what the request holds.
type Outcome<P, E, G> = (Result<P, E>, Option<G>);

pin_project! {
    /// A request from its limit to the response of the inner service. It is ready with the response and the guard.
    pub(super) struct Call<Q, S, R, T, A>
    where
        Q: Ask,
        S: Service<R>,
    {
        config: Arc<Config<T, A>>,
        #[pin]
        state: State<Q, S, R, S::Future>,
        // Dropped last: the request is under way until the future of the inner service is gone.
        pass: Pass<Q::Guard>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<Q, S, R, F> {
        // Boxed, so that the future of a request that has passed is small.
        Asking {
            asking: Box<Asking<Q, S, R>>,
        },
        Calling {
            #[pin]
            response: F,
        },
        Refused {
            refused: Option<Box<(R, Refusal)>>,
        },
    }
}

struct Asking<Q, S, R> {
    /// Gone when the request has passed.
    admission: Option<Admission<Q>>,
    inner: S,
    request: Option<R>,
}

type StateOf<Q, S, R> = State<Q, S, R, <S as Service<R>>::Future>;

impl<Q, S, R, F> State<Q, S, R, F> {
    fn asking(admission: Option<Admission<Q>>, inner: S, request: R) -> Self {
        Self::Asking {
            asking: Box::new(Asking {
                admission,
                inner,
                request: Some(request),
            }),
        }
    }

    fn refused(request: R, refusal: Refusal) -> Self {
        Self::Refused {
            refused: Some(Box::new((request, refusal))),
        }
    }
}

impl<Q, S, R, T, A> Call<Q, S, R, T, A>
where
    Q: Ask<Error: fmt::Display>,
    S: Service<R>,
    T: Terms<Request = R>,
    A: Respond<R, S::Response, S::Error>,
{
    /// Waits for the limit, then until `inner` is ready, and calls it.
    pub(super) fn new(
        config: &Arc<Config<T, A>>,
        inner: S,
        request: R,
        ask: impl FnOnce(T::Limit, u32) -> Q,
    ) -> Self {
        let mut admission = None;
        let state = match config.admit(&request, ask, &mut admission) {
            Ok(()) => State::asking(admission, inner, request),
            Err(refusal) => State::refused(request, refusal),
        };
        Self::with(config, Pass::NONE, state)
    }

    fn with(config: &Arc<Config<T, A>>, pass: Pass<Q::Guard>, state: StateOf<Q, S, R>) -> Self {
        Self {
            config: Arc::clone(config),
            pass,
            state,
        }
    }

    /// Ready with the response, and what the request holds.
    pub(super) fn poll(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Outcome<S::Response, A::Error, Q::Guard>> {
        self.poll_with(cx, |_, _, _| ())
    }

    /// As [`poll`](Self::poll). `ended` is given the result of the inner service, and the guard if the request has one.
    pub(super) fn poll_with(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        ended: impl FnOnce(&Config<T, A>, &Result<S::Response, S::Error>, &mut Q::Guard),
    ) -> Poll<Outcome<S::Response, A::Error, Q::Guard>> {
        let mut this = self.project();
        let (config, pass) = (&**this.config, this.pass);
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Asking { asking } => match ready!(config.poll_call(asking, pass, cx)) {
                    Ok(Ok(response)) => State::Calling { response },
                    Ok(Err(refusal)) => State::refused(taken(&mut asking.request), refusal),
                    Err(error) => return Poll::Ready((Err(error), pass.guard.take())),
                },
                StateProj::Calling { response } => {
                    let response = ready!(response.poll(cx));
                    if let Some(guard) = &mut pass.guard {
                        ended(config, &response, guard);
                    }
                    let response = config.annotated(response, pass.status);
                    return Poll::Ready((response, pass.guard.take()));
                }
                StateProj::Refused { refused } => {
                    let (request, refusal) = *taken(refused);
                    let answer = config.answer.refuse(request, refusal);
                    return Poll::Ready((answer, None));
                }
            };
            this.state.set(next);
        }
    }
}

impl<S, R, T, A> Call<AskRate<T::Limit>, S, R, T, A>
where
    S: Service<R>,
    T: Terms<Request = R, Limit: Limiter<Error: fmt::Display>>,
    A: Respond<R, S::Response, S::Error>,
{
    /// Asks the limit at once, and calls `inner`, which is ready. A refusal leaves it ready. While the answer is under way, the
    /// future has the ready service, and `inner` is a clone of it.
    pub(super) fn at_once(config: &Arc<Config<T, A>>, inner: &mut S, request: R) -> Self
    where
        S: Clone,
    {
        let (mut pass, mut admission) = (Pass::NONE, None);
        let state = match config.ask_at_once(&request, &mut pass, &mut admission) {
            Poll::Ready(Ok(())) => State::Calling {
                response: inner.call(request),
            },
            Poll::Ready(Err(refusal)) => State::refused(request, refusal),
            Poll::Pending => {
                let clone = inner.clone();
                State::asking(admission, mem::replace(inner, clone), request)
            }
        };
        Self::with(config, pass, state)
    }
}

fn taken<R>(request: &mut Option<R>) -> R {
    request.take().expect("polled after it was ready")
}
