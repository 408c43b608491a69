use std::error::Error;

use futures::{Stream, StreamExt, stream};
use paceline::limiter::Keyed;
use paceline::policy::{Interval, TokenBucket};
use paceline::prelude::*;
use paceline::time::Rate;
use testkit::probe;
use testkit::wakes::Driven;

use super::pace_by_key::EvenKeys;
use crate::timed::{arriving, assert_left, drained, ms};

/// A token each 100 ms, at most `burst`, for each key.
fn buckets(burst: u32) -> Keyed<char, TokenBucket> {
    TokenBucket::new(Rate::new(1, ms(100)), burst).keyed()
}

#[tokio::test(start_paused = true)]
async fn each_key_waits_for_the_tokens_that_it_misses_and_for_no_other_key() {
    let mut asked = 0;
    let cost_of = |(_, cost): &(char, u32)| {
        asked += 1;
        *cost
    };
    let input = stream::iter([('a', 3), ('a', 2), ('b', 1), ('a', 1), ('b', 3)]);
    let paced = input.pace_by_key_and_cost(buckets(3), |(key, _)| *key, cost_of, 9);

    let left = drained(paced.map(Result::unwrap)).await;
    let of_b = [(0, ('b', 1)), (100, ('b', 3))];
    let of_a = [(200, ('a', 2)), (300, ('a', 1))];
    let expected = [(0, ('a', 3))].into_iter().chain(of_b).chain(of_a);
    assert_left(&left, expected, 300);
    assert_eq!(asked, 5, "once for each item");
}

#[tokio::test(start_paused = true)]
async fn an_item_of_cost_0_passes_at_once_but_not_before_those_of_its_key() {
    let input = stream::iter([('a', 3), ('a', 1), ('a', 0), ('b', 0)]);
    let paced = input.pace_by_key_and_cost(buckets(3), |(key, _)| *key, |(_, cost)| *cost, 9);

    let left = drained(paced.map(Result::unwrap)).await;
    let at_once = [(0, ('a', 3)), (0, ('b', 0))];
    let in_turn = [(100, ('a', 1)), (100, ('a', 0))];
    assert_left(&left, at_once.into_iter().chain(in_turn), 100);
}

#[tokio::test(start_paused = true)]
async fn an_item_that_is_too_costly_is_returned_in_its_turn_and_its_key_goes_on() {
    let input = stream::iter([('a', 3), ('a', 1), ('a', 4), ('a', 2)]);
    let paced = input.pace_by_key_and_cost(buckets(3), |(key, _)| *key, |(_, cost)| *cost, 9);
    let left = drained(paced.map(|item| {
        item.map_err(|refused| {
            let too_costly = refused.too_costly().unwrap();
            assert_eq!((too_costly.cost(), too_costly.capacity()), (4, 3));
            assert_eq!(refused.no_limit(), None);
            let message = "a cost of 4 can never pass a limit of 3 at once";
            assert_eq!(refused.to_string(), message);
            let debug =
                "PaceByKeyError { cause: TooCostly(TooCostly { cost: 4, capacity: 3, .. }), .. }";
            assert_eq!(format!("{refused:?}"), debug, "without the item");
            refused.into_item()
        })
    }));
    let expected = [
        (0, Ok(('a', 3))),
        (100, Ok(('a', 1))),
        (100, Err(('a', 4))),
        (300, Ok(('a', 2))),
    ];
    assert_left(&left.await, expected, 300);
}

#[tokio::test(start_paused = true)]
async fn an_item_whose_key_has_no_limit_is_returned_when_it_arrives() {
    let limits = EvenKeys(Interval::every(ms(100)).keyed());
    let input = arriving([(0, (2_u64, 3)), (0, (2, 1)), (50, (7, 2))], 50);
    let paced = input.pace_by_key_and_cost(limits, |(key, _)| *key, |(_, cost)| *cost, 9);
    let left = drained(paced.map(|item| {
        item.map_err(|refused| {
            assert_eq!(refused.to_string(), "the key has no limit");
            assert_eq!(refused.too_costly(), None);
            assert!(refused.no_limit().is_some() && refused.source().is_some());
            refused.into_item()
        })
    }));
    let expected = [(0, Ok((2, 3))), (50, Err((7, 2))), (300, Ok((2, 1)))];
    assert_left(&left.await, expected, 300);
}

#[tokio::test(start_paused = true)]
async fn at_most_the_given_number_of_items_is_held_whatever_they_cost() {
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
