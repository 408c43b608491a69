//! Wakers and policies of somebody else's, which do what ours would not.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures::poll;
use paceline::limiter::{Acquire, Shared};
use paceline::policy::{Decision, Interval, Policy, TokenBucket};
use paceline::prelude::*;
use paceline::time::{Rate, Tick};
use testkit::clock::jump;

use crate::timed::ms;

/// Asks the limit whenever it is woken.
struct Asks(Shared<TokenBucket>);

impl Wake for Asks {
    fn wake(self: Arc<Self>) {
        let _ = self.0.try_acquire(1);
    }
}

/// Gives up when it is woken.
struct Drops(Mutex<Option<Pin<Box<Acquire<Shared<TokenBucket>>>>>>);

impl Wake for Drops {
    fn wake(self: Arc<Self>) {
        let given_up = self.0.lock().unwrap().take();
        drop(given_up);
    }
}

fn bucket(period: Duration) -> Shared<TokenBucket> {
    TokenBucket::new(Rate::new(1, period), 2).shared()
}

async fn use_up_the_budget() {
    let (send, mut receive) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..1_000 {
        send.send(()).unwrap();
    }
    std::future::poll_fn(|cx| {
        while receive.poll_recv(cx).is_ready() {}
        Poll::Ready(())
    })
    .await;
}

/// In the runtime's own `block_on`, a task without budget is woken on the spot.
#[test]
fn a_waker_may_ask_the_limit() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let limit = bucket(ms(100));
        limit.acquire(2).await.unwrap();
        let mut first = Box::pin(limit.acquire(1));
        assert!(poll!(&mut first).is_pending());
        let waker = Waker::from(Arc::new(Asks(limit.clone())));
        let mut second = Box::pin(limit.acquire(2));
        assert!(
            second
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        use_up_the_budget().await;
        drop(first);
    });
}

#[test]
fn a_waker_may_give_up() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let limit = bucket(ms(100));
        limit.acquire(2).await.unwrap();
        let mut first = Box::pin(limit.acquire(1));
        assert!(poll!(&mut first).is_pending());
        let drops = Arc::new(Drops(Mutex::new(Some(Box::pin(limit.acquire(2))))));
        let waker = Waker::from(Arc::clone(&drops));
        let mut second = drops.0.lock().unwrap().take().unwrap();
        assert!(
            second
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        drops.0.lock().unwrap().replace(second);
        use_up_the_budget().await;
        drop(first);
        limit.acquire(1).await.unwrap();
    });
}

#[tokio::test(start_paused = true)]
async fn an_alarm_set_into_the_past_may_wake_on_the_spot() {
    let limit = bucket(Duration::from_micros(100_250));
    limit.acquire(2).await.unwrap();
    let mut first = Box::pin(limit.acquire(1));
    assert!(poll!(&mut first).is_pending());
    let waker = Waker::from(Arc::new(Asks(limit.clone())));
    let mut second = Box::pin(limit.acquire(2));
    assert!(
        second
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    first.await.unwrap();

    jump(ms(99)).await;
    tokio::task::yield_now().await;
    limit.refund(1);
}

/// An interval that panics when it is told to.
#[derive(Debug)]
struct Panics(Interval, &'static AtomicBool);

impl Policy for Panics {
    type State = <Interval as Policy>::State;

    fn fresh(&self, now: Tick) -> Self::State {
        self.0.fresh(now)
    }

    fn decide(&self, state: &mut Self::State, now: Tick, cost: u32) -> Decision {
        assert!(!self.1.load(Ordering::Relaxed), "a policy must not panic");
        self.0.decide(state, now, cost)
    }

    fn refund(&self, state: &mut Self::State, now: Tick, cost: u32) {
        self.0.refund(state, now, cost);
    }

    fn retune(&self, old: &Self, state: &mut Self::State, now: Tick) {
        self.0.retune(&old.0, state, now);
    }

    fn settled_at(&self, state: &Self::State) -> Tick {
        self.0.settled_at(state)
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_panics_leaves_a_line_that_works() {
    static PANICS: AtomicBool = AtomicBool::new(false);
    let limit = Panics(Interval::every(ms(100)), &PANICS).shared();
    limit.acquire(1).await.unwrap();
    let mut first = Box::pin(limit.acquire(1));
    let mut second = Box::pin(limit.acquire(1));
    assert!(poll!(&mut first).is_pending());
    assert!(poll!(&mut second).is_pending());
    jump(ms(100)).await;

    PANICS.store(true, Ordering::Relaxed);
    let panicked = catch_unwind(AssertUnwindSafe(move || {
        let _ = first.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }));
    assert!(panicked.is_err());
    PANICS.store(false, Ordering::Relaxed);
    second.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_asks_the_limit_can_print_it() {
    struct Writes(Shared<TokenBucket>);
    impl std::fmt::Write for Writes {
        fn write_str(&mut self, _: &str) -> std::fmt::Result {
            let _ = self.0.peek(1);
            Ok(())
        }
    }
    let limit = bucket(ms(100));
    std::fmt::write(&mut Writes(limit.clone()), format_args!("{limit:?}")).unwrap();
    assert!(format!("{limit:?}").starts_with("Shared { stats: Stats { passed: 0,"));
}
