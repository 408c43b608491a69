//! How do I keep the backlog of one tenant from holding up the others?
#![expect(clippy::disallowed_methods, reason = "shows the time")]

use std::time::Duration;

use paceline::limiter::FairQueue;
use paceline::prelude::*;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// Calls of a large tenant and of a small one, in the order in which they pass, each with its wait.
type Waits = Vec<(&'static str, Duration)>;

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    // A provider allows 10 calls a second, for all tenants together.
    let policy = Interval::every(Duration::from_millis(100));

    let one_queue = policy.shared();
    let waits = run(|_| one_queue.acquire_owned(1)).await;
    println!("one queue:     {}", longest(&waits, "small"));
    assert_eq!(longest_of(&waits, "small"), Duration::from_millis(99_500));

    let by_tenant = FairQueue::new(policy);
    let waits = run(|tenant| by_tenant.acquire(tenant, 1)).await;
    println!("taking turns:  {}", longest(&waits, "small"));
    assert_eq!(longest_of(&waits, "small"), Duration::from_millis(100));
    assert_eq!(waits.len(), 1_005, "the same calls, at the same rate");
}

/// The large tenant makes 1,000 calls at once; the small one makes five, half a second apart.
async fn run<F>(acquire: impl Fn(&'static str) -> F) -> Waits
where
    F: Future<Output = Result<(), paceline::limiter::AcquireError>> + Send + 'static,
{
    let mut calls = JoinSet::new();
    let call = |tenant| {
        let (came, acquire) = (Instant::now(), acquire(tenant));
        async move {
            acquire.await.expect("one permit is never too much");
            (tenant, came.elapsed())
        }
    };
    for _ in 0..1_000 {
        calls.spawn(call("large"));
    }
    for _ in 0..5 {
        sleep(Duration::from_millis(500)).await;
        calls.spawn(call("small"));
    }
    calls.join_all().await
}

fn longest_of(waits: &Waits, tenant: &str) -> Duration {
    let waits = waits.iter().filter(|wait| wait.0 == tenant);
    waits.map(|wait| wait.1).max().unwrap_or_default()
}

fn longest(waits: &Waits, tenant: &str) -> String {
    format!(
        "the {tenant} tenant waits at most {:?}",
        longest_of(waits, tenant)
    )
}
