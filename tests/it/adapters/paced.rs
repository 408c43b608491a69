//! Adapters that pace, of which each asks a limit for a permit for each item.

use futures::stream;
use futures::{FutureExt, StreamExt};
use paceline::policy::AnyPolicy;
use paceline::prelude::*;
use testkit::clock::{jump, paused_runtime};

use super::{Items, policy, sent};
use crate::timed::{arriving, assert_left_by, drained, ms, now, since, sleep};

type Adapter = fn(Items, AnyPolicy) -> Items;

const STREAMS: [(&str, Adapter); 8] = [
    ("pace", |items, limit| items.pace(limit.owned()).boxed()),
    ("pace, shared", |items, limit| {
        items.pace(limit.shared()).boxed()
    }),
    ("pace_by_cost", |items, limit| {
        let paced = items.pace_by_cost(limit.owned(), |_| 1);
        paced.map(Result::unwrap).boxed()
    }),
    ("pace_by_deadline", |items, limit| {
        let never = now() + ms(1_000_000);
        let paced = items.pace_by_deadline(limit.shared(), move |_| never, 9);
        paced.map(Result::unwrap).boxed()
    }),
    ("pace_batches", |items, limit| {
        let batches = items.pace_batches(limit.owned(), 1);
        batches.map(|batch| batch[0]).boxed()
    }),
    ("pace_by_key", |items, limit| {
        items.pace_by_key(limit.keyed(), |_| (), 9).boxed()
    }),
    ("try_pace_by_key", |items, limit| {
        let paced = items.try_pace_by_key(limit.keyed(), |_| (), 9);
        paced.map(Result::unwrap).boxed()
    }),
    ("pace_by_key_and_cost", |items, limit| {
        let paced = items.pace_by_key_and_cost(limit.keyed(), |_| (), |_| 1, 9);
        paced.map(Result::unwrap).boxed()
    }),
];

/// They do not say how many items are to come.
const OTHERS: [(&str, Adapter); 3] = [
    ("try_pace", |items, limit| {
        items.try_pace(limit.owned()).map(|Ok(item)| item).boxed()
    }),
    ("pace_sends", |items, limit| {
        sent(items, |outlet| outlet.pace_sends(limit.owned()))
    }),
    ("pace_sends_by_cost", |items, limit| {
        sent(items, |outlet| {
            outlet.pace_sends_by_cost(limit.owned(), |_| 1)
        })
    }),
];

fn adapters() -> impl Iterator<Item = (&'static str, Adapter)> {
    STREAMS.into_iter().chain(OTHERS)
}

#[tokio::test(start_paused = true)]
async fn items_leave_when_the_limit_allows_it_and_the_end_with_the_last() {
    /// The limit, when items arrive and the input ends, and when they leave.
    type Case = (&'static str, &'static [u64], u64, &'static [u64]);
    let saves_nothing_up_while_quiet: Case = (
        "every 100ms",
        &[0, 0, 1_000, 1_000],
        1_000,
        &[0, 100, 1_000, 1_100],
    );
    let passes_its_burst_then_its_rate: Case = (
        "1/200ms burst 5",
        &[0, 0, 0, 0, 0, 0, 700, 700, 700, 700],
        700,
        &[0, 0, 0, 0, 0, 200, 700, 700, 800, 1_000],
    );
    let passes_nothing_before_its_first_interval: Case =
        ("every 100ms delayed", &[0, 0], 500, &[100, 200]);
    let is_no_limit: Case = ("every 0ns", &[0, 0, 70, 70], 100, &[0, 0, 70, 70]);
    for (limit, arrivals, end, leave) in [
        saves_nothing_up_while_quiet,
        passes_its_burst_then_its_rate,
        passes_nothing_before_its_first_interval,
        is_no_limit,
    ] {
        for (name, adapter) in adapters() {
            let items = arriving(arrivals.iter().copied().zip(0..), end).boxed();
            let paced = adapter(items, policy(limit));
            sleep(77).await; // built, and not polled yet
            let expected = leave.iter().copied().zip(0..);
            let last = leave.last().copied().unwrap();
            let case = format!("{name} over {limit}");
            assert_left_by(&case, &drained(paced).await, expected, last.max(end));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_timer_or_consumer_moves_the_slots_of_an_interval_and_keeps_the_grid_of_a_bucket() {
    for (limit, at_once, later) in [
        ("every 100ms", 1, [180, 280]),
        ("1/100ms burst 2", 2, [180, 200]),
    ] {
        for (name, adapter) in adapters() {
            for the_timer_is_late in [true, false] {
                let start = now();
                let mut paced = adapter(stream::iter(0..4).boxed(), policy(limit));
                for _ in 0..at_once {
                    paced.next().await;
                }
                assert_eq!(since(start), 0, "{name}");
                assert!(paced.next().now_or_never().is_none(), "{name}");
                if the_timer_is_late {
                    jump(ms(180)).await;
                } else {
                    sleep(180).await;
                }
                for at in later {
                    paced.next().await;
                    assert_eq!(since(start), at, "{name} over {limit}");
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_item_held_is_counted_in_the_size_hint() {
    for (name, adapter) in STREAMS {
        let mut paced = adapter(stream::iter(0..3).boxed(), policy("every 100ms"));
        assert_eq!(paced.size_hint(), (3, Some(3)), "{name}");
        paced.next().await;
        assert!(paced.next().now_or_never().is_none());
        assert_eq!(paced.size_hint(), (2, Some(2)), "{name}");
    }
}

#[test]
fn can_be_built_outside_a_runtime_and_run_in_one_later() {
    for (name, adapter) in adapters() {
        let paced = adapter(stream::iter(0..2).boxed(), policy("every 100ms"));
        let left = paused_runtime().block_on(drained(paced));
        assert_left_by(name, &left, [(0, 0), (100, 1)], 100);
    }
}
