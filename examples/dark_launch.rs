//! How do I launch a limit for a few users first, then for all?

use paceline::limiter::{Keyed, Limits, Share, Switch, Switched};
use paceline::prelude::*;

type Users = Switched<Keyed<u32, TokenBucket>>;

/// A thousand users send three requests each. Returns how many requests are refused.
async fn traffic(users: &Users) -> u32 {
    let mut refused = 0;
    for user in (0..1_000).cycle().take(3_000) {
        let Ok(limit) = users.at(user);
        refused += u32::from(!limit.try_acquire(1).await.is_pass());
    }
    refused
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    // Each user may send two requests at once, then one a minute. So far no user is limited.
    let switch = Switch::new().with_share(Share::NONE);
    let users = TokenBucket::new(Rate::per_minute(1), 2).keyed();
    let users = users.switched(&switch);

    // Day 1: nothing is refused, and the switch counts what would be.
    assert_eq!(traffic(&users).await, 0);
    assert_eq!(switch.stats().held_back, 1_000);
    println!("it would refuse {} requests", switch.stats().held_back);

    // Day 2: for one user in a hundred, the same ones in every process and after every restart.
    tokio::time::advance(Duration::from_secs(86_400)).await;
    switch.set_share("1%".parse().expect("a percentage"));
    let limited = (0..1_000).filter(|user| switch.share().includes(user));
    let limited: Vec<u32> = limited.collect();
    assert_eq!(traffic(&users).await, 9);
    assert_eq!(limited.len(), 9);
    println!("it limits the users {limited:?}");

    // Day 3: for all.
    tokio::time::advance(Duration::from_secs(86_400)).await;
    switch.set_share(Share::FULL);
    assert_eq!(traffic(&users).await, 1_000);
}
