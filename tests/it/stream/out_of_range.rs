//! A method panics on an argument out of range, and its twin `try_…` returns an error with the same message.

use std::future::ready;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use futures::sink;
use futures::stream::{self, Pending};
use paceline::concurrency::Permits;
use paceline::limiter::{AdditiveIncrease, HoldAndProbe, Share};
use paceline::policy::{Interval, OutOfRange};
use paceline::prelude::*;
use paceline::retry::{Failure, Retry, RetryBudget};
use paceline::sink::GroupSends;
use paceline::stream::{
    Debounce, GroupedWeightedWithin, GroupedWithin, PaceBatches, PaceByDeadline, PaceByKey,
    PaceByKeyAndCost, Retried, Sample, ThrottleFirst, TryGroupedWeightedWithin, TryGroupedWithin,
    TryPaceByKey,
};

use paceline::time::Rate;

use crate::timed::now;

const D: Duration = Duration::from_millis(1);
const ZERO: Duration = Duration::ZERO;

fn input() -> Pending<u8> {
    stream::pending()
}

fn results() -> Pending<Result<u8, ()>> {
    stream::pending()
}

const WEIGH: fn(&u8) -> u64 = |item| u64::from(*item);

/// What the panic of the method says; the parameter that `try_new` names, and what its error says.
type Refusal = (String, &'static str, String);

fn refused<A, B>(method: impl FnOnce() -> A, adapter: Result<B, OutOfRange>) -> Refusal {
    let error = adapter.err().expect("it is out of range");
    let panic = catch_unwind(AssertUnwindSafe(method)).err();
    let panic = panic.expect("it is out of range").downcast::<String>();
    (*panic.unwrap(), error.parameter(), error.to_string())
}

fn assert_refused(parameter: &str, message: &str, refusals: impl IntoIterator<Item = Refusal>) {
    for (panic, named, error) in refusals {
        assert_eq!((&*panic, named, &*error), (message, parameter, message));
    }
}

#[test]
fn groups_need_room_for_an_item_or_a_weight_and_a_window() {
    let groups = |max, window| {
        let drain = sink::drain::<Vec<u8>>;
        [
            refused(
                || input().grouped_within(max, window),
                GroupedWithin::try_new(input(), max, window),
            ),
            refused(
                || results().try_grouped_within(max, window),
                TryGroupedWithin::try_new(results(), max, window),
            ),
            refused(
                || drain().group_sends(max, window),
                GroupSends::<_, u8>::try_new(drain(), max, window),
            ),
        ]
    };
    let by_weight = |max, window| {
        [
            refused(
                || input().grouped_weighted_within(max, window, WEIGH),
                GroupedWeightedWithin::try_weighing(input(), max, window, WEIGH),
            ),
            refused(
                || results().try_grouped_weighted_within(max, window, WEIGH),
                TryGroupedWeightedWithin::try_weighing(results(), max, window, WEIGH),
            ),
        ]
    };
    let message = "a group needs room for at least 1 item, got 0";
    assert_refused("max", message, groups(0, D));
    let message = "a group needs room for a weight of at least 1, got 0";
    assert_refused("max", message, by_weight(0, D));
    let message = "a group needs a window of at least 1 ns, got 0";
    assert_refused("window", message, groups(1, ZERO));
    assert_refused("window", message, by_weight(1, ZERO));
}

#[test]
fn batches_and_queues_of_keys_need_room_for_an_item() {
    let limit = || Interval::every(D).owned();
    let batches = refused(
        || input().pace_batches(limit(), 0),
        PaceBatches::try_new(input(), limit(), 0),
    );
    let message = "a batch needs room for at least 1 item, got 0";
    assert_refused("max", message, [batches]);

    let limits = || Interval::every(D).keyed();
    let (key, cost) = (|item: &u8| *item, |_: &u8| 1);
    let by_key = [
        refused(
            || input().pace_by_key(limits(), key, 0),
            PaceByKey::try_new(input(), limits(), key, 0),
        ),
        refused(
            || input().try_pace_by_key(limits(), key, 0),
            TryPaceByKey::try_new(input(), limits(), key, 0),
        ),
        refused(
            || input().pace_by_key_and_cost(limits(), key, cost, 0),
            PaceByKeyAndCost::try_new(input(), limits(), key, cost, 0),
        ),
    ];
    let message = "pacing by key needs room for at least 1 item, got 0";
    assert_refused("held", message, by_key);

    let soon = |_: &u8| now();
    let by_deadline = refused(
        || input().pace_by_deadline(limit(), soon, 0),
        PaceByDeadline::try_new(input(), limit(), soon, 0),
    );
    let message = "pacing by deadline needs room for at least 1 item, got 0";
    assert_refused("held", message, [by_deadline]);

    let calls = || input().concurrent(Permits::new(1), |_| ready(Ok::<(), ()>(())));
    let retry = || Retry::new(RetryBudget::new(1, Share::NONE));
    let retries = refused(
        || calls().retry(retry(), |()| Failure::Final, 0),
        Retried::try_new(calls(), retry(), |()| Failure::Final, 0),
    );
    let message = "retries need room for at least 1 item, got 0";
    assert_refused("held", message, [retries]);
}

#[test]
fn times_have_to_be_longer_than_zero() {
    let delay = refused(|| input().debounce(ZERO), Debounce::try_new(input(), ZERO));
    let message = "`debounce` needs a delay of at least 1 ns, got 0";
    assert_refused("delay", message, [delay]);
    let period = refused(|| input().sample(ZERO), Sample::try_new(input(), ZERO));
    let message = "`sample` needs a period of at least 1 ns, got 0";
    assert_refused("period", message, [period]);
    let quiet = refused(
        || input().throttle_first(ZERO),
        ThrottleFirst::try_new(input(), ZERO),
    );
    let message = "`throttle_first` needs a quiet time of at least 1 ns, got 0";
    assert_refused("quiet", message, [quiet]);
}

#[test]
fn a_rule_for_a_rate_needs_a_floor_below_its_ceiling_and_numbers_that_it_can_use() {
    let (one, nine) = (Rate::per_second(1), Rate::per_minute(540));
    let rules = [
        refused(
            || HoldAndProbe::new(nine, one),
            HoldAndProbe::try_new(nine, one),
        ),
        refused(
            || AdditiveIncrease::new(nine, one),
            AdditiveIncrease::try_new(nine, one),
        ),
    ];
    let message =
        "the floor of a rate must not be above its ceiling, in calls a second, got 9 and 1";
    assert_refused("floor", message, rules);

    let rule = AdditiveIncrease::try_new(one, one).unwrap();
    for (step, got) in [(f64::NAN, "NaN"), (f64::INFINITY, "inf"), (-0.5, "-0.5")] {
        let steps = refused(|| rule.with_step(step), rule.try_with_step(step));
        let message = format!("the step must be a number from 0 on, got {got}");
        assert_refused("step", &message, [steps]);
    }
    for (backoff, got) in [(0.0, "0"), (1.0, "1"), (f64::NAN, "NaN")] {
        let cut = refused(
            || rule.with_backoff(backoff),
            rule.try_with_backoff(backoff),
        );
        let message = format!("the backoff must be above 0 and below 1, got {got}");
        assert_refused("backoff", &message, [cut]);
    }
    let hold = HoldAndProbe::new(one, one);
    let starts = [
        refused(
            || hold.clone().with_start(nine),
            hold.clone().try_with_start(nine),
        ),
        refused(|| rule.with_start(nine), rule.try_with_start(nine)),
    ];
    let message =
        "the start of a rate must lie between its floor and its ceiling, in calls a second, got 9";
    assert_refused("start", message, starts);
    assert!(rule.try_with_start(one).is_ok() && hold.try_with_start(one).is_ok());
    assert!(rule.try_with_step(0.0).is_ok() && rule.try_with_backoff(0.5).is_ok());
    assert!(HoldAndProbe::try_new(one, one).is_ok());
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
