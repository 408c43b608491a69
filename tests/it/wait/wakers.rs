//! Wakers that use the limit when they wake or are dropped, and policies that panic.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use futures::poll;
use paceline::policy::{Decision, Interval, Policy};
use paceline::prelude::*;
use paceline::time::Tick;
use testkit::clock::jump;
use testkit::wakes::Driven;

use super::{Kind, Request, runtime_with_threads};
use crate::timed::{ms, now, since};

claims! {
    bare:
    a_waker_may_ask_the_limit_and_cancel_a_request: in_order fair,
}

claims! {
    paused:
    a_waker_may_ask_the_limit_when_it_is_dropped: in_order fair,
    a_waker_that_is_woken_by_the_timer_on_the_spot_may_ask_the_limit: in_order,
    a_waker_may_wake_another_waiter_and_ask_for_it: in_order fair,
}

/// Asks the limit when it is woken.
struct Asks<K>(K);

impl<K: Kind> Wake for Asks<K> {
    fn wake(self: Arc<Self>) {
        drop(self.0.try_acquire(1));
    }
}

/// Asks the limit when it is dropped.
struct AsksLast<K: Kind>(K);

impl<K: Kind> Wake for AsksLast<K> {
    fn wake(self: Arc<Self>) {}
}

impl<K: Kind> Drop for AsksLast<K> {
    fn drop(&mut self) {
        drop(self.0.try_acquire(1));
        assert!(self.0.waiting() < 10);
    }
}

/// Cancels a request when it is woken.
#[derive(Default)]
struct Cancels(Mutex<Option<Request>>);

impl Wake for Cancels {
    fn wake(self: Arc<Self>) {
        let request = self.0.lock().unwrap().take();
        drop(request);
    }
}

/// The waker polls this request itself.
#[derive(Default)]
struct Polls(Mutex<Option<Request>>, AtomicBool);

impl Wake for Polls {
    fn wake(self: Arc<Self>) {
        let mut request = self.0.lock().unwrap().take();
        if let Some(request) = &mut request {
            let waker = Waker::from(Arc::clone(&self));
            let answer = request.as_mut().poll(&mut Context::from_waker(&waker));
            self.1.store(answer.is_ready(), Ordering::SeqCst);
        }
        *self.0.lock().unwrap() = request;
    }
}

fn joins(request: &mut Request, waker: &Waker) {
    let answer = request.as_mut().poll(&mut Context::from_waker(waker));
    assert!(answer.is_pending());
}

/// In the `block_on` of a runtime, a task without budget is woken on the spot.
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

/// The second of two requests is queued with `waker`, which is woken on the spot when the first is dropped.
async fn wakes_on_the_spot<K: Kind>(limit: &K, waker: &Waker, queued: impl FnOnce(Request)) {
    let held = limit.try_acquire(2);
    let mut first = limit.acquire(1);
    assert!(poll!(&mut first).is_pending());
    let mut second = limit.acquire(2);
    joins(&mut second, waker);
    queued(second);
    use_up_the_budget().await;
    drop(first);
    drop(held);
}

fn a_waker_may_ask_the_limit_and_cancel_a_request<K: Kind>() {
    for cooldown in [0, 10] {
        runtime_with_threads(1).block_on(async {
            let limit = K::new(2, ms(cooldown));
            let asks = Waker::from(Arc::new(Asks(limit.clone())));
            let mut queued = None;
            wakes_on_the_spot(&limit, &asks, |request| queued = Some(request)).await;
            drop(queued);

            let limit = K::new(2, ms(cooldown));
            let cancels = Arc::new(Cancels::default());
            let waker = Waker::from(Arc::clone(&cancels));
            let keeps = |request| *cancels.0.lock().unwrap() = Some(request);
            wakes_on_the_spot(&limit, &waker, keeps).await;
            drop(limit.acquire(1).await);
        });
    }
}

async fn a_waker_may_ask_the_limit_when_it_is_dropped<K: Kind>() {
    for cooldown in [0, 100] {
        let limit = K::new(1, ms(cooldown));
        let held = limit.try_acquire(1);
        let waker = || Waker::from(Arc::new(AsksLast(limit.clone())));
        let mut waiters: Vec<_> = (0..4).map(|_| limit.acquire(1)).collect();
        for waiter in &mut waiters {
            joins(waiter, &waker());
            joins(waiter, &waker());
        }
        drop(waiters.remove(2));
        drop(held);
        // The timer of the queue is armed with the wakers of one after the other.
        drop(waiters.remove(0));
        drop(waiters.remove(0));
        jump(ms(cooldown)).await;
        let _ = waiters[0].as_mut().poll(&mut Context::from_waker(&waker()));
        drop(waiters);
        assert_eq!(limit.waiting(), 0);
    }
}

async fn a_waker_that_is_woken_by_the_timer_on_the_spot_may_ask_the_limit<K: Kind>() {
    let limit = K::new(2, Duration::from_micros(100_250));
    let one = limit.try_acquire(1);
    let two = limit.try_acquire(1);
    let mut waiter = limit.acquire(2);
    joins(&mut waiter, &Waker::from(Arc::new(Asks(limit.clone()))));
    drop(one);
    jump(ms(99)).await;
    tokio::task::yield_now().await;
    drop(two);
    jump(ms(101)).await;
    drop(waiter.await);
}

async fn a_waker_may_wake_another_waiter_and_ask_for_it<K: Kind>() {
    let start = now();
    let limit = K::new(1, ms(10));
    let held = limit.try_acquire(1);
    let polls = Arc::new(Polls::default());
    let mut waiter = limit.acquire(1);
    joins(&mut waiter, &Waker::from(Arc::clone(&polls)));
    *polls.0.lock().unwrap() = Some(waiter);
    let behind = limit.acquire(1);
    drop(held);
    drop(behind.await);
    assert!(polls.1.load(Ordering::SeqCst), "it has passed");
    assert_eq!(since(start), 20);
}

/// An interval whose method of this name panics.
#[derive(Clone, Debug)]
struct Panics(Interval);

thread_local! {
    static PANICS: Cell<&'static str> = const { Cell::new("") };
}

impl Policy for Panics {
    type State = <Interval as Policy>::State;

    fn fresh(&self, now: Tick) -> Self::State {
        self.0.fresh(now)
    }

    fn decide(&self, state: &mut Self::State, now: Tick, cost: u32) -> Decision {
        assert_ne!(PANICS.get(), "decide");
        self.0.decide(state, now, cost)
    }

    fn peek(&self, state: &Self::State, now: Tick, cost: u32) -> Decision {
        assert_ne!(PANICS.get(), "peek");
        self.0.peek(state, now, cost)
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

/// It decides for the head, and when the head has passed it is asked when the next waiter could.
#[tokio::test(start_paused = true)]
async fn a_policy_that_panics_for_the_head_or_for_the_next_head_leaves_a_queue_that_works() {
    for (method, next_passes_in) in [("decide", 0), ("peek", 100)] {
        let limit = Panics(Interval::every(ms(100))).shared();
        limit.acquire(1).await.unwrap();
        let [mut first, mut second] = [(); 2].map(|()| Driven::new(limit.acquire(1)));
        assert!(first.poll().is_pending() && second.poll().is_pending());
        jump(ms(100)).await;

        PANICS.set(method);
        let panicked = catch_unwind(AssertUnwindSafe(|| first.poll()));
        PANICS.set("");
        assert!(panicked.is_err(), "{method}");
        drop(first);
        jump(ms(next_passes_in)).await;
        assert!(second.is_woken(), "{method}");
        assert!(second.poll().is_ready(), "{method}");
    }
}
