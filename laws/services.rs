//! The law of the layer that bounds what is under way: on random schedules of polls, cancellations and bodies in any order, there is
//! never more than the limit, and at the end nothing is left.

use std::task::Poll;
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use http::{Request, Response};
use http_body::Body;
use paceline::concurrency::Permits;
use paceline::tower::ConcurrencyLayer;
use testkit::probe::service::{Inner, Part};
use testkit::wakes::Driven;
use tower_layer::Layer;
use tower_service::Service;

const SCHEDULES: u64 = 1_000_000;
const THREADS: u64 = 2;
const STEPS: usize = 8;

const BODIES: [&[Part]; 3] = [
    &[],
    &[Part::Data(b"a"), Part::Trailers],
    &[Part::Data(b"a"), Part::Failure],
];

/// A call that waits, or has a response.
enum Stage<F, B> {
    Waiting(Driven<F>),
    Responded(Driven<B>),
}

#[test]
fn in_flight_is_never_above_the_limit_on_a_million_random_schedules() {
    thread::scope(|scope| {
        for first in 0..THREADS {
            scope.spawn(move || on_a_paused_clock(schedules(first)));
        }
    });
}

fn on_a_paused_clock(work: impl Future) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(work);
}

async fn schedules(first: u64) {
    for seed in (first..SCHEDULES).step_by(THREADS as usize) {
        schedule(seed).await;
    }
}

async fn schedule(seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let limit = rng.u32(1..4);
    let permits = Permits::new(limit);
    let inner = Inner::new().with_body(rng.choice(BODIES).unwrap());
    let service = ConcurrencyLayer::new(permits.clone()).layer(inner.clone());
    let mut calls = Vec::new();
    for _ in 0..STEPS {
        let index = rng.usize(..=calls.len());
        if index == calls.len() {
            let call = service.clone().call(Request::new(()));
            calls.push(Stage::Waiting(Driven::new(call)));
        } else if rng.u8(..5) == 0 {
            drop(calls.swap_remove(index));
        } else if rng.u8(..20) == 0 {
            inner.set_ready(rng.bool());
        } else if rng.u8(..40) == 0 {
            // A waiter that was not polled in time is passed over.
            tokio::time::advance(Duration::from_millis(10)).await;
        } else {
            step(&mut calls, index);
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
        step(&mut calls, 0);
    }
    assert_eq!((permits.in_use(), inner.used().reserved), (0, 0), "{seed}");
}

fn step<F, B, E>(calls: &mut Vec<Stage<F, B>>, index: usize)
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body,
{
    match calls.remove(index) {
        Stage::Waiting(mut call) => match call.poll() {
            Poll::Pending => calls.push(Stage::Waiting(call)),
            Poll::Ready(Ok(response)) => {
                calls.push(Stage::Responded(Driven::new(response.into_body())));
            }
            Poll::Ready(Err(_)) => {}
        },
        Stage::Responded(mut body) => {
            if let Poll::Ready(Some(Ok(_))) = body.poll_with(Body::poll_frame) {
                calls.push(Stage::Responded(body));
            }
        }
    }
}
