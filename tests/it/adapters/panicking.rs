//! Functions of an item (its cost, its key, its weight, its class) that panic.

use std::fmt::Debug;
use std::future::ready;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use futures::channel::mpsc;
use futures::{FutureExt, SinkExt, Stream, StreamExt, stream};
use paceline::concurrency::Permits;
use paceline::limiter::Share;
use paceline::policy::Unlimited;
use paceline::prelude::*;
use paceline::retry::{Failure, Retry, RetryBudget};

use super::Items;
use crate::stream::shed_by::Slow;
use crate::timed::{ms, now};

const WINDOW: Duration = Duration::from_secs(1);

/// A function that panics when it is first called with item 2.
fn panics_once() -> impl FnMut(&u32) -> u32 {
    let mut has_panicked = false;
    move |item| {
        if *item == 2 && !has_panicked {
            has_panicked = true;
            panic!("the function panics");
        }
        1
    }
}

/// Polls until the end or a panic. Returns what was emitted, and whether the end came.
fn polled<S: Stream + Unpin>(adapter: &mut S) -> (Vec<S::Item>, bool) {
    let mut emitted = Vec::new();
    loop {
        match catch_unwind(AssertUnwindSafe(|| adapter.next().now_or_never())) {
            Ok(Some(Some(item))) => emitted.push(item),
            Ok(Some(None)) => return (emitted, true),
            Ok(None) => panic!("nothing limits the items"),
            Err(_) => return (emitted, false),
        }
    }
}

fn check<S, T>(
    name: &str,
    build: impl Fn(Items) -> S,
    items: impl Fn(S::Item) -> Vec<u32>,
    into_parts: impl Fn(S) -> (Items, T),
) where
    S: Stream + Unpin,
    T: IntoIterator<Item = u32>,
{
    let items = |emitted: Vec<S::Item>| emitted.into_iter().flat_map(&items).collect::<Vec<_>>();

    let mut adapter = build(stream::iter(1..=3).boxed());
    let (before, ended) = polled(&mut adapter);
    assert!(!ended, "{name} called no function");
    let (least, most) = adapter.size_hint();
    let (after, ended) = polled(&mut adapter);
    assert!(ended, "{name}");
    assert!(least <= after.len(), "{name}");
    assert!(most.is_none_or(|most| after.len() <= most), "{name}");
    assert_eq!([items(before), items(after)].concat(), [1, 2, 3], "{name}");

    let mut adapter = build(stream::iter(1..=3).boxed());
    let (before, _) = polled(&mut adapter);
    let (input, held) = into_parts(adapter);
    let held: Vec<u32> = held.into_iter().collect();
    let rest = input.collect::<Vec<_>>().now_or_never().unwrap();
    assert_eq!([items(before), held, rest].concat(), [1, 2, 3], "{name}");
}

fn ok<T, E: Debug>(item: Result<T, E>) -> Vec<T> {
    vec![item.unwrap()]
}

#[tokio::test(start_paused = true)]
async fn an_item_whose_function_panics_is_kept_and_comes_with_the_next_poll() {
    let limits = || Unlimited.keyed();
    check(
        "pace_by_cost",
        |items| items.pace_by_cost(Unlimited.owned(), panics_once()),
        ok,
        |adapter| adapter.into_parts(),
    );
    check(
        "pace_by_deadline",
        |items| {
            let mut soon = panics_once();
            let deadline = move |item: &u32| now() + ms(soon(item).into());
            items.pace_by_deadline(Unlimited.owned(), deadline, 9)
        },
        ok,
        |adapter| adapter.into_parts(),
    );
    check(
        "retry",
        |items| {
            let mut key_of = panics_once();
            let sent = items.concurrent(Permits::new(1), |_| ready(Ok::<(), ()>(())));
            let retry = Retry::new(RetryBudget::new(1, Share::NONE));
            let sent = sent.retry(retry, |()| Failure::Final, 9);
            sent.ordered_by_key(move |item| key_of(item))
        },
        |sent| vec![sent.item],
        |adapter| {
            let (input, held) = adapter.into_parts();
            (
                input,
                held.into_iter().map(|(item, _)| item).collect::<Vec<_>>(),
            )
        },
    );
    check(
        "pace_by_key",
        |items| items.pace_by_key(limits(), panics_once(), 9),
        |item| vec![item],
        |adapter| adapter.into_parts(),
    );
    check(
        "pace_by_key_and_cost",
        |items| items.pace_by_key_and_cost(limits(), |_| 0, panics_once(), 9),
        ok,
        |adapter| adapter.into_parts(),
    );
    check(
        "shed_by",
        |items| {
            let mut class = panics_once();
            items.shed_by(Slow::after(0), move |item| class(item) * 2)
        },
        |item| vec![item],
        |adapter| adapter.into_parts(),
    );
    let weigh = || {
        let mut weigh = panics_once();
        // No two items have room in one group.
        move |item: &u32| 2 * u64::from(weigh(item))
    };
    check(
        "grouped_weighted_within",
        |items| items.grouped_weighted_within(3, WINDOW, weigh()),
        |group| group,
        |adapter| adapter.into_parts(),
    );
    let kept = |held: Vec<Result<u32, ()>>| held.into_iter().flatten().collect::<Vec<_>>();
    check(
        "grouped by weight, of a stream of results",
        |items| {
            let items = items.map(Ok::<u32, ()>).boxed();
            items.try_grouped_weighted_within(3, WINDOW, weigh())
        },
        |group| group.unwrap(),
        |adapter| {
            let (input, held) = adapter.into_parts();
            (input.map(Result::unwrap).boxed(), kept(held))
        },
    );
}

#[tokio::test(start_paused = true)]
async fn an_item_whose_cost_function_panics_in_a_send_is_kept_and_is_sent_by_the_next_poll() {
    let build = || {
        let (outlet, sent) = mpsc::unbounded();
        let mut sink = outlet.pace_sends_by_cost(Unlimited.owned(), panics_once());
        sink.feed(1).now_or_never().unwrap().unwrap();
        let feed = AssertUnwindSafe(|| sink.feed(2).now_or_never());
        assert!(catch_unwind(feed).is_err());
        (sink, sent)
    };

    let (mut sink, sent) = build();
    sink.send(3).await.unwrap();
    drop(sink);
    assert_eq!(sent.collect::<Vec<_>>().await, [1, 2, 3]);

    let (sink, sent) = build();
    let (_, held) = sink.into_parts();
    assert_eq!(held, Some(2));
    assert_eq!(sent.collect::<Vec<_>>().await, [1]);
}
