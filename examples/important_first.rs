//! How do I serve important requests first, without letting the others starve?
#![expect(clippy::disallowed_methods, reason = "shows the time")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use paceline::concurrency::Permits;
use paceline::limiter::{Priority, Shared};
use paceline::prelude::*;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    let start = Instant::now();
    let passed = Arc::new(Mutex::new(Vec::new()));
    let request = |limit: &Shared<Interval>, name: &'static str| {
        let (limit, passed) = (limit.clone(), Arc::clone(&passed));
        tokio::spawn(async move {
            limit.acquire_one().await;
            println!("{:5} ms: {name}", start.elapsed().as_millis());
            passed.lock().unwrap().push(name);
        })
    };

    // A class above is worth two seconds of waiting here, and ten by default.
    let limit = Interval::every(Duration::from_secs(1)).shared();
    let normal = limit.with_ageing(Duration::from_secs(2));
    let urgent = normal.clone().with_priority(Priority::High);
    let batch = normal.clone().with_priority(Priority::Low);
    normal.acquire_one().await;

    let first = [request(&batch, "batch"), request(&normal, "normal")];
    sleep(Duration::from_millis(500)).await;
    request(&urgent, "urgent").await.unwrap();
    futures::future::join_all(first).await;
    assert_eq!(*passed.lock().unwrap(), ["urgent", "normal", "batch"]);

    // Two classes above are worth four seconds: a request that has waited for five comes before a new urgent one.
    normal.pause_for(Duration::from_secs(10));
    let waited = request(&batch, "batch that has waited");
    sleep(Duration::from_secs(5)).await;
    request(&urgent, "urgent").await.unwrap();
    assert!(waited.is_finished());
    assert_eq!(passed.lock().unwrap()[3], "batch that has waited");

    // Permits have the same classes.
    let permits = Permits::new(1);
    let held = permits.acquire().await;
    let second = tokio::spawn(permits.acquire_owned());
    yield_now().await;
    let first = tokio::spawn(permits.with_priority(Priority::High).acquire_owned());
    yield_now().await;
    drop(held);
    let permit = first.await;
    assert!(permit.is_ok() && !second.is_finished());
    drop(permit);
    assert!(second.await.is_ok());
}
