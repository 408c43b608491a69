//! A limit for each key and one for all keys together.

use std::collections::HashMap;

use futures::{StreamExt, stream};
use paceline::limiter::{Event, Keyed, Limits, Shared, Switch, WithTotal};
use paceline::policy::{Decision, FixedWindow, Interval};
use paceline::prelude::*;
use std::sync::mpsc;

use super::{bucket, queued, remaining, spawned, too_costly, wait};
use crate::timed::{drained, ms, now, since};

/// Both limits, as a test reads them, and the limits of them.
type Parts<P> = (
    Keyed<&'static str, P>,
    Shared<P>,
    WithTotal<&'static str, P, P>,
);

/// So many permits for each key and for all keys, in each second.
fn windows(each: u32, all: u32) -> Parts<FixedWindow> {
    let users = FixedWindow::new(each, ms(1_000)).keyed();
    let total = FixedWindow::new(all, ms(1_000)).shared();
    let both = users.clone().with_total(total.clone());
    (users, total, both)
}

#[tokio::test(start_paused = true)]
async fn a_stream_keeps_each_key_and_all_keys_apart() {
    let users = Interval::every(ms(300)).keyed();
    let limits = users.with_total(Interval::every(ms(100)).shared());
    let calls = ["ann", "ann", "ann", "bob", "bob", "eve"];
    let left = drained(stream::iter(calls).pace_by_key(limits, |user| *user, 10)).await;
    let expected = [
        (0, "ann"),
        (100, "bob"),
        (200, "eve"),
        (300, "ann"),
        (400, "bob"),
        (600, "ann"),
    ];
    assert_eq!((left.items, left.end), (expected.to_vec(), 600));
}

#[tokio::test(start_paused = true)]
async fn where_the_total_binds_it_is_used_up_and_each_key_keeps_its_own_limit() {
    let users = Interval::every(ms(300)).keyed();
    let limits = users.with_total(Interval::every(ms(100)).shared());
    let calls = stream::iter((0..40_u32).map(|number| number / 8));
    let left = drained(calls.pace_by_key(limits, |user| *user, 40)).await;

    let mut last = HashMap::new();
    for (number, (at, user)) in (0..).zip(left.items) {
        assert_eq!(at, number * 100);
        let before = last.insert(user, at);
        assert!(
            before.is_none_or(|before| at >= before + 300),
            "{user} at {at}"
        );
    }
    assert_eq!(left.end, 3_900);
}

#[tokio::test(start_paused = true)]
async fn a_key_above_its_limit_holds_up_no_other_key() {
    let users = Interval::every(ms(1_000)).keyed::<u32>();
    let limits = users.with_total(Interval::every(ms(10)).shared());
    let passed = spawned([0, 0, 0, 1, 2, 0, 3].map(|user| limits.acquire(user, 1)));
    assert_eq!(passed.await, [0, 1_000, 2_000, 10, 20, 3_000, 30]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_refused_takes_nothing_from_either() {
    let (users, total, both) = windows(3, 4);
    assert!(both.at("ann").try_acquire(3).await.is_pass());
    assert_eq!(
        both.at("ann").try_acquire(1).await,
        wait(1_000),
        "of its own limit"
    );
    assert_eq!(remaining(&total), 1);
    assert_eq!(
        both.at("bob").try_acquire(2).await,
        wait(1_000),
        "of the total"
    );
    assert_eq!(users.status(&"bob").unwrap().remaining, 3);
    let never = both.at("bob").try_acquire(4).await;
    assert_eq!(never, Decision::Never { capacity: 3 });
    let never = both.acquire("bob", 5).await.unwrap_err();
    assert_eq!(too_costly(never), (5, 3));
    assert!(both.clone().at("bob").try_acquire(1).await.is_pass());
    assert_eq!(
        (remaining(&total), users.status(&"bob").unwrap().remaining),
        (0, 2)
    );

    let counted = [users.stats(), total.stats()].map(|stats| (stats.passed, stats.refused));
    assert_eq!(counted, [(2, 4); 2]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_gives_up_leaves_both_queues_and_its_key() {
    let (users, total, both) = windows(2, 1);
    assert!(total.try_acquire(1).is_pass());
    let waits = queued(both.acquire_one("ann"));
    assert_eq!((total.waiting(), users.stats().waiting), (1, 1));
    drop(waits);
    assert_eq!((total.waiting(), users.stats().waiting), (0, 0));
    assert_eq!(
        (users.len(), users.status(&"ann").unwrap().remaining),
        (0, 2)
    );

    let mut paced = Box::pin(stream::iter(["ann", "bob"]).pace_by_key(both, |user| *user, 2));
    drop(queued(paced.next()));
    assert_eq!(total.waiting(), 2, "the stream holds its items");
    drop(paced);
    assert_eq!((total.waiting(), users.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn what_holds_for_one_part_is_felt_by_requests_for_both() {
    let (users, total, both) = windows(2, 9);
    let start = now();
    total.pause_for(ms(300));
    users.with(&"bob", |bob| bob.pause_for(ms(700)));
    let passed = spawned(["ann", "bob"].map(|user| both.acquire(user, 1)));
    assert_eq!(passed.await, [300, 700]);
    assert_eq!(since(start), 700);
}

#[tokio::test(start_paused = true)]
async fn an_observer_of_the_total_sees_the_requests_of_all_keys() {
    let (sender, events) = mpsc::channel();
    let total = bucket(2).shared();
    let total = total.with_observer(move |event: Event| sender.send(event).unwrap());
    let both = bucket(2).keyed().with_total(total).switched(&Switch::new());
    for user in ["ann", "bob"] {
        both.acquire_one(user).await;
    }
    let Ok(eve) = both.at("eve");
    assert!(!eve.try_acquire(1).await.is_pass());
    let passed = |event: Event| matches!(event, Event::Passed { .. });
    let passed: Vec<_> = events.try_iter().map(passed).collect();
    assert_eq!(passed, [true, true, false]);
}

#[test]
fn no_key_is_printed() {
    let (users, _, both) = windows(2, 9);
    assert!(users.try_acquire(&"secret", 1).is_pass());
    let printed = format!("{both:?}");
    assert!(printed.starts_with("WithTotal { keys: Keyed"), "{printed}");
    assert!(!printed.contains("secret"), "{printed}");
}
