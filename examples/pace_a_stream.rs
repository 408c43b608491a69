//! How do I slow a stream down to what an API allows?
//!
//! Like every example in this folder it runs on a paused clock (`start_paused`), where waits take no time and instants are
//! exact. A real program leaves that out.
#![expect(clippy::disallowed_methods, reason = "stands in for work")]

use std::time::Duration;

use futures::{StreamExt, stream};
use paceline::policy::TokenBucket;
use paceline::prelude::*;
use paceline::time::Rate;
use tokio::time::{Instant, sleep};

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    // At least 50 ms apart, counted from the last actual emission.
    let start = Instant::now();
    let mut calls = stream::iter(["a", "b", "c", "d"]).min_interval(Duration::from_millis(50));
    let mut left_at = Vec::new();
    while let Some(call) = calls.next().await {
        left_at.push(start.elapsed().as_millis());
        println!("{:3} ms: call {call}", start.elapsed().as_millis());
        if call == "b" {
            sleep(Duration::from_millis(70)).await; // unused time is not saved for a burst
        }
    }
    assert_eq!(left_at, [0, 50, 120, 170]);

    // Bursts of up to 5, and 10 a second on average.
    let start = Instant::now();
    let limit = TokenBucket::new(Rate::per_second(10), 5);
    let calls = stream::iter(1..=15).pace(limit.owned());
    assert_eq!(calls.count().await, 15);
    assert_eq!(start.elapsed(), Duration::from_secs(1));
    println!(
        "15 calls in {:?}: 5 at once, then 10 a second",
        start.elapsed()
    );
}
