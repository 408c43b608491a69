use std::cell::Cell;
use std::error::Error;

use futures::{FutureExt, Stream, StreamExt, stream};
use paceline::limiter::Keyed;
use paceline::policy::{Interval, TokenBucket};
use paceline::prelude::*;
use paceline::time::Rate;
use testkit::probe;
use testkit::wakes::Driven;

use super::pace_by_key::EvenKeys;
use crate::timed::{arriving, drained, ms};

/// A token each 100 ms, at most `burst`, for each key.
fn buckets(burst: u32) -> Keyed<char, TokenBucket> {
    TokenBucket::new(Rate::new(1, ms(100)), burst).keyed()
}

#[tokio::test(start_paused = true)]
async fn each_key_waits_for_the_tokens_that_it_misses_and_for_no_other_key() {
    let input = stream::iter([('a', 3), ('a', 2), ('b', 1), ('a', 1), ('b', 3)]);

    let paced = input.pace_by_key_and_cost(buckets(3), |(key, _)| *key, |(_, cost)| *cost, 9);
    let left = drained(paced).await.items.into_iter();
    let left: Vec<_> = left.map(|(at, item)| (at, item.unwrap())).collect();
    let expected = [
        (0, ('a', 3)),
        (0, ('b', 1)),
        (100, ('b', 3)),
        (200, ('a', 2)),
        (300, ('a', 1)),
    ];
    assert_eq!(left, expected);
}

#[tokio::test(start_paused = true)]
async fn an_item_that_is_too_costly_is_returned_in_its_turn_and_its_key_goes_on() {
    let input = stream::iter([('a', 3), ('a', 1), ('a', 4), ('a', 2)]);
    let paced = input.pace_by_key_and_cost(buckets(3), |(key, _)| *key, |(_, cost)| *cost, 9);

    let mut left = drained(paced).await.items.into_iter();
    assert_eq!(left.next(), Some((0, Ok(('a', 3)))));
    assert_eq!(left.next(), Some((100, Ok(('a', 1)))));
    let (at, refused) = left.next().unwrap();
    let refused = refused.unwrap_err();
    let too_costly = refused.too_costly().unwrap();
    assert_eq!((at, too_costly.cost(), too_costly.capacity()), (100, 4, 3));
    assert_eq!(refused.no_limit(), None);
    assert_eq!(
        refused.to_string(),
        "a cost of 4 can never pass a limit of 3 at once"
    );
    assert_eq!(refused.into_item(), ('a', 4));
    assert_eq!(left.next(), Some((300, Ok(('a', 2)))));
    assert_eq!(left.next(), None);
}

#[tokio::test(start_paused = true)]
async fn an_item_whose_key_has_no_limit_is_returned_when_it_arrives() {
    let limits = EvenKeys(Interval::every(ms(100)).keyed());
    let input = arriving([(0, (2_u64, 3)), (0, (2, 1)), (50, (7, 2))], 50);
    let paced = input.pace_by_key_and_cost(limits, |(key, _)| *key, |(_, cost)| *cost, 9);

    let mut left = drained(paced).await.items.into_iter();
    assert_eq!(left.next(), Some((0, Ok((2, 3)))));
    let (at, refused) = left.next().unwrap();
    let refused = refused.unwrap_err();
    assert_eq!((at, refused.too_costly()), (50, None));
    assert_eq!(refused.to_string(), "the key has no limit");
    assert!(refused.no_limit().is_some() && refused.source().is_some());
    assert_eq!(refused.into_item(), (7, 2));
    assert_eq!(left.next(), Some((300, Ok((2, 1)))));
}

#[test]
fn an_error_does_not_print_the_item() {
    let input = stream::iter([("secret", 9)]);
    let limits = TokenBucket::new(Rate::per_second(1), 3).keyed();
    let paced = input.pace_by_key_and_cost(limits, |_| (), |(_, cost)| *cost, 1);
    let refused = paced.collect::<Vec<_>>().now_or_never().unwrap().remove(0);
    assert_eq!(
        format!("{:?}", refused.unwrap_err()),
        "PaceByKeyError { cause: TooCostly(TooCostly { cost: 9, capacity: 3, .. }), .. }"
    );
}

#[tokio::test(start_paused = true)]
async fn an_item_of_cost_0_passes_at_once_but_not_before_those_of_its_key() {
    let input = stream::iter([('a', 3), ('a', 1), ('a', 0), ('b', 0)]);
    let paced = input.pace_by_key_and_cost(buckets(3), |(key, _)| *key, |(_, cost)| *cost, 9);

    let left = drained(paced).await.items.into_iter();
    let left: Vec<_> = left.map(|(at, item)| (at, item.unwrap())).collect();
    let expected = [
        (0, ('a', 3)),
        (0, ('b', 0)),
        (100, ('a', 1)),
        (100, ('a', 0)),
    ];
    assert_eq!(left, expected);
}

#[tokio::test(start_paused = true)]
async fn the_cost_of_an_item_is_asked_for_once() {
    let asked = Cell::new(0);
    let cost_of = |cost: &u32| {
        asked.set(asked.get() + 1);
        *cost
    };
    let paced = stream::iter([3, 3, 3]).pace_by_key_and_cost(buckets(3), |_| 'a', cost_of, 9);
    assert_eq!(drained(paced).await.items.len(), 3);
    assert_eq!(asked.get(), 3);
}

#[tokio::test(start_paused = true)]
async fn what_is_held_is_bounded_in_items_whatever_they_cost_and_is_returned_in_order() {
    let (handle, source) = probe::source();
    let mut paced = Driven::new(source.pace_by_key_and_cost(buckets(3), |_| 'a', |_| 3, 3));
    (0..9).for_each(|n| handle.send(n));

    assert!(paced.poll_next().is_ready());
    assert!(paced.poll_next().is_pending());
    let polls = handle.polls();
    assert!(paced.poll_next().is_pending());
    assert_eq!(handle.polls(), polls, "no room, no look");
    let (input, held) = paced.into_inner().into_parts();
    assert_eq!((input.size_hint().0, held), (5, vec![1, 2, 3]));
}
