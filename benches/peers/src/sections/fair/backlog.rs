//! A tenant that asks now and then, beside one with a long queue: requests wait.

use std::cell::Cell;
use std::convert::Infallible;
use std::time::Duration;

use fastrand::Rng;
use futures::future::{Either, LocalBoxFuture, join_all, select};
use paceline::fair::{FairShare, GuaranteedShare};
use paceline::limiter::{Fair, FairQueue, LimiterExt, Limits};
use paceline::prelude::*;
use tokio::time::{Instant, sleep_until};

use crate::figures::Notes;
use crate::measure::{Extent, quantile};

use super::{at_random, in_virtual_time};

const METRIC: &str = "a small tenant beside a large one";

/// For both tenants, a second.
const CAPACITY: u32 = 100;
const BURST: u32 = 10;
/// What the small tenant asks for, a second.
const SMALL: f64 = 10.0;
/// How many requests of the large tenant wait.
const BACKLOG: usize = 500;

const CYCLE: Duration = Duration::from_secs(1);
/// What happens before is not counted: how a client begins is another matter.
const WARM_UP: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Eq, Hash, PartialEq)]
enum Tenant {
    Large,
    Small,
}

/// Waits for one permit of a tenant.
type Ask = Box<dyn Fn(Tenant) -> LocalBoxFuture<'static, ()>>;
/// Makes a limit.
type Limit = fn() -> Ask;

const LIMITS: [(&str, Limit); 5] = [
    ("Shared", || {
        let limit = bucket(CAPACITY).shared();
        Box::new(move |_| {
            let limit = limit.clone();
            Box::pin(async move { limit.acquire_one().await })
        })
    }),
    ("FairQueue", || by_key(FairQueue::new(bucket(CAPACITY)))),
    ("Keyed, 50 each", || by_key(bucket(CAPACITY / 2).keyed())),
    ("FairShare", || {
        by_key(Fair::new(FairShare::new(CAPACITY, CYCLE)))
    }),
    ("GuaranteedShare", || {
        by_key(Fair::new(GuaranteedShare::new(CAPACITY, CYCLE)))
    }),
];

fn bucket(a_second: u32) -> TokenBucket {
    TokenBucket::new(Rate::per_second(a_second), BURST)
}

fn by_key<L>(limits: L) -> Ask
where
    L: Limits<Tenant, Error = Infallible> + 'static,
    L::Limit: LimiterExt<Error = Infallible> + Unpin + 'static,
{
    Box::new(move |tenant| Box::pin(limits.acquire_one(tenant)))
}

pub(super) fn measure(extent: Extent, notes: &mut Notes) {
    let time = Duration::from_secs(extent.pick(60, 2));
    for (name, limit) in LIMITS {
        let (waits, passed) = in_virtual_time(waits(limit, time));
        notes.add(METRIC, name, "median, ms", quantile(&waits, 0.5));
        notes.add(METRIC, name, "99 %, ms", quantile(&waits, 0.99));
        let capacity = f64::from(CAPACITY) * time.as_secs_f64();
        let used = 100.0 * f64::from(passed) / capacity;
        notes.add(METRIC, name, "used, %", used);
    }
}

/// How long the requests wait that the small tenant makes in this time, in ms, and how many of both tenants pass in it.
async fn waits(limit: Limit, time: Duration) -> (Vec<f64>, u32) {
    let ask = limit();
    let start = Instant::now() + WARM_UP;
    let passed = Cell::new(0);
    let pass = async |tenant| {
        ask(tenant).await;
        let now = Instant::now();
        if now >= start && now < start + time {
            passed.update(|passed| passed + 1);
        }
    };
    let large = join_all((0..BACKLOG).map(async |_| {
        loop {
            pass(Tenant::Large).await;
        }
    }));
    let mut random = Rng::with_seed(1);
    let small = at_random(SMALL, WARM_UP + time, &mut random).map(async |after| {
        sleep_until(start - WARM_UP + after).await;
        let asked_at = Instant::now();
        pass(Tenant::Small).await;
        (after >= WARM_UP).then(|| asked_at.elapsed().as_secs_f64() * 1e3)
    });
    let small = async { join_all(small).await };
    let Either::Right((waits, _)) = select(Box::pin(large), Box::pin(small)).await else {
        unreachable!("the large tenant has no end")
    };
    (waits.into_iter().flatten().collect(), passed.get())
}
