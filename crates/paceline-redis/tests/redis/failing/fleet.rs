//! Replicas that lose Redis together and reconnect at different times.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{StreamExt, stream};
use paceline::policy::SlidingLog;
use paceline::prelude::*;
use paceline_redis::OutagePolicy;

use super::hasty;
use crate::limits::{Passed, pause};
use crate::servers::Server;

const LIMIT: u32 = 20;
const WINDOW: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Outage {
    Frozen,
    Killed,
}

/// The most that two insured replicas pass in any window, less the 100 ms that a permit may be late.
async fn most_in_a_window(outage: Outage, lag: Duration) -> usize {
    let mut server = Server::start().await;
    let passed = Arc::new(Mutex::new(Passed::default()));
    let mut replicas = Vec::new();
    for number in 0..2 {
        let redis = hasty(&server.url(), OutagePolicy::insured(2)).await;
        let limit = redis.limit("a", SlidingLog::new(LIMIT, WINDOW)).unwrap();
        let passed = Arc::clone(&passed);
        replicas.push(tokio::spawn(async move {
            let mut paced = stream::iter(0..).pace(limit);
            // The second replica notices the outage later, and so reconnects at other times.
            pause((WINDOW / 2 + lag) * number).await;
            while paced.next().await.is_some() {
                passed.lock().unwrap().note();
            }
        }));
    }
    pause(WINDOW / 2).await;
    match outage {
        Outage::Frozen => server.freeze(),
        Outage::Killed => server.kill(),
    }
    pause(3 * WINDOW).await;
    match outage {
        Outage::Frozen => server.thaw(),
        Outage::Killed => server.start_again().await,
    }
    pause(4 * WINDOW).await;
    for replica in replicas {
        replica.abort();
    }
    let passed = passed.lock().unwrap();
    passed.most_in(WINDOW.saturating_sub(Duration::from_millis(100)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn insured_replicas_that_reconnect_at_different_times_stay_inside_the_limit() {
    for outage in [Outage::Frozen, Outage::Killed] {
        let rounds = [0, 130, 310].map(|lag| most_in_a_window(outage, Duration::from_millis(lag)));
        for most in futures::future::join_all(rounds).await {
            assert!(most <= LIMIT as usize, "{outage:?}: {most}");
        }
    }
}
