//! Requests by hand: `acquire`, `acquire_one`, `acquire_within` and `try_acquire`.

use std::convert::Infallible;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll};

use paceline::fair::FairShare;
use paceline::limiter::{
    AdaptiveRate, AdditiveIncrease, AnyOf, Combined, DynLimiter, Event, Fair, Limiter, LimiterExt,
    Observed, Status, Switch, Switched,
};
use paceline::policy::Decision;
use paceline::prelude::*;
use paceline::time::{Rate, Resolution};
use testkit::wakes::Driven;

use super::{queued, wait};
use crate::timed::{ms, now, since};

const EVERY: Interval = Interval::every(ms(100));

/// The four methods of the trait, also where a type has its own.
async fn check<L: LimiterExt<Error = Infallible>>(limit: L) {
    let start = now();
    limit.acquire_one().await;
    assert_eq!(limit.try_acquire(1).await, wait(100));
    limit.acquire(1).await.unwrap();
    assert_eq!(since(start), 100);

    let too_late = limit.acquire_within(1, ms(60)).await.unwrap_err();
    assert!(too_late.is_too_late());
    assert_eq!(too_late.retry_in(), Some(ms(100)));
    assert_eq!(since(start), 100, "the wait is known");
    limit.acquire_within(1, ms(100)).await.unwrap();
    assert_eq!(since(start), 200);

    // Those that are dropped leave the queue.
    let dropped = queued(limit.acquire_one());
    assert_eq!(limit.try_acquire(1).await, wait(200));
    drop(dropped);
    assert_eq!(limit.try_acquire(1).await, wait(100));
    limit.acquire_one().await;
    assert_eq!(since(start), 300);
}

#[tokio::test(start_paused = true)]
async fn every_handle_has_the_same_methods() {
    check(EVERY.shared()).await;
    check(EVERY.keyed().at("ann")).await;
    check(Fair::new(FairShare::new(1, ms(100))).at("ann")).await;
    check(Combined::new((EVERY.shared(), EVERY.keyed().at("ann")))).await;
    check(AnyOf::new([EVERY.shared()])).await;
    let ten = Rate::per_second(10);
    check(AdaptiveRate::new(AdditiveIncrease::new(ten, ten))).await;
    check(DynLimiter::new(EVERY.shared())).await;
    check(Observed::new(EVERY.shared(), |_: Event| {})).await;
    check(Switched::new(EVERY.shared(), Switch::new())).await;
    let observed = Observed::new(EVERY.keyed().at("ann"), |_: Event| {});
    check(Switched::new(observed, Switch::new())).await;
}

#[tokio::test(start_paused = true)]
async fn a_finished_request_is_not_made_again() {
    fn check<F: Future>(request: F) {
        let mut request = Driven::new(request);
        assert!(request.poll().is_ready());
        let again = catch_unwind(AssertUnwindSafe(|| request.poll().is_ready()));
        let panic = again.unwrap_err();
        let message = panic.downcast_ref::<String>().unwrap();
        assert!(message.contains("polled after it was ready"), "{message}");
    }
    check(EVERY.shared().acquire(1));
    check(EVERY.shared().acquire_one());
    check(EVERY.shared().acquire_within(1, ms(0)));
    check(EVERY.shared().reserve(1));
}

/// A limiter of a program's own that says what it is around.
#[derive(Clone)]
struct Own<L>(L);

impl<L: Limiter> Limiter for Own<L> {
    type Error = L::Error;

    fn poll_decide(&mut self, cost: u32, cx: &mut Context<'_>) -> Poll<Result<Decision, L::Error>> {
        self.0.poll_decide(cost, cx)
    }

    fn give_up(&mut self) {
        self.0.give_up();
    }

    fn inner(&self) -> Option<&dyn Limiter<Error = L::Error>> {
        Some(&self.0)
    }
}

/// Answers each question about itself with what no limiter has by default.
#[derive(Clone)]
struct Unusual;

impl Limiter for Unusual {
    type Error = u8;

    fn poll_decide(&mut self, _: u32, _: &mut Context<'_>) -> Poll<Result<Decision, u8>> {
        Poll::Ready(Err(7))
    }

    fn give_up(&mut self) {}

    fn status(&self) -> Option<Status> {
        EVERY.shared().status()
    }

    fn least_wait(&self, cost: u32) -> Duration {
        ms(cost.into())
    }

    fn shadowed(&self) -> Option<Decision> {
        Some(Decision::Pass)
    }

    fn is_out_of_reach(&self) -> bool {
        true
    }

    fn is_refusal(&self, error: &u8) -> bool {
        *error == 7
    }

    fn resolution(&self) -> Resolution {
        Resolution::Millis
    }
}

#[tokio::test(start_paused = true)]
async fn a_limiter_around_another_says_what_that_one_says_if_it_names_it() {
    let limit = Own(Own(Unusual));
    assert_eq!(limit.status(), EVERY.shared().status());
    assert_eq!(limit.least_wait(3), ms(3));
    assert_eq!(limit.shadowed(), Some(Decision::Pass));
    assert!(limit.is_out_of_reach());
    assert!(limit.is_refusal(&7) && !limit.is_refusal(&8));
    assert_eq!(limit.resolution(), Resolution::Millis);

    // And it has the methods to ask by hand, whatever its error is.
    assert_eq!(limit.acquire(1).await.unwrap_err().limit(), Some(&7));
    let within = limit.acquire_within(1, ms(5)).await;
    assert_eq!(within.unwrap_err().limit(), Some(&7));
    let too_late = limit.acquire_within(9, ms(5)).await.unwrap_err();
    assert_eq!(too_late.retry_in(), Some(ms(9)));
}
