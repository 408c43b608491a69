//! The rules that every service with a limit keeps, checked on any of them.
//!
//! As many requests as `passing` pass at once, and within an hour as many have to pass again. The service may refuse the
//! others, or let them wait.

use std::{
    future::{Future, poll_fn},
    panic::Location,
    task::{Context, Waker},
    time::Duration,
};

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::{Rule, Violation, rule::assert_none};
use crate::{
    clock::{jump, sleep},
    patience::wait,
    probe::service::{Inner, InnerError, Part},
    wakes::Driven,
};

/// More calls than pass at once.
const MORE: u32 = 3;

/// A body with everything in it.
const BODY: [Part; 4] = [
    Part::Data(b"one"),
    Part::Pause,
    Part::Data(b"two"),
    Part::Trailers,
];

/// Checks every rule of the service that `build` makes, with a new limit for each rule. The limit lets `passing` requests
/// pass at once. `inner_error` returns the error of the inner service, if this is one. Panics with the list of violations and the
/// caller's line, if there are any.
#[track_caller]
pub fn check<S, B>(
    passing: u32,
    inner_error: fn(S::Error) -> Option<InnerError>,
    build: impl Fn(Inner) -> S,
) -> impl Future<Output = ()>
where
    S: Service<Request<()>, Response = Response<B>> + Clone,
    B: Body<Data = &'static [u8], Error = InnerError>,
{
    let caller = Location::caller();
    async move { assert_none(&violations(passing, inner_error, build).await, caller) }
}

/// The same, on a paused clock. Returns one violation for each rule that is broken.
pub async fn violations<S, B>(
    passing: u32,
    inner_error: fn(S::Error) -> Option<InnerError>,
    build: impl Fn(Inner) -> S,
) -> Vec<Violation>
where
    S: Service<Request<()>, Response = Response<B>> + Clone,
    B: Body<Data = &'static [u8], Error = InnerError>,
{
    // Panics at once if the clock is not paused.
    jump(Duration::ZERO).await;
    let subject = Subject {
        build,
        passing,
        inner_error,
    };
    let found = [
        (Rule::ReadyMeansReady, subject.ready_means_ready().await),
        (Rule::ReadyTakesNothing, subject.ready_takes_nothing().await),
        (Rule::ClonesShare, subject.clones_share()),
        (Rule::CancelSafe, subject.cancel_safe().await),
        (Rule::LateWakeUp, subject.late_wake_up().await),
        (Rule::InnerErrors, subject.inner_error_untouched().await),
        (Rule::BodyToItsEnd, subject.body_to_its_end().await),
    ];
    let broken = found.into_iter().filter_map(|(rule, found)| {
        let what = found.err()?;
        Some(Violation::new(rule, what))
    });
    broken.collect()
}

struct Subject<S, F>
where
    S: Service<Request<()>>,
{
    build: F,
    passing: u32,
    inner_error: fn(S::Error) -> Option<InnerError>,
}

/// Whether a rule is kept, and how it was broken.
type Found = Result<(), String>;

fn check_that(is_kept: bool, what: String) -> Found {
    if is_kept { Ok(()) } else { Err(what) }
}

