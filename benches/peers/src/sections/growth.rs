//! How the cost of each grows with the number of all: `paceline` alone, over three decades.

use std::future::Future;
use std::hint::black_box;
use std::time::Duration;

use futures::StreamExt;
use paceline::policy::{Decision, Interval, Policy, SlidingCounter, SlidingLog, TokenBucket};
use paceline::prelude::*;
use paceline::time::{Rate, Tick};
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use crate::figures::{Figure, Notes};
use crate::measure::{Extent, bytes, exponent, median, with_commas, worked};

use super::hot::runtime;

const NANOS: &str = "ns for each";
const BYTES: &str = "bytes for each";
const LAW: &str = "exponent";

/// Ten elements of each stream or key.
const TEN: u64 = 10;
const MILLISECOND: Duration = Duration::from_millis(1);

/// Something of which there can be many.
struct Subject {
    name: &'static str,
    /// The least number of them; the greatest is a thousand times that.
    from: u64,
    /// How long all takes, and how often that is to be divided.
    run: fn(u64) -> (Duration, u64),
}

const SUBJECTS: [Subject; 7] = [
    Subject {
        name: "elements of a stream",
        from: 10_000,
        run: |n| {
            let work = || runtime().block_on(paced_elements(n));
            (worked(work).0, n)
        },
    },
    Subject {
        name: "waiters for one limit",
        from: 100,
        run: |n| (on_a_paused_clock(waiters(n)), n),
    },
    Subject {
        name: "streams on one limit",
        from: 10,
        run: |n| (on_a_paused_clock(streams(n)), n * TEN),
    },
    Subject {
        name: "keys in one stream",
        from: 10,
        run: |n| (on_a_paused_clock(keys_in_one_stream(n)), n * TEN),
    },
    Subject {
        name: "keys of one limit",
        from: 1_000,
        run: |n| (keys(n), n),
    },
    Subject {
        name: "requests in a SlidingLog",
        from: 100,
        run: |n| {
            let limit = u32::try_from(n).unwrap_or(u32::MAX);
            decisions(&SlidingLog::new(limit, Duration::from_nanos(n)))
        },
    },
    Subject {
        name: "buckets of a SlidingCounter",
        from: 1,
        run: |n| {
            let buckets = u32::try_from(n).unwrap_or(u32::MAX);
            decisions(&SlidingCounter::strict(
                1_000,
                Duration::from_micros(1),
                buckets,
            ))
        },
    },
];

pub(super) fn measure(extent: Extent) -> Vec<Figure> {
    let mut notes = Notes::new("growth");
    for subject in SUBJECTS {
        let mut points = Vec::new();
        for factor in extent.pick(&[1, 10, 100, 1_000][..], &[1, 10][..]) {
            let count = subject.from * factor;
            let rounds = (0..extent.pick(3, 1)).map(|_| {
                let (took, of) = (subject.run)(count);
                took.as_secs_f64() * 1e9 / of as f64
            });
            let nanos = median(&rounds.collect::<Vec<f64>>());
            points.push((count as f64, nanos));
            let case = (
                format!("× {}", with_commas(&factor.to_string())),
                *factor as f64,
            );
            let name = format!(
                "{}, from {}",
                subject.name,
                with_commas(&subject.from.to_string())
            );
            notes.add_at(NANOS, &name, (&case.0, case.1), nanos);
        }
        notes.add(LAW, subject.name, "time for each", exponent(&points));
    }
    log_bytes(extent, &mut notes);
    notes.figures
}

/// The memory of a log for each request, when each request came at an instant of its own.
fn log_bytes(extent: Extent, notes: &mut Notes) {
    let mut points = Vec::new();
    for factor in extent.pick(&[1, 10, 100, 1_000][..], &[1, 10][..]) {
        let count = 100 * factor;
        let limit = u32::try_from(count).unwrap_or(u32::MAX);
        let policy = SlidingLog::new(limit, Duration::from_secs(1));
        let mut state = policy.fresh(Tick::ZERO);
        let kept = bytes(|| {
            for at in 0..count {
                let _ = black_box(policy.decide(&mut state, Tick::from_nanos(at), 1));
            }
        });
        drop(state);
        let each = kept.kept as f64 / count as f64;
        points.push((count as f64, each));
        let case = (
            format!("× {}", with_commas(&factor.to_string())),
            *factor as f64,
        );
        notes.add_at(
            BYTES,
            "requests in a SlidingLog, from 100",
            (&case.0, case.1),
            each,
        );
    }
    notes.add(
        LAW,
        "requests in a SlidingLog",
        "bytes for each",
        exponent(&points),
    );
}

fn on_a_paused_clock(work: impl Future<Output = ()>) -> Duration {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime can be built where there are threads");
    worked(|| runtime.block_on(work)).0
}

async fn paced_elements(count: u64) {
    let limit = TokenBucket::new(Rate::new(u32::MAX, Duration::from_nanos(1)), u32::MAX);
    let paced = futures::stream::iter(0..count).pace(limit.owned());
    assert_eq!(paced.count().await as u64, count);
}

async fn waiters(count: u64) {
    let limit = Interval::every(MILLISECOND).shared();
    let tasks: JoinSet<_> = (0..count).map(|_| limit.acquire_owned(1)).collect();
    assert!(tasks.join_all().await.iter().all(Result::is_ok));
}

async fn streams(count: u64) {
    let limit = Interval::every(MILLISECOND).shared();
    let tasks: JoinSet<usize> = (0..count)
        .map(|_| futures::stream::iter(0..TEN).pace(limit.clone()).count())
        .collect();
    let passed: usize = tasks.join_all().await.into_iter().sum();
    assert_eq!(passed as u64, count * TEN);
}

async fn keys_in_one_stream(count: u64) {
    let limits = Interval::every(MILLISECOND).keyed::<u64>();
    let held = usize::try_from(count * TEN).unwrap_or(usize::MAX);
    let items = futures::stream::iter(0..count * TEN);
    let paced = items.pace_by_key(limits, move |item| item % count, held);
    assert_eq!(paced.count().await as u64, count * TEN);
}

fn keys(count: u64) -> Duration {
    let limits = Interval::every(Duration::from_secs(3600)).keyed::<u64>();
    let passed = || {
        (0..count)
            .filter(|key| limits.try_acquire(key, 1).is_pass())
            .count()
    };
    let (took, passed) = worked(passed);
    assert_eq!(passed as u64, count);
    took
}

/// A request each nanosecond, after the window has been filled: about one passes each.
fn decisions(policy: &impl Policy) -> (Duration, u64) {
    const DECISIONS: u64 = 200_000;
    let mut state = policy.fresh(Tick::ZERO);
    let mut ask = |at| {
        matches!(
            policy.decide(&mut state, Tick::from_nanos(at), 1),
            Decision::Pass
        )
    };
    for at in 0..DECISIONS {
        black_box(ask(at));
    }
    let asked = || {
        (DECISIONS..2 * DECISIONS)
            .filter(|at| black_box(ask(*at)))
            .count()
    };
    let (took, passed) = worked(asked);
    assert!(passed > 0, "a window lets something pass");
    (took, DECISIONS)
}
