//! How do tasks and a stream share one limit?
#![expect(clippy::disallowed_methods, reason = "shows the time")]

use std::time::Duration;

use futures::{StreamExt, stream};
use paceline::policy::Interval;
use paceline::prelude::*;
use tokio::time::Instant;

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    let start = Instant::now();
    let now = move || start.elapsed().as_millis();
    let limit = Interval::every(Duration::from_millis(100)).shared();

    // Background work is a stream. All clones of the limit share one queue.
    let jobs = stream::iter(1..=4).pace(limit.clone());
    let jobs = tokio::spawn(jobs.map(move |_job| now()).collect::<Vec<_>>());

    // Users are tasks that call `acquire_one`.
    let users: Vec<_> = ["ann", "bob"]
        .into_iter()
        .map(|user| {
            let limit = limit.clone();
            tokio::spawn(async move {
                limit.acquire_one().await;
                println!("{} ms: call for {user}", now());
                now()
            })
        })
        .collect();

    // First come, first served: when the users came, one job had passed and one was queued.
    let mut users_at = Vec::new();
    for user in users {
        users_at.push(user.await.unwrap());
    }
    assert_eq!(users_at, [200, 300]);
    assert_eq!(jobs.await.unwrap(), [0, 100, 400, 500]);
    println!("{:?}", limit.stats());
    assert_eq!(limit.stats().passed, 6);
}
