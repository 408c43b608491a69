use std::convert::Infallible;
use std::future::poll_fn;
use std::task::Poll;

use futures::{StreamExt, stream};
use paceline::limiter::{Limiter, Shared};
use paceline::policy::{Decision, Interval, TokenBucket, Unlimited};
use paceline::prelude::*;
use testkit::clock::jump;
use testkit::wakes::Driven;

use super::{bucket, queued, spawned, too_costly, used, wait};
use crate::timed::{ms, now, since, sleep};

#[tokio::test(start_paused = true)]
async fn trying_says_how_long_the_queue_takes() {
    let limit = bucket(3).shared();
    limit.acquire(2).await.unwrap();
    let _dear = queued(limit.acquire(3));
    let _cheap = queued(limit.acquire(1));

    assert_eq!(
        limit.try_acquire(1),
        wait(400),
        "one token is there, but it is not its turn"
    );
    assert_eq!(limit.peek(2), wait(500));
    assert_eq!(limit.try_acquire(4), Decision::Never { capacity: 3 });
    assert_eq!(limit.try_acquire(0), Decision::Pass);

    jump(ms(1_000)).await;
    assert_eq!(
        limit.try_acquire(1),
        wait(200),
        "the two go first, and the second of them waits 100"
    );
}

#[tokio::test(start_paused = true)]
async fn a_wait_behind_other_waiters_is_never_zero() {
    let limit = bucket(5).shared();
    limit.acquire(5).await.unwrap();
    let _waits = queued(limit.acquire(1));
    jump(ms(500)).await;
    let behind = limit.try_acquire(1).retry_in();
    assert!(behind.is_some_and(|retry_in| !retry_in.is_zero()));
}

#[tokio::test(start_paused = true)]
async fn every_waiter_feels_new_parameters_at_once_also_behind_an_idle_head() {
    let limit = used(60_000);
    let passed = spawned([(); 3].map(|()| limit.acquire_owned(1)));
    sleep(10).await;
    limit.retune(Interval::every(ms(100)));
    assert_eq!(passed.await, [100, 200, 300]);

    let limit = used(3_600_000);
    let _idle = queued(limit.acquire(1));
    let passed = spawned([limit.acquire_owned(1)]);
    jump(ms(1_000)).await;
    limit.retune(Interval::every(ms(5_000)));
    assert_eq!(passed.await, [5_010]);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_can_never_pass_under_new_parameters_is_refused_at_once() {
    let limit = bucket(5).shared();
    limit.acquire(5).await.unwrap();
    let _first = queued(limit.acquire(1));
    let mut second = queued(limit.acquire(4));

    limit.retune(bucket(3));
    assert!(second.is_woken());
    let Poll::Ready(Err(never)) = second.poll() else {
        panic!("it is refused, also behind others");
    };
    assert_eq!(too_costly(never), (4, 3));
    assert_eq!(limit.waiting(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_clock_of_an_empty_limit_starts_at_its_first_use() {
    let limit = bucket(2).with_empty_start().shared();
    jump(ms(1_000)).await;

    assert_eq!(limit.peek(1), wait(100));
    jump(ms(100)).await;
    assert_eq!(limit.try_acquire(1), Decision::Pass);
}

#[tokio::test(start_paused = true)]
async fn the_head_may_try_and_passes() {
    let limit = used(100);
    let mut handle = limit.clone();
    let mut first = Driven::new(poll_fn(|cx| handle.poll_decide(1, cx)));
    assert!(first.poll().is_ready(), "it has to wait");
    drop(first);
    let mut behind = queued(limit.acquire(1));

    jump(ms(100)).await;
    let mut trying = Driven::new(poll_fn(|cx| handle.poll_try(1, cx)));
    assert_eq!(trying.poll(), Poll::Ready(Ok(Decision::Pass)));
    jump(ms(100)).await;
    assert!(behind.is_woken() && behind.poll().is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_handle_that_is_lent_keeps_its_position() {
    let mut lent = used(100);
    let limit = lent.clone();
    let mut asking = Driven::new(poll_fn(|cx| lent.poll_decide(1, cx)));
    assert!(asking.poll().is_ready(), "it has to wait");
    drop(asking);
    let mut behind = queued(limit.acquire(1));

    let mut paced = Driven::new(stream::iter([1]).pace(&mut lent));
    assert!(paced.poll_next().is_pending());
    jump(ms(100)).await;
    assert!(paced.poll_next().is_ready());
    assert!(behind.poll().is_pending());
}

#[tokio::test(start_paused = true)]
async fn a_limit_can_be_chosen_while_the_program_runs() {
    type Chosen = Box<dyn Limiter<Error = Infallible>>;
    let start = now();
    let limits: [Chosen; 2] = [
        Box::new(Unlimited.owned()),
        Box::new(Interval::every(ms(100)).shared()),
    ];
    for limit in limits {
        assert_eq!(stream::iter(0..3).pace(limit).count().await, 3);
    }
    assert_eq!(since(start), 200);
}

#[tokio::test(start_paused = true)]
async fn when_a_waiter_leaves_from_the_middle_the_estimate_is_shorter() {
    let limit = used(100);
    let [first, middle, last] = [1, 7, 1].map(|cost| queued(limit.acquire(cost)));
    assert_eq!(limit.peek(1), wait(1_000));

    drop(middle);
    assert!(!first.is_woken() && !last.is_woken());
    assert_eq!(limit.peek(1), wait(300));
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_asks_the_limit_can_print_it() {
    struct Asks(Shared<TokenBucket>);
    impl std::fmt::Write for Asks {
        fn write_str(&mut self, _: &str) -> std::fmt::Result {
            let _ = self.0.peek(1);
            Ok(())
        }
    }
    let limit = bucket(1).shared();
    std::fmt::write(&mut Asks(limit.clone()), format_args!("{limit:?}")).unwrap();
    assert!(format!("{limit:?}").starts_with("Shared { stats: Stats { passed: 0,"));
}

#[test]
#[should_panic(expected = "a limit of paceline has to wait, and there is no tokio runtime here")]
fn a_request_that_has_to_wait_outside_a_runtime_panics() {
    let _ = Driven::new(used(100).acquire(1)).poll();
}
