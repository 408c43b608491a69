//! The law of the layer that bounds what is under way: on a million random schedules of polls, cancellations and bodies in any order, there is
//! never more than the limit, and at the end nothing is left.

use std::time::Duration;

use fastrand::Rng;
use http::{Request, Response};
use http_body::Body;
use paceline::concurrency::Permits;
use paceline::limiter::{Switch, SwitchExt};
use paceline_tower::ConcurrencyLayer;
use testkit::probe::service::{Inner, Part, Stage};
use tower_layer::Layer;
use tower_service::Service;

/// Of all tests together.
const SCHEDULES: u64 = 1_000_000;
const STEPS: usize = 8;

const BODIES: [&[Part]; 3] = [
    &[],
    &[Part::Data(b"a"), Part::Trailers],
    &[Part::Data(b"a"), Part::Failure],
];

#[tokio::test(start_paused = true)]
async fn while_requests_wait_in_flight_is_never_above_the_limit() {
    schedules(0, ConcurrencyLayer::new).await;
}

#[tokio::test(start_paused = true)]
async fn while_requests_are_refused_in_flight_is_never_above_the_limit() {
    schedules(1, |permits| ConcurrencyLayer::new(permits).at_once()).await;
}

#[tokio::test(start_paused = true)]
async fn while_some_wait_and_some_are_refused_in_flight_is_never_above_the_limit() {
    schedules(2, |permits| ConcurrencyLayer::new(permits).max_waiting(1)).await;
}

#[tokio::test(start_paused = true)]
async fn with_an_active_switch_in_flight_is_never_above_the_limit() {
    schedules(3, |permits| {
        ConcurrencyLayer::new(permits.switched(&Switch::new()))
    })
    .await;
}

/// Every fourth schedule, from `first` on.
async fn schedules<L, S, B>(first: u64, layer: impl Fn(Permits) -> L)
where
    L: Layer<Inner, Service = S>,
    S: Service<Request<()>, Response = Response<B>> + Clone,
    B: Body,
{
    for seed in (first..SCHEDULES).step_by(4) {
        schedule(seed, &layer).await;
    }
}

async fn schedule<L, S, B>(seed: u64, layer: &impl Fn(Permits) -> L)
where
    L: Layer<Inner, Service = S>,
    S: Service<Request<()>, Response = Response<B>> + Clone,
    B: Body,
{
    let mut rng = Rng::with_seed(seed);
    let limit = rng.u32(1..4);
    let permits = Permits::new(limit);
    let inner = Inner::new().with_body(rng.choice(BODIES).unwrap());
    let service = layer(permits.clone()).layer(inner.clone());
    let mut calls = Vec::new();
    for _ in 0..STEPS {
        let index = rng.usize(..=calls.len());
        if index == calls.len() {
            let call = service.clone().call(Request::new(()));
            calls.push(Stage::new(call));
        } else if rng.u8(..5) == 0 {
            drop(calls.swap_remove(index));
        } else if rng.u8(..20) == 0 {
            inner.set_ready(rng.bool());
        } else if rng.u8(..40) == 0 {
            // A waiter that was not polled in time is passed over.
            tokio::time::advance(Duration::from_millis(10)).await;
        } else {
            Stage::step(&mut calls, index);
        }
        let used = inner.used();
        assert!(
            used.in_flight <= limit && permits.in_use() <= limit,
            "{seed}"
        );
        assert!(used.in_flight <= permits.in_use(), "{seed}");
        assert_eq!(used.calls_unready, 0, "{seed}");
    }
    inner.set_ready(true);
    while !calls.is_empty() {
        Stage::step(&mut calls, 0);
    }
    assert_eq!((permits.in_use(), inner.used().reserved), (0, 0), "{seed}");
}
