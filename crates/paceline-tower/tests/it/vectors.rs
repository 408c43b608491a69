//! Sequences of requests that are published with their answers, through a layer.

use std::time::Duration;

use ::tower::Layer;
use paceline::limiter::PolicyExt;
use paceline::policy::{Policy, SlidingCounter, SlidingLog};
use paceline_tower::EnforceLayer;

use super::{call, echo};
use crate::timed::sleep;

const MINUTE: Duration = Duration::from_secs(60);

/// Sends a request at each of these seconds. The result is how long each has to wait: zero if it passes.
async fn waits_of<P, const N: usize>(limit: P, at: [u64; N]) -> [Duration; N]
where
    P: Policy<State: Send> + Send + 'static,
{
    let mut service = EnforceLayer::new(limit.shared()).layer(echo());
    let mut waits = [Duration::ZERO; N];
    let mut now = 0;
    for (second, wait) in at.into_iter().zip(&mut waits) {
        sleep(1_000 * (second - now)).await;
        now = second;
        if let Err(refused) = call(&mut service, 0).await {
            *wait = refused.retry_in().unwrap();
        }
    }
    waits
}

/// 4 a minute. There are 3 requests in the window before, and the request at a quarter of this window is its second:
/// 3 × 0.75 + 2 = 4.25, more than 4.
///
/// The sum includes the request itself. (The second of three requests of this window would have been refused too, and a refused
/// request is not counted.) This is the smooth counter. The strict one has no part of a request: it counts all 3 in full.
#[tokio::test(start_paused = true)]
async fn a_window_that_covers_three_quarters_of_3_and_2_more_exceeds_4() {
    let limit = SlidingCounter::smooth(4, MINUTE);
    let waits = waits_of(limit, [0, 20, 40, 60, 75]).await;
    assert_eq!(waits, [0, 0, 0, 0, 5].map(Duration::from_secs));
    // 3 × 2/3 + 2 = 4 is not more.
    let waits = waits_of(limit, [0, 20, 40, 60, 80]).await;
    assert_eq!(waits, [0; 5].map(Duration::from_secs));
}

/// 2 a minute. The request at 1:02:00 finds those of 1:01:40 and 1:01:50 in its minute.
#[tokio::test(start_paused = true)]
async fn a_log_of_2_a_minute_refuses_the_third_request_of_a_minute() {
    let clock = [(0, 1), (1, 40), (1, 50), (2, 0), (2, 39), (2, 40)];
    let at = clock.map(|(minute, second)| 60 * minute + second);
    let waits = waits_of(SlidingLog::new(2, MINUTE), at).await;
    assert_eq!(waits, [0, 0, 0, 40, 1, 0].map(Duration::from_secs));
}
