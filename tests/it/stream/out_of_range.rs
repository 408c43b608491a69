//! A method panics on an argument out of range, and `try_new` returns an error with the same message.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use futures::sink;
use futures::stream::{self, Pending};
use paceline::policy::{Interval, OutOfRange};
use paceline::prelude::*;
use paceline::sink::GroupSends;
use paceline::stream::{
    Debounce, GroupedWeightedWithin, GroupedWithin, PaceBatches, PaceByKey, PaceByKeyAndCost,
    Sample, ThrottleFirst, TryGroupedWeightedWithin, TryGroupedWithin, TryPaceByKey,
};

const D: Duration = Duration::from_millis(1);
const ZERO: Duration = Duration::ZERO;

fn input() -> Pending<u8> {
    stream::pending()
}

fn results() -> Pending<Result<u8, ()>> {
    stream::pending()
}

const WEIGH: fn(&u8) -> u64 = |item| u64::from(*item);

fn assert_refused<A, B>(
    method: impl FnOnce() -> A,
    adapter: Result<B, OutOfRange>,
    parameter: &str,
    message: &str,
) {
    let error = adapter.err().expect(message);
    assert_eq!(
        (error.parameter(), error.to_string()),
        (parameter, message.to_owned())
    );
    let panic = catch_unwind(AssertUnwindSafe(method)).err().expect(message);
    assert_eq!(
        panic.downcast_ref::<String>().map(String::as_str),
        Some(message)
    );
}

#[test]
fn groups_need_room_for_an_item() {
    let message = "a group needs room for at least 1 item, got 0";
    let group = GroupedWithin::try_new(input(), 0, D);
    assert_refused(|| input().grouped_within(0, D), group, "max", message);
    let group = TryGroupedWithin::try_new(results(), 0, D);
    assert_refused(|| results().try_grouped_within(0, D), group, "max", message);
    let drain = sink::drain::<Vec<u8>>;
    let group = GroupSends::<_, u8>::try_new(drain(), 0, D);
    assert_refused(|| drain().group_sends(0, D), group, "max", message);
}

#[test]
fn groups_need_room_for_a_weight() {
    let message = "a group needs room for a weight of at least 1, got 0";
    let group = GroupedWeightedWithin::try_weighing(input(), 0, D, WEIGH);
    let method = || input().grouped_weighted_within(0, D, WEIGH);
    assert_refused(method, group, "max", message);
    let group = TryGroupedWeightedWithin::try_weighing(results(), 0, D, WEIGH);
    let method = || results().try_grouped_weighted_within(0, D, WEIGH);
    assert_refused(method, group, "max", message);
}

#[test]
fn groups_need_a_window() {
    let message = "a group needs a window of at least 1 ns, got 0";
    let group = GroupedWithin::try_new(input(), 1, ZERO);
    assert_refused(|| input().grouped_within(1, ZERO), group, "window", message);
    let group = TryGroupedWithin::try_new(results(), 1, ZERO);
    assert_refused(
        || results().try_grouped_within(1, ZERO),
        group,
        "window",
        message,
    );
    let group = GroupedWithin::try_weighing(input(), 1, ZERO, WEIGH);
    let method = || input().grouped_weighted_within(1, ZERO, WEIGH);
    assert_refused(method, group, "window", message);
    let group = TryGroupedWithin::try_weighing(results(), 1, ZERO, WEIGH);
    let method = || results().try_grouped_weighted_within(1, ZERO, WEIGH);
    assert_refused(method, group, "window", message);
    let drain = sink::drain::<Vec<u8>>;
    let group = GroupSends::<_, u8>::try_new(drain(), 1, ZERO);
    assert_refused(|| drain().group_sends(1, ZERO), group, "window", message);
}

#[test]
fn batches_and_queues_of_keys_need_room_for_an_item() {
    let limit = || Interval::every(D).owned();
    assert_refused(
        || input().pace_batches(limit(), 0),
        PaceBatches::try_new(input(), limit(), 0),
        "max",
        "a batch needs room for at least 1 item, got 0",
    );
    let limits = || Interval::every(D).keyed();
    let key = |item: &u8| *item;
    assert_refused(
        || input().pace_by_key(limits(), key, 0),
        PaceByKey::try_new(input(), limits(), key, 0),
        "held",
        "pacing by key needs room for at least 1 item, got 0",
    );
    assert_refused(
        || input().try_pace_by_key(limits(), key, 0),
        TryPaceByKey::try_new(input(), limits(), key, 0),
        "held",
        "pacing by key needs room for at least 1 item, got 0",
    );
    let cost = |_: &u8| 1;
    assert_refused(
        || input().pace_by_key_and_cost(limits(), key, cost, 0),
        PaceByKeyAndCost::try_new(input(), limits(), key, cost, 0),
        "held",
        "pacing by key needs room for at least 1 item, got 0",
    );
}

#[test]
fn times_have_to_be_longer_than_zero() {
    assert_refused(
        || input().debounce(ZERO),
        Debounce::try_new(input(), ZERO),
        "delay",
        "`debounce` needs a delay of at least 1 ns, got 0",
    );
    assert_refused(
        || input().sample(ZERO),
        Sample::try_new(input(), ZERO),
        "period",
        "`sample` needs a period of at least 1 ns, got 0",
    );
    assert_refused(
        || input().throttle_first(ZERO),
        ThrottleFirst::try_new(input(), ZERO),
        "quiet",
        "`throttle_first` needs a quiet time of at least 1 ns, got 0",
    );
}

#[tokio::test(start_paused = true)]
async fn the_smallest_arguments_make_the_adapter_that_the_method_makes() {
    use futures::StreamExt;
    let groups = GroupedWithin::try_new(stream::iter(1..=2), 1, D).unwrap();
    assert_eq!(groups.collect::<Vec<_>>().await, [[1], [2]]);
    let ns = Duration::from_nanos(1);
    let groups = GroupedWeightedWithin::try_weighing(stream::iter([2, 1, 1]), 2, ns, |n| *n);
    assert_eq!(
        groups.unwrap().collect::<Vec<_>>().await,
        [vec![2], vec![1, 1]]
    );
    let latest = Debounce::try_new(stream::iter(1..=2), ns).unwrap();
    assert_eq!(latest.collect::<Vec<_>>().await, [2]);
}
