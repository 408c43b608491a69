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

use super::admission::{Admission, Ask, AskRate, Blocked, Patience, answered};
use super::answer::{AsResponse, Respond};
use super::failure::{FailureLog, Fault, OnFailure, catch};
use super::refusal::RefusalKind;
use super::terms::{Once, Terms};
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
        self.map(|terms, answer| (map(terms), answer))
    }

    pub(super) fn answering<N>(self, answer: N) -> Config<T, AsResponse<N>> {
        self.map(|terms, _| (terms, AsResponse::new(answer)))
    }

    fn map<N, B>(self, map: impl FnOnce(T, A) -> (N, B)) -> Config<N, B> {
        let (terms, answer) = map(self.terms, self.answer);
        Config {
            terms,
            answer,
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
            if let Some(limit) = self.terms.limit(request, None)? {
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
                let status = self.answer.annotates().then(|| asked.status());
                pass.status = status.flatten().map(Box::new);
                Ok(())
            }
            Err(blocked) => self.blocked(blocked),
        };
        *admission = None;
        Poll::Ready(answer)
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

    /// Asks the limit of the request once. `None`: the request has passed. Else it is refused, or it takes a handle, and with that an
    /// [`Admission`], which costs more than all the rest of a request that passes.
    fn ask_once<R, P, E>(
        &self,
        request: &R,
        pass: &mut Pass<()>,
    ) -> Option<Result<Admission<AskRate<T::Limit>>, Refusal>>
    where
        T: Terms<Request = R, Limit: Limiter<Error: fmt::Display>>,
        A: Respond<R, P, E>,
    {
        let (fault, known) = (Cell::new(Fault::<Infallible>::KeyPanic), Cell::new(None));
        let (terms, all) = (&self.terms, self.answer.annotates());
        let cost = || {
            known.get().unwrap_or_else(|| {
                fault.set(Fault::CostPanic);
                let cost = terms.cost(request);
                known.set(Some(cost));
                fault.set(Fault::Panic);
                cost
            })
        };
        let mut once: Once<'_> = (&cost, all, None, None);
        let asked = catch(|| {
            // By value: an answer that is written into `once` and read there again costs about 3 ns more.
            let shared = terms.shared();
            if let Some(answer) = shared.and_then(|limit| limit.try_once(cost(), all, &mut once.2))
            {
                return Ok((None, Some(answer)));
            }
            let limit = terms.limit(request, Some(&mut once));
            if once.3.is_some() {
                return Ok((None, once.3));
            }
            Ok((limit?.map(|limit| (limit, cost())), None))
        });
        let refusal = match asked {
            Some(Ok((None, None | Some(Decision::Pass)))) => {
                pass.status = once.2.map(Box::new);
                return None;
            }
            Some(Ok((None, Some(decision)))) => {
                let refusal = answered(decision, cost(), RefusalKind::TooSoon).err()?;
                refusal.with_status(once.2)
            }
            Some(Ok((Some((limit, cost)), _))) => {
                return Some(Ok(Admission::new(AskRate::new(limit, cost))));
            }
            Some(Err(bad)) => Refusal::new(RefusalKind::BadKey(bad)),
            None => self.failed(&fault.into_inner()).err()?,
        };
        Some(Err(refusal))
    }
}

/// What a request has that has passed.
struct Pass<G> {
    /// What it holds while it is under way.
    guard: Option<G>,
    /// What the limit had left then, if the response says it.
    status: Option<Box<Status>>,
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
        #[pin]
        state: StateOf<Q, S, R, T, A>,
        // Dropped last: the request is under way until the future of the inner service is gone.
        pass: Pass<Q::Guard>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<Q, S, R, F, C> {
        // Boxed, so that the future of a request that has passed is small.
        Asking {
            asking: Box<Asking<Q, S, R, C>>,
        },
        Calling {
            #[pin]
            response: F,
            // For a request that holds a guard, or whose response says what is left: only these count a reference.
            config: Option<C>,
        },
        Refused {
            refused: Option<Box<(R, Refusal, C)>>,
        },
    }
}

