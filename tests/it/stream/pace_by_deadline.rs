//! Items with deadlines: the earliest goes first, and what cannot make it is given back.

use std::convert::Infallible;

use fastrand::Rng;
use futures::stream::StreamExt;
use paceline::limiter::{Event, Limiter, Observed};
use paceline::policy::AnyPolicy;
use paceline::prelude::*;
use paceline::stream::Late;
use tokio::time::Instant;

use crate::judge::{Rule, most};
use crate::timed::{arriving, drained, ms, now, since, sleep};

type Item = (&'static str, u64);

/// What left and when; `Err` if it was late.
async fn sent<L>(
    items: &[(u64, Item)],
    limit: L,
    held: usize,
) -> Vec<(u64, Result<&'static str, &'static str>)>
where
    L: Limiter<Error = Infallible>,
{
    let start = now();
    let end = items.last().map_or(0, |item| item.0);
    let input = arriving(items.to_vec(), end);
    let paced = input.pace_by_deadline(limit, deadline_from(start), held);
    let left = drained(paced).await;
    let name = |late: Late<Item>| late.into_item().0;
    let items = left.items.into_iter();
    items
        .map(|(at, item)| (at, item.map(|item| item.0).map_err(name)))
        .collect()
}

fn deadline_from(start: Instant) -> impl Fn(&Item) -> Instant {
    move |(_, at)| start + ms(*at)
}

const EVERY: Interval = Interval::every(ms(100));

#[tokio::test(start_paused = true)]
async fn the_earliest_deadline_goes_first_and_equal_ones_in_order() {
    let items = [
        (0, ("d", 900)),
        (0, ("a", 50)),
        (0, ("b", 300)),
        (0, ("c", 300)),
        (150, ("e", 200)),
    ];
    let left = sent(&items, EVERY.owned(), 9).await;
    assert_eq!(
        left,
        [
            (0, Ok("a")),
            (100, Ok("b")),
            (200, Ok("e")),
            (300, Ok("c")),
            (400, Ok("d"))
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn an_item_that_cannot_make_it_is_given_back_when_that_is_known() {
    // When it comes, or when a more urgent one does. To leave at the deadline is in time.
    let items = [
        (0, ("a", 0)),
        (0, ("b", 99)),
        (0, ("c", 200)),
        (0, ("d", 200)),
        (50, ("e", 150)),
        (60, ("f", 99)),
    ];
    let left = sent(&items, EVERY.owned(), 9).await;
    let expected = [
        (0, Err("b")),
        (0, Ok("a")),
        (50, Err("d")),
        (60, Err("f")),
        (100, Ok("e")),
        (200, Ok("c")),
    ];
    assert_eq!(left, expected);
}

#[tokio::test(start_paused = true)]
async fn requests_of_others_that_are_queued_go_before() {
    let limit = EVERY.shared();
    limit.acquire_one().await;
    let others = [limit.acquire_owned(1), limit.acquire_owned(1)].map(tokio::spawn);
    sleep(1).await;
    let items = [(0, ("a", 298)), (0, ("b", 299)), (0, ("c", 398))];
    let left = sent(&items, limit, 9).await;
    assert_eq!(left, [(0, Err("a")), (0, Err("c")), (299, Ok("b"))]);
    for other in others {
        other.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_gives_back_what_it_makes_late() {
    let limit = EVERY.shared();
    let paused = limit.clone();
    tokio::spawn(async move {
        sleep(50).await;
        paused.pause_for(ms(300));
    });
    let items = [
        (0, ("a", 0)),
        (0, ("b", 349)),
        (0, ("c", 350)),
        (0, ("d", 440)),
        (0, ("e", 450)),
    ];
    let left = sent(&items, limit, 9).await;
    assert_eq!(
        left,
        [
            (0, Ok("a")),
            (100, Err("b")),
            (100, Err("d")),
            (350, Ok("c")),
            (450, Ok("e"))
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn before_a_limiter_that_cannot_foresee_an_item_is_given_back_at_its_deadline() {
    let limit = Observed::new(EVERY.shared(), |_: Event| {});
    let items = [
        (0, ("a", 0)),
        (0, ("b", 40)),
        (0, ("c", 100)),
        (0, ("d", 150)),
    ];
    let left = sent(&items, limit, 9).await;
    assert_eq!(
        left,
        [
            (0, Ok("a")),
            (41, Err("b")),
            (100, Ok("c")),
            (151, Err("d"))
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn without_an_item_it_leaves_the_queue() {
    let limit = EVERY.shared();
    limit.acquire_one().await;
    let start = now();
    let items = arriving([(0, 40)], 1_000);
    let limiter = Observed::new(limit.clone(), |_: Event| {});
    let paced = items.pace_by_deadline(limiter, |at| start + ms(*at), 9);
    let waits = async {
        sleep(10).await;
        limit.acquire_one().await;
        since(start)
    };
    let (left, passed_at) = futures::join!(drained(paced), waits);
    assert_eq!((left.items[0].0, passed_at), (41, 100));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_is_over_and_one_without_end_are_deadlines() {
    let start = now();
    sleep(10).await;
    let far = start + ms(10_u64.pow(12));
    let items = futures::stream::iter([far, start, start + ms(10)]);
    let mut paced = items.pace_by_deadline(Interval::every(Duration::MAX).owned(), |at| *at, 9);
    assert_eq!(paced.next().await.unwrap().unwrap_err().deadline(), start);
    assert_eq!(paced.next().await.unwrap().unwrap_err().into_item(), far);
    assert_eq!(paced.next().await.unwrap().unwrap(), start + ms(10));
    assert_eq!((paced.next().await, since(start)), (None, 10));
}

#[tokio::test(start_paused = true)]
async fn no_order_that_leaves_no_permit_unused_meets_more_deadlines() {
    let mut late = 0;
    for seed in 0..1_500 {
        let mut random = Rng::with_seed(seed);
        let rule = match random.u8(..3) {
            0 => Rule::Every(random.u64(1..8)),
            1 => Rule::Log(random.usize(1..4), random.u64(2..12)),
            _ => Rule::Bucket(random.u64(1..8), random.u64(1..4)),
        };
        let mut at = 0;
        let items: Vec<(u64, u64)> = (0..random.usize(2..8))
            .map(|_| {
                at += random.u64(0..4);
                (at, at + random.u64(0..16))
            })
            .collect();
        let limit: AnyPolicy = rule.text().parse().unwrap();
        let start = now();
        let input = arriving(items.iter().map(|item| (item.0, *item)), at);
        let deadline = move |item: &(u64, u64)| start + ms(item.1);
        let left = if random.bool() {
            drained(input.pace_by_deadline(limit.owned(), deadline, 9)).await
        } else {
            drained(input.pace_by_deadline(limit.shared(), deadline, 9)).await
        };
        assert_eq!(left.items.len(), items.len(), "{seed}: nothing is lost");
        let mut met = 0;
        for (at, item) in &left.items {
            if let Ok((_, deadline)) = item {
                met += 1;
                assert!(at <= deadline, "{seed}: {item:?} at {at}");
            }
        }
        let best = most(rule, &items);
        assert_eq!(met, best, "{seed}: {rule:?} {items:?} {left:?}");
        late += items.len() - met;
    }
    assert!(late > 500, "{late}");
}