impl<S, B, F> Subject<S, F>
where
    S: Service<Request<()>, Response = Response<B>> + Clone,
    B: Body<Data = &'static [u8], Error = InnerError>,
    F: Fn(Inner) -> S,
{
    async fn ready_means_ready(&self) -> Found {
        let inner = Inner::new();
        inner.set_ready(false);
        let mut calls = calls(&self.over(&inner), self.passing + MORE);
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
        check_that(is_kept, format!("ended: {has_ended}, {used:?}"))
    }

    async fn ready_takes_nothing(&self) -> Found {
        let inner = Inner::new();
        let service = self.over(&inner);
        let mut idle: Vec<S> = (0..10).map(|_| service.clone()).collect();
        for service in &mut idle {
            for _ in 0..2 {
                let _ = service.poll_ready(&mut Context::from_waker(Waker::noop()));
            }
        }
        sleep(Duration::ZERO).await;
        poll_all(&mut calls(&service, self.passing));
        let (passed, passing) = (inner.used().calls, self.passing);
        let what = format!("beside 10 idle clones {passed} of {passing} passed");
        check_that(passed == passing, what)
    }

    fn clones_share(&self) -> Found {
        // The requests that pass are under way for a while.
        let inner = Inner::new().taking(Duration::from_secs(1));
        poll_all(&mut calls(&self.over(&inner), self.passing + MORE));
        let (passed, passing) = (inner.used().calls, self.passing);
        let what = format!("{passed} passed at once, not {passing}");
        check_that(passed == passing, what)
    }

    async fn cancel_safe(&self) -> Found {
        let inner = Inner::new().taking(Duration::from_secs(1));
        let service = self.over(&inner);
        let passing = self.passing;
        // Some are under way, some wait or are refused, and some were never polled.
        let mut dropped = calls(&service, passing + MORE);
        poll_all(&mut dropped);
        let unpolled = calls(&service, MORE);
        drop((dropped, unpolled));
        sleep(Duration::from_secs(3600)).await;

        let before = inner.used();
        poll_all(&mut calls(&service, passing + MORE));
        let passed = inner.used().calls - before.calls;
        let is_kept = passed >= passing && before.reserved == 0 && before.in_flight == 0;
        let what = format!("an hour later {passed} passed at once, not {passing}; {before:?}");
        check_that(is_kept, what)
    }

    async fn late_wake_up(&self) -> Found {
        let inner = Inner::new();
        let mut calls = calls(&self.over(&inner), self.passing + MORE);
        poll_all(&mut calls);
        let before = inner.used().calls;
        jump(Duration::from_secs(1800)).await;
        poll_all(&mut calls);
        let (burst, passing) = (inner.used().calls - before, self.passing);
        let has_ended = end_all(&mut calls).await;
        let what = format!("{burst} passed at once, not {passing}; ended: {has_ended}");
        check_that(burst <= passing && has_ended, what)
    }

    async fn inner_error_untouched(&self) -> Found {
        let arrived = match wait(call(self.over(&Inner::new().failing()))).await {
            Ok(Err(error)) => (self.inner_error)(error),
            _ => None,
        };
        check_that(arrived == Some(InnerError), "it did not arrive".to_owned())
    }

    async fn body_to_its_end(&self) -> Found {
        let failing = [Part::Data(b"one"), Part::Failure];
        for parts in [&BODY[..], &failing, &[]] {
            let direct = read(Inner::new().with_body(parts)).await;
            let through = read(self.over(&Inner::new().with_body(parts))).await;
            check_that(through == direct, format!("{through:?}, not {direct:?}"))?;
        }
        Ok(())
    }

    fn over(&self, inner: &Inner) -> S {
        (self.build)(inner.clone())
    }
}

/// Makes the service ready, and calls it.
async fn call<S: Service<Request<()>>>(mut service: S) -> Result<S::Response, S::Error> {
    poll_fn(|cx| service.poll_ready(cx)).await?;
    service.call(Request::new(())).await
}

/// A request for each of `n` clones, whose response is dropped.
fn calls<S>(service: &S, n: u32) -> Vec<Driven<impl Future<Output = ()> + use<S>>>
where
    S: Service<Request<()>> + Clone,
{
    let call = |_| {
        let call = call(service.clone());
        Driven::new(async { drop(call.await) })
    };
    (0..n).map(call).collect()
}

/// Polls all calls, more than once, since one can give way to another. Keeps those that have not ended.
fn poll_all(calls: &mut Vec<Driven<impl Future<Output = ()>>>) {
    for _ in 0..3 {
        calls.retain_mut(|call| call.poll().is_pending());
    }
}

/// Polls all calls until they have ended, for an hour at most.
async fn end_all(calls: &mut Vec<Driven<impl Future<Output = ()>>>) -> bool {
    for _ in 0..3600 {
        poll_all(calls);
        if calls.is_empty() {
            return true;
        }
        sleep(Duration::from_secs(1)).await;
    }
    false
}

/// What the body of a response says of itself before each part, and the part.
async fn read<S, B>(service: S) -> Vec<String>
where
    S: Service<Request<()>, Response = Response<B>>,
    B: Body<Data = &'static [u8], Error = InnerError>,
{
    let mut seen = Vec::new();
    let Ok(Ok(response)) = wait(call(service)).await else {
        return seen;
    };
    let mut body = Box::pin(response.into_body());
    loop {
        let (size, is_end) = (body.size_hint().exact(), body.is_end_stream());
        let frame = poll_fn(|cx| body.as_mut().poll_frame(cx)).await;
        let part = match &frame {
            None => "the end".to_owned(),
            Some(Err(error)) => error.to_string(),
            Some(Ok(frame)) => format!("{:?} {:?}", frame.data_ref(), frame.trailers_ref()),
        };
        seen.push(format!("{size:?} {is_end} {part}"));
        if !matches!(frame, Some(Ok(_))) {
            return seen;
        }
    }
}
