//! How do I keep a quota that is counted on arrival, when requests have a random latency?
#![expect(clippy::disallowed_methods, reason = "stands in for work")]

use std::cell::RefCell;
use std::time::Duration;

use futures::{StreamExt, stream};
use paceline::concurrency::Permits;
use paceline::policy::SlidingLog;
use paceline::prelude::*;
use tokio::time::{Instant, sleep};

const QUOTA: u32 = 5;
const WINDOW: Duration = Duration::from_secs(1);

/// Records the arrival of each request.
#[derive(Default)]
struct Provider(RefCell<Vec<Instant>>);

impl Provider {
    async fn call(&self, _request: u32) {
        sleep(Duration::from_millis(fastrand::u64(0..300))).await; // the request
        self.0.borrow_mut().push(Instant::now());
        sleep(Duration::from_millis(fastrand::u64(0..300))).await; // the answer
    }

    /// The number of arrivals that exceed the quota of their window.
    fn violations(&self) -> usize {
        let arrivals = self.0.borrow();
        let runs = arrivals.windows(QUOTA as usize + 1);
        runs.filter(|run| *run.last().unwrap() - run[0] < WINDOW)
            .count()
    }
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    fastrand::seed(1);

    // An exact limit on emissions is not enough. A margin covers the latency, if its longest is known.
    let limit = SlidingLog::new(QUOTA, WINDOW);
    let with_margin = limit.with_margin(Duration::ZERO..=Duration::from_millis(300));
    for (name, limit) in [("by emissions", limit), ("with a margin", with_margin)] {
        let provider = Provider::default();
        let emissions = stream::iter(0..100).pace(limit.owned());
        let calls = emissions.for_each_concurrent(None, |request| provider.call(request));
        calls.await;
        println!("{name}: {} violations", provider.violations());
        assert_eq!(provider.violations() == 0, name == "with a margin");
    }

    // A permit is released one window after the answer, which proves the arrival.
    let provider = Provider::default();
    let permits = Permits::new(QUOTA).with_cooldown(WINDOW);
    let calls = stream::iter(0..100).concurrent(permits, |request| provider.call(request));
    assert_eq!(calls.count().await, 100);
    println!("by arrivals: {} violations", provider.violations());
    assert_eq!(provider.violations(), 0);
}
