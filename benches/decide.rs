//! The cost of a decision of each policy, and of each limiter around one.

use std::hint::black_box;
use std::task::{Context, Waker};
use std::time::Duration;

use criterion::Criterion;
use paceline::concurrency::Permits;
use paceline::fair::FairShare;
use paceline::limiter::{Fair, Limiter, PolicyExt, Switch, Switched};
use paceline::policy::{
    All, FixedWindow, Interval, Policy, SlidingCounter, SlidingLog, TokenBucket, Unlimited,
};
use paceline::time::{Rate, Tick};

const WINDOW: Duration = Duration::from_micros(1);
const LIMIT: u32 = 100;
const KEYS: u64 = 1_000;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    policies(&mut criterion);
    limiters(&mut criterion);
    criterion.final_summary();
}

/// One request a nanosecond, so most of them have to wait.
fn policies(criterion: &mut Criterion) {
    let bucket = TokenBucket::new(Rate::new(LIMIT, WINDOW), LIMIT);
    let log = SlidingLog::new(LIMIT, WINDOW);
    bench(criterion, "unlimited", &Unlimited);
    bench(criterion, "interval", &Interval::every(WINDOW / LIMIT));
    bench(criterion, "token_bucket", &bucket);
    bench(criterion, "sliding_log", &log);
    let strict = SlidingCounter::strict(LIMIT, WINDOW, 10);
    bench(criterion, "sliding_counter/strict", &strict);
    let smooth = SlidingCounter::smooth(LIMIT, WINDOW);
    bench(criterion, "sliding_counter/smooth", &smooth);
    bench(criterion, "fixed_window", &FixedWindow::new(LIMIT, WINDOW));
    bench(criterion, "all", &All::new((bucket, log)));
}

fn bench(criterion: &mut Criterion, name: &str, policy: &impl Policy) {
    let mut state = policy.fresh(Tick::ZERO);
    let mut nanos = 0;
    criterion.bench_function(&format!("policy/{name}"), |bencher| {
        bencher.iter(|| {
            nanos += 1;
            policy.decide(&mut state, Tick::from_nanos(nanos), black_box(1))
        });
    });
}

/// No request waits.
fn limiters(criterion: &mut Criterion) {
    let bucket = TokenBucket::new(Rate::per_second(1_000), u32::MAX);
    let shared = bucket.shared();
    criterion.bench_function("limiter/shared", |bencher| {
        bencher.iter(|| shared.try_acquire(black_box(1)));
    });
    let mut cx = Context::from_waker(Waker::noop());
    let mut handle = bucket.shared();
    criterion.bench_function("limiter/handle", |bencher| {
        bencher.iter(|| handle.poll_decide(black_box(1), &mut cx));
    });
    let mut switched = Switched::new(bucket.shared(), Switch::new());
    criterion.bench_function("limiter/switched", |bencher| {
        bencher.iter(|| switched.poll_decide(black_box(1), &mut cx));
    });
    let keyed = bucket.keyed();
    let mut key = 0;
    criterion.bench_function("limiter/keyed", |bencher| {
        bencher.iter(|| {
            key = (key + 1) % KEYS;
            keyed.try_acquire(&key, black_box(1))
        });
    });
    let share = FairShare::new(u32::MAX, Duration::from_secs(3_600));
    let fair = Fair::new(
        share
            .try_with_max_clients(u32::try_from(KEYS).unwrap_or(u32::MAX))
            .unwrap(),
    );
    let mut client = 0;
    criterion.bench_function("limiter/fair", |bencher| {
        bencher.iter(|| {
            client = (client + 1) % KEYS;
            fair.try_acquire(&client, black_box(1))
        });
    });
    let permits = Permits::new(10);
    criterion.bench_function("concurrency/permits", |bencher| {
        bencher.iter(|| permits.try_acquire());
    });
}
