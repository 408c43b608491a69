//! Every adapter goes through the suite.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::Map;
use paceline::concurrency::Permits;
use paceline::policy::{Interval, TokenBucket};
use paceline::prelude::*;
use paceline::stream::{
    NoLimit, OnError, PaceByKey, PaceByKeyAndCost, PaceByKeyError, TryPaceByKey, Window,
};
use paceline::time::Rate;
use testkit::conformance::{Input, Subject, check_unmovable};

use super::pace_by_key::EvenKeys;
use super::shed_by::Slow;
use crate::timed::{ms, sleep};

const D: Duration = ms(100);

#[tokio::test(start_paused = true)]
async fn pace() {
    Subject::new(|input: Input| input.min_interval(D))
        .items(|item| vec![item])
        .into_parts(|adapter| {
            let (input, held) = adapter.into_parts();
            (input, held.into_iter().collect())
        })
        .spacing(D)
        .check()
        .await;
}

#[tokio::test(start_paused = true)]
async fn pace_counted_from_the_next_poll() {
    Subject::new(|input: Input| input.min_interval(D).with_count_from_next_poll())
        .items(|item| vec![item])
        .into_parts(|adapter| {
            let (input, held) = adapter.into_parts();
            (input, held.into_iter().collect())
        })
        .spacing(D)
        .check()
        .await;
}

#[tokio::test(start_paused = true)]
async fn pace_over_a_shared_limit() {
    Subject::new(|input: Input| input.pace(Interval::every(D).with_delayed_start().shared()))
        .items(|item| vec![item])
        .into_parts(|adapter| {
            let (input, held) = adapter.into_parts();
            (input, held.into_iter().collect())
        })
        .spacing(D)
        .check()
        .await;
}

#[tokio::test(start_paused = true)]
async fn pace_over_a_bucket() {
    Subject::new(|input: Input| input.pace(TokenBucket::new(Rate::new(3, D), 2).owned()))
        .items(|item| vec![item])
        .into_parts(|adapter| {
            let (input, held) = adapter.into_parts();
            (input, held.into_iter().collect())
        })
        .scale(D)
        .check()
        .await;
}

#[tokio::test(start_paused = true)]
async fn try_pace() {
    Subject::new(|input: Input| input.try_pace(Interval::every(D).owned()))
        .items(|item| {
            let Ok(item) = item;
            vec![item]
        })
        .into_parts(|adapter| {
            let (input, held) = adapter.into_parts();
            (input, held.into_iter().collect())
        })
        .spacing(D)
        .check()
        .await;
}

#[tokio::test(start_paused = true)]
async fn pace_by_cost() {
    Subject::new(|input: Input| {
        let limit = TokenBucket::new(Rate::new(3, D), 3).shared();
        input.pace_by_cost(limit, |item| item % 5)
    })
    .items(|item| vec![item.unwrap_or_else(paceline::limiter::TooCostly::into_item)])
    .into_parts(|adapter| {
        let (input, held) = adapter.into_parts();
        (input, held.into_iter().collect())
    })
    .scale(D)
    .check()
    .await;
}

#[tokio::test(start_paused = true)]
async fn pace_by_key_of_one_key() {
    Subject::new(|input: Input| input.pace_by_key(Interval::every(D).keyed(), |_| (), 3))
        .items(|item| vec![item])
        .into_parts(PaceByKey::into_parts)
        .spacing(D)
        .check()
        .await;
}

#[tokio::test(start_paused = true)]
async fn pace_by_key_of_three_keys() {
    Subject::new(|input: Input| input.pace_by_key(Interval::every(D).keyed(), |item| item % 3, 5))
        .items(|item| vec![item])
        .into_parts(PaceByKey::into_parts)
        .unordered()
        .scale(D)
        .check()
        .await;
}

/// Of the odd items, whose keys have no limit, none is held.
#[tokio::test(start_paused = true)]
async fn try_pace_by_key_where_half_of_the_keys_have_no_limit() {
    let limits = || EvenKeys(Interval::every(D).keyed());
    Subject::new(move |input: Input| input.try_pace_by_key(limits(), |item| item % 2, 3))
        .items(|item| vec![item.unwrap_or_else(NoLimit::into_item)])
        .into_parts(TryPaceByKey::into_parts)
        .unordered()
        .scale(D)
        .check()
        .await;
}

/// Of the items, whose costs are 0 to 4, those of cost 4 are too costly.
#[tokio::test(start_paused = true)]
async fn pace_by_key_and_cost() {
    Subject::new(|input: Input| {
        let limits = TokenBucket::new(Rate::new(3, D), 3).keyed();
        input.pace_by_key_and_cost(limits, |item| item % 3, |item| item % 5, 5)
    })
    .items(|item| vec![item.unwrap_or_else(PaceByKeyError::into_item)])
    .into_parts(PaceByKeyAndCost::into_parts)
    .unordered()
    .scale(D)
    .check()
    .await;
}

