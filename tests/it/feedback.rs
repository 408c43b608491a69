//! A limit that obeys the headers of a provider.

mod hostile;
mod providers;
mod written;

use std::time::Duration;

use futures::{StreamExt, stream};
use paceline::feedback::Feedback;
use paceline::limiter::Shared;
use paceline::policy::{Interval, Policy, SlidingLog};
use paceline::prelude::*;

use crate::timed::{drained, ms, now, since};

/// The time does not matter, since no header has a date.
fn feedback<const N: usize>(headers: [(&str, &str); N]) -> Feedback {
    Feedback::parse(headers, Duration::ZERO)
}

/// When each of so many calls leaves. `answered` hears its number, from 1 on.
async fn calls<P>(limit: &Shared<P>, count: u32, answered: impl Fn(u32)) -> Vec<u64>
where
    P: Policy + Send + 'static,
    P::State: Send,
{
    let calls = stream::iter(1..=count).pace(limit.clone());
    let left = drained(calls.inspect(|call| answered(*call))).await;
    left.items.into_iter().map(|(at, _)| at).collect()
}

#[tokio::test(start_paused = true)]
async fn a_refusal_after_the_third_item_pauses_the_stream() {
    let limit = Interval::every(ms(100)).shared();
    let left = calls(&limit, 5, |call| {
        if call == 3 {
            let refused = feedback([("Retry-After", "2")]);
            assert_eq!(limit.apply_feedback(&refused), Some(ms(2_000)));
        }
    });
    assert_eq!(left.await, [0, 100, 200, 2_200, 2_300]);
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_quota_pauses_before_the_first_refusal() {
    let start = now();
    let limit = SlidingLog::new(100, ms(60_000)).shared();
    let left = calls(&limit, 4, |call| {
        let remaining = (4 - call).to_string();
        let reset = ("X-RateLimit-Reset", "30");
        limit.apply_feedback(&feedback([("X-RateLimit-Remaining", &remaining), reset]));
    });
    assert_eq!(left.await, [0, 0, 0, 0]);
    limit.acquire(1).await.unwrap();
    assert_eq!(since(start), 30_000);
}

#[tokio::test(start_paused = true)]
async fn a_lowered_quota_is_kept_from_then_on() {
    let limit = Interval::every(ms(100)).shared();
    let left = calls(&limit, 6, |call| {
        if call == 3 {
            let lowered = feedback([("RateLimit-Policy", r#""default";q=4;w=1"#)]);
            assert_eq!(limit.apply_feedback(&lowered), None);
            limit.retune(Interval::from_rate(lowered.limit().unwrap()));
        }
    });
    assert_eq!(left.await, [0, 100, 200, 450, 700, 950]);
}

#[tokio::test(start_paused = true)]
async fn feedback_without_a_pause_changes_nothing() {
    let start = now();
    let limit = Interval::every(ms(100)).shared();
    limit.pause_for(ms(500));

    assert_eq!(limit.apply_feedback(&Feedback::default()), None);
    let unclear = limit.apply_feedback(&feedback([("Retry-After", "soon")]));
    assert_eq!(unclear, None);
    let at_once = limit.apply_feedback(&feedback([("Retry-After", "0")]));
    assert_eq!(at_once, Some(Duration::ZERO));
    limit.acquire(1).await.unwrap();
    assert_eq!(since(start), 500, "of two pauses the later end");
}
