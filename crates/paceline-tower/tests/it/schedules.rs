//! Calls of many threads in any order. What a million random schedules of one task do is tested in `crates/laws/services.rs`.

use std::thread;
use std::time::Duration;

use ::tower::{Layer, Service};
use futures::FutureExt;
use paceline::concurrency::Permits;
use paceline::limiter::PolicyExt;
use paceline::policy::TokenBucket;
use paceline::time::Rate;
use paceline_tower::{ConcurrencyLayer, EnforceLayer, Error};
use testkit::probe::service::Inner;

use super::{call, get};

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
