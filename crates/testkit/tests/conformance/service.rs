//! Services with a planted fault, and the rule that each breaks.

use std::{
    future::{Future, pending, poll_fn},
    mem,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use testkit::{
    clock::Stopwatch,
    conformance::service::{Rule, Subject},
    probe::service::{Inner, InnerError, TestBody},
};
use tokio::time::timeout;
use tower_service::Service;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fault {
    None,
    CallsUnready,
    TakesWhenReady,
    LimitOfItsOwn,
    ForgetsCancelled,
    FixedSchedule,
    ReplacesError,
    DropsTrailers,
}

async fn broken_by(fault: Fault) -> Vec<Rule> {
    let passing = if fault == Fault::FixedSchedule { 1 } else { 2 };
    let subject = Subject::new(move |inner| Planted::new(inner, fault), passing, Some);
    let found = subject.violations().await;
    found.iter().map(|violation| violation.rule).collect()
}

#[tokio::test(start_paused = true)]
async fn each_planted_fault_breaks_its_rule() {
    for (fault, rules) in [
        (Fault::None, &[][..]),
        (Fault::CallsUnready, &[Rule::ReadyMeansReady]),
        (Fault::LimitOfItsOwn, &[Rule::ClonesShare]),
        (Fault::ForgetsCancelled, &[Rule::CancelSafe]),
        (Fault::FixedSchedule, &[Rule::LateWakeUp]),
        (Fault::ReplacesError, &[Rule::InnerError]),
        (Fault::DropsTrailers, &[Rule::BodyToItsEnd]),
    ] {
        assert_eq!(broken_by(fault).await, rules, "{fault:?}");
    }
    // An idle clone is in the way of every other rule too.
    let broken = broken_by(Fault::TakesWhenReady).await;
    assert!(broken.contains(&Rule::ReadyTakesNothing), "{broken:?}");
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "does not conform, at crates/testkit/tests/conformance/service.rs")]
async fn a_check_panics_with_the_line_of_the_caller() {
    let build = |inner| Planted::new(inner, Fault::ReplacesError);
    Subject::new(build, 2, Some).check().await;
}

/// At most two calls under way; the others wait.
struct Planted {
    inner: Inner,
    fault: Fault,
    limit: Arc<Mutex<Limit>>,
    taken: Option<Guard>,
}

#[derive(Default)]
struct Limit {
    in_use: u32,
    wakers: Vec<Waker>,
    /// Of a fixed schedule, with its next slot.
    watch: Option<Stopwatch>,
    next: Duration,
}

impl Planted {
    fn new(inner: Inner, fault: Fault) -> Self {
        Self {
            inner,
            fault,
            limit: Arc::default(),
            taken: None,
        }
    }
}

impl Clone for Planted {
    fn clone(&self) -> Self {
        let limit = match self.fault {
            Fault::LimitOfItsOwn => Arc::default(),
            _ => Arc::clone(&self.limit),
        };
        Self {
            inner: self.inner.clone(),
            fault: self.fault,
            limit,
            taken: None,
        }
    }
}

impl Service<Request<()>> for Planted {
    type Response = Response<Guarded>;
    type Error = InnerError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Guarded>, InnerError>>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), InnerError>> {
        if self.fault == Fault::TakesWhenReady && self.taken.is_none() {
            self.taken = Some(ready!(Guard::poll(&self.limit, cx)));
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        let (mut inner, fault) = (self.inner.clone(), self.fault);
        let (limit, taken) = (Arc::clone(&self.limit), self.taken.take());
        Box::pin(async move {
            let guard = match taken {
                Some(guard) => Some(guard),
                None if fault == Fault::FixedSchedule => {
                    wait_for_slot(&limit).await;
                    None
                }
                None => Some(poll_fn(|cx| Guard::poll(&limit, cx)).await),
            };
            let guard = guard.filter(|_| fault != Fault::ForgetsCancelled);
            let in_use = Arc::clone(&limit);
            if fault == Fault::ForgetsCancelled {
                in_use.lock().unwrap().in_use += 1;
            }
            if fault != Fault::CallsUnready {
                poll_fn(|cx| Service::<Request<()>>::poll_ready(&mut inner, cx)).await?;
            }
            let response = inner.call(request).await;
            if fault == Fault::ForgetsCancelled {
                drop(Guard(in_use));
            }
            match response {
                Err(_) if fault == Fault::ReplacesError => Ok(Response::new(Guarded {
                    body: None,
                    guard: None,
                    fault,
                })),
                response => Ok(response?.map(|body| Guarded {
                    body: Some(Box::pin(body)),
                    guard,
                    fault,
                })),
            }
        })
    }
}

async fn wait_for_slot(limit: &Mutex<Limit>) {
    let wait = next_slot(&mut limit.lock().unwrap());
    let _ = timeout(wait, pending::<()>()).await;
}

fn next_slot(limit: &mut Limit) -> Duration {
    let now = limit.watch.get_or_insert_with(Stopwatch::start).elapsed();
    let slot = limit.next.max(now);
    limit.next = slot + Duration::from_secs(1);
    slot.saturating_sub(now)
}

struct Guard(Arc<Mutex<Limit>>);

impl Guard {
    fn poll(limit: &Arc<Mutex<Limit>>, cx: &Context<'_>) -> Poll<Self> {
        let mut state = limit.lock().unwrap();
        if state.in_use < 2 {
            state.in_use += 1;
            return Poll::Ready(Self(Arc::clone(limit)));
        }
        state.wakers.push(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut state = self.0.lock().unwrap();
        state.in_use -= 1;
        let wakers = mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// A body under a guard.
struct Guarded {
    body: Option<Pin<Box<TestBody>>>,
    guard: Option<Guard>,
    fault: Fault,
}

impl Body for Guarded {
    type Data = &'static [u8];
    type Error = InnerError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<&'static [u8]>, InnerError>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let frame = ready!(body.as_mut().poll_frame(cx));
        let is_trailers = matches!(&frame, Some(Ok(frame)) if frame.is_trailers());
        if frame.is_none() {
            self.guard = None;
        }
        if is_trailers && self.fault == Fault::DropsTrailers {
            return Poll::Ready(None);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body
            .as_ref()
            .map_or_else(SizeHint::default, Body::size_hint)
    }
}
