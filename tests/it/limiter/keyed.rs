use std::time::Duration;

use futures::{StreamExt, stream};
use paceline::limiter::{Keyed, Mode};
use paceline::policy::{Decision, Interval, TokenBucket};
use paceline::prelude::*;
use paceline::time::Rate;
use testkit::clock::jump;
use testkit::wakes::{Driven, Polls, count_polls};

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
    assert_eq!(limits.len(), 2, "who only looks is not remembered");
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
    assert_eq!(limits.try_acquire(&1, 1), wait(300), "nobody overtakes");
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
    let limits = buckets(1);
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
            "those that bind are remembered"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn who_waited_and_leaves_a_settled_key_takes_it_along() {
    let limits = buckets(1);
    limits.acquire(1, 1).await.unwrap();
    let mut waits = Driven::new(limits.acquire(1, 1));
    assert!(waits.poll().is_pending());
    jump(ms(500)).await;
    drop(waits);
    assert_eq!(limits.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn when_there_is_no_room_a_new_key_waits_until_the_first_settles() {
    let start = now();
    let limits = buckets(2).max_keys(2);
    assert_eq!(limits.try_acquire(&1, 2), Decision::Pass);
    sleep(10).await;
    assert_eq!(limits.try_acquire(&2, 1), Decision::Pass);

    assert_eq!(
        limits.try_acquire(&3, 1),
        wait(100),
        "that of 2, which spent less"
    );
    assert_eq!(limits.try_acquire(&3, 3), Decision::Never { capacity: 2 });
    limits.acquire(3, 1).await.unwrap();
    assert_eq!(since(start), 110);
    assert_eq!(limits.len(), 2);
    assert_eq!(
        limits.try_acquire(&1, 2),
        wait(90),
        "pressure never resets a key that binds"
    );
    assert_eq!(
        limits.try_acquire(&2, 2),
        wait(90),
        "forgotten, and now there is no room for it"
    );
}

#[tokio::test(start_paused = true)]
async fn a_rush_of_new_keys_resets_nobody_and_is_bounded() {
    let limits = buckets(1).max_keys(1_000);
    for key in 0..1_000 {
        assert_eq!(limits.try_acquire(&key, 1), Decision::Pass);
    }
    for round in 0..10 {
        for key in 1_000..3_000 {
            assert!(!limits.try_acquire(&key, 1).is_pass(), "round {round}");
        }
        assert_eq!(limits.len(), 1_000);
        assert_eq!(limits.try_acquire(&7, 1), wait(100 - 10 * round));
        jump(ms(10)).await;
    }
    assert_eq!(
        limits.try_acquire(&1_000, 1),
        Decision::Pass,
        "they have settled"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pause_and_new_parameters_concern_one_key_and_reach_who_waits() {
    let start = now();
    let limits = Interval::every(ms(60_000)).keyed::<u32>();
    limits.acquire(1, 1).await.unwrap();
    let waiting = tokio::spawn(limits.acquire(1, 1));
    sleep(10).await;
    limits.retune(&1, Interval::every(ms(100)));
    limits.pause_for(&1, ms(500));
    assert_eq!(limits.try_acquire(&2, 1), Decision::Pass);
    waiting.await.unwrap().unwrap();
    assert_eq!(since(start), 510);

    limits.pause_for(&3, Duration::MAX);
    assert!(!limits.try_acquire(&3, 1).is_pass());
    limits.resume(&3);
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
async fn a_mode_is_for_every_key_also_who_waits() {
    let limits = buckets(1);
    limits.acquire(1, 1).await.unwrap();
    let waiting = tokio::spawn(limits.acquire(1, 1));
    sleep(10).await;
    limits.set_mode(Mode::Shadow);
    waiting.await.unwrap().unwrap();
    assert_eq!(limits.try_acquire(&1, 1), Decision::Pass);
    assert_eq!(limits.try_acquire(&2, 9), Decision::Pass);

    let stats = limits.stats();
    assert_eq!(stats.passed, 4);
    assert_eq!(
        stats.held_back, 4,
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

#[test]
#[should_panic(expected = "a keyed limit needs room for at least 1 key, got 0")]
fn refuses_room_for_no_key() {
    let _ = buckets(1).max_keys(0);
}

#[tokio::test(start_paused = true)]
async fn a_full_map_lets_new_keys_in_as_fast_as_the_old_ones_settle() {
    let limits = Interval::every(ms(1_000)).keyed::<u32>().max_keys(100);
    for key in 0..100 {
        assert!(limits.try_acquire(&key, 1).is_pass());
    }
    jump(ms(1_000)).await;
    for key in 1_000..1_100 {
        assert!(limits.try_acquire(&key, 1).is_pass(), "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn all_who_wait_for_room_get_it() {
    let start = now();
    let limits = Interval::every(ms(1_000)).keyed::<u32>().max_keys(100);
    for key in 0..100 {
        assert!(limits.try_acquire(&key, 1).is_pass());
    }
    let paced = stream::iter(1_000..1_300).pace_by_key(limits, |key| *key, 300);
    assert_eq!(paced.count().await, 300);
    assert!(start.elapsed() < ms(60_000), "{:?}", start.elapsed());
}

/// A fault that is lived with: to remember what has settled would be to remember every key.
#[tokio::test(start_paused = true)]
async fn slower_parameters_do_not_count_what_had_settled_and_was_forgotten() {
    let limits = Interval::every(ms(10)).keyed();
    for key in [1, 2] {
        assert_eq!(limits.try_acquire(&key, 1), Decision::Pass);
    }
    sleep(10).await;
    limits.resume(&1);
    assert_eq!(limits.len(), 1, "it had settled");

    for (key, decision) in [(1, Decision::Pass), (2, wait(90))] {
        limits.retune(&key, Interval::every(ms(100)));
        assert_eq!(limits.try_acquire(&key, 1), decision);
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_room_feels_at_once_that_there_is_some() {
    let start = now();
    let limits = Interval::every(ms(10)).keyed::<u32>().max_keys(1);
    limits.pause_for(&1, Duration::MAX);
    let waiting = tokio::spawn(limits.acquire(2, 1));
    sleep(100).await;
    limits.resume(&1);
    assert_eq!(limits.len(), 0);
    waiting.await.unwrap().unwrap();
    assert_eq!(since(start), 100);
}

#[tokio::test(start_paused = true)]
async fn room_is_given_in_order_of_arrival() {
    let limits = Interval::every(ms(100)).keyed::<u32>().max_keys(1);
    assert!(limits.try_acquire(&0, 1).is_pass());
    let mut waiting: Vec<_> = (1..4)
        .map(|key| Driven::new(limits.acquire(key, 1)))
        .collect();
    for one in &mut waiting {
        assert!(one.poll().is_pending());
    }
    jump(ms(100)).await;
    assert!(waiting[2].poll().is_pending(), "it is the turn of another");
    assert_eq!(
        limits.try_acquire(&9, 1),
        wait(1),
        "there is room, and it is spoken for"
    );
    assert!(waiting[0].poll().is_ready());

    jump(ms(100)).await;
    assert!(waiting[1].is_woken());
    drop(waiting.remove(1));
    assert!(waiting[1].is_woken(), "the next, since one has given up");
    assert!(waiting[1].poll().is_ready());
}

#[tokio::test(start_paused = true)]
async fn who_lets_room_go_by_is_overtaken_after_a_second() {
    let limits = Interval::every(ms(100)).keyed::<u32>().max_keys(1);
    assert!(limits.try_acquire(&0, 1).is_pass());
    let mut idle = Driven::new(limits.acquire(1, 1));
    let mut other = Driven::new(limits.acquire(2, 1));
    assert!(idle.poll().is_pending());
    assert!(other.poll().is_pending());

    jump(ms(1_099)).await;
    assert!(other.poll().is_pending());
    assert_eq!(limits.try_acquire(&3, 1), wait(1));
    jump(ms(1)).await;
    assert!(other.poll().is_ready());
    jump(ms(100)).await;
    assert!(idle.poll().is_ready(), "it was still first");
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_room_feels_a_mode_at_once() {
    let start = now();
    let limits = Interval::every(ms(60_000)).keyed::<u32>().max_keys(1);
    assert!(limits.try_acquire(&0, 1).is_pass());
    let waiting = [1, 2].map(|key| tokio::spawn(limits.acquire(key, 1)));
    sleep(10).await;
    limits.set_mode(Mode::Shadow);
    for one in waiting {
        one.await.unwrap().unwrap();
    }
    assert_eq!(since(start), 10);
    assert_eq!(limits.stats().held_back, 2);
}

#[tokio::test(start_paused = true)]
async fn each_who_waits_for_room_is_polled_a_few_times_only() {
    let limits = Interval::every(ms(10)).keyed::<u32>().max_keys(10);
    let mut polls = Vec::new();
    let tasks: Vec<_> = (0..500)
        .map(|key| count_polls(limits.acquire(key, 1)))
        .map(|counted| {
            polls.push(counted.polls());
            tokio::spawn(counted)
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let polls: usize = polls.iter().map(Polls::count).sum();
    assert!(polls <= 500 * 3, "{polls} polls for 500 keys");
}

#[tokio::test(start_paused = true)]
async fn acquire_within_says_no_at_once_or_waits_in_time_for_room_too() {
    let start = now();
    let limits = Interval::every(ms(100)).keyed::<u32>().max_keys(2);
    assert!(limits.try_acquire(&1, 1).is_pass());
    let refused = limits.acquire_within(1, 1, ms(99)).await.unwrap_err();
    assert!(refused.is_too_late());
    limits.acquire_within(2, 1, ms(0)).await.unwrap();
    assert!(
        limits
            .acquire_within(3, 1, ms(99))
            .await
            .unwrap_err()
            .is_too_late()
    );
    assert_eq!(since(start), 0);
    assert_eq!(limits.stats().refused, 2);

    limits.acquire_within(3, 1, ms(100)).await.unwrap();
    assert_eq!(since(start), 100);
    limits.pause_for(&3, ms(1_000));
    let mut waits = Driven::new(limits.acquire_within(3, 1, ms(1_500)));
    assert!(waits.poll().is_pending());
    limits.pause_for(&3, ms(60_000));
    jump(ms(1_500)).await;
    let std::task::Poll::Ready(Err(refused)) = waits.poll() else {
        panic!("its time is over");
    };
    assert!(refused.is_too_late());
    assert_eq!(limits.stats().refused, 3);
    assert_eq!(limits.stats().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_room_is_not_refused_and_peeking_says_what_trying_does() {
    let limits = Interval::every(ms(100)).keyed::<u32>().max_keys(1);
    assert!(limits.try_acquire(&1, 1).is_pass());
    assert_eq!(limits.peek(&2, 1), wait(100));
    limits.acquire(2, 1).await.unwrap();
    let stats = limits.stats();
    assert_eq!((stats.passed, stats.refused), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn the_clock_of_a_delayed_key_starts_at_the_adapters_first_poll() {
    let limits = Interval::every(ms(1_000)).delayed().keyed::<u32>();
    let input = crate::timed::arriving([(800, 'a')], 800);
    let left = crate::timed::drained(input.pace(limits.at(1))).await;
    crate::timed::assert_left(&left, [(1_000, 'a')], 1_000);
}

#[tokio::test(start_paused = true)]
async fn a_sink_over_a_key_keeps_its_place_too() {
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
async fn the_task_that_watches_a_line_ends_with_it() {
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
