//! How do I refuse or drop items that come too soon, instead of letting them wait?

use std::time::Duration;

use futures::{StreamExt, stream};
use paceline::policy::{Decision, Interval, TokenBucket};
use paceline::prelude::*;
use paceline::time::Rate;

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    // Refuse: an item that comes too soon becomes an error that carries the item.
    let limit = Interval::every(Duration::from_millis(100)).owned();
    let requests = stream::iter(["first", "second"]);
    let answers: Vec<_> = requests.enforce(limit).collect().await;
    for answer in answers {
        match answer {
            Ok(request) => {
                println!("200 {request}");
                assert_eq!(request, "first");
            }
            Err(exceeded) => {
                println!("429 {exceeded}");
                assert_eq!(exceeded.retry_in(), Some(Duration::from_millis(100)));
                assert_eq!(exceeded.into_item(), "second");
            }
        }
    }

    // Drop and count: for samples, where the next one serves as well.
    let limit = TokenBucket::new(Rate::per_second(10), 3).owned();
    let mut samples = stream::iter(1..=1000).shed(limit);
    assert_eq!(samples.by_ref().collect::<Vec<_>>().await, [1, 2, 3]);
    assert_eq!(samples.shed_count(), 997);
    println!("dropped {} samples", samples.shed_count());

    // In a request handler, without a stream:
    let limit = Interval::every(Duration::from_secs(1)).shared();
    let handle = || match limit.try_acquire(1) {
        Decision::Pass => 200,
        Decision::Wait { .. } => 429,
        Decision::Never { .. } => 413,
    };
    assert_eq!([handle(), handle()], [200, 429]);
    assert_eq!(limit.stats().refused, 1);
}
