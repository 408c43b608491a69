//! Services with a planted fault, and the rule that each breaks.

use std::{
    convert::identity,
    future::{Future, pending, poll_fn},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, ready},
    time::Duration,
};

use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use testkit::{
    clock::Stopwatch,
    conformance::{Rule, service},
    probe::service::{Inner, InnerError, TestBody},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
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

#[tokio::test(start_paused = true)]
async fn each_planted_fault_breaks_its_rule_and_no_other() {
    for (fault, rules) in [
        (Fault::None, &[][..]),
        (Fault::CallsUnready, &[Rule::ReadyMeansReady]),
        (Fault::TakesWhenReady, &[Rule::ReadyTakesNothing]),
        (Fault::LimitOfItsOwn, &[Rule::ClonesShare]),
        (Fault::ForgetsCancelled, &[Rule::CancelSafe]),
        (Fault::FixedSchedule, &[Rule::LateWakeUp]),
        (Fault::ReplacesError, &[Rule::InnerErrors]),
        (Fault::DropsTrailers, &[Rule::BodyToItsEnd]),
    ] {
        let passing = if fault == Fault::FixedSchedule { 1 } else { 2 };
        let build = |inner| Planted::new(inner, fault);
        let found = service::violations(passing, identity, build).await;
        let broken: Vec<Rule> = found.iter().map(|violation| violation.rule).collect();
        assert_eq!(broken, rules, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "does not conform, at crates/testkit/tests/conformance/service.rs")]
async fn a_check_panics_with_the_line_of_the_caller() {
    let build = |inner| Planted::new(inner, Fault::ReplacesError);
    service::check(2, identity, build).await;
}

/// At most two calls under way; the others wait.
struct Planted {
    inner: Inner,
    fault: Fault,
    limit: Arc<Semaphore>,
    taken: Option<OwnedSemaphorePermit>,
    schedule: Arc<Mutex<Schedule>>,
}

/// Of the service with a fixed schedule.
struct Schedule {
    watch: Stopwatch,
    next: Duration,
}

impl Schedule {
    fn wait(&mut self) -> Duration {
        let now = self.watch.elapsed();
        let slot = self.next.max(now);
        self.next = slot + Duration::from_secs(1);
        slot.saturating_sub(now)
    }
}

impl Planted {
    fn new(inner: Inner, fault: Fault) -> Self {
        let schedule = Schedule {
            watch: Stopwatch::start(),
            next: Duration::ZERO,
        };
        Self {
            inner,
            fault,
            limit: Arc::new(Semaphore::new(2)),
            taken: None,
            schedule: Arc::new(Mutex::new(schedule)),
        }
    }
}

impl Clone for Planted {
    fn clone(&self) -> Self {
        let mut clone = Self::new(self.inner.clone(), self.fault);
        clone.schedule = Arc::clone(&self.schedule);
        if self.fault != Fault::LimitOfItsOwn {
            clone.limit = Arc::clone(&self.limit);
        }
        clone
    }
}

impl Service<Request<()>> for Planted {
    type Response = Response<PlantedBody>;
    type Error = Option<InnerError>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        if self.fault == Fault::TakesWhenReady && self.taken.is_none() {
            self.taken = Arc::clone(&self.limit).try_acquire_owned().ok();
            if self.taken.is_none() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        let (mut inner, fault) = (self.inner.clone(), self.fault);
        let (limit, taken) = (Arc::clone(&self.limit), self.taken.take());
        let schedule = Arc::clone(&self.schedule);
        Box::pin(async move {
            if fault == Fault::FixedSchedule {
                let wait = schedule.lock().unwrap().wait();
                let _ = timeout(wait, pending::<()>()).await;
            }
            let mut permit = taken;
            if permit.is_none() {
                permit = limit.clone().acquire_owned().await.ok();
            }
            if fault == Fault::ForgetsCancelled {
                permit.take().unwrap().forget();
            }
            if fault != Fault::CallsUnready {
                let ready = |cx: &mut Context<'_>| {
                    Service::<Request<()>>::poll_ready(&mut inner, cx).map_err(Some)
                };
                poll_fn(ready).await?;
            }
            let response = inner.call(request).await;
            if fault == Fault::ForgetsCancelled {
                limit.add_permits(1);
            }
            drop(permit);
            match response {
                Ok(response) => Ok(response.map(|body| PlantedBody { body, fault })),
                Err(_) if fault == Fault::ReplacesError => Err(None),
                Err(error) => Err(Some(error)),
            }
        })
    }
}

struct PlantedBody {
    body: TestBody,
    fault: Fault,
}

impl Body for PlantedBody {
    type Data = &'static [u8];
    type Error = InnerError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<&'static [u8]>, InnerError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let drops_trailers = self.fault == Fault::DropsTrailers;
        let is_dropped = |frame: &Frame<_>| drops_trailers && frame.is_trailers();
        Poll::Ready(frame.filter(|frame| !frame.as_ref().is_ok_and(is_dropped)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
