//! How do I take named limits from a configuration, and replace them while they are in use?

use std::error::Error;
use std::time::Duration;

use paceline::config::{LimitConfig, LimitsConfig, NamedLimits};
use paceline::limiter::{DynLimiter, Mode};
use paceline::policy::{AnyPolicy, SlidingLog, TokenBucket};
use paceline::prelude::*;
use paceline::time::Rate;

/// Lines such as `api = 100/min burst 20`. With feature `serde`, `LimitsConfig` is read from TOML, JSON and so on.
fn read(file: &str) -> Result<LimitsConfig, Box<dyn Error>> {
    let mut config = LimitsConfig::new();
    for line in file.lines() {
        let (name, policy) = line.split_once('=').ok_or("expected `name = policy`")?;
        let policy: AnyPolicy = policy.trim().parse()?;
        config = config.with(name.trim(), LimitConfig::new(policy));
    }
    Ok(config)
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn Error>> {
    let config = read("api = 100/min burst 20\nmail = 10/s and 500/day")?;
    let both = AnyPolicy::from(SlidingLog::from_rate(Rate::per_second(10)))
        .and(SlidingLog::from_rate(Rate::per_day(500)));
    assert_eq!(config.get("mail").map(LimitConfig::policy), Some(&both));

    let limits = NamedLimits::new(&config);
    let api = limits.get("api").ok_or("no limit `api`")?;
    let mail = limits.get("mail").ok_or("no limit `mail`")?;
    api.acquire(15).await?;
    assert!(!api.try_acquire(10).await?.is_pass());

    // A file that cannot be read is an error that names the place, and nothing has changed.
    let error = read("api = 100/min brust 30").unwrap_err();
    println!("{error}");
    assert!(error.to_string().contains("`brust`"));

    // The file has changed. What was spent stays spent, and a limit that is gone fails its requests.
    let search = LimitConfig::new(TokenBucket::new(Rate::per_second(5), 5)).with_mode(Mode::Shadow);
    let file = read("api = 100/min burst 30")?.with("search", search);
    let changes = limits.reload(&file);
    println!("{changes:?}");
    assert_eq!(changes.retuned, ["api"]);
    assert_eq!(changes.closed, ["mail"]);
    assert_eq!(changes.added, ["search"]);
    assert_eq!(
        api.limiter().limiter().status().map(|left| left.remaining),
        Some(5)
    );
    assert!(mail.acquire(1).await.unwrap_err().is_closed());

    // Limiters of several types in one field or list:
    let spaced = Interval::every(Duration::from_millis(50)).shared();
    let bursty = TokenBucket::new(Rate::per_second(10), 5).shared();
    for limit in [DynLimiter::new(spaced), DynLimiter::new(bursty)] {
        limit.acquire_one().await;
    }
    Ok(())
}
