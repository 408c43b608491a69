//! One process near the server and one far from it, both waiting for permits of one limit.

use std::time::Duration;

use paceline::policy::{Interval, SlidingLog};
use paceline_redis::{OutagePolicy, RedisPolicy};
use tokio::task::JoinSet;

use super::process;
use crate::limits::{PATIENT, pause};
use crate::servers::{Relay, Server};

/// The round trip of the far process. That of the near one is well below a millisecond.
const FAR: Duration = Duration::from_millis(20);

/// How many permits both get together.
const PERMITS: u32 = 180;

/// What the near process gets, and the far one.
async fn shares(policy: impl RedisPolicy) -> [u32; 2] {
    let server = Server::start().await;
    let relay = Relay::start(server.address());
    let mut passes = JoinSet::new();
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    for (process_number, url) in [server.url(), relay.url()].into_iter().enumerate() {
        let redis = process(&url, OutagePolicy::closed(), PATIENT).await;
        let limit = redis.limit("a", policy.clone()).unwrap();
        let sender = sender.clone();
        passes.spawn(async move {
            // Both begin when the relay has its delay.
            pause(Duration::from_millis(50)).await;
            loop {
                limit.acquire(1).await.unwrap();
                let _ = sender.send(process_number);
            }
        });
    }
    relay.delay_replies(FAR).await;
    let mut shares = [0, 0];
    for _ in 0..PERMITS {
        shares[receiver.recv().await.unwrap()] += 1;
    }
    shares
}

/// Not a test: between processes, a permit goes to the one whose request comes first when it is available.
#[tokio::test]
#[ignore = "is a measurement: it prints what each process gets"]
async fn measures_a_near_and_a_far_process() {
    let [near, far] = shares(Interval::every(FAR)).await;
    println!("interval: near {near}, far {far}");
    let [near, far] = shares(SlidingLog::new(10, 10 * FAR)).await;
    println!("log: near {near}, far {far}");
}
