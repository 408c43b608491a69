//! How do I give every user, host or connection a limit of its own?
#![expect(clippy::disallowed_methods, reason = "shows the time")]

use std::time::Duration;

use futures::{StreamExt, join, stream};
use paceline::limiter::Keyed;
use paceline::policy::TokenBucket;
use paceline::prelude::*;
use paceline::time::Rate;
use tokio::time::{Instant, sleep};

#[derive(Clone, Copy, Eq, Hash, PartialEq)]
enum User {
    Free(u32),
    Paying(u32),
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    // The limit depends on the key. If all keys have the same one: `policy.keyed()`.
    let users = Keyed::by(|user: &User| match user {
        User::Free(_) => TokenBucket::new(Rate::per_second(1), 2),
        User::Paying(_) => TokenBucket::new(Rate::per_second(10), 10),
    });
    let users = users.with_max_keys(10_000);
    let (ann, bob, eve) = (User::Free(1), User::Free(2), User::Paying(3));

    // A user above the limit has to wait, and the others are not affected.
    assert!(users.try_acquire(&ann, 2).is_pass());
    assert!(!users.try_acquire(&ann, 1).is_pass());
    assert!(users.try_acquire(&bob, 1).is_pass());

    // In a task, or as the limiter of an adapter.
    let start = Instant::now();
    let streamed = async {
        let calls = stream::iter(1..=15).pace(users.at(eve));
        (calls.count().await, start.elapsed())
    };
    let by_hand = async {
        users.acquire_one(ann).await;
        start.elapsed()
    };
    let (streamed, by_hand) = join!(streamed, by_hand);
    assert_eq!(streamed, (15, Duration::from_millis(500)));
    assert_eq!(by_hand, Duration::from_secs(1));
    println!(
        "eve's 15 calls after {:?}, ann's one after {by_hand:?}",
        streamed.1
    );

    // A key that was idle for long enough has its full limit again, and needs no memory.
    println!("{} users remembered", users.len());
    sleep(Duration::from_secs(2)).await;
    assert!(users.try_acquire(&ann, 2).is_pass());
}
