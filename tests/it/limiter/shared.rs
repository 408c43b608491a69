use std::convert::Infallible;
use std::future::poll_fn;
use std::task::Poll;

use futures::{StreamExt, stream};
use paceline::limiter::{Limiter, Shared};
use paceline::policy::{Decision, Interval, TokenBucket, Unlimited};
use paceline::prelude::*;
use paceline::time::Rate;
use testkit::clock::jump;
use testkit::wakes::Driven;

use crate::timed::{ms, now, since};

fn bucket(burst: u32) -> TokenBucket {
    TokenBucket::new(Rate::new(1, ms(100)), burst)
}

fn wait(millis: u64) -> Decision {
    Decision::Wait {
        retry_in: ms(millis),
    }
}

#[tokio::test(start_paused = true)]
async fn clones_share_one_limit() {
    let limit = bucket(2).shared();
    let other = limit.clone();

    assert_eq!(limit.try_acquire(1), Decision::Pass);
    assert_eq!(other.try_acquire(1), Decision::Pass);
    assert_eq!(limit.try_acquire(1), wait(100));
    assert_eq!(other.try_acquire(3), Decision::Never { capacity: 2 });
}

#[tokio::test(start_paused = true)]
async fn peeking_counts_nothing() {
    let limit = bucket(1).shared();

    assert_eq!(limit.peek(1), Decision::Pass);
    assert_eq!(limit.peek(1), Decision::Pass);
    assert_eq!(limit.try_acquire(1), Decision::Pass);
    assert_eq!(limit.peek(1), wait(100));
}

#[tokio::test(start_paused = true)]
async fn trying_says_how_long_the_queue_takes() {
    let limit = bucket(3).shared();
    limit.acquire(2).await.unwrap();
    let mut dear = Driven::new(limit.acquire(3));
    let mut cheap = Driven::new(limit.acquire(1));
    assert!(dear.poll().is_pending());
    assert!(cheap.poll().is_pending());

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
    let mut waits = Driven::new(limit.acquire(1));
    assert!(waits.poll().is_pending());
    jump(ms(500)).await;

    let Decision::Wait { retry_in } = limit.try_acquire(1) else {
        panic!("a waiter is ahead");
    };
    assert!(!retry_in.is_zero());
}

#[tokio::test(start_paused = true)]
async fn refunded_permits_go_to_the_head() {
    let start = now();
    let limit = bucket(2).shared();
    limit.acquire(2).await.unwrap();
    let mut first = Driven::new(limit.acquire(2));
    let mut second = Driven::new(limit.acquire(1));
    assert!(first.poll().is_pending());
    assert!(second.poll().is_pending());

    limit.refund(1);
    assert!(first.is_woken() && !second.is_woken());
    assert!(first.poll().is_pending());
    limit.refund(1);
    assert!(first.poll().is_ready());
    second.into_inner().await.unwrap();
    assert_eq!(since(start), 100);
}

#[tokio::test(start_paused = true)]
async fn a_refund_never_exceeds_the_burst() {
    let limit = bucket(2).shared();
    limit.refund(5);
    assert_eq!(limit.try_acquire(2), Decision::Pass);
    limit.refund(5);
    assert_eq!(limit.try_acquire(2), Decision::Pass);
    assert_eq!(limit.try_acquire(1), wait(100));
}

#[tokio::test(start_paused = true)]
async fn every_waiter_feels_new_parameters_at_once() {
    let start = now();
    let limit = Interval::every(ms(60_000)).shared();
    limit.acquire(1).await.unwrap();
    let tasks: Vec<_> = (0..3).map(|_| tokio::spawn(limit.acquire(1))).collect();
    tokio::time::timeout(ms(10), std::future::pending::<()>())
        .await
        .unwrap_err();

    limit.retune(Interval::every(ms(100)));
    for (task, n) in tasks.into_iter().zip(1..) {
        task.await.unwrap().unwrap();
        assert_eq!(since(start), n * 100);
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_can_never_pass_under_new_parameters_is_refused_at_once() {
    let limit = bucket(5).shared();
    limit.acquire(5).await.unwrap();
    let mut first = Driven::new(limit.acquire(5));
    let mut second = Driven::new(limit.acquire(4));
    assert!(first.poll().is_pending());
    assert!(second.poll().is_pending());

    limit.retune(bucket(3));
    assert!(second.is_woken());
    let Poll::Ready(Err(never)) = second.poll() else {
        panic!("it is refused, also behind others");
    };
    assert_eq!(
        (
            never.too_costly().unwrap().cost(),
            never.too_costly().unwrap().capacity()
        ),
        (4, 3)
    );
}

#[tokio::test(start_paused = true)]
async fn the_clock_of_an_empty_limit_starts_at_its_first_use() {
    let limit = bucket(2).with_empty_start().shared();
    jump(ms(1_000)).await;

    assert_eq!(limit.peek(1), wait(100));
    jump(ms(100)).await;
    assert_eq!(limit.try_acquire(1), Decision::Pass);
}

#[test]
fn can_live_in_a_static_and_serve_several_runtimes() {
    static LIMIT: std::sync::LazyLock<Shared<Interval>> =
        std::sync::LazyLock::new(|| Interval::every(ms(1)).shared());

    let work = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            for _ in 0..50 {
                LIMIT.acquire(1).await.unwrap();
            }
        });
    };
    let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(work)).collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_moves_to_another_task_is_woken_there() {
    let limit = Interval::every(ms(100)).shared();
    limit.acquire(1).await.unwrap();
    let mut first = Driven::new(limit.acquire(1));
    let mut second = Driven::new(limit.acquire(1));
    assert!(first.poll().is_pending());
    assert!(second.poll().is_pending());
    second.change_task();
    assert!(second.poll().is_pending());

    jump(ms(100)).await;
    assert!(first.poll().is_ready());
    assert!(!second.is_woken());
    jump(ms(100)).await;
    assert!(second.is_woken());
    assert!(second.poll().is_ready());
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "polled after it was ready")]
async fn a_finished_acquire_is_not_asked_again() {
    let mut passed = Driven::new(bucket(5).shared().acquire(1));
    assert!(passed.poll().is_ready());
    let _ = passed.poll();
}

