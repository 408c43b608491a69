//! How do I limit the calls in flight over all tasks, and find the number that a provider can serve?
#![expect(clippy::disallowed_methods, reason = "stands in for work")]

use std::time::Duration;

use futures::{StreamExt, join, stream};
use paceline::concurrency::{Aimd, Outcome, Permits};
use paceline::prelude::*;
use paceline::time::Clock;
use tokio::time::{Instant, sleep};

const LATENCY: Duration = Duration::from_millis(100);

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    // Four at once, over two streams and a task that share the permits.
    let start = Instant::now();
    let permits = Permits::new(4);
    let calls = || stream::iter(0..10).concurrent(permits.clone(), |_call| sleep(LATENCY));
    let by_hand = async {
        let _permit = permits.acquire().await; // released when it is dropped
        sleep(LATENCY).await;
    };
    join!(calls().count(), calls().count(), by_hand);
    println!("21 calls of 100 ms in {:?}", start.elapsed());
    assert_eq!(start.elapsed(), LATENCY * 6);

    // The best number: one more after a success, half after a refusal.
    let permits = Permits::new(1);
    let mut controller = Aimd::new(1, 100);
    let mut clock = Clock::new();
    let mut answers = stream::iter(0..200).concurrent(permits.clone(), |_call| {
        let refused = permits.in_use() > 6; // the provider serves six at once
        async move {
            sleep(LATENCY).await;
            if refused {
                Outcome::Dropped
            } else {
                Outcome::Success { latency: LATENCY }
            }
        }
    });
    let mut most = 0;
    while let Some(outcome) = answers.next().await {
        let in_use = permits.in_use() + 1; // this one has just ended
        controller.observe(clock.now(), in_use, outcome);
        permits.resize(controller.limit());
        most = most.max(permits.limit());
    }
    println!("the provider serves 6; the controller tried at most {most}");
    assert_eq!(most, 7);
}
