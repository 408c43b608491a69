//! How do I combine a limit for each user with one for all users, and a limit of requests with one of tokens?
#![expect(clippy::disallowed_methods, reason = "shows the time")]

use std::error::Error;
use std::time::Duration;

use futures::{StreamExt, stream};
use paceline::limiter::Combined;
use paceline::prelude::*;
use tokio::time::Instant;

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn Error>> {
    let start = Instant::now();

    // The limit of the user comes first: a user above it holds up no other.
    let users = TokenBucket::new(Rate::per_second(1), 2).keyed::<String>();
    let account = TokenBucket::new(Rate::per_second(10), 4).shared();
    let limit = |user: &str| Combined::new((users.at(user.to_owned()), account.clone()));

    limit("ann").acquire(2).await?;
    let waiting = tokio::spawn(limit("ann").acquire_one());
    tokio::task::yield_now().await;
    limit("bob").acquire(2).await?;
    assert_eq!(start.elapsed(), Duration::ZERO, "bob does not wait for ann");

    // A refusal by the account takes nothing from the user.
    assert!(!limit("eve").try_acquire(2).await.is_pass());
    assert_eq!(users.status("eve").map(|left| left.remaining), Some(2));

    waiting.await?;
    assert_eq!(start.elapsed(), Duration::from_secs(1));
    println!(
        "ann's third request passed after {:?}, bob's first at once",
        start.elapsed()
    );

    // A call of a model is one request, and costs tokens. Both limits pass it, or none counts it.
    let requests = SlidingLog::new(3, Duration::from_secs(60)).shared();
    let tokens = TokenBucket::new(Rate::per_minute(6_000), 2_000).shared();
    let call = Combined::new((requests.clone(), tokens.clone()));

    let start = Instant::now();
    call.acquire_each([1, 1_500]).await?;
    call.acquire_each([1, 1_500]).await?;
    assert_eq!(start.elapsed(), Duration::from_secs(10), "1,000 tokens");
    call.acquire_each([1, 100]).await?;
    assert!(!call.try_acquire_each([1, 100]).is_pass());
    println!("requests: {:?}", requests.status());
    assert_eq!(requests.status().map(|left| left.remaining), Some(0));

    // A stream takes it as any other limiter. Each item costs 1 in both.
    let start = Instant::now();
    let day = SlidingLog::new(4, Duration::from_secs(86_400)).shared();
    let both = Combined::new((Interval::every(Duration::from_secs(1)).shared(), day));
    let calls = stream::iter(1..=5).pace(both);
    let left_at: Vec<_> = calls.map(|_call| start.elapsed().as_secs()).collect().await;
    assert_eq!(left_at, [0, 1, 2, 3, 86_400]);
    Ok(())
}
