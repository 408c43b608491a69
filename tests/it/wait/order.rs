//! A hundred thousand waiters are first come, first served, with one wake-up for each grant.

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use testkit::wakes::count_polls;
use tokio::task::unconstrained;

use super::Kind;

claims! {
    paused:
    a_hundred_thousand_waiters_are_served_in_order_with_one_wake_up_each: in_order,
    a_hundred_thousand_waiters_can_leave_in_any_order: in_order,
}

const MANY: usize = 100_000;

async fn a_hundred_thousand_waiters_are_served_in_order_with_one_wake_up_each<K: Kind>() {
    // This task stands for many: it yields for none of them.
    let all = async {
        let limit = K::of(10);
        let held = limit.try_acquire(10);
        let requests = (0..MANY).map(|n| {
            let counted = count_polls(limit.acquire(1));
            let polls = counted.polls();
            async move {
                drop(counted.await);
                (n, polls.count())
            }
        });
        let mut waiters: FuturesUnordered<_> = requests.collect();
        assert!(futures::poll!(waiters.next()).is_pending());

        drop(held);
        let (mut served, mut polls) = (0, 0);
        while let Some((n, polled)) = waiters.next().await {
            assert_eq!(n, served);
            served += 1;
            polls += polled;
        }
        assert_eq!(served, MANY);
        assert_eq!(polls, 2 * MANY);
    };
    unconstrained(all).await;
}

async fn a_hundred_thousand_waiters_can_leave_in_any_order<K: Kind>() {
    let all = async {
        let limit = K::of(1);
        let held = limit.try_acquire(1);
        let mut waiters: Vec<_> = (0..MANY).map(|_| limit.acquire(1)).collect();
        for waiter in &mut waiters {
            assert!(futures::poll!(waiter).is_pending());
        }
        // Every second one from the front, then the others from the back, but for the last.
        let last = waiters.pop().unwrap();
        let (odd, even): (Vec<_>, Vec<_>) = waiters
            .into_iter()
            .enumerate()
            .partition(|(n, _)| n % 2 == 1);
        drop(odd);
        even.into_iter().rev().for_each(drop);

        drop(held);
        drop(last.await);
        assert_eq!(limit.waiting(), 0);
    };
    unconstrained(all).await;
}
