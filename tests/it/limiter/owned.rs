use std::convert::Infallible;
use std::task::{Context, Poll, Waker};

use paceline::limiter::{Limiter, Owned};
use paceline::policy::{Decision, Interval};
use paceline::prelude::*;
use testkit::clock::jump;

use crate::timed::ms;

fn decided(poll: Poll<Result<Decision, Infallible>>) -> Decision {
    let Poll::Ready(Ok(decision)) = poll else {
        panic!("a limit in memory answers at once");
    };
    decision
}

#[tokio::test(start_paused = true)]
async fn its_clock_starts_when_it_is_first_asked() {
    let cx = &mut Context::from_waker(Waker::noop());
    let mut limit = Interval::every(ms(100)).delayed().owned();
    jump(ms(500)).await;

    assert_eq!(
        decided(limit.poll_decide(1, cx)),
        Decision::Wait { retry_in: ms(100) }
    );
    jump(ms(100)).await;
    assert_eq!(decided(limit.poll_decide(1, cx)), Decision::Pass);
}

#[tokio::test(start_paused = true)]
async fn looking_counts_nothing() {
    let cx = &mut Context::from_waker(Waker::noop());
    let mut limit: Owned<Interval> = Interval::every(ms(100)).owned();

    assert_eq!(decided(limit.poll_open(1, cx)), Decision::Pass);
    assert_eq!(decided(limit.poll_open(1, cx)), Decision::Pass);
    assert_eq!(decided(limit.poll_try(1, cx)), Decision::Pass);
    assert_eq!(
        decided(limit.poll_open(1, cx)),
        Decision::Wait { retry_in: ms(100) }
    );
    limit.give_up();
    assert_eq!(limit.policy().interval(), ms(100));
}

#[test]
fn can_live_in_a_static_and_be_asked_without_a_runtime() {
    static LIMIT: std::sync::Mutex<Owned<Interval>> =
        std::sync::Mutex::new(Owned::new(Interval::every(ms(86_400_000))));

    let cx = &mut Context::from_waker(Waker::noop());
    let mut limit = LIMIT.lock().unwrap();
    assert_eq!(decided(limit.poll_decide(1, cx)), Decision::Pass);
    assert_ne!(decided(limit.poll_decide(1, cx)), Decision::Pass);
}
