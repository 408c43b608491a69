//! How do I wait with a timeout, and retry without overloading the provider?
#![expect(clippy::disallowed_methods, reason = "shows the time")]

use std::error::Error;
use std::time::Duration;

use paceline::limiter::{AcquireError, Shared};
use paceline::policy::TokenBucket;
use paceline::prelude::*;
use paceline::time::Rate;
use tokio::time::Instant;

const TIMEOUT: Duration = Duration::from_secs(5);

/// Every attempt asks the limit, and a refusal pauses it for all its users.
async fn call(start: Instant, limit: &Shared<TokenBucket>) -> Result<(), AcquireError> {
    loop {
        limit.acquire_within(1, TIMEOUT).await?;
        let Err(retry_after) = provider(start) else {
            return Ok(());
        };
        println!("429, retry after {retry_after:?}");
        limit.pause_for(retry_after);
    }
}

/// It refuses requests in its first second, and returns the rest of that time.
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

    // A wait longer than the timeout is refused at once, and spends no permits.
    limit.pause_for(Duration::from_secs(60));
    let refused = call(start, &limit).await.unwrap_err();
    println!("{refused}");
    assert!(refused.is_too_late());
    assert_eq!(start.elapsed(), Duration::from_secs(1));
    limit.resume();

    // A request for ten can never pass a limit of three, so it is split.
    let mut left = 10;
    while let Err(never) = limit.acquire(left).await {
        println!("{never}");
        limit
            .acquire(never.too_costly().unwrap().capacity())
            .await?;
        left -= never.too_costly().unwrap().capacity();
    }
    assert_eq!(start.elapsed(), Duration::from_secs(9)); // ten permits, of which two were available
    Ok(())
}
