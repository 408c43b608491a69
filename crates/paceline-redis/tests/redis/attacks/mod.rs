//! Attacks: many keys at once, cancelled requests, steps of the server's clock. In real time, on real servers.
//!
//! A test counts passes, and asserts bounds that hold on a slow machine too.

mod cancelled;
mod clock_steps;
mod herd;

use std::time::Duration;

use paceline_redis::{OutagePolicy, Redis};

use crate::failing::until_up;

/// A connected client, which stands for a process.
async fn process(url: &str, when_down: OutagePolicy, deadline: Duration) -> Redis {
    let redis = Redis::open(url, when_down).unwrap();
    let redis = redis.with_deadline(deadline).unwrap();
    until_up(&redis).await;
    redis
}
