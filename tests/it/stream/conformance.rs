//! Every adapter goes through the suite.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::stream::{FusedStream, Map};
use futures::{FutureExt, StreamExt};
use paceline::concurrency::Permits;
use paceline::limiter::{Share, TooCostly};
use paceline::policy::{Interval, TokenBucket};
use paceline::prelude::*;
use paceline::retry::{Failure, Retry, RetryBudget};
use paceline::stream::{
    Debounce, Exceeded, GroupedWeightedWithin, GroupedWithin, Late, NoLimit, OnError, Pace,
    PaceBatches, PaceByKey, PaceByKeyError, Sample, ShedBy, ThrottleFirst, Window,
};
use paceline::time::Rate;
use testkit::conformance::{Input, Parcel, Subject, check_unmovable};

use super::pace_by_key::EvenKeys;
use super::shed_by::Slow;
use crate::timed::{ms, now, sleep};

const D: Duration = ms(100);

const WINDOWS: [Window; 3] = [Window::FirstItem, Window::LastGroup, Window::Grid];

/// An adapter that can be taken apart.
fn adapter<A, H>(
    build: impl Fn(Input) -> A + 'static,
    into_parts: impl Fn(A) -> (Input, H) + 'static,
) -> Subject
where
    A: FusedStream<Item: Parcel> + Unpin + 'static,
    H: Parcel,
{
    Subject::stream_in_parts(build, into_parts).scale(D)
}

type Results = Map<Input, fn(u32) -> Result<u32, u32>>;

/// Every fourth item is an error.
fn results(input: Input) -> Results {
    input.map(|item| if item % 4 == 2 { Err(item) } else { Ok(item) })
}

fn into_input<H>((results, held): (Results, H)) -> (Input, H) {
    (results.into_inner(), held)
}

#[tokio::test(start_paused = true)]
async fn pace() {
    let subject = adapter(|input| input.min_interval(D), Pace::into_parts);
    subject.spacing(D).check().await;
    let build = |input: Input| input.min_interval(D).with_count_from_next_poll();
    adapter(build, Pace::into_parts).spacing(D).check().await;
    let build = |input: Input| input.pace(Interval::every(D).with_delayed_start().shared());
    adapter(build, Pace::into_parts).spacing(D).check().await;
    let build = |input: Input| input.pace(TokenBucket::new(Rate::new(3, D), 2).owned());
    adapter(build, Pace::into_parts).check().await;
    let build = |input: Input| input.try_pace(Interval::every(D).owned());
    let subject = adapter(build, |adapter| adapter.into_parts());
    subject.spacing(D).check().await;
}

#[tokio::test(start_paused = true)]
async fn pace_by_cost() {
    let build = |input: Input| {
        let limit = TokenBucket::new(Rate::new(3, D), 3).shared();
        let paced = input.pace_by_cost(limit, |item| item % 5);
        paced.map(|item| item.unwrap_or_else(TooCostly::into_item))
    };
    let subject = adapter(build, |items| items.into_inner().into_parts());
    subject.check().await;
}

/// Every fifth item is late when it comes.
#[tokio::test(start_paused = true)]
async fn pace_by_deadline() {
    let build = |input: Input| {
        let start = now();
        let deadline = move |item: &u32| match item % 5 {
            0 => start,
            urgency => start + D * 100 * urgency,
        };
        let paced = input.pace_by_deadline(Interval::every(D).shared(), deadline, 3);
        paced.map(|item| item.unwrap_or_else(Late::into_item))
    };
    let subject = adapter(build, |items| items.into_inner().into_parts());
    subject.unordered().check().await;
}

#[tokio::test(start_paused = true)]
async fn pace_by_key() {
    let build = |input: Input| input.pace_by_key(Interval::every(D).keyed(), |_| (), 3);
    let of_one_key = adapter(build, PaceByKey::into_parts);
    of_one_key.spacing(D).check().await;
    let build = |input: Input| input.pace_by_key(Interval::every(D).keyed(), |item| item % 3, 5);
    let of_three_keys = adapter(build, PaceByKey::into_parts);
    of_three_keys.unordered().check().await;
    // Of the odd items, whose keys have no limit, none is held.
    let build = |input: Input| {
        let limits = EvenKeys(Interval::every(D).keyed());
        let paced = input.try_pace_by_key(limits, |item| item % 2, 3);
        paced.map(|item| item.unwrap_or_else(NoLimit::into_item))
    };
    let subject = adapter(build, |items| items.into_inner().into_parts());
    subject.unordered().check().await;
}