#[tokio::test(start_paused = true)]
async fn the_head_may_try_and_passes() {
    let limit = Interval::every(ms(100)).shared();
    limit.acquire(1).await.unwrap();
    let mut handle = limit.clone();
    let mut first = Driven::new(poll_fn(|cx| handle.poll_decide(1, cx)));
    assert!(first.poll().is_ready(), "it has to wait");
    drop(first);
    let mut behind = Driven::new(limit.acquire(1));
    assert!(behind.poll().is_pending());

    jump(ms(100)).await;
    let mut trying = Driven::new(poll_fn(|cx| handle.poll_try(1, cx)));
    assert_eq!(trying.poll(), Poll::Ready(Ok(Decision::Pass)));
    jump(ms(100)).await;
    assert!(behind.is_woken());
    assert!(behind.poll().is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_handle_that_is_lent_keeps_its_position() {
    let mut lent = Interval::every(ms(100)).shared();
    let limit = lent.clone();
    limit.acquire(1).await.unwrap();
    let mut asking = Driven::new(poll_fn(|cx| lent.poll_decide(1, cx)));
    assert!(asking.poll().is_ready(), "it has to wait");
    drop(asking);
    let mut behind = Driven::new(limit.acquire(1));
    assert!(behind.poll().is_pending());

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
async fn waiters_behind_an_idle_head_feel_new_parameters_too() {
    let start = now();
    let limit = Interval::every(ms(3_600_000)).shared();
    limit.acquire(1).await.unwrap();
    let mut idle = Driven::new(limit.acquire(1));
    assert!(idle.poll().is_pending());
    let second = tokio::spawn(limit.acquire(1));
    jump(ms(1_000)).await;
    limit.retune(Interval::every(ms(5_000)));
    second.await.unwrap().unwrap();
    assert_eq!(since(start), 5_010);
}

#[tokio::test(start_paused = true)]
async fn when_a_waiter_leaves_from_the_middle_the_estimate_is_shorter() {
    let limit = Interval::every(ms(100)).shared();
    limit.acquire(1).await.unwrap();
    let [mut first, mut middle, mut last] = [1, 7, 1].map(|cost| Driven::new(limit.acquire(cost)));
    for waiter in [&mut first, &mut middle, &mut last] {
        assert!(waiter.poll().is_pending());
    }
    assert_eq!(limit.peek(1), wait(1_000));

    drop(middle);
    assert!(!first.is_woken() && !last.is_woken());
    assert_eq!(limit.peek(1), wait(300));
    jump(ms(100)).await;
    assert!(first.poll().is_ready());
    jump(ms(100)).await;
    assert!(last.is_woken() && last.poll().is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_queued_request_that_became_too_large_is_refused_before_it_is_the_head() {
    let limit = bucket(5).shared();
    limit.acquire(5).await.unwrap();
    let mut waiters = [1, 5].map(|cost| Driven::new(limit.acquire(cost)));
    for waiter in &mut waiters {
        assert!(waiter.poll().is_pending());
    }
    limit.retune(bucket(3));
    assert!(matches!(waiters[1].poll(), Poll::Ready(Err(_))));
    assert_eq!(limit.stats().waiting, 1);
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

#[tokio::test(start_paused = true)]
async fn the_time_to_acquire_within_begins_at_the_first_poll() {
    let limit = Interval::every(ms(100)).shared();
    assert!(limit.try_acquire(1).is_pass());
    let acquire = limit.acquire_within(1, ms(50));
    jump(ms(60)).await;
    assert!(acquire.await.is_ok(), "40 ms are left of the interval");
}

#[tokio::test(start_paused = true)]
async fn a_late_poll_of_acquire_within_takes_a_permit_that_is_there() {
    let limit = Interval::every(ms(100)).shared();
    assert!(limit.try_acquire(1).is_pass());
    let mut acquire = Driven::new(limit.acquire_within(1, ms(100)));
    assert!(acquire.poll().is_pending());
    jump(ms(300)).await;
    assert!(matches!(acquire.poll(), Poll::Ready(Ok(()))));
}

#[test]
#[should_panic(expected = "no reactor running")]
fn a_request_that_has_to_wait_outside_a_runtime_panics() {
    let limit = Interval::every(ms(100)).shared();
    assert!(limit.try_acquire(1).is_pass());
    let _ = Driven::new(limit.acquire(1)).poll();
}
