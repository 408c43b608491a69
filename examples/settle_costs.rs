//! How do I limit calls whose cost is known only from the answer?
#![expect(clippy::disallowed_methods, reason = "shows the time")]

use std::error::Error;
use std::time::Duration;

use paceline::limiter::Shared;
use paceline::policy::TokenBucket;
use paceline::prelude::*;
use paceline::time::Rate;
use tokio::time::{Instant, sleep};

/// The answer of a model, and the limit of its provider from the headers.
struct Answer {
    tokens: u32,
    remaining: u32,
    reset_in: Duration,
}

/// A call takes two seconds, and each word costs ten tokens.
async fn model(prompt: &str) -> Answer {
    sleep(Duration::from_secs(2)).await;
    Answer {
        tokens: 10 * u32::try_from(prompt.split(' ').count()).unwrap_or(u32::MAX),
        remaining: 500,
        reset_in: Duration::from_secs(30),
    }
}

/// Spends an estimate before the call, and corrects it afterwards. If it is cancelled, the estimate stays spent.
async fn ask(limit: &Shared<TokenBucket>, prompt: &str) -> Result<Answer, Box<dyn Error>> {
    let reserved = limit.reserve(100).await?;
    let answer = model(prompt).await;
    println!(
        "estimated {}, has cost {}",
        reserved.estimate(),
        answer.tokens
    );
    reserved.settle(answer.tokens);
    Ok(answer)
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let limit = TokenBucket::new(Rate::per_minute(600), 200).shared();

    // Two estimates pass at once. When the calls are done, one has cost less and the other more.
    let (short, long) = (["word"; 5].join(" "), ["word"; 12].join(" "));
    let (first, second) = tokio::join!(ask(&limit, &short), ask(&limit, &long));
    assert_eq!((first?.tokens, second?.tokens), (50, 120));
    assert_eq!(start.elapsed(), Duration::from_secs(2));
    // Of 200 tokens 170 were used, and 20 have flowed in meanwhile.
    assert_eq!(limit.status().map(|left| left.remaining), Some(50));

    // A call that costs much more than its estimate leaves a debt, which the next call waits for.
    let book = ["word"; 40].join(" ");
    let answer = ask(&limit, &book).await?;
    assert_eq!(start.elapsed(), Duration::from_secs(9)); // 5 s for the estimate, 2 s for the call
    assert_eq!(answer.tokens, 400);
    // 20 have flowed in, and 300 more than estimated were used: 280 are owed, and 100 come on top.
    limit.acquire(100).await?;
    assert_eq!(start.elapsed(), Duration::from_secs(9 + 38));

    // The remaining tokens of the provider bind too, where they are fewer than those of the limit.
    limit.set_remaining(answer.remaining.min(20), answer.reset_in);
    sleep(Duration::from_secs(20)).await;
    assert_eq!(limit.status().map(|left| left.remaining), Some(20));
    limit.acquire(100).await?;
    assert_eq!(start.elapsed(), Duration::from_secs(47 + 30));
    Ok(())
}
