use std::collections::HashMap;
use std::error::Error;
use std::hash::Hash;
use std::num::ParseIntError;

use futures::{StreamExt, stream};
use paceline::limiter::{Keyed, KeyedAt, Limits};
use paceline::policy::{Interval, TokenBucket};
use paceline::prelude::*;
use paceline::time::Rate;
use testkit::clock::jump;
use testkit::wakes::Driven;

use crate::timed::{assert_left, drained, ms};

/// Limits that refuse odd keys.
pub(crate) struct EvenKeys<K>(pub(crate) Keyed<K, Interval>);

impl<K: Copy + Eq + Hash + Into<u64>> Limits<K> for EvenKeys<K> {
    type Limit = KeyedAt<K, Interval>;
    type Error = ParseIntError;

    fn at(&self, key: K) -> Result<Self::Limit, ParseIntError> {
        match key.into() % 2 {
            0 => Ok(self.0.at(key)),
            _ => Err("odd".parse::<u8>().unwrap_err()),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn of_ten_thousand_keys_each_with_its_own_limit_no_wait_holds_up_another() {
    const KEYS: u64 = 10_000;
    let limits = Keyed::by(|key: &u64| Interval::every(ms(key % 97 + 1)));
    let input = stream::iter((0..3).flat_map(|round| (0..KEYS).map(move |key| (key, round))));

    let left = drained(input.pace_by_key(limits, |(key, _)| *key, 30_000)).await;
    assert_eq!(left.items.len(), 30_000);
    for (at, (key, round)) in left.items {
        assert_eq!(at, round * (key % 97 + 1), "round {round} of key {key}");
    }
}

#[tokio::test(start_paused = true)]
async fn items_of_a_key_stay_in_order_and_keys_take_turns() {
    let limits = TokenBucket::new(Rate::new(1, ms(100)), 3).keyed();
    let input = stream::iter((1..=3).map(|n| ('a', n)).chain((1..=3).map(|n| ('b', n))));

    let left = drained(input.pace_by_key(limits, |(key, _)| *key, 10)).await;
    let order: String = left.items.iter().map(|(_, (key, _))| key).collect();
    assert_eq!(order, "ababab");
    let mut last = HashMap::new();
    for (_, (key, n)) in left.items {
        assert_eq!(last.insert(key, n).unwrap_or(0) + 1, n);
    }
}

#[tokio::test(start_paused = true)]
async fn into_parts_returns_the_items_in_order_of_arrival() {
    let limits = Interval::every(ms(100)).keyed();
    let items = [('a', 0), ('a', 1), ('b', 2), ('a', 3), ('b', 4), ('c', 5)];
    let mut paced = stream::iter(items).pace_by_key(limits, |(key, _)| *key, 5);
    assert_eq!(paced.next().await, Some(('a', 0)));
    assert_eq!(paced.next().await, Some(('b', 2)));

    let (rest, held) = paced.into_parts();
    assert_eq!(held, [('a', 1), ('a', 3), ('b', 4), ('c', 5)]);
    assert_eq!(rest.collect::<Vec<_>>().await, []);
}

#[tokio::test(start_paused = true)]
async fn only_keys_that_were_woken_are_looked_at() {
    let limits = Keyed::by(|key: &u64| Interval::every(ms(*key)));
    let items = (1..=1_000).flat_map(|key| [key, key]);
    let mut paced = Driven::new(stream::iter(items).pace_by_key(limits, |key| *key, 2_000));
    for _ in 0..1_000 {
        while paced.poll_next().is_pending() {}
    }
    while paced.is_woken() {
        assert!(paced.poll_next().is_pending());
    }
    let wakes = paced.wakes();
    jump(ms(1)).await;
    tokio::task::yield_now().await;
    assert_eq!(paced.wakes(), wakes + 1);
    assert!(paced.poll_next().is_ready());
    assert!(paced.poll_next().is_pending());
}

#[tokio::test(start_paused = true)]
async fn an_item_whose_key_has_no_limit_is_given_back_at_once() {
    let limits = EvenKeys(Interval::every(ms(100)).keyed());
    let input = stream::iter([(2_u32, 'a'), (2, 'b'), (3, 'c'), (2, 'd')]);
    let paced = input.try_pace_by_key(limits, |(key, _)| *key, 2);
    let left = drained(paced.map(|item| {
        item.map(|(_, letter)| letter).map_err(|no_limit| {
            assert_eq!(no_limit.to_string(), "the key has no limit");
            let source = no_limit.source().unwrap().to_string();
            assert_eq!(source, no_limit.error().to_string());
            no_limit.into_item().1
        })
    }));
    // There is room for two, so the third is taken when the first has left.
    let expected = [(0, Ok('a')), (0, Err('c')), (100, Ok('b')), (200, Ok('d'))];
    assert_left(&left.await, expected, 200);
}
