//! The ready observers, behind features.
#![cfg(all(feature = "metrics", feature = "tracing"))]
#![expect(clippy::float_cmp, reason = "small whole numbers are exact")]

use futures::{FutureExt, StreamExt, stream};
use paceline::concurrency::Permits;
use paceline::feedback::Feedback;
use paceline::limiter::{Metrics, Mode, Observed, Observer, Switch, TracingObserver};
use paceline::policy::{SlidingCounter, Unlimited};
use paceline::prelude::*;
use testkit::clock::jump;
use tracing::Level;

use super::recorded::Recorded;
use super::{bucket, spawned, used};
use crate::timed::ms;
use crate::written::Written;

/// Two pass, one after a wait; one is too costly, one is refused, one gives up.
async fn a_day_in_the_life(observer: impl Observer + Clone) {
    let limit = Observed::new(bucket(2).shared(), observer);
    let costs = stream::iter([2, 1, 9]).pace_by_cost(limit.clone(), |cost| *cost);
    assert_eq!(costs.count().await, 3);
    assert_eq!(stream::iter([1]).enforce(limit.clone()).count().await, 1);
    let mut waits = stream::iter([1]).pace(limit);
    assert!(waits.next().now_or_never().is_none());
    jump(ms(30)).await;
}

/// Metrics, and where they are recorded.
fn recorded(metrics: fn() -> Metrics) -> (Recorded, Metrics) {
    let recorded = Recorded::default();
    let metrics = metrics::with_local_recorder(&recorded, metrics);
    (recorded, metrics)
}