#[tokio::test(start_paused = true)]
async fn pace_batches() {
    for max in [1, 3, usize::MAX] {
        Subject::new(move |input: Input| input.pace_batches(Interval::every(D).owned(), max))
            .items(|batch| batch)
            .into_parts(paceline::stream::PaceBatches::into_parts)
            .spacing(D)
            .check()
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn grouped_within() {
    for window in [Window::FirstItem, Window::LastGroup, Window::Grid] {
        for max in [1, 3, usize::MAX] {
            Subject::new(move |input: Input| input.grouped_within(max, D).with_window(window))
                .items(|group| group)
                .into_parts(paceline::stream::GroupedWithin::into_parts)
                .scale(D)
                .check()
                .await;
        }
    }
}

/// Items of every kind: without weight, with room, exact and too heavy.
#[tokio::test(start_paused = true)]
async fn grouped_weighted_within() {
    for window in [Window::FirstItem, Window::LastGroup, Window::Grid] {
        for max in [1, 5, u64::MAX] {
            Subject::new(move |input: Input| {
                let weigh = |item: &u32| u64::from(item * 7 % 8);
                input
                    .grouped_weighted_within(max, D, weigh)
                    .with_window(window)
            })
            .items(|group| group)
            .into_parts(paceline::stream::GroupedWeightedWithin::into_parts)
            .scale(D)
            .check()
            .await;
        }
    }
}

type Results = Map<Input, fn(u32) -> Result<u32, u32>>;

/// Every fourth item is an error.
fn results(input: Input) -> Results {
    input.map(|item| if item % 4 == 2 { Err(item) } else { Ok(item) })
}

/// The input items in an output item of a `try_` adapter.
fn carried(result: Result<Vec<u32>, u32>) -> Vec<u32> {
    result.unwrap_or_else(|error| vec![error])
}

/// The parts of a `try_` adapter.
fn parts((input, held): (Results, Vec<Result<u32, u32>>)) -> (Input, Vec<u32>) {
    let held = held
        .into_iter()
        .map(|result| result.unwrap_or_else(|error| error));
    (input.into_inner(), held.collect())
}

#[tokio::test(start_paused = true)]
async fn try_grouped_within() {
    for window in [Window::FirstItem, Window::LastGroup, Window::Grid] {
        for max in [1, 3, usize::MAX] {
            Subject::new(move |input| {
                results(input)
                    .try_grouped_within(max, D)
                    .with_window(window)
            })
            .items(carried)
            .into_parts(|adapter| parts(adapter.into_parts()))
            .scale(D)
            .check()
            .await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn try_grouped_within_that_discards() {
    for window in [Window::FirstItem, Window::LastGroup, Window::Grid] {
        for max in [1, 3, usize::MAX] {
            Subject::new(move |input| {
                let groups = results(input).try_grouped_within(max, D);
                groups.with_window(window).with_on_error(OnError::Discard)
            })
            .items(carried)
            .into_parts(|adapter| parts(adapter.into_parts()))
            .lossy()
            .scale(D)
            .check()
            .await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn try_grouped_weighted_within() {
    for rule in [OnError::Flush, OnError::Discard] {
        for max in [1, 5, u64::MAX] {
            let subject = Subject::new(move |input| {
                let weigh = |item: &u32| u64::from(item * 7 % 8);
                let groups = results(input).try_grouped_weighted_within(max, D, weigh);
                groups.with_on_error(rule)
            });
            let subject = subject
                .items(carried)
                .into_parts(|adapter| parts(adapter.into_parts()))
                .scale(D);
            match rule {
                OnError::Flush => subject.check().await,
                _ => subject.lossy().check().await,
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn enforce() {
    Subject::new(|input: Input| input.enforce(Interval::every(D).owned()))
        .items(|item| vec![item.unwrap_or_else(paceline::stream::Exceeded::into_item)])
        .into_parts(|adapter| {
            let (input, held) = adapter.into_parts();
            (input, held.into_iter().collect())
        })
        .scale(D)
        .check()
        .await;
}

#[tokio::test(start_paused = true)]
async fn shed() {
    Subject::new(|input: Input| input.shed(Interval::every(D).shared()))
        .items(|item| vec![item])
        .lossy()
        .spacing(D)
        .check()
        .await;
}

#[tokio::test(start_paused = true)]
async fn shed_by() {
    for polls in [0, 1, 3] {
        Subject::new(move |input: Input| input.shed_by(Slow::after(polls), |item| *item))
            .items(|item| vec![item])
            .into_parts(|adapter| {
                let (input, held) = adapter.into_parts();
                (input, held.into_iter().collect())
            })
            .lossy()
            .scale(D)
            .check()
            .await;
    }
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

#[tokio::test(start_paused = true)]
async fn concurrent() {
    for n in [1, 2, 100] {
        for cooldown in [Duration::ZERO, D] {
            // Futures cannot be returned, so this test does not take the adapter apart.
            Subject::new(move |input: Input| {
                let permits = Permits::new(n).with_cooldown(cooldown);
                input.concurrent(permits, |item| Box::pin(work(item)))
            })
            .items(|item| vec![item])
            .unordered()
            .scale(D)
            .check()
            .await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn debounce() {
    Subject::new(|input: Input| input.debounce(D))
        .items(|item| vec![item])
        .into_parts(|adapter| {
            let (input, held) = adapter.into_parts();
            (input, held.into_iter().collect())
        })
        .lossy()
        .scale(D)
        .check()
        .await;
}

#[tokio::test(start_paused = true)]
async fn sample() {
    for keep_last in [false, true] {
        Subject::new(move |input: Input| {
            let sampled = input.sample(D);
            if keep_last {
                sampled.with_keep_last()
            } else {
                sampled
            }
        })
        .items(|item| vec![item])
        .into_parts(|adapter| {
            let (input, held) = adapter.into_parts();
            (input, held.into_iter().collect())
        })
        .lossy()
        .scale(D)
        .check()
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn throttle_first() {
    Subject::new(|input: Input| input.throttle_first(D))
        .items(|item| vec![item])
        .into_parts(|adapter| (adapter.into_inner(), Vec::new()))
        .lossy()
        .spacing(D)
        .check()
        .await;
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
}
