//! Reading a limit: what it has left, its policy, its pause and its waiters.

use std::convert::Infallible;
use std::task::{Context, Poll, Waker};
use std::thread;

use paceline::limiter::{
    Event, Limiter, Limits, Mode, Observed, Owned, Quota, Shared, Status, Switch, WhenFull,
};
use paceline::policy::{Decision, Interval, TokenBucket, Unlimited};
use paceline::prelude::*;
use paceline::time::Rate;
use testkit::clock::jump;

use super::gate::Closed;
use super::{bucket, queued, used, wait};
use crate::timed::ms;

/// The remaining permits, and in how many milliseconds it resets.
#[track_caller]
fn left(status: Option<Status>) -> (u32, u128) {
    let status = status.unwrap();
    assert_eq!(status.reset_in.subsec_nanos() % 1_000_000, 0, "{status:?}");
    (status.remaining, status.reset_in.as_millis())
}

fn passes(limit: &mut impl Limiter<Error = Infallible>, cost: u32) -> bool {
    let cx = &mut Context::from_waker(Waker::noop());
    let Poll::Ready(Ok(decision)) = limit.poll_try(cost, cx) else {
        panic!("a limit in memory answers at once");
    };
    decision.is_pass()
}

/// The status of every kind of handle on a limit of this policy, of which 3 of 5 are spent, 50 ms ago.
#[tokio::test(start_paused = true)]
async fn every_handle_says_what_is_left() {
    let owned = bucket(5).owned();
    let shared = bucket(5).shared();
    let keyed = bucket(5).keyed::<String>();
    let mut handles: [Box<dyn Limiter<Error = Infallible>>; 4] = [
        Box::new(owned),
        Box::new(shared.clone()),
        Box::new(keyed.at("ann".into())),
        Box::new(Observed::new(bucket(5).owned(), drop)),
    ];
    for handle in &mut handles {
        assert_eq!(left(handle.status()), (5, 0));
        assert!(passes(handle, 3));
    }
    jump(ms(50)).await;
    for handle in &mut handles {
        let status = handle.status().unwrap();
        let quota = Quota {
            permits: 5,
            window: ms(500),
        };
        assert_eq!(Limiter::status(&handle), Some(status), "lent");
        assert_eq!(status.quota, Some(quota));
        assert_eq!(status.binding, None);
        assert_eq!(left(Some(status)), (2, 250));
        assert!(passes(handle, 2) && !passes(handle, 1));
        assert_eq!(left(handle.status()), (0, 450));
    }
    assert_eq!(left(shared.status()), (0, 450));
    assert_eq!(left(keyed.status("ann")), (0, 450));
    jump(ms(450)).await;
    for handle in &handles {
        assert_eq!(left(handle.status()), (5, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_does_not_start_the_clock_of_an_unused_limit() {
    let delayed = Interval::every(ms(100)).with_delayed_start();
    let shared = delayed.shared();
    let keyed = delayed.keyed::<String>();
    let mut handles: [Box<dyn Limiter<Error = Infallible>>; 3] = [
        Box::new(delayed.owned()),
        Box::new(shared),
        Box::new(keyed.at("ann".into())),
    ];
    for handle in &mut handles {
        assert_eq!(left(handle.status()), (0, 100));
        jump(ms(70)).await;
        assert_eq!(left(handle.status()), (0, 100), "it is still unused");
        assert!(keyed.is_empty());
        assert!(!passes(handle, 1));
        jump(ms(70)).await;
        assert_eq!(left(handle.status()), (0, 30), "its clock has started");
        jump(ms(30)).await;
        assert_eq!(left(handle.status()), (1, 0));
        assert!(passes(handle, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_is_off_has_no_status_and_one_in_shadow_mode_has_that_of_its_policy() {
    let switch = Switch::new();
    let shared = bucket(2).shared().switched(&switch);
    let keyed = bucket(2).keyed::<String>().switched(&switch);
    let at = |key: &str| {
        let Ok(limit) = keyed.at(key.to_owned());
        limit
    };
    for mode in [Mode::Shadow, Mode::Off] {
        switch.set_mode(mode);
        for _ in 0..3 {
            assert!(shared.try_acquire(1).await.is_pass());
            assert!(at("ann").try_acquire(1).await.is_pass());
        }
        let status = (mode == Mode::Shadow).then_some((0, 200));
        assert_eq!(shared.status().map(|it| left(Some(it))), status);
        assert_eq!(at("ann").status().map(|it| left(Some(it))), status);
        assert_eq!(at("new").status().is_some(), status.is_some());
    }
}

/// The waiter is polled late, and the status is asked while it is due.
#[tokio::test(start_paused = true)]
async fn a_status_disturbs_no_waiter_and_says_what_the_policy_has() {
    let limit = used(100);
    let [mut first, mut second] = [(); 2].map(|()| queued(limit.acquire(1)));
    assert_eq!(limit.waiting(), 2);
    assert_eq!(left(limit.status()), (0, 100));

    jump(ms(180)).await;
    assert_eq!(left(limit.status()), (1, 0), "which the first waiter takes");
    assert!(!limit.try_acquire(1).is_pass());
    assert!(first.poll().is_ready());
    assert_eq!(left(limit.status()), (0, 100));
    assert_eq!(limit.waiting(), 1);
    jump(ms(99)).await;
    assert_eq!(left(limit.status()), (0, 1));
    assert!(!second.is_woken());
    jump(ms(1)).await;
    assert!(second.is_woken() && second.poll().is_ready());
    assert_eq!((limit.waiting(), limit.stats().passed), (0, 3));
}

/// On the real clock permits are prefetched. None comes in less than a day.
#[tokio::test]
async fn permits_that_passed_without_a_clock_reading_count_as_spent() {
    let large = TokenBucket::new(Rate::per_day(1), 10_000);
    let shared = large.shared();
    let mut handles: [Box<dyn Limiter<Error = Infallible>>; 2] =
        [Box::new(large.owned()), Box::new(shared.clone())];
    for handle in &mut handles {
        for spent in 1..1_000 {
            assert!(passes(handle, 1));
            // To ask a shared limit ends its prefetch.
            if spent % 7 == 0 {
                let status = handle.status().unwrap();
                assert_eq!(status.remaining, 10_000 - spent);
            }
        }
    }
    assert_eq!(shared.stats().passed, 999);
}

/// As a layer asks that writes what is left into each response. The observer is called between the answer and the response.
#[tokio::test(start_paused = true)]
async fn what_a_decision_leaves_counts_no_later_request() {
    let limit = bucket(5).shared();
    let other = limit.clone();
    let limit = limit.with_observer(move |_: Event| _ = other.try_acquire(1));

    let mut read = None;
    for (cost, decision, remaining) in [(1, Decision::Pass, 4), (4, wait(100), 3)] {
        assert_eq!(limit.try_once(cost, true, &mut read), Some(decision));
        assert_eq!(left(read.take()).0, remaining);
    }
    assert_eq!(limit.try_once(1, false, &mut read), Some(Decision::Pass));
    assert_eq!(read, None);
    assert_eq!(limit.try_once(3, false, &mut read), Some(wait(300)));
    assert_eq!(left(read), (0, 500));
}

/// On the real clock permits are prefetched. A thread that reads nothing takes them meanwhile.
#[test]
fn of_requests_on_threads_each_is_told_what_it_has_left() {
    const EACH: usize = 2_000;
    let large = TokenBucket::new(Rate::per_day(1), 10_000);
    let told = |ask: &(dyn Fn(bool) -> Option<Status> + Sync)| {
        thread::scope(|scope| {
            let quiet = scope.spawn(|| (0..EACH).for_each(|_| assert_eq!(ask(false), None)));
            let asks = || {
                (0..EACH)
                    .map(|_| ask(true).unwrap().remaining)
                    .collect::<Vec<_>>()
            };
            let readers = [(); 4].map(|()| scope.spawn(asks));
            quiet.join().unwrap();
            readers.map(|reader| reader.join().unwrap())
        })
    };
    let assert_each_is_told_its_own = |told: [Vec<u32>; 4]| {
        for reader in &told {
            assert!(reader.is_sorted_by(|earlier, later| earlier > later));
        }
        let mut all = told.concat();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 4 * EACH);
    };

    let shared = large.shared();
    // Another thread asks between the answer and the response.
    let shared = shared.with_observer(|_: Event| thread::yield_now());
    assert_each_is_told_its_own(told(&|all| {
        let mut read = None;
        assert_eq!(shared.try_once(1, all, &mut read), Some(Decision::Pass));
        read
    }));
    let users = large.keyed::<String>();
    let _keeps_its_limit = users.with("ann", Shared::clone);
    assert_each_is_told_its_own(told(&|all| {
        let mut read = None;
        let asked = users.try_as("ann", 1, all, &mut read);
        assert_eq!(asked, Some(Decision::Pass));
        read
    }));
    assert_eq!(
        [shared.status(), users.status("ann")].map(|it| it.unwrap().remaining),
        [0; 2]
    );
}

#[tokio::test(start_paused = true)]
async fn a_shared_limit_says_its_latest_policy() {
    let limit: Shared<TokenBucket> = bucket(3).shared();
    assert_eq!(limit.policy(), bucket(3));
    assert!(limit.try_acquire(3).is_pass());
    limit.retune(bucket(5));
    assert_eq!(limit.clone().policy(), bucket(5));
    assert_eq!(left(limit.status()), (0, 500), "what was spent stays spent");
    let owned: Owned<TokenBucket> = bucket(3).owned();
    assert_eq!(*owned.policy(), bucket(3));
}

#[tokio::test(start_paused = true)]
async fn reading_a_key_neither_creates_nor_keeps_it() {
    let users = bucket(3).keyed::<String>();
    assert_eq!(left(users.status("ann")), (3, 0));
    let read = users.with("ann", |limit| (limit.policy(), limit.paused_for()));
    assert_eq!(read, (bucket(3), None));
    assert_eq!(users.with("ann", |limit| limit.waiting()), 0);
    assert_eq!(users.len(), 0);

    assert!(users.try_acquire("ann", 2).is_pass());
    jump(ms(200)).await;
    assert_eq!(left(users.status("ann")), (3, 0));
    users.forget_settled();
    assert_eq!(users.len(), 0);
    let empty = bucket(3).with_empty_start().keyed::<String>();
    assert_eq!(left(empty.status("ann")), (0, 300));
    assert_eq!(empty.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_key_with_a_queue_a_pause_or_its_own_policy_is_read_too() {
    let users = bucket(1).keyed::<String>();
    let read = |key: &str| {
        let read = users.with(key, |limit| (limit.waiting(), limit.paused_for()));
        (read, left(users.status(key)))
    };
    let policies = || ["ann", "bob"].map(|key| users.with(key, |limit| limit.policy()));
    assert!(users.try_acquire("ann", 1).is_pass());
    let mut waits = queued(users.acquire("ann".into(), 1));
    assert_eq!(read("ann"), ((1, None), (0, 100)));

    users.with("ann", |limit| limit.pause_for(ms(250)));
    jump(ms(100)).await;
    assert_eq!(read("ann"), ((1, Some(ms(150))), (0, 150)));
    assert_eq!(read("bob"), ((0, None), (1, 0)));
    jump(ms(150)).await;
    assert!(waits.poll().is_ready());

    users.with("ann", |limit| limit.retune(bucket(4)));
    assert_eq!(policies(), [bucket(4), bucket(1)]);
    assert_eq!(read("ann"), ((0, None), (0, 400)));
    users.forget("ann");
    assert_eq!(policies(), [bucket(1); 2]);
}

#[tokio::test(start_paused = true)]
async fn a_key_without_room_has_what_would_answer_it() {
    let users = |when_full| {
        let users = bucket(2).keyed::<u32>().with_max_keys(1);
        let users = users.with_when_full(when_full);
        assert!(users.try_acquire(&1, 1).is_pass());
        users
    };
    let waits = users(WhenFull::Wait);
    assert_eq!(left(waits.status(&1)), (1, 100));
    assert_eq!(left(waits.status(&2)), (0, 100), "until key 1 is evicted");
    assert_eq!(waits.peek(&2, 1), wait(100), "the same");
    jump(ms(100)).await;
    assert_eq!(left(waits.status(&2)), (2, 0));

    let passing = users(WhenFull::Pass);
    assert_eq!(passing.status(&2), Unlimited.shared().status());
    let sharing = users(WhenFull::Share(bucket(9)));
    assert!(sharing.try_acquire(&2, 2).is_pass());
    assert!(sharing.try_acquire(&3, 1).is_pass());
    assert_eq!(left(sharing.status(&4)), (6, 300));
    assert_eq!(left(sharing.at(4).status()), (6, 300));
    assert_eq!(sharing.len(), 1);
}

#[test]
fn a_limiter_that_cannot_say_what_is_left_has_no_status() {
    assert_eq!(Closed.status(), None);
    assert_eq!(Observed::new(Closed, drop).status(), None);
}
