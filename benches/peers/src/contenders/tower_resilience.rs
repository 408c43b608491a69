//! The rate limiter of `tower-resilience`, which has no keys.

use core::time::Duration;

use ::tower::Layer;
use ::tower_resilience_ratelimiter::RateLimiterLayer;

use super::crowd::Contended;
use super::hot::{Hot, Part};
use super::served::{HOUR, Hello, LARGE, anonymous, contended, direct, hot, passed, refused};

const NAME: &str = "tower-resilience-ratelimiter";

/// A token bucket, that never binds.
fn loose() -> RateLimiterLayer {
    let layer = RateLimiterLayer::burst(1_000, LARGE as usize);
    layer.build().expect("it is in range")
}

/// It refuses at once.
fn tight() -> RateLimiterLayer {
    let layer = RateLimiterLayer::builder().limit_for_period(1);
    let layer = layer.refresh_period(HOUR).timeout_duration(Duration::ZERO);
    layer.build().expect("it is in range")
}

pub(super) const ALL: &[Hot] = &[
    hot(Part::Direct, NAME, |n| {
        passed(n, loose().layer(Hello), anonymous)
    }),
    hot(Part::DirectRefused, NAME, |n| {
        refused(n, tight().layer(Hello), anonymous)
    }),
];

pub(crate) const AT_ONCE: Contended =
    contended(NAME, |crowd, _| direct(crowd, loose().layer(Hello)));
