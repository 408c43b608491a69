//! Limits in memory, on a paused clock if a test says nothing else.

use std::fmt::Debug;
use std::future::Future;

use futures::future::join_all;
use paceline::limiter::{AcquireError, Combined, Limiter, Shared};
use paceline::policy::{Decision, Interval, TokenBucket};
use paceline::prelude::*;
use paceline::time::Rate;
use testkit::wakes::Driven;

use crate::timed::{ms, now, since};

mod adaptive_rate;
mod aligned;
mod any_of;
mod by_deadline;
mod by_hand;
mod combined;
mod control;
mod dyn_limiter;
mod fair;
mod fair_queue;
mod gate;
mod guaranteed;
mod keyed;
mod keyed_full;
mod keyed_words;
mod lenders;
mod lies;
mod line;
mod observed;
mod owned;
mod prefetch;
mod priorities;
pub(crate) mod recorded;
mod reports;
mod reserve;
mod resolution;
mod settle;
mod shared;
mod status;
mod switched;
mod watched;
mod with_total;
mod within;
mod yields;

/// One token each 100 ms.
const fn bucket(burst: u32) -> TokenBucket {
    TokenBucket::new(Rate::new(1, ms(100)), burst)
}

/// A limit of which the first slot is taken now.
fn used(millis: u64) -> Shared<Interval> {
    let limit = Interval::every(ms(millis)).shared();
    assert!(limit.try_acquire(1).is_pass());
    limit
}

const fn wait(millis: u64) -> Decision {
    let retry_in = ms(millis);
    Decision::Wait { retry_in }
}

/// The cost and the capacity of a request that was refused for ever.
#[track_caller]
fn too_costly(refused: AcquireError) -> (u32, u32) {
    let never = refused.too_costly().expect("too costly");
    (never.cost(), never.capacity())
}

fn remaining(limit: &impl Limiter) -> u32 {
    limit.status().expect("it knows").remaining
}

/// A request that was polled once, and has to wait.
#[track_caller]
fn queued<F: Future>(request: F) -> Driven<F> {
    let mut request = Driven::new(request);
    assert!(request.poll().is_pending());
    request
}

/// Makes each request in a task of its own, and tells after how many milliseconds it passed.
fn spawned<F, E>(requests: impl IntoIterator<Item = F>) -> impl Future<Output = Vec<u64>>
where
    F: Future<Output = Result<(), AcquireError<E>>> + Send + 'static,
    E: Debug,
{
    let start = now();
    let task = |request: F| {
        tokio::spawn(async move {
            request.await.unwrap();
            since(start)
        })
    };
    let tasks: Vec<_> = requests.into_iter().map(task).collect();
    async {
        let mut passed = Vec::new();
        for task in tasks {
            passed.push(task.await.unwrap());
        }
        passed
    }
}

/// Requests for both limits at once, of which every second one names them in the other order.
async fn in_two_orders(count: usize, first: Shared<Interval>, last: Shared<Interval>) {
    let requests = (0..count).map(|number| {
        let (first, last) = (first.clone(), last.clone());
        let both = if number % 2 == 0 {
            (first, last)
        } else {
            (last, first)
        };
        async move { Combined::new(both).acquire(1).await.unwrap() }
    });
    join_all(requests).await;
}
