//! How do I find out what a new limit would refuse, before I enforce it?
#![expect(clippy::disallowed_methods, reason = "stands in for work")]

use std::time::Duration;

use futures::{StreamExt, stream};
use paceline::limiter::{Mode, Shared, Switch, Switched};
use paceline::policy::TokenBucket;
use paceline::prelude::*;
use paceline::time::Rate;
use tokio::time::sleep;

/// Sends twenty requests in a second, and returns the number that passed.
async fn traffic(limit: &Switched<Shared<TokenBucket>>) -> usize {
    let requests = stream::iter(1..=20).min_interval(Duration::from_millis(50));
    let answers: Vec<_> = requests.enforce(limit.clone()).collect().await;
    answers.iter().filter(|answer| answer.is_ok()).count()
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    let switch = Switch::new();
    let limit = TokenBucket::new(Rate::per_second(10), 5).shared();
    let limit = limit.switched(&switch);

    // Shadow mode: every request passes, and the switch counts those that the limit would hold back.
    switch.set_mode(Mode::Shadow);
    assert_eq!(traffic(&limit).await, 20);
    assert_eq!(switch.stats().held_back, 6);
    println!("it would refuse {} of 20", switch.stats().held_back);

    // Enforced after an idle second: the same number is refused.
    sleep(Duration::from_secs(1)).await;
    switch.set_mode(Mode::Active);
    assert_eq!(traffic(&limit).await, 14);

    // Switched off: nothing is limited or counted.
    switch.set_mode(Mode::Off);
    assert_eq!(traffic(&limit).await, 20);
    assert_eq!(switch.stats().held_back, 6);
}
