//! A limit that obeys the headers of a provider.

mod hostile;
mod providers;
mod written;

use std::time::Duration;

use futures::{StreamExt, stream};
use paceline::feedback::Feedback;
use paceline::policy::{Interval, SlidingLog};
use paceline::prelude::*;

use crate::timed::{ms, now, since};

/// The time does not matter, since no header has a date.
fn feedback<const N: usize>(headers: [(&str, &str); N]) -> Feedback {
    Feedback::parse(headers, Duration::ZERO)
}

#[tokio::test(start_paused = true)]
async fn a_refusal_after_the_third_item_pauses_the_stream() {
    let start = now();
    let limit = Interval::every(ms(100)).shared();
    let mut calls = stream::iter(1..=5).pace(limit.clone());
    let mut left = Vec::new();

    while let Some(call) = calls.next().await {
        left.push((since(start), call));
        if call == 3 {
            let refused = feedback([("Retry-After", "2")]);
            assert_eq!(limit.apply_feedback(&refused), Some(ms(2_000)));
        }
    }
    let expected = [(0, 1), (100, 2), (200, 3), (2_200, 4), (2_300, 5)];
    assert_eq!(left, expected);
}

#[tokio::test(start_paused = true)]
async fn a_pause_also_delays_requests_that_wait_already() {
    let start = now();
    let limit = Interval::every(ms(100)).shared();
    limit.acquire(1).await.unwrap();
    let tasks: Vec<_> = (0..2).map(|_| tokio::spawn(limit.acquire(1))).collect();
    tokio::task::yield_now().await;

    limit.apply_feedback(&feedback([("Retry-After", "1.5"), ("Retry-After", "1")]));
    for (task, at) in tasks.into_iter().zip([1_500, 1_600]) {
        task.await.unwrap().unwrap();
        assert_eq!(since(start), at);
    }
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_quota_pauses_before_the_first_refusal() {
    let start = now();
    let limit = SlidingLog::new(100, ms(60_000)).shared();
    let mut calls = stream::iter(0..4).pace(limit.clone());
    let mut left = Vec::new();

    while let Some(call) = calls.next().await {
        left.push(since(start));
        let remaining = (3 - call).to_string();
        limit.apply_feedback(&feedback([
            ("X-RateLimit-Remaining", remaining.as_str()),
            ("X-RateLimit-Reset", "30"),
        ]));
    }
    assert_eq!(left, [0, 0, 0, 0]);
    limit.acquire(1).await.unwrap();
    assert_eq!(since(start), 30_000);
}

#[tokio::test(start_paused = true)]
async fn a_lowered_quota_is_kept_from_then_on() {
    let start = now();
    let limit = Interval::every(ms(100)).shared();
    let mut calls = stream::iter(1..=6).pace(limit.clone());
    let mut left = Vec::new();

    while let Some(call) = calls.next().await {
        left.push(since(start));
        if call == 3 {
            let lowered = feedback([("RateLimit-Policy", r#""default";q=4;w=1"#)]);
            assert_eq!(limit.apply_feedback(&lowered), None);
            limit.retune(Interval::from_rate(lowered.limit().unwrap()));
        }
    }
    assert_eq!(left, [0, 100, 200, 450, 700, 950]);
}

#[tokio::test(start_paused = true)]
async fn a_lowered_window_counts_earlier_requests() {
    let start = now();
    let limit = SlidingLog::new(5, ms(1_000)).shared();
    let mut calls = stream::iter(1..=6).pace(limit.clone());
    let mut left = Vec::new();

    while let Some(call) = calls.next().await {
        left.push(since(start));
        if call == 3 {
            let lowered = feedback([("RateLimit-Limit", "4, 4;w=2")]).limit().unwrap();
            limit.retune(SlidingLog::from_rate(lowered));
        }
    }
    assert_eq!(left, [0, 0, 0, 0, 2_000, 2_000]);
}

#[tokio::test(start_paused = true)]
async fn feedback_without_a_pause_changes_nothing() {
    let start = now();
    let limit = Interval::every(ms(100)).shared();
    limit.pause_for(ms(500));

    assert_eq!(limit.apply_feedback(&Feedback::default()), None);
    assert_eq!(
        limit.apply_feedback(&feedback([("Retry-After", "soon")])),
        None
    );
    let at_once = limit.apply_feedback(&feedback([("Retry-After", "0")]));
    assert_eq!(at_once, Some(Duration::ZERO));
    limit.acquire(1).await.unwrap();
    assert_eq!(since(start), 500, "of two pauses the later end");
}
