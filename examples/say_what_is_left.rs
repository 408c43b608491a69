//! How do I tell my callers what is left, and when to come again?

use std::time::Duration;

use paceline::feedback::LimitHeaders;
use paceline::limiter::Keyed;
use paceline::policy::TokenBucket;
use paceline::prelude::*;
use paceline::time::Rate;

/// Waits for up to 50 ms, and answers "too many requests" otherwise.
async fn answer(users: &Keyed<String, TokenBucket>, user: &str) -> String {
    let patience = Duration::from_millis(50);
    let admitted = users.acquire_within(user.into(), 1, patience).await;
    let retry_in = admitted.map_err(|late| late.retry_in());

    let mut left = users.status(user).unwrap();
    if let Err(Some(retry_in)) = retry_in {
        // A refused caller needs to wait for one permit, and not for all.
        left.reset_in = retry_in;
    }
    let headers = LimitHeaders::try_new("user").unwrap();
    let mut response = match retry_in {
        Ok(()) => String::from("200"),
        Err(Some(_)) => format!(
            "429, retry-after: {}",
            left.reset_in.as_nanos().div_ceil(1_000_000_000)
        ),
        Err(None) => String::from("413"),
    };
    for (name, value) in headers.headers(&left) {
        response += &[", ", name, ": ", &value].concat();
    }
    response
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    let users = TokenBucket::new(Rate::per_minute(30), 2).keyed::<String>();

    let policy = "ratelimit-policy: \"user\";q=30;w=60";
    for expected in [
        format!("200, {policy}, ratelimit: \"user\";r=1;t=2"),
        format!("200, {policy}, ratelimit: \"user\";r=0;t=4"),
        format!("429, retry-after: 2, {policy}, ratelimit: \"user\";r=0;t=2"),
    ] {
        let response = answer(&users, "ann").await;
        println!("{response}");
        assert_eq!(response, expected);
    }
    // To read a key does not keep it.
    assert_eq!(users.status("bob").map(|left| left.remaining), Some(2));
    assert_eq!(users.len(), 1);
}