/// Of the items, whose costs are 0 to 4, those of cost 4 are too costly.
#[tokio::test(start_paused = true)]
async fn pace_by_key_and_cost() {
    let build = |input: Input| {
        let limits = TokenBucket::new(Rate::new(3, D), 3).keyed();
        let paced = input.pace_by_key_and_cost(limits, |item| item % 3, |item| item % 5, 5);
        paced.map(|item| item.unwrap_or_else(PaceByKeyError::into_item))
    };
    let subject = adapter(build, |items| items.into_inner().into_parts());
    subject.unordered().check().await;
}

#[tokio::test(start_paused = true)]
async fn pace_batches() {
    for max in [1, 3, usize::MAX] {
        let build = move |input: Input| input.pace_batches(Interval::every(D).owned(), max);
        let subject = adapter(build, PaceBatches::into_parts);
        subject.spacing(D).check().await;
    }
}

/// Items of every kind: without weight, with room, exact and too heavy.
fn weigh(item: u32) -> u64 {
    u64::from(item * 7 % 8)
}

#[tokio::test(start_paused = true)]
async fn grouped_within() {
    for window in WINDOWS {
        for max in [1, 3, usize::MAX] {
            let build = move |input: Input| input.grouped_within(max, D).with_window(window);
            adapter(build, GroupedWithin::into_parts).check().await;
        }
        for max in [1, 5, u64::MAX] {
            let build = move |input: Input| {
                let groups = input.grouped_weighted_within(max, D, |item| weigh(*item));
                groups.with_window(window)
            };
            let subject = adapter(build, GroupedWeightedWithin::into_parts);
            subject.check().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn try_grouped_within() {
    for window in WINDOWS {
        for max in [1, 3, usize::MAX] {
            let groups = move |input| {
                results(input)
                    .try_grouped_within(max, D)
                    .with_window(window)
            };
            let subject = adapter(groups, |groups| into_input(groups.into_parts()));
            subject.check().await;
            let discards = move |input| groups(input).with_on_error(OnError::Discard);
            let subject = adapter(discards, |groups| into_input(groups.into_parts()));
            subject.lossy().check().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn try_grouped_weighted_within() {
    for max in [1, 5, u64::MAX] {
        let groups =
            move |input| results(input).try_grouped_weighted_within(max, D, |item| weigh(*item));
        let subject = adapter(groups, |groups| into_input(groups.into_parts()));
        subject.check().await;
        let discards = move |input| groups(input).with_on_error(OnError::Discard);
        let subject = adapter(discards, |groups| into_input(groups.into_parts()));
        subject.lossy().check().await;
    }
}

#[tokio::test(start_paused = true)]
async fn enforce() {
    let build = |input: Input| {
        let enforced = input.enforce(Interval::every(D).owned());
        enforced.map(|item| item.unwrap_or_else(Exceeded::into_item))
    };
    let subject = adapter(build, |items| items.into_inner().into_parts());
    subject.check().await;
}

#[tokio::test(start_paused = true)]
async fn what_drops_items() {
    let subject = Subject::stream(|input| input.shed(Interval::every(D).shared()));
    subject.lossy().spacing(D).check().await;
    for polls in [0, 1, 3] {
        let build = move |input: Input| input.shed_by(Slow::after(polls), |item| *item);
        let subject = adapter(build, ShedBy::into_parts);
        subject.lossy().check().await;
    }
    let subject = adapter(|input| input.debounce(D), Debounce::into_parts);
    subject.lossy().check().await;
    let subject = adapter(|input| input.sample(D), Sample::into_parts);
    subject.lossy().check().await;
    let build = |input: Input| input.sample(D).with_keep_last();
    adapter(build, Sample::into_parts).lossy().check().await;
    let into_parts = |adapter: ThrottleFirst<Input>| (adapter.into_inner(), None::<u32>);
    let subject = adapter(|input| input.throttle_first(D), into_parts);
    subject.lossy().spacing(D).check().await;
}

/// A future that is done at once, after one yield, or after a delay.
async fn work(item: u32) -> u32 {
    match item % 3 {
        0 => {}
        1 => tokio::task::yield_now().await,
        _ => sleep(70).await,
    }
    item
}

/// Futures cannot be returned, so this test does not take the adapter apart.
#[tokio::test(start_paused = true)]
async fn concurrent() {
    for n in [1, 2, 100] {
        for cooldown in [Duration::ZERO, D] {
            let subject = Subject::stream(move |input| {
                let permits = Permits::new(n).with_cooldown(cooldown);
                input.concurrent(permits, |item| Box::pin(work(item)))
            });
            subject.unordered().scale(D).check().await;
        }
    }
}

/// Every third item fails at first, and every fifth is given up.
#[tokio::test(start_paused = true)]
async fn retry() {
    for (n, room, is_ordered) in [(1, 1, true), (2, 3, true), (2, 5, false), (100, 100, true)] {
        let build = move |input: Input| {
            let mut failed = BTreeSet::new();
            let request = move |item: u32| {
                let fails = item % 5 == 4 || item % 3 == 1 && failed.insert(item);
                let done = work(item).map(move |_| if fails { Err(()) } else { Ok(()) });
                Box::pin(done)
            };
            let retry = Retry::new(RetryBudget::new(u32::MAX, Share::FULL));
            let retry = retry.with_backoff(D..=D).with_attempts(2);
            let calls = input.concurrent(Permits::new(n), request);
            let mut sent = calls.retry(retry, |()| Failure::Transient, room);
            if is_ordered {
                sent = sent.ordered_by_key(|item| item % 3);
            }
            sent.map(|sent| sent.item)
        };
        let subject = adapter(build, |items| {
            let (input, held) = items.into_inner().into_parts();
            let held: Vec<u32> = held.into_iter().map(|(item, _)| item).collect();
            (input, held)
        });
        subject.unordered().check().await;
    }
}

#[tokio::test(start_paused = true)]
async fn inputs_need_not_be_unpin() {
    let limit = || Interval::every(D).owned();
    check_unmovable(|input| input.min_interval(D)).await;
    check_unmovable(|input| input.try_pace(limit())).await;
    check_unmovable(|input| input.pace_by_cost(limit(), |_| 1)).await;
    check_unmovable(|input| input.pace_batches(limit(), 3)).await;
    check_unmovable(|input| {
        let limits = Interval::every(D).keyed();
        input.pace_by_key_and_cost(limits, |_| (), |_| 1, 3)
    })
    .await;
    check_unmovable(|input| input.grouped_within(3, D)).await;
    check_unmovable(|input| input.grouped_weighted_within(3, D, |_| 2)).await;
    check_unmovable(|input| input.map(Ok::<_, ()>).try_grouped_within(3, D)).await;
    check_unmovable(|input| {
        let results = input.map(|item| if item == 1 { Err(item) } else { Ok(item) });
        results.try_grouped_weighted_within(3, D, |_| 2)
    })
    .await;
    check_unmovable(|input| input.enforce(limit())).await;
    check_unmovable(|input| input.shed(limit())).await;
    check_unmovable(|input| input.shed_by(Slow::default(), |_| 0)).await;
    check_unmovable(|input| input.debounce(D)).await;
    check_unmovable(|input| input.sample(D)).await;
    check_unmovable(|input| input.throttle_first(D)).await;
    check_unmovable(|input| input.concurrent(Permits::new(2), work)).await;
    check_unmovable(|input| {
        let calls = input.concurrent(Permits::new(2), |item| work(item).map(Ok::<_, ()>));
        let retry = Retry::new(RetryBudget::new(1, Share::NONE));
        let sent = calls.retry(retry, |()| Failure::Final, 3);
        sent.map(|sent| sent.item)
    })
    .await;
}
