//! Wakes are counted, kept wakers are seen, and tasks can be changed.

use std::{
    future::{self, Future},
    pin::Pin,
    task::{Context, Poll, Waker},
};

use futures::{FutureExt, task::AtomicWaker};
use testkit::{
    clock::{self, Stopwatch},
    marble::{self, TICK},
    probe,
    wakes::{self, Driven},
};

/// A future that keeps the first waker it sees, and no other.
#[derive(Default)]
struct KeepsTheFirst {
    waker: Option<Waker>,
}

impl Future for KeepsTheFirst {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.waker.get_or_insert_with(|| cx.waker().clone());
        Poll::Pending
    }
}

#[test]
fn every_wake_of_every_clone_is_counted_and_a_waker_is_kept_as_long_as_a_clone_lives() {
    let (waker, counted) = wakes::counter();
    let atomic = AtomicWaker::new();
    assert!(!counted.is_kept());

    atomic.register(&waker);
    assert!(counted.is_kept());

    atomic.wake();
    assert!(!counted.is_kept());
    waker.wake_by_ref();
    waker.wake();
    assert_eq!(counted.count(), 3);
}

#[test]
fn a_pending_that_keeps_no_waker_is_seen() {
    let mut forgetful = Driven::new(future::poll_fn(|_| Poll::<()>::Pending));

    assert_eq!(forgetful.poll(), Poll::Pending);
    assert!(!forgetful.is_waker_kept());
    assert!(!forgetful.is_woken());
}

#[test]
fn being_woken_even_within_the_poll_is_forgotten_at_the_next_poll_but_still_counted() {
    let mut yields = Driven::new(future::poll_fn(|cx| {
        cx.waker().wake_by_ref();
        Poll::<()>::Pending
    }));
    assert!(yields.poll().is_pending());
    assert!(yields.is_woken());
    assert_eq!(yields.wakes(), 1);

    let (handle, source) = probe::source();
    let mut source = Driven::new(source);
    assert!(source.poll_next().is_pending());
    handle.send('a');
    assert!(source.is_woken());
    assert_eq!(source.poll_next(), Poll::Ready(Some('a')));
    assert!(!source.is_woken());
    assert_eq!(source.wakes(), 1);
}

#[test]
fn a_waker_of_the_task_it_left_is_not_kept_for_the_new_one() {
    let mut stubborn = Driven::new(KeepsTheFirst::default());
    assert!(stubborn.poll().is_pending());
    assert!(stubborn.is_waker_kept());

    stubborn.change_task();
    assert!(stubborn.poll().is_pending());
    assert!(!stubborn.is_waker_kept());

    stubborn.get().waker.as_ref().unwrap().wake_by_ref();
    assert!(!stubborn.is_woken());
    assert_eq!(stubborn.wakes(), 1);
}

#[tokio::test(start_paused = true)]
async fn woken_waits_until_the_waker_is_woken_and_not_if_it_was_before() {
    let watch = Stopwatch::start();
    let mut source = Driven::new(marble::source("- - a b |"));
    assert_eq!(source.poll_next(), Poll::Pending);

    source.woken().await;

    assert_eq!(watch.elapsed(), TICK * 2);
    assert_eq!(source.poll_next(), Poll::Ready(Some('a')));
    assert_eq!(source.poll_next(), Poll::Pending);
    clock::jump(TICK).await;
    assert!(source.woken().now_or_never().is_some());
}

#[tokio::test]
async fn polls_are_counted_in_a_task_of_its_own() {
    let future = wakes::count_polls(async {
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
    });
    let polls = future.polls();
    assert_eq!(polls.count(), 0);

    tokio::spawn(future).await.unwrap();

    assert_eq!(polls.count(), 4);
}
