//! What every limit promises that admits work and has a queue: in memory, and on a real server in `tests/redis`.

use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::time::Duration;

use futures::poll;
use paceline::concurrency::Admit;

/// After this long a request counts as one that waits.
const A_WHILE: Duration = Duration::from_millis(50);

/// What admits work for all of its clones together.
pub(crate) trait Limit: Admit<Error: Debug> + Clone + 'static {}

impl<A: Admit<Error: Debug> + Clone + 'static> Limit for A {}

/// Runs every claim. `make` makes a new limit of so many guards.
pub(crate) async fn hold_for<A: Limit>(make: impl Fn(u32) -> A) {
    admits_as_many_as_the_limit(make(2)).await;
    admits_in_order(make(1)).await;
    a_try_is_never_queued_and_overtakes_no_waiter(make(1)).await;
    a_handle_that_gives_up_leaves_no_trace(make(1)).await;
    a_handle_that_is_dropped_leaves_no_trace(make(1)).await;
    a_try_withdraws_a_queued_request(make(1)).await;
    a_clone_is_another_handle(make(1)).await;
    a_handle_that_is_polled_late_is_admitted(make(1)).await;
    a_handle_is_used_again(make(1)).await;
    pointers_to_a_handle_admit_too(make(1)).await;
}

async fn guard_of<A: Admit<Error: Debug>>(handle: &mut A) -> A::Guard {
    let guard = poll_fn(|cx| handle.poll_admit((), cx)).await;
    guard
        .unwrap()
        .expect("a limit with a queue refuses nothing")
}

async fn tried<A: Admit<Error: Debug>>(handle: &mut A) -> Option<A::Guard> {
    poll_fn(|cx| handle.poll_try_admit((), cx)).await.unwrap()
}

/// Joins the queue, and waits for a while.
async fn is_queued<A: Admit<Error: Debug>>(handle: &mut A) -> bool {
    tokio::time::timeout(A_WHILE, guard_of(handle))
        .await
        .is_err()
}

async fn a_while() {
    let over = tokio::time::timeout(A_WHILE, std::future::pending::<()>()).await;
    over.unwrap_err();
}

/// What a test waits for.
async fn soon<F: Future>(future: F) -> F::Output {
    let limited = tokio::time::timeout(Duration::from_secs(30), future);
    limited.await.expect("it comes")
}

async fn admits_as_many_as_the_limit<A: Limit>(mut limit: A) {
    let mut other = limit.clone();
    let one = soon(guard_of(&mut limit)).await;
    let two = soon(guard_of(&mut other)).await;
    assert!(tried(&mut limit).await.is_none());
    assert!(is_queued(&mut limit).await);
    drop(one);
    let three = soon(guard_of(&mut limit)).await;
    assert!(tried(&mut other).await.is_none());
    drop((two, three));
    drop(soon(guard_of(&mut other)).await);
}

async fn admits_in_order<A: Limit>(mut limit: A) {
    let held = soon(guard_of(&mut limit)).await;
    let mut handles = [limit.clone(), limit.clone(), limit.clone(), limit.clone()];
    for handle in &mut handles {
        assert!(poll!(Box::pin(guard_of(handle))).is_pending());
    }
    drop(held);
    // The last one asks first.
    let mut order = Vec::new();
    let all = poll_fn(|cx| {
        for (number, handle) in handles.iter_mut().enumerate().rev() {
            if !order.contains(&number) && handle.poll_admit((), cx).is_ready() {
                order.push(number);
            }
        }
        if order.len() == 4 {
            return std::task::Poll::Ready(());
        }
        std::task::Poll::Pending
    });
    soon(all).await;
    assert_eq!(order, [0, 1, 2, 3]);
}

