//! Adapters that pass an item at once or not at all.

use std::future::ready;

use futures::{FutureExt, StreamExt, stream};
use paceline::limiter::Shared;
use paceline::policy::AnyPolicy;
use paceline::prelude::*;
use testkit::clock::jump;

use super::{Items, policy, sent};
use crate::timed::{arriving, assert_left_by, drained, ms};

type Adapter = fn(Items, Shared<AnyPolicy>) -> Items;

/// What passes.
const ADAPTERS: [(&str, Adapter); 4] = [
    ("enforce", |items, limit| {
        let answers = items.enforce(limit);
        answers.filter_map(|answer| ready(answer.ok())).boxed()
    }),
    ("shed", |items, limit| items.shed(limit).boxed()),
    ("enforce_sends", |items, limit| {
        sent(items, |outlet| outlet.enforce_sends(limit))
    }),
    ("shed_sends", |items, limit| {
        sent(items, |outlet| outlet.shed_sends(limit))
    }),
];

#[tokio::test(start_paused = true)]
async fn an_item_that_comes_too_soon_does_not_pass_and_takes_no_permit() {
    for (name, adapter) in ADAPTERS {
        let limit = policy("every 100ms").shared();
        let arrivals = [0, 0, 99, 100, 250, 349, 350].into_iter().zip(1..);
        let passed = drained(adapter(arriving(arrivals, 400).boxed(), limit.clone())).await;
        assert_left_by(name, &passed, [(0, 1), (100, 4), (250, 5), (350, 7)], 400);
        assert_eq!(limit.stats().passed, 4);
        jump(ms(50)).await;
        assert!(limit.try_acquire(1).is_pass());
    }
}

#[tokio::test(start_paused = true)]
async fn no_item_overtakes_a_queued_waiter() {
    for (name, adapter) in ADAPTERS {
        let limit = policy("every 100ms").shared();
        limit.acquire(1).await.unwrap();
        let mut waits = limit.acquire(1);
        assert!((&mut waits).now_or_never().is_none());
        jump(ms(150)).await;

        let passed = adapter(stream::iter(0..3).boxed(), limit.clone());
        assert_eq!(passed.count().await, 0, "{name}");
        waits.now_or_never().unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_wake_up_is_no_reason_to_refuse_or_to_pass_two() {
    for (name, adapter) in ADAPTERS {
        let items = arriving([(0, 1), (100, 2), (110, 3)], 110).boxed();
        let mut passed = adapter(items, policy("every 100ms").shared());
        assert_eq!(passed.next().await, Some(1), "{name}");
        assert!(passed.next().now_or_never().is_none());
        jump(ms(180)).await;
        assert_eq!(passed.collect::<Vec<_>>().await, [2], "{name}");
    }
}
