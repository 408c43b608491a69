//! How do I tell my callers what is left, and when to come again?

use std::time::Duration;

use paceline::limiter::{Keyed, Status};
use paceline::policy::TokenBucket;
use paceline::prelude::*;
use paceline::time::Rate;

/// Whole seconds, rounded up: a caller that waits that long is never early.
fn seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

/// The fields of draft-ietf-httpapi-ratelimit-headers.
fn headers(left: &Status) -> Option<String> {
    let quota = left.quota?;
    let policy = format!("q={};w={}", quota.permits, seconds(quota.window));
    let now = format!("r={};t={}", left.remaining, seconds(left.reset_in));
    let fields = format!("RateLimit-Policy: \"user\";{policy}, RateLimit: \"user\";{now}");
    Some(fields)
}

/// Waits for up to 50 ms, and answers "too many requests" otherwise.
async fn answer(users: &Keyed<String, TokenBucket>, user: &str) -> String {
    let patience = Duration::from_millis(50);
    let admitted = users.acquire_within(user.into(), 1, patience).await;
    let status = match admitted.map_err(|late| late.retry_in()) {
        Ok(()) => "200".into(),
        Err(Some(retry_in)) => format!("429, Retry-After: {}", seconds(retry_in)),
        Err(None) => "413".into(),
    };
    let headers = users.status(user).and_then(|left| headers(&left));
    format!("{status}, {}", headers.unwrap_or_default())
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    let users = TokenBucket::new(Rate::per_minute(30), 2).keyed::<String>();

    let policy = "RateLimit-Policy: \"user\";q=30;w=60";
    for expected in [
        format!("200, {policy}, RateLimit: \"user\";r=1;t=2"),
        format!("200, {policy}, RateLimit: \"user\";r=0;t=4"),
        format!("429, Retry-After: 2, {policy}, RateLimit: \"user\";r=0;t=4"),
    ] {
        let response = answer(&users, "ann").await;
        println!("{response}");
        assert_eq!(response, expected);
    }
    // To read a key does not keep it.
    assert_eq!(users.status("bob").map(|left| left.remaining), Some(2));
    assert_eq!(users.len(), 1);
}
