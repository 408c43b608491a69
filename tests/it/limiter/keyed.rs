use std::time::Duration;

use futures::{StreamExt, stream};
use paceline::limiter::{Keyed, Limits, Mode, Switch};
use paceline::policy::{Decision, Interval, TokenBucket};
use paceline::prelude::*;
use paceline::time::Rate;
use testkit::clock::jump;
use testkit::wakes::Driven;

use crate::timed::{ms, now, since, sleep};

fn wait(millis: u64) -> Decision {
    Decision::Wait {
        retry_in: ms(millis),
    }
}

fn buckets(burst: u32) -> Keyed<u32, TokenBucket> {
    TokenBucket::new(Rate::new(1, ms(100)), burst).keyed()
}

#[tokio::test(start_paused = true)]
async fn keys_share_nothing() {
    let limits = buckets(2);

    assert_eq!(limits.try_acquire(&1, 2), Decision::Pass);
    assert_eq!(limits.try_acquire(&1, 1), wait(100));
    assert_eq!(limits.try_acquire(&2, 2), Decision::Pass);
    assert_eq!(limits.try_acquire(&1, 3), Decision::Never { capacity: 2 });
    assert_eq!(limits.peek(&3, 2), Decision::Pass);
    assert_eq!(limits.len(), 2, "a look is not remembered");
}

#[tokio::test(start_paused = true)]
async fn two_hundred_keys_take_no_longer_than_one() {
    let start = now();
    let limits = Interval::every(ms(100)).keyed::<u32>();
    let tasks: Vec<_> = (0..200)
        .flat_map(|key| (0..11).map(move |_| key))
        .map(|key| tokio::spawn(limits.acquire(key, 1)))
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    assert_eq!(since(start), 1_000);
}

