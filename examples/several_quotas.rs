//! How do I keep several quotas at once, like "10 a second, and 15 in any minute"?
#![expect(clippy::disallowed_methods, reason = "shows the time")]

use std::time::Duration;

use futures::{StreamExt, stream};
use paceline::policy::{All, Interval, SlidingLog};
use paceline::prelude::*;
use paceline::time::Rate;
use tokio::time::Instant;

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    // A request passes if all quotas allow it. Otherwise none of them counts it.
    let quotas = All::new((
        Interval::from_rate(Rate::per_second(10)),
        SlidingLog::new(15, Duration::from_secs(60)),
    ));

    let start = Instant::now();
    let calls = stream::iter(1..=20).pace(quotas.owned());
    let left_at: Vec<_> = calls.map(|_call| start.elapsed()).collect().await;

    // The first fifteen are 100 ms apart. Then the quota of the minute is used up.
    assert_eq!(left_at[14], Duration::from_millis(1_400));
    assert_eq!(left_at[15], Duration::from_secs(60));
    assert_eq!(left_at[19], Duration::from_millis(60_400));
    for (call, left_at) in (1..).zip(&left_at) {
        println!("call {call:2} after {left_at:?}");
    }
}
