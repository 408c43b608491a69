use futures::{SinkExt, StreamExt, stream};
use paceline::limiter::{Limiter, Limits, Mode, Observed, Switch};
use paceline::policy::Interval;
use paceline::prelude::*;
use testkit::clock::jump;

use super::watched::Seen;
use super::{bucket, queued, spawned, used};
use crate::timed::{ms, sleep};

/// An observer around a limiter, and what it sees.
fn observed<L: Limiter>(limiter: L) -> (Observed<L, &'static Seen>, &'static Seen) {
    let seen: &Seen = Box::leak(Box::default());
    (Observed::new(limiter, seen), seen)
}

#[tokio::test(start_paused = true)]
async fn reports_what_passed_and_how_long_it_waited() {
    let (limit, seen) = observed(bucket(2).shared());
    let paced = stream::iter([2, 1, 9, 0, 2]).pace_by_cost(limit, |cost| *cost);
    assert_eq!(paced.count().await, 5);
    assert_eq!(
        seen.lines(),
        [
            "passed 2 after 0ns",
            "passed 1 after 100ms",
            "9 of 2",
            "passed 2 after 200ms"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn reports_what_was_refused_and_shed() {
    let expected = ["passed 1 after 0ns", "refused 1 for 100ms"];
    let (limit, seen) = observed(Interval::every(ms(100)).owned());
    assert_eq!(stream::iter(0..2).enforce(limit).count().await, 2);
    assert_eq!(seen.lines(), expected);
    let (limit, seen) = observed(Interval::every(ms(100)).owned());
    assert_eq!(stream::iter(0..2).shed(limit).count().await, 1);
    assert_eq!(seen.lines(), expected);
}

#[tokio::test(start_paused = true)]
async fn reports_a_request_that_gave_up_or_was_late_and_after_how_long() {
    let (limit, seen) = observed(used(100));
    let mut paced = stream::iter([1]).pace(limit.clone());
    drop(queued(paced.next()));
    jump(ms(30)).await;
    drop(paced);
    let mut paced = stream::iter([1]).pace(limit);
    let waits = queued(paced.next());
    jump(ms(80)).await;
    waits.into_inner().await;
    assert_eq!(seen.lines(), ["gave up after 30ms", "passed 1 after 80ms"]);
}

#[tokio::test(start_paused = true)]
async fn the_wait_of_a_sink_begins_with_its_first_look() {
    let (limit, seen) = observed(used(100));
    let mut sink = futures::sink::drain().pace_sends(limit);
    for item in 0..2 {
        sink.send(item).await.unwrap();
    }
    assert_eq!(seen.lines(), ["passed 1 after 100ms"; 2]);
}

#[tokio::test(start_paused = true)]
async fn a_clone_is_queued_for_itself() {
    let (limit, seen) = observed(used(100));
    let paced = [limit.clone(), limit].map(|limit| stream::iter(0..2).pace(limit).count());
    futures::future::join_all(paced).await;
    assert_eq!(
        seen.lines(),
        [
            "passed 1 after 100ms",
            "passed 1 after 200ms",
            "passed 1 after 200ms",
            "passed 1 after 200ms"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn the_handles_of_all_keys_report_to_one_observer() {
    let seen: &Seen = Box::leak(Box::default());
    let users = Observed::new(Interval::every(ms(100)).keyed(), seen);
    for (user, passes) in [("ann", true), ("bob", true), ("ann", false)] {
        let Ok(limit) = users.at(user);
        assert_eq!(limit.try_acquire(1).await.is_pass(), passes);
    }
    assert_eq!((seen.stats().passed, seen.stats().refused), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn what_passes_only_in_shadow_mode_is_an_event_of_its_own() {
    let switch = Switch::new().with_mode(Mode::Shadow);
    let (limit, seen) = observed(bucket(2).shared().switched(&switch));
    for cost in [2, 1, 3] {
        assert!(limit.try_acquire(cost).await.is_pass());
    }
    limit.acquire(1).await.unwrap();
    assert_eq!(stream::iter([1]).pace(limit.clone()).count().await, 1);
    jump(ms(200)).await;
    assert!(limit.try_acquire(2).await.is_pass());
    assert_eq!(
        seen.lines(),
        [
            "passed 2 after 0ns",
            "shadowed 1 after 0ns for Some(100ms)",
            "shadowed 3 after 0ns for None",
            "shadowed 1 after 0ns for Some(100ms)",
            "shadowed 1 after 0ns for Some(100ms)",
            "passed 2 after 0ns",
        ]
    );
    assert_eq!(switch.stats().held_back, 4);

    let users = Observed::new(bucket(2).keyed().switched(&switch), seen);
    for _ in 0..2 {
        users.acquire("ann", 2).await.unwrap();
    }
    assert_eq!(
        seen.lines(),
        ["passed 2 after 0ns", "shadowed 2 after 0ns for Some(200ms)"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_let_through_by_shadow_mode_has_waited() {
    let switch = Switch::new();
    let (limit, seen) = observed(bucket(2).shared().switched(&switch));
    assert!(limit.try_acquire(2).await.is_pass());
    let passed = spawned([limit.acquire(2)]);
    sleep(30).await;
    switch.set_mode(Mode::Shadow);
    assert_eq!(passed.await, [30]);
    let shadowed = "shadowed 2 after 30ms for Some(170ms)";
    assert_eq!(seen.lines(), ["passed 2 after 0ns", shadowed]);
}
