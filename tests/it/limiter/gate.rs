use std::convert::Infallible;
use std::future::poll_fn;
use std::task::{Context, Poll};

use paceline::limiter::{Gate, Limiter};
use paceline::policy::{Decision, Interval};
use paceline::prelude::*;
use testkit::clock::jump;

use super::{queued, used, wait};
use crate::timed::{ms, now, since};

#[tokio::test(start_paused = true)]
async fn waiting_until_it_is_open_counts_nothing() {
    let start = now();
    let limit = used(100);
    let mut gate = Gate::new(limit.clone());
    for _ in 0..3 {
        let Ok(()) = poll_fn(|cx| gate.poll_open(cx)).await;
    }
    assert_eq!(since(start), 100);
    limit.acquire(1).await.unwrap();
    assert_eq!(since(start), 100, "and no request is queued");
}

#[tokio::test(start_paused = true)]
async fn a_late_wake_up_finds_it_open_when_it_comes() {
    let limit = used(100);
    let mut gate = Gate::new(limit.clone());
    let mut opening = queued(poll_fn(|cx| gate.poll_open(cx)));
    assert!(opening.is_waker_kept());
    jump(ms(250)).await;
    assert!(opening.poll().is_ready());
    drop(opening);
    poll_fn(|cx| gate.poll_pass(1, cx)).await.unwrap();
    assert_eq!(limit.peek(1), wait(100));
}

#[tokio::test(start_paused = true)]
async fn a_gate_that_gives_up_leaves_the_queue_and_may_ask_again() {
    let start = now();
    let limit = used(100);
    let mut gate = Gate::new(limit.clone());
    drop(queued(poll_fn(|cx| gate.poll_pass(1, cx))));
    gate.give_up();
    limit.acquire(1).await.unwrap();
    assert_eq!(since(start), 100);
    poll_fn(|cx| gate.poll_pass(1, cx)).await.unwrap();
    assert_eq!(since(start), 200);
}

#[tokio::test(start_paused = true)]
async fn passes_on_the_error_of_a_limit_that_cannot_be_reached() {
    struct Unreachable;
    impl Limiter for Unreachable {
        type Error = &'static str;
        fn poll_decide(
            &mut self,
            _: u32,
            _: &mut Context<'_>,
        ) -> Poll<Result<Decision, &'static str>> {
            Poll::Ready(Err("it is gone"))
        }
        fn give_up(&mut self) {}
    }

    let mut gate = Gate::new(Unreachable);
    let refused = poll_fn(|cx| gate.poll_pass(1, cx)).await.unwrap_err();
    assert_eq!(refused.limit(), Some(&"it is gone"));
    assert_eq!(refused.to_string(), "it is gone");
    assert_eq!(refused.into_limit(), Ok("it is gone"));
}

/// A limiter that breaks the law.
pub(super) struct Closed;

impl Limiter for Closed {
    type Error = Infallible;

    fn poll_decide(&mut self, _: u32, _: &mut Context<'_>) -> Poll<Result<Decision, Infallible>> {
        Poll::Ready(Ok(Decision::Never { capacity: 0 }))
    }

    fn give_up(&mut self) {}
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "a limiter must let cost 1 pass in the end")]
async fn names_the_law_that_a_limiter_breaks() {
    let Ok(()) = poll_fn(|cx| Gate::new(Closed).poll_one(cx)).await;
}

#[tokio::test(start_paused = true)]
async fn a_gate_that_gave_up_leaves_no_timer_armed() {
    let start = now();
    let mut gate = Gate::new(Interval::every(ms(10)).owned());
    for _ in 0..2 {
        let Ok(()) = poll_fn(|cx| gate.poll_one(cx)).await;
    }
    assert!(futures::poll!(poll_fn(|cx| gate.poll_one(cx))).is_pending());
    gate.give_up();

    let (sender, is_over) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        std::thread::sleep(ms(50));
        sender.send(()).unwrap();
    });
    is_over.await.unwrap();
    assert_eq!(since(start), 10);
}
