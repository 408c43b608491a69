//! How do I change or pause a limit while streams and tasks wait for it?
#![expect(clippy::disallowed_methods, reason = "stands in for work")]

use std::time::Duration;

use futures::{StreamExt, stream};
use paceline::policy::Interval;
use paceline::prelude::*;
use tokio::time::{Instant, sleep};

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    let start = Instant::now();
    let limit = Interval::every(Duration::from_millis(100)).shared();

    let calls = stream::iter(1..=9).pace(limit.clone()).map(move |call| {
        println!("{:4} ms: call {call}", start.elapsed().as_millis());
        start.elapsed().as_millis()
    });
    let calls = tokio::spawn(calls.collect::<Vec<_>>());

    // At 250 ms the provider allows more. It applies to waiters at once, and spent permits stay spent.
    sleep(Duration::from_millis(250)).await;
    limit.retune(Interval::every(Duration::from_millis(75)));

    // At 400 ms it answers "429, retry after 1 s", so the limit pauses for a second.
    sleep(Duration::from_millis(150)).await;
    limit.pause_for(Duration::from_secs(1));

    // At 1000 ms it allows requests again, at a lower rate.
    sleep(Duration::from_millis(600)).await;
    limit.retune(Interval::every(Duration::from_millis(500)));
    limit.resume();

    let left_at = calls.await.unwrap();
    assert_eq!(left_at[..3], [0, 100, 200]);
    assert_eq!(left_at[3..5], [275, 350]);
    assert_eq!(left_at[5..], [1000, 1500, 2000, 2500]);
}
