//! Random schedules: polls, cancellations and bodies in any order.

use std::task::Poll;
use std::thread;
use std::time::Duration;

use ::tower::{Layer, Service};
use fastrand::Rng;
use futures::FutureExt;
use http_body::Body;
use paceline::concurrency::Permits;
use paceline::limiter::PolicyExt;
use paceline::policy::TokenBucket;
use paceline::time::Rate;
use paceline::tower::{ConcurrencyLayer, EnforceLayer, Error};
use testkit::probe::service::{Inner, Part};
use testkit::wakes::Driven;

use super::{call, get};

const STEPS: usize = 12;

/// A call that waits, or has a response.
pub(super) enum Stage<F, B> {
    Waiting(Driven<F>),
    Responded(Driven<B>),
}

#[tokio::test(start_paused = true)]
async fn in_flight_is_never_above_the_limit_on_100_000_random_schedules() {
    let mut rng = Rng::with_seed(7);
    for seed in 0..100_000 {
        let limit = rng.u32(1..4);
        let permits = Permits::new(limit);
        let bodies: &[&[Part]] = &[
            &[],
            &[Part::Data(b"a"), Part::Trailers],
            &[Part::Data(b"a"), Part::Failure],
        ];
        let inner = Inner::new().with_body(rng.choice(bodies).unwrap());
        let service = ConcurrencyLayer::new(permits.clone()).layer(inner.clone());
        let mut calls = Vec::new();
        for _ in 0..STEPS {
            let index = rng.usize(..=calls.len());
            if index == calls.len() {
                let mut service = service.clone();
                calls.push(Stage::Waiting(Driven::new(service.call(get("/")))));
            } else if rng.u8(..5) == 0 {
                drop(calls.swap_remove(index));
            } else if rng.u8(..20) == 0 {
                inner.set_ready(rng.bool());
            } else {
                step(&mut calls, index);
            }
            let used = inner.used();
            assert!(
                used.in_flight <= limit && permits.in_use() <= limit,
                "{seed}"
            );
            assert!(used.in_flight <= permits.in_use(), "{seed}");
            assert_eq!(used.calls_unready, 0);
        }
        inner.set_ready(true);
        while !calls.is_empty() {
            step(&mut calls, 0);
        }
        assert_eq!((permits.in_use(), inner.used().reserved), (0, 0), "{seed}");
    }
}

/// Polls a call or its body, and forgets it when it is over. It goes to the end.
pub(super) fn step<F, B, E>(calls: &mut Vec<Stage<F, B>>, index: usize)
where
    F: Future<Output = Result<http::Response<B>, E>>,
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

#[test]
fn threads_share_one_limit() {
    let limit = TokenBucket::new(Rate::new(1, Duration::from_secs(86_400)), 500).shared();
    let permits = Permits::new(2);
    let inner = Inner::new();
    let refuses = ConcurrencyLayer::new(permits.clone())
        .at_once()
        .layer(inner.clone());
    let service = EnforceLayer::new(limit).layer(refuses);
    let passed = thread::scope(|scope| {
        let threads = (0..8).map(|_| {
            let mut service = service.clone();
            let work = move || (0..1_000).filter(|_| passes(&mut service)).count();
            scope.spawn(work)
        });
        let threads: Vec<_> = threads.collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum::<usize>()
    });
    assert_eq!(passed, 500);
    assert!(inner.used().most_in_flight <= 2);
    assert_eq!(permits.in_use(), 0);
}

/// Whether the limit lets a call pass; whether there is a permit too does not matter.
fn passes<S, E>(service: &mut S) -> bool
where
    S: Service<http::Request<()>, Error = Error<Error<E>>>,
{
    let response = call(service, get("/"))
        .now_or_never()
        .expect("nothing waits");
    response.map_or_else(|error| error.is_inner(), |_| true)
}