struct Asking<Q, S, R, C> {
    /// Gone when the request has passed.
    admission: Option<Admission<Q>>,
    inner: S,
    request: Option<R>,
    config: C,
}

type StateOf<Q, S, R, T, A> = State<Q, S, R, <S as Service<R>>::Future, Arc<Config<T, A>>>;

impl<Q, S, R, F, C: Clone> State<Q, S, R, F, C> {
    fn asking(config: &C, admission: Option<Admission<Q>>, inner: S, request: R) -> Self {
        Self::Asking {
            asking: Box::new(Asking {
                admission,
                inner,
                request: Some(request),
                config: config.clone(),
            }),
        }
    }

    fn calling<G>(config: &C, pass: &Pass<G>, response: F) -> Self {
        let config = pass.status.is_some().then(|| config.clone());
        Self::Calling { response, config }
    }

    fn refused(config: &C, request: R, refusal: Refusal) -> Self {
        Self::Refused {
            refused: Some(Box::new((request, refusal, config.clone()))),
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
            Ok(()) => State::asking(config, admission, inner, request),
            Err(refusal) => State::refused(config, request, refusal),
        };
        let pass = Pass::NONE;
        Self { state, pass }
    }

    /// Ready with the response, and what the request holds. `ended` is given the result of the inner service, and the guard if the
    /// request has one.
    pub(super) fn poll(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        ended: impl FnOnce(&Config<T, A>, &Result<S::Response, S::Error>, &mut Q::Guard),
    ) -> Poll<Outcome<S::Response, A::Error, Q::Guard>> {
        let mut this = self.project();
        let pass = this.pass;
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Asking { asking } => {
                    let config = &asking.config;
                    match ready!(config.poll_pass(&mut asking.admission, pass, cx)) {
                        Ok(()) => match ready!(asking.inner.poll_ready(cx)) {
                            Ok(()) => State::Calling {
                                response: asking.inner.call(taken(&mut asking.request)),
                                config: Some(Arc::clone(config)),
                            },
                            Err(error) => {
                                let error = A::inner_error(error);
                                return Poll::Ready((Err(error), pass.guard.take()));
                            }
                        },
                        Err(refusal) => State::refused(config, taken(&mut asking.request), refusal),
                    }
                }
                StateProj::Calling { response, config } => {
                    let response = ready!(response.poll(cx));
                    if let (Some(config), Some(guard)) = (&config, &mut pass.guard) {
                        ended(config, &response, guard);
                    }
                    let response = response.map_err(A::inner_error);
                    let Some(status) = pass.status.take() else {
                        return Poll::Ready((response, pass.guard.take()));
                    };
                    let annotated = response.map(|mut response| {
                        if let Some(config) = config {
                            config.answer.annotate(&mut response, &status);
                        }
                        response
                    });
                    return Poll::Ready((annotated, pass.guard.take()));
                }
                StateProj::Refused { refused } => {
                    let (request, refusal, config) = *taken(refused);
                    return Poll::Ready((config.answer.refuse(request, refusal), None));
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
        let mut pass = Pass::NONE;
        let Some(asked) = config.ask_once(&request, &mut pass) else {
            let state = State::calling(config, &pass, inner.call(request));
            return Self { state, pass };
        };
        let mut admission = None;
        let passed = asked.map(|asked| {
            admission = Some(asked);
            let cx = &mut Context::from_waker(Waker::noop());
            config.poll_pass(&mut admission, &mut pass, cx)
        });
        let state = match passed.unwrap_or_else(|refusal| Poll::Ready(Err(refusal))) {
            Poll::Ready(Ok(())) => State::calling(config, &pass, inner.call(request)),
            Poll::Ready(Err(refusal)) => State::refused(config, request, refusal),
            Poll::Pending => {
                let clone = inner.clone();
                State::asking(config, admission, mem::replace(inner, clone), request)
            }
        };
        Self { state, pass }
    }
}

fn taken<R>(request: &mut Option<R>) -> R {
    request.take().expect("polled after it was ready")
}