#[tokio::test(start_paused = true)]
async fn each_key_serves_in_order_of_arrival() {
    let limits = buckets(3);
    limits.acquire(1, 3).await.unwrap();
    let mut dear = Driven::new(limits.acquire(1, 3));
    let mut cheap = Driven::new(limits.acquire(1, 1));
    assert!(dear.poll().is_pending());
    assert!(cheap.poll().is_pending());

    jump(ms(200)).await;
    assert_eq!(
        limits.try_acquire(&1, 1),
        wait(300),
        "no request overtakes a waiter"
    );
    assert!(cheap.poll().is_pending());
    drop(dear);
    assert!(cheap.is_woken());
    assert!(cheap.poll().is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_key_may_have_parameters_of_its_own() {
    let limits = Keyed::by(|key: &u32| Interval::every(ms(100) * *key));
    for key in [1, 2, 3] {
        assert_eq!(limits.try_acquire(&key, 1), Decision::Pass);
        assert_eq!(limits.try_acquire(&key, 1), wait(100 * u64::from(key)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_has_settled_is_forgotten_when_others_come() {
    // With a number of keys there is one shard, so that the counts are exact.
    let limits = buckets(1).with_max_keys(1_000);
    for key in 0..64 {
        assert_eq!(limits.try_acquire(&key, 1), Decision::Pass);
    }
    jump(ms(50)).await;
    for key in 64..100 {
        assert_eq!(limits.try_acquire(&key, 1), Decision::Pass);
    }
    assert_eq!(limits.len(), 100);
    jump(ms(50)).await;
    for key in 100..200 {
        assert_eq!(limits.try_acquire(&key, 1), Decision::Pass);
    }
    assert!(limits.len() <= 136, "{}", limits.len());
    for key in 64..100 {
        assert_eq!(
            limits.try_acquire(&key, 1),
            wait(50),
            "keys that bind are remembered"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_settled_key_goes_with_its_last_waiter() {
    let limits = buckets(1);
    limits.acquire(1, 1).await.unwrap();
    let mut waits = Driven::new(limits.acquire(1, 1));
    assert!(waits.poll().is_pending());
    jump(ms(500)).await;
    drop(waits);
    assert_eq!(limits.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_pause_and_new_parameters_concern_one_key_and_reach_its_waiters() {
    let start = now();
    let limits = Interval::every(ms(60_000)).keyed::<u32>();
    limits.acquire(1, 1).await.unwrap();
    let waiting = tokio::spawn(limits.acquire(1, 1));
    sleep(10).await;
    limits.with(&1, |limit| limit.retune(Interval::every(ms(100))));
    limits.with(&1, |limit| limit.pause_for(ms(500)));
    assert_eq!(limits.try_acquire(&2, 1), Decision::Pass);
    waiting.await.unwrap().unwrap();
    assert_eq!(since(start), 510);

    limits.with(&3, |limit| limit.pause_for(Duration::MAX));
    assert!(!limits.try_acquire(&3, 1).is_pass());
    limits.with(&3, |limit| limit.resume());
    assert_eq!(limits.try_acquire(&3, 1), Decision::Pass);

    jump(ms(1_000_000)).await;
    assert_eq!(limits.try_acquire(&1, 1), Decision::Pass);
    assert_eq!(
        limits.try_acquire(&1, 1),
        wait(100),
        "it keeps its own parameters"
    );
}

#[tokio::test(start_paused = true)]
async fn a_switch_is_for_every_key_and_every_waiter() {
    let (limits, switch) = (buckets(1), Switch::new());
    let switched = limits.clone().switched(&switch);
    switched.acquire(1, 1).await.unwrap();
    let waiting = tokio::spawn(switched.acquire(1, 1));
    sleep(10).await;
    switch.set_mode(Mode::Shadow);
    waiting.await.unwrap().unwrap();
    switched.acquire(1, 1).await.unwrap();
    switched.acquire(2, 9).await.unwrap();
    assert_eq!(limits.stats().passed, 1);
    assert_eq!(
        switch.stats().held_back,
        3,
        "one that waited and passed in shadow, and two more"
    );
}

#[tokio::test(start_paused = true)]
async fn every_adapter_works_over_a_key() {
    let start = now();
    let limits = Interval::every(ms(100)).keyed::<&str>();
    let paced = stream::iter(0..3).pace(limits.at("a"));
    let other = stream::iter(0..3).pace(limits.at("a"));
    let enforced = stream::iter(0..3).enforce(limits.at("b"));
    assert_eq!(
        enforced
            .filter(|item| futures::future::ready(item.is_ok()))
            .count()
            .await,
        1
    );
    futures::join!(paced.count(), other.count());
    assert_eq!(since(start), 500);
}

#[tokio::test(start_paused = true)]
async fn a_late_wake_up_passes_one_for_each_key() {
    let limits = Interval::every(ms(100)).keyed::<u32>();
    limits.acquire(1, 1).await.unwrap();
    limits.acquire(2, 1).await.unwrap();
    let mut waiting: Vec<_> = [1, 1, 2]
        .map(|key| Driven::new(limits.acquire(key, 1)))
        .into();
    for one in &mut waiting {
        assert!(one.poll().is_pending());
    }
    jump(ms(950)).await;
    assert!(waiting[0].poll().is_ready());
    assert!(waiting[1].poll().is_pending());
    assert!(waiting[2].poll().is_ready());
}

/// A known limitation: to remember what has settled would be to remember every key.
#[tokio::test(start_paused = true)]
async fn slower_parameters_do_not_count_permits_of_a_key_that_had_settled() {
    let limits = Interval::every(ms(10)).keyed();
    for key in [1, 2] {
        assert_eq!(limits.try_acquire(&key, 1), Decision::Pass);
    }
    sleep(10).await;
    limits.with(&1, |limit| limit.resume());
    assert_eq!(limits.len(), 1, "it had settled");

    for (key, decision) in [(1, Decision::Pass), (2, wait(90))] {
        limits.with(&key, |limit| limit.retune(Interval::every(ms(100))));
        assert_eq!(limits.try_acquire(&key, 1), decision);
    }
}

#[tokio::test(start_paused = true)]
async fn the_clock_of_a_delayed_key_starts_at_the_adapters_first_poll() {
    let limits = Interval::every(ms(1_000))
        .with_delayed_start()
        .keyed::<u32>();
    let input = crate::timed::arriving([(800, 'a')], 800);
    let left = crate::timed::drained(input.pace(limits.at(1))).await;
    crate::timed::assert_left(&left, [(1_000, 'a')], 1_000);
}

#[tokio::test(start_paused = true)]
async fn a_sink_over_a_key_keeps_its_position() {
    let start = now();
    let limits = Interval::every(ms(100)).keyed::<u32>();
    assert!(limits.try_acquire(&1, 1).is_pass());
    let mut sink = Driven::new(futures::sink::drain().pace_sends(limits.at(1)));
    let ready = |sink: &mut Driven<_>| sink.poll_with(futures::Sink::<u32>::poll_ready);
    assert!(ready(&mut sink).is_pending());
    let others: Vec<_> = (0..20)
        .map(|_| tokio::spawn(limits.acquire(1, 1)))
        .collect();
    sleep(100).await;
    assert!(ready(&mut sink).is_ready());
    sink.poll_with(|sink, _| futures::Sink::start_send(sink, 1))
        .unwrap();
    let flush = |sink: &mut Driven<_>| sink.poll_with(futures::Sink::<u32>::poll_flush);
    while flush(&mut sink).is_pending() {
        sleep(1).await;
    }
    assert!(since(start) <= 200, "{} ms", since(start));
    for other in others {
        other.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_task_of_the_timeout_ends_with_the_queue_of_its_key() {
    let limits = Interval::every(ms(60_000)).keyed::<u32>();
    assert!(limits.try_acquire(&1, 1).is_pass());
    for _ in 0..100 {
        let two = futures::future::join(limits.acquire(1, 1), limits.acquire(1, 1));
        assert!(tokio::time::timeout(ms(10), two).await.is_err());
    }
    let tasks = tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks();
    assert!(tasks <= 1, "{tasks} tasks");
}

#[tokio::test(start_paused = true)]
async fn a_key_may_be_asked_for_in_a_borrowed_form() {
    let limits = TokenBucket::new(Rate::new(1, ms(100)), 2).keyed::<String>();
    assert!(limits.try_acquire("ann", 2).is_pass());
    assert_eq!(limits.peek("ann", 1), wait(100));
    limits.with("ann", |limit| limit.refund(1));
    assert!(limits.try_acquire("ann", 1).is_pass());
    limits.with("ann", |limit| limit.pause_for(ms(500)));
    assert_eq!(limits.peek("ann", 1), wait(500));
    limits.with("ann", |limit| limit.resume());
    limits.with("ann", |limit| {
        limit.retune(TokenBucket::new(Rate::new(1, ms(10)), 2));
    });
    assert_eq!(limits.peek("ann", 1), wait(10));
    limits.forget("ann");
    assert_eq!(limits.peek("ann", 2), wait(200));
    limits.with("ann", |limit| limit.reset());
    assert!(limits.try_acquire("ann", 2).is_pass());

    let owned = "ann".to_owned();
    assert_eq!(limits.try_acquire(&owned, 1), wait(100), "the same key");
}

#[tokio::test(start_paused = true)]
async fn a_refund_concerns_one_key_and_wakes_its_head() {
    let limits = buckets(2);
    for key in [1, 2] {
        assert!(limits.try_acquire(&key, 2).is_pass());
    }
    let mut waiters = [1, 2].map(|key| Driven::new(limits.acquire(key, 1)));
    for waiter in &mut waiters {
        assert!(waiter.poll().is_pending());
    }
    limits.with(&1, |limit| limit.refund(1));
    assert!(waiters[0].is_woken() && !waiters[1].is_woken());
    assert!(waiters[0].poll().is_ready());

    limits.with(&3, |limit| limit.refund(1));
    assert_eq!(
        limits.len(),
        2,
        "a key that has spent nothing is not remembered"
    );
}

#[tokio::test(start_paused = true)]
async fn a_refund_to_a_key_without_waiters_never_exceeds_the_burst() {
    let limits = buckets(2);
    assert!(limits.try_acquire(&1, 1).is_pass());
    limits.with(&1, |limit| limit.refund(5));
    assert!(limits.try_acquire(&1, 2).is_pass());
    assert_eq!(limits.try_acquire(&1, 1), wait(100));
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_key_has_spent_what_it_spent_under_the_common_parameters() {
    let limits = Interval::every(ms(100)).keyed::<u32>();
    limits.with(&1, |limit| limit.retune(Interval::every(ms(1_000))));
    limits.with(&1, |limit| limit.pause_for(ms(5_000)));
    let waiting = tokio::spawn(limits.acquire(1, 1));
    let start = now();
    sleep(10).await;

    limits.forget(&1);
    waiting.await.unwrap().unwrap();
    assert_eq!(since(start), 10, "no pause any more");
    assert_eq!(limits.try_acquire(&1, 1), wait(100));
    jump(ms(100)).await;
    limits.forget(&1);
    assert_eq!(limits.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_reset_key_begins_anew_and_its_waiters_feel_it_at_once() {
    let start = now();
    let limits = Interval::every(ms(60_000)).keyed::<u32>();
    assert!(limits.try_acquire(&1, 1).is_pass());
    limits.with(&1, |limit| limit.reset());
    assert!(limits.try_acquire(&1, 1).is_pass(), "without waiters");

    let waiting = [(); 2].map(|()| tokio::spawn(limits.acquire(1, 1)));
    sleep(10).await;
    limits.with(&1, |limit| limit.reset());
    let [first, second] = waiting;
    first.await.unwrap().unwrap();
    assert_eq!(since(start), 10);
    second.await.unwrap().unwrap();
    assert_eq!(since(start), 60_010);

    limits.with(&2, |limit| limit.reset());
    assert_eq!(limits.len(), 1, "an unknown key stays unknown");
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_retuned_keys_go_when_they_are_forgotten_or_have_the_common_parameters() {
    let common = Interval::every(ms(100));
    let limits = common.keyed::<u32>().with_max_keys(100);
    for key in 0..10_000 {
        limits.with(&key, |limit| limit.retune(Interval::every(ms(1_000))));
        assert!(limits.try_acquire(&key, 1).is_pass());
    }
    jump(ms(3_600_000)).await;
    assert_eq!(
        limits.len(),
        10_000,
        "parameters of their own are remembered"
    );
    for key in 0..10_000 {
        if key % 2 == 0 {
            limits.forget(&key);
        } else {
            limits.with(&key, |limit| limit.retune(common));
        }
    }
    assert_eq!(limits.len(), 0);
    assert!(limits.try_acquire(&1, 1).is_pass());
    assert_eq!(limits.try_acquire(&1, 1), wait(100));
}

#[tokio::test(start_paused = true)]
async fn a_retuned_key_that_binds_goes_when_it_has_settled() {
    let common = Interval::every(ms(100));
    let limits = common.keyed::<u32>();
    limits.with(&1, |limit| limit.retune(Interval::every(ms(1_000))));
    assert!(limits.try_acquire(&1, 1).is_pass());
    limits.with(&1, |limit| limit.retune(common));
    assert_eq!(limits.len(), 1);
    jump(ms(1_000)).await;
    limits.forget_settled();
    assert_eq!(limits.len(), 0);
}
