//! How do I wait with patience, and retry without making things worse?
#![expect(clippy::disallowed_methods, reason = "shows the time")]

use std::error::Error;
use std::time::Duration;

use paceline::limiter::{AcquireError, Shared};
use paceline::policy::TokenBucket;
use paceline::prelude::*;
use paceline::time::Rate;
use tokio::time::Instant;

const PATIENCE: Duration = Duration::from_secs(5);

/// Every attempt asks the limit, and a refusal stops everybody who shares it.
async fn call(start: Instant, limit: &Shared<TokenBucket>) -> Result<(), AcquireError> {
    loop {
        limit.acquire_within(1, PATIENCE).await?;
        let Err(retry_after) = provider(start) else {
            return Ok(());
        };
        println!("429, retry after {retry_after:?}");
        limit.pause_for(retry_after);
    }
}

/// It is busy in its first second, and says for how long yet.
fn provider(start: Instant) -> Result<(), Duration> {
    let retry_after = Duration::from_secs(1).saturating_sub(start.elapsed());
    retry_after.is_zero().then_some(()).ok_or(retry_after)
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let limit = TokenBucket::new(Rate::per_second(1), 3).shared();

    call(start, &limit).await?;
    assert_eq!(start.elapsed(), Duration::from_secs(1));

    // A wait that is known to be too long is refused at once, and nothing is spent.
    limit.pause_for(Duration::from_secs(60));
    let refused = call(start, &limit).await.unwrap_err();
    println!("{refused}");
    assert!(refused.is_too_late());
    assert_eq!(start.elapsed(), Duration::from_secs(1));
    limit.resume();

    // Ten at once can never pass a limit of three: say so, and go in parts.
    let mut left = 10;
    while let Err(never) = limit.acquire(left).await {
        println!("{never}");
        limit.acquire(never.capacity()).await?;
        left -= never.capacity();
    }
    assert_eq!(start.elapsed(), Duration::from_secs(9)); // ten, of which two were there
    Ok(())
}
