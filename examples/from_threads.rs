//! How do threads without a runtime wait for a limit that tasks use too?
#![expect(clippy::disallowed_methods, reason = "shows the time")]

use std::thread;
use std::time::Duration;

use paceline::prelude::*;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let start = Instant::now();
    let limit = Interval::every(Duration::from_millis(10)).shared();
    limit.acquire_one().await;

    // Threads and tasks wait in one queue, in order of arrival. A thread parks while it waits.
    let threads = ["import", "export"].map(|name| {
        let limit = limit.clone();
        thread::spawn(move || {
            let passed = limit.acquire_blocking(1, Duration::from_secs(60));
            println!("{name} after {:?}", start.elapsed());
            passed
        })
    });
    limit.acquire_one().await;
    println!("task after {:?}", start.elapsed());

    // A task waits for a thread in `spawn_blocking`, and calls `acquire_blocking` there too.
    for thread in threads {
        let passed = spawn_blocking(|| thread.join().unwrap()).await.unwrap();
        assert_eq!(passed, Ok(()));
    }
    // One request passed at once, and three each 10 ms after the one before.
    assert!(start.elapsed() >= Duration::from_millis(30));
    assert_eq!(limit.stats().passed, 4);

    // A timeout fails at once if the wait is known to be longer. Nothing is counted then.
    limit.pause_for(Duration::from_secs(3_600));
    let asked = limit.clone();
    let late = spawn_blocking(move || asked.acquire_blocking(1, Duration::from_millis(20)));
    let late = late.await.unwrap().unwrap_err();
    println!("{late}, but in {:?}", late.retry_in());
    assert!(late.is_too_late());

    // A timeout of zero only asks, and so may be used in a task.
    assert!(limit.acquire_blocking(1, Duration::ZERO).is_err());
    assert_eq!(limit.stats().passed, 4);
}