async fn a_try_is_never_queued_and_overtakes_no_waiter<A: Limit>(mut limit: A) {
    let held = soon(guard_of(&mut limit)).await;
    let (mut waiter, mut other) = (limit.clone(), limit.clone());
    assert!(tried(&mut other).await.is_none());
    assert!(is_queued(&mut waiter).await);
    drop(held);
    assert!(tried(&mut other).await.is_none(), "a waiter is ahead");
    drop(soon(guard_of(&mut waiter)).await);
    drop(soon(guard_of(&mut limit)).await);
}

async fn a_handle_that_gives_up_leaves_no_trace<A: Limit>(mut limit: A) {
    let held = soon(guard_of(&mut limit)).await;
    let (mut leaves, mut stays) = (limit.clone(), limit.clone());
    assert!(is_queued(&mut leaves).await);
    assert!(is_queued(&mut stays).await);
    leaves.give_up();
    drop(held);
    let held = soon(guard_of(&mut stays)).await;
    leaves.give_up();
    drop(held);
    drop(soon(guard_of(&mut limit)).await);
}

async fn a_handle_that_is_dropped_leaves_no_trace<A: Limit>(mut limit: A) {
    let held = soon(guard_of(&mut limit)).await;
    let mut stays = limit.clone();
    for _ in 0..3 {
        let mut leaves = limit.clone();
        assert!(is_queued(&mut leaves).await);
    }
    let mut granted = limit.clone();
    assert!(is_queued(&mut granted).await);
    assert!(is_queued(&mut stays).await);
    drop(held);
    // It may have been granted a guard by now.
    a_while().await;
    drop(granted);
    drop(soon(guard_of(&mut stays)).await);
    drop(soon(guard_of(&mut limit)).await);
}

async fn a_try_withdraws_a_queued_request<A: Limit>(mut limit: A) {
    let held = soon(guard_of(&mut limit)).await;
    let mut leaves = limit.clone();
    assert!(is_queued(&mut leaves).await);
    assert!(tried(&mut leaves).await.is_none());
    drop(held);
    a_while().await;
    let held = tried(&mut limit).await;
    assert!(held.is_some(), "no waiter is ahead");
    assert!(is_queued(&mut leaves).await);
    drop(held);
    drop(soon(guard_of(&mut leaves)).await);
}

async fn a_clone_is_another_handle<A: Limit>(mut limit: A) {
    let held = soon(guard_of(&mut limit)).await;
    let mut queued = limit.clone();
    assert!(is_queued(&mut queued).await);
    let mut clone = queued.clone();
    clone.give_up();
    drop(clone);
    drop(held);
    assert!(tried(&mut limit).await.is_none(), "a waiter is ahead");
    drop(soon(guard_of(&mut queued)).await);
}

async fn a_handle_that_is_polled_late_is_admitted<A: Limit>(mut limit: A) {
    let held = soon(guard_of(&mut limit)).await;
    let mut late = limit.clone();
    assert!(is_queued(&mut late).await);
    drop(held);
    a_while().await;
    drop(soon(guard_of(&mut late)).await);
}

async fn a_handle_is_used_again<A: Limit>(mut limit: A) {
    let mut other = limit.clone();
    for _ in 0..3 {
        let held = soon(guard_of(&mut limit)).await;
        assert!(is_queued(&mut other).await);
        drop(held);
        drop(soon(guard_of(&mut other)).await);
    }
}

async fn pointers_to_a_handle_admit_too<A: Limit>(limit: A) {
    let mut boxed: Box<dyn Admit<Guard = A::Guard, Error = A::Error>> = Box::new(limit.clone());
    let mut other = limit.clone();
    let mut lent: &mut A = &mut other;
    let held = tried(&mut boxed).await;
    assert!(held.is_some() && tried(&mut lent).await.is_none());
    assert!(is_queued(&mut lent).await && is_queued(&mut boxed).await);
    lent.give_up();
    boxed.give_up();
    drop(held);
    drop(soon(guard_of(&mut lent)).await);
    drop(soon(guard_of(&mut boxed)).await);
}