#[tokio::test(start_paused = true)]
async fn metrics_count_requests_permits_and_waits() {
    let (recorded, metrics) = recorded(|| Metrics::new("sms"));
    a_day_in_the_life(metrics).await;

    assert_eq!(
        recorded.lines(),
        [
            "paceline_paused_until_timestamp_seconds{limit=sms} [0.0]",
            "paceline_permits_total{limit=sms} [3.0]",
            "paceline_requests_total{limit=sms,outcome=gave_up} [1.0]",
            "paceline_requests_total{limit=sms,outcome=passed} [2.0]",
            "paceline_requests_total{limit=sms,outcome=refused} [1.0]",
            "paceline_requests_total{limit=sms,outcome=too_costly} [1.0]",
            "paceline_wait_seconds{limit=sms} [0.0, 0.1]",
            "paceline_waiting_requests{limit=sms} [0.0]",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn metrics_of_a_limit_that_carries_them_count_each_request() {
    let (recorded, metrics) = recorded(|| Metrics::new("sms"));
    let limit = bucket(2).shared().with_observer(metrics.clone());

    assert_eq!(stream::iter(0..8).pace(limit.clone()).count().await, 8);
    limit.acquire(1).await.unwrap();
    for _ in 0..3 {
        assert!(!limit.try_acquire(1).is_pass());
    }
    let passed = spawned([limit.acquire_owned(1)]);
    tokio::task::yield_now().await;
    let of = |outcome: &str| {
        recorded.value(&format!(
            "paceline_requests_total{{limit=sms,outcome={outcome}}}"
        ))
    };
    assert_eq!((of("passed"), of("refused")), (9.0, 3.0));
    assert_eq!(recorded.value("paceline_waiting_requests{limit=sms}"), 1.0);
    assert_eq!(passed.await, [100]);
    assert_eq!(recorded.value("paceline_waiting_requests{limit=sms}"), 0.0);

    let shadow = Switch::new().with_mode(Mode::Shadow);
    let observed = Observed::new(used(100).switched(&shadow), metrics);
    assert!(observed.try_acquire(1).await.is_pass());
    assert_eq!((of("passed"), of("shadowed")), (10.0, 1.0));
    assert_eq!(recorded.value("paceline_permits_total{limit=sms}"), 10.0);
}

/// Seconds since 1970.
#[expect(clippy::disallowed_types, reason = "what the gauge shows")]
fn unix_time() -> f64 {
    let now = std::time::SystemTime::now();
    let epoch = std::time::SystemTime::UNIX_EPOCH;
    now.duration_since(epoch).unwrap().as_secs_f64()
}

#[tokio::test(start_paused = true)]
async fn the_gauge_of_pauses_is_the_time_at_which_the_last_one_ends() {
    let (recorded, metrics) = recorded(|| Metrics::new("sms"));
    let limit = bucket(2).shared().with_observer(metrics);
    let until = || recorded.value("paceline_paused_until_timestamp_seconds{limit=sms}");
    assert_eq!(until(), 0.0);

    let before = unix_time();
    limit.pause_for(ms(2_000));
    assert!(until() >= before + 2.0);
    assert!(until() <= unix_time() + 2.0);
    limit.pause_for(ms(1_000));
    assert!(
        until() >= before + 2.0,
        "of two pauses the later end counts"
    );
    limit.apply_feedback(&Feedback::parse([("Retry-After", "60")], ms(0)));
    assert!(until() >= before + 60.0);
    limit.resume();
    assert_eq!(until(), 0.0);
}

#[tokio::test(start_paused = true)]
async fn metrics_of_permits_show_how_many_there_are_and_are_in_use() {
    let (recorded, metrics) = recorded(|| Metrics::for_permits("db"));
    let permits = Permits::new(3).with_observer(metrics);
    let in_use = || recorded.value("paceline_permits_in_use{limit=db}");
    let limit = || recorded.value("paceline_permits_limit{limit=db}");
    assert_eq!((in_use(), limit()), (0.0, 3.0));

    let one = permits.acquire().await;
    let two = permits.try_acquire_many(2);
    assert!(permits.try_acquire().is_none());
    assert_eq!(in_use(), 3.0);
    drop(one);
    assert_eq!(in_use(), 2.0);
    permits.resize(7);
    drop(two);
    assert_eq!((in_use(), limit()), (0.0, 7.0));
}

#[tokio::test(start_paused = true)]
async fn the_busiest_keys_have_labels_and_the_others_share_one() {
    let recorded = Recorded::default();
    let count = || {
        let limits = Unlimited.keyed::<u32>();
        let limits = limits.with_observer_by_key(Metrics::by_key("users", 2));
        // Two of three requests are for users 1 and 2, and all others come once.
        for round in 0..1_000 {
            for user in [1, 2, 1_000 + round] {
                assert!(limits.try_acquire(&user, 1).is_pass());
            }
        }
    };
    metrics::with_local_recorder(&recorded, count);
    let passed = |key: &str| {
        recorded.value(&format!(
            "paceline_requests_total{{limit=users,key={key},outcome=passed}}"
        ))
    };
    let (one, two, other) = (passed("1"), passed("2"), passed("other"));
    assert_eq!(one + two + other, 3_000.0, "each request is counted once");
    let lines = recorded.lines();
    let keys = lines.iter().filter(|line| line.contains("permits_total"));
    assert_eq!(keys.count(), 3, "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn traces_say_what_happened_to_each_request() {
    let (written, guard) = Written::up_to(Level::DEBUG);
    a_day_in_the_life(TracingObserver::new("sms")).await;
    drop(guard);
    assert_eq!(
        written.lines(),
        [
            "message=passed limit=\"sms\" cost=2 waited=0ns",
            "message=passed limit=\"sms\" cost=1 waited=100ms",
            "message=too costly limit=\"sms\" cost=9 capacity=2",
            "message=refused limit=\"sms\" cost=1 retry_in=100ms",
            "message=gave up limit=\"sms\" waited=30ms",
        ]
    );
}

/// Of a hundred in a window; a quarter of the second one is over.
#[tokio::test(start_paused = true)]
async fn a_decision_by_two_windows_is_traced_with_its_sums() {
    let (written, _guard) = Written::up_to(Level::TRACE);
    let limit = SlidingCounter::smooth(100, ms(1_000)).shared();
    let limit = limit.with_observer(TracingObserver::new("window"));
    assert!(limit.try_acquire(90).is_pass());
    jump(ms(1_250)).await;
    assert!(limit.try_acquire(30).is_pass());
    assert!(!limit.try_acquire(9).is_pass());
    jump(ms(233)).await;
    assert!(limit.try_acquire(9).is_pass());

    let sums = |cost, [current, previous]: [u32; 2], weight: &str, total: u32, passed: bool| {
        format!(
            "message=decided by two windows cost={cost} capacity=100 current={current} previous={previous} weight={weight} \
             total={total} passed={passed}"
        )
    };
    let passed = |cost: u32| format!("message=passed limit=\"window\" cost={cost} waited=0ns");
    let lines = [
        sums(90, [0, 0], "1.000", 0, true),
        passed(90),
        // 67.5, rounded up.
        sums(30, [0, 90], "0.750", 68, true),
        passed(30),
        sums(9, [30, 90], "0.750", 98, false),
        "message=refused limit=\"window\" cost=9 retry_in=72.222223ms".to_owned(),
        sums(9, [30, 90], "0.517", 77, true),
        passed(9),
    ];
    assert_eq!(written.lines(), lines);
}

/// It is the answer to every request, and nobody looks.
#[tokio::test(start_paused = true)]
async fn sums_are_for_the_level_trace_and_for_two_windows() {
    let (written, _guard) = Written::up_to(Level::DEBUG);
    let smooth = SlidingCounter::smooth(100, ms(1_000)).shared();
    assert!(smooth.try_acquire(90).is_pass());
    assert_eq!(written.lines(), [""; 0]);

    let (written, _guard) = Written::up_to(Level::TRACE);
    let strict = SlidingCounter::strict(100, ms(1_000), 4).shared();
    assert!(strict.try_acquire(90).is_pass());
    assert_eq!(written.lines(), [""; 0]);
}
