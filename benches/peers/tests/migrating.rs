//! The programs of `docs/migrating.md` and their ports: the same input has the same outcome.

use std::convert::Infallible;
use std::fmt::Debug;
use std::future::poll_fn;
use std::num::NonZeroU32;
use std::time::Duration;

use futures::future::join_all;
use governor::clock::FakeRelativeClock;
use governor::{Quota, RateLimiter};
use paceline::concurrency::Permits;
use paceline::policy::FixedWindow;
use paceline::prelude::*;
use paceline_tower::{ConcurrencyLayer, PaceLayer};
use tokio::time::{Instant, advance, sleep};
use tower::{Service, ServiceBuilder, service_fn};

#[tokio::test(start_paused = true)]
async fn a_quota_of_governor_and_a_bucket_with_its_burst_pass_the_same_requests() {
    let clock = FakeRelativeClock::default();
    let quota = Quota::per_second(NonZeroU32::new(10).unwrap());
    let theirs = RateLimiter::direct_with_clock(quota, clock.clone());
    let ours = TokenBucket::new(Rate::per_second(10), 10).shared();

    let mut random = fastrand::Rng::with_seed(1);
    let (mut passed, mut refused) = (0, 0);
    for request in 0..1_000 {
        let is_pass = theirs.check().is_ok();
        assert_eq!(ours.try_acquire(1).is_pass(), is_pass, "request {request}");
        passed += u32::from(is_pass);
        refused += u32::from(!is_pass);

        // Busier than the limit at first, and then less.
        let step = Duration::from_micros(random.u64(0..4_000 * (request / 10 + 1)));
        clock.advance(step);
        advance(step).await;
    }
    assert!(passed > 100 && refused > 100, "{passed} and {refused}");
}

#[tokio::test(start_paused = true)]
async fn a_second_has_twice_the_quota_but_one_in_governor_and_in_a_bucket() {
    let clock = FakeRelativeClock::default();
    let quota = Quota::per_second(NonZeroU32::new(10).unwrap());
    let theirs = RateLimiter::direct_with_clock(quota, clock.clone());
    let ours = TokenBucket::new(Rate::per_second(10), 10).shared();

    let mut passed = [0, 0];
    for _ in 0..1_000 {
        while theirs.check().is_ok() {
            passed[0] += 1;
        }
        while ours.try_acquire(1).is_pass() {
            passed[1] += 1;
        }
        clock.advance(Duration::from_millis(1));
        advance(Duration::from_millis(1)).await;
    }
    assert_eq!(passed, [19, 19]);
}

#[tokio::test(start_paused = true)]
async fn a_stack_of_tower_and_its_port_begin_the_same_calls_and_refuse_the_same_number() {
    let theirs = ServiceBuilder::new()
        .load_shed()
        .buffer(4)
        .concurrency_limit(2)
        .rate_limit(3, Duration::from_secs(1))
        .service(service_fn(begin));
    let theirs = outcomes(theirs, 5).await;

    let permits = ConcurrencyLayer::new(Permits::new(2));
    let window = FixedWindow::new(3, Duration::from_secs(1)).shared();
    let ours = ServiceBuilder::new()
        .layer(permits.until_response().max_waiting(2))
        .layer(PaceLayer::new(window))
        .service(service_fn(begin));
    let ours = outcomes(ours, 5).await;

    let begins = [0, 0, 100, 1_000].map(Duration::from_millis);
    assert_eq!(ours, [&begins.map(Some)[..], &[None]].concat());
    assert_eq!(theirs, ours);
}

/// A call that takes 100 ms, and says when it has begun.
async fn begin((): ()) -> Result<Instant, Infallible> {
    let begin = Instant::now();
    sleep(Duration::from_millis(100)).await;
    Ok(begin)
}

/// After how long each of `count` calls at once has begun; `None` if it was refused.
async fn outcomes<S>(service: S, count: usize) -> Vec<Option<Duration>>
where
    S: Service<(), Response = Instant, Error: Debug> + Clone,
{
    let start = Instant::now();
    let calls = (0..count).map(|_| {
        let mut service = service.clone();
        async move {
            poll_fn(|cx| service.poll_ready(cx)).await.ok()?;
            let begin = service.call(()).await.ok()?;
            Some(begin - start)
        }
    });
    join_all(calls).await
}

#[tokio::test(start_paused = true)]
async fn a_leaky_bucket_and_its_port_pass_whole_refills_at_the_same_instants() {
    let (refill, interval) = (10, Duration::from_millis(100));
    let theirs = leaky_bucket::RateLimiter::builder()
        .max(100)
        .initial(20)
        .refill(refill)
        .interval(interval)
        .fair(true)
        .build();
    let start = Instant::now();
    let mut their_times = Vec::new();
    for cost in [20, 10, 30, 10] {
        theirs.acquire(cost).await;
        their_times.push(start.elapsed());
    }
    assert!(!theirs.try_acquire(1));

    let rate = Rate::new(10, interval);
    let ours = TokenBucket::new(rate, 100).with_start(20).shared();
    let start = Instant::now();
    let mut our_times = Vec::new();
    for cost in [20, 10, 30, 10] {
        ours.acquire(cost).await.unwrap();
        our_times.push(start.elapsed());
    }
    assert!(!ours.try_acquire(1).is_pass());

    assert_eq!(our_times, [0, 100, 400, 500].map(Duration::from_millis));
    assert_eq!(their_times, our_times);
}

#[tokio::test(start_paused = true)]
async fn half_a_refill_takes_half_of_the_time_here_and_all_of_it_in_a_leaky_bucket() {
    let interval = Duration::from_millis(100);
    let theirs = leaky_bucket::RateLimiter::builder()
        .refill(10)
        .interval(interval)
        .build();
    let start = Instant::now();
    theirs.acquire(5).await;
    assert_eq!(start.elapsed(), interval);

    let bucket = TokenBucket::new(Rate::new(10, interval), 100).with_empty_start();
    let start = Instant::now();
    bucket.shared().acquire(5).await.unwrap();
    assert_eq!(start.elapsed(), interval / 2);
}
