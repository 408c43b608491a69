//! How do I bound what waits for a limit, and end the waiting at shutdown?
#![expect(clippy::disallowed_methods, reason = "shows the time")]

use std::time::Duration;

use futures::{StreamExt, stream};
use paceline::limiter::Line;
use paceline::prelude::*;
use tokio::time::{Instant, sleep};

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    let start = Instant::now();
    let limit = Interval::every(Duration::from_millis(100)).shared();

    // At most three requests wait. All clones share the line.
    let line = Line::new(limit.clone()).with_max_waiting(3);
    let requests: Vec<_> = (1..=5).map(|_| tokio::spawn(line.acquire(1))).collect();
    sleep(Duration::from_millis(250)).await;
    assert_eq!(line.waiting(), 1);

    // At shutdown. Requests that wait fail at once, and what has passed has passed.
    line.close();
    let mut passed = 0;
    for (number, request) in (1..).zip(requests) {
        match request.await.unwrap() {
            Ok(()) => passed += 1,
            Err(refused) => println!("request {number}: {refused}"),
        }
    }
    // One passed at once, two in their turn, one was too many, and one waited when the line was closed.
    assert_eq!(passed, 3);
    assert_eq!(
        limit.stats().passed,
        3,
        "nothing was counted for the others"
    );
    assert!(line.acquire(1).await.unwrap_err().is_closed());
    assert_eq!(start.elapsed(), Duration::from_millis(250));

    // A stream takes a line with `try_pace`, and ends with the error.
    let line = Line::new(limit);
    let calls = stream::iter(1..=10).try_pace(line.clone());
    let calls = tokio::spawn(calls.collect::<Vec<_>>());
    sleep(Duration::from_millis(200)).await;
    line.close();
    let calls = calls.await.unwrap();
    assert_eq!(calls.len(), 3);
    assert!(calls[2].is_err_and(|error| error.is_closed()));

    // With jitter, processes that wait for the same instant do not all come in it. Nothing comes too early.
    let start = Instant::now();
    let window = SlidingLog::new(1, Duration::from_secs(1)).shared();
    let line = Line::new(window).with_jitter(Duration::from_millis(200));
    line.acquire(1).await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO, "it did not wait");
    line.acquire(1).await.unwrap();
    println!("with jitter after {:?}", start.elapsed());
    assert!((1_000..=1_200).contains(&start.elapsed().as_millis()));
}
