//! Somebody first in line whose turn has come and who is not polled.

use futures::{StreamExt, stream};
use paceline::policy::Interval;
use paceline::prelude::*;
use testkit::clock::jump;
use testkit::wakes::Driven;

use crate::timed::{ms, now, since, sleep};

#[tokio::test(start_paused = true)]
async fn an_idle_head_does_not_starve_those_behind_it() {
    let start = now();
    let limit = Interval::every(ms(100)).shared();
    limit.acquire(1).await.unwrap();
    let mut idle = Driven::new(stream::iter([1]).pace(limit.clone()));
    assert!(idle.poll_next().is_pending());

    limit.acquire(1).await.unwrap();
    assert_eq!(
        since(start),
        110,
        "its turn was at 100, and then comes the patience"
    );
    limit.acquire(1).await.unwrap();
    assert_eq!(since(start), 210, "it is waited for once, not each time");
}

#[tokio::test(start_paused = true)]
async fn however_many_are_idle_one_behind_the_other() {
    let start = now();
    let limit = Interval::every(ms(100)).shared();
    limit.acquire(1).await.unwrap();
    let mut idle: Vec<_> = (0..5).map(|_| Driven::new(limit.acquire(1))).collect();
    for one in &mut idle {
        assert!(one.poll().is_pending());
    }
    limit.acquire(1).await.unwrap();
    assert_eq!(since(start), 100 + 5 * 10);
    assert_eq!(limit.stats().waiting, 5);
}

#[tokio::test(start_paused = true)]
async fn an_idle_head_keeps_its_place() {
    let limit = Interval::every(ms(100)).shared();
    limit.acquire(1).await.unwrap();
    let mut idle = Driven::new(limit.acquire(1));
    assert!(idle.poll().is_pending());
    limit.acquire(1).await.unwrap();
    let mut behind = Driven::new(limit.acquire(1));
    assert!(behind.poll().is_pending());

    assert!(idle.poll().is_pending(), "the slot is gone");
    jump(ms(100)).await;
    assert!(
        behind.poll().is_pending(),
        "and the next one is not its own"
    );
    assert!(idle.poll().is_ready());
}

#[tokio::test(start_paused = true)]
async fn nobody_is_overtaken_because_the_whole_runtime_is_late() {
    let limit = Interval::every(ms(100)).shared();
    limit.acquire(1).await.unwrap();
    let mut waiting: Vec<_> = (0..3).map(|_| Driven::new(limit.acquire(1))).collect();
    for one in &mut waiting {
        assert!(one.poll().is_pending());
    }
    jump(ms(10_000)).await;
    assert!(waiting[1].poll().is_pending());
    assert!(waiting[0].poll().is_ready());
}

#[tokio::test(start_paused = true)]
async fn nobody_is_woken_for_it_while_all_goes_well() {
    let limit = Interval::every(ms(100)).shared();
    limit.acquire(1).await.unwrap();
    let mut waiting: Vec<_> = (0..3).map(|_| Driven::new(limit.acquire(1))).collect();
    for one in &mut waiting {
        assert!(one.poll().is_pending());
    }
    while !waiting.is_empty() {
        sleep(100).await;
        assert!(waiting[0].poll().is_ready());
        assert_eq!(waiting[0].wakes(), 1);
        waiting.remove(0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_busy_elsewhere_finds_its_stream_as_it_was() {
    let limit = Interval::every(ms(100)).shared();
    let mut mine = stream::iter(0..3).pace(limit.clone());
    let others = stream::repeat(()).pace(limit.clone());
    let others = tokio::spawn(others.take(10).count());
    assert_eq!(mine.next().await, Some(0));
    for n in [1, 2] {
        assert!(futures::poll!(mine.next()).is_pending());
        sleep(350).await;
        assert_eq!(mine.next().await, Some(n));
    }
    assert_eq!(others.await.unwrap(), 10);
}

#[tokio::test(start_paused = true)]
async fn one_who_leaves_from_aside_changes_nothing() {
    let start = now();
    let limit = Interval::every(ms(100)).shared();
    limit.acquire(1).await.unwrap();
    let mut idle = Driven::new(limit.acquire(1));
    assert!(idle.poll().is_pending());
    limit.acquire(1).await.unwrap();
    drop(idle);
    assert_eq!(limit.stats().waiting, 0);
    limit.acquire(1).await.unwrap();
    assert_eq!(since(start), 210);
}

#[tokio::test(start_paused = true)]
async fn those_behind_an_idle_head_feel_new_parameters_too() {
    let start = now();
    let limit = Interval::every(ms(3_600_000)).shared();
    limit.acquire(1).await.unwrap();
    let mut idle = Driven::new(limit.acquire(1));
    assert!(idle.poll().is_pending());
    let second = tokio::spawn(limit.acquire(1));
    sleep(1_000).await;
    limit.retune(Interval::every(ms(5_000)));
    second.await.unwrap().unwrap();
    assert_eq!(since(start), 5_010);
}
