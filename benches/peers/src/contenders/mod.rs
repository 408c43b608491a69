//! The contenders: a file each. To add one, write its file and name it in the lists below.

mod adapters;
mod crowd;
mod governor;
mod hot;
mod in_redis;
mod keyed;
mod layers;
mod leaky_bucket;
mod paced;
mod paceline;
mod proxies;
mod served;
mod sites;
mod speed_limit;
mod stream_throttle;
mod tokio;
mod tower;
mod tower_governor;
mod tower_resilience;

use std::sync::LazyLock;

pub(crate) use crowd::{Bound, Contended, Crowd, Gathered};
pub(crate) use hot::{Hot, Part};
pub(crate) use in_redis::{Bucket, Caller, Keys, Meeting, Stored, connection};
pub(crate) use keyed::{Keyed, KeyedLimit};
pub(crate) use paced::{Paced, Tape};
pub(crate) use paceline::MILLIS_ACQUIRE;
pub(crate) use proxies::{Bind, Place, Proxy, Running, service};
pub(crate) use served::KeyedService;
pub(crate) use sites::Site;

/// What keeps emissions an interval apart.
pub(crate) const PACED: &[Paced] = &[
    paceline::MIN_INTERVAL,
    paceline::SHARED,
    paceline::FROM_NEXT_POLL,
    tokio::THROTTLE,
    tokio::INTERVAL_BURST,
    tokio::INTERVAL_DELAY,
    stream_throttle::THROTTLE,
    leaky_bucket::BUCKET,
    governor::STREAM,
    speed_limit::LIMITER,
    tower::RATE_LIMIT,
];

/// What the gaps that a consumer sees are counted of.
pub(crate) const GAPS: &[Paced] = &[
    paceline::MIN_INTERVAL,
    paceline::SHARED,
    paceline::FROM_NEXT_POLL,
    governor::STREAM,
];

/// A limit for each key.
pub(crate) const KEYED: &[Keyed] = &[
    paceline::KEYED_BUCKET,
    paceline::KEYED_INTERVAL,
    governor::KEYED_DASHMAP,
    governor::KEYED_HASHMAP,
];

/// What many tasks ask at once.
pub(crate) const CONTENDED: &[Contended] = &[
    paceline::SHARED_ACQUIRE,
    tokio::SEMAPHORE,
    leaky_bucket::ACQUIRE,
    governor::UNTIL_READY,
    paceline::SHARED_TRY,
    paceline::SMALL_SHARED_TRY,
    governor::CHECK,
    paceline::KEYED_TRY,
    governor::CHECK_KEY,
];

/// What is kept in Redis.
pub(crate) const STORED: &[Stored] = in_redis::ALL;

/// Contenders that let many elements pass while their limit does not bind; those of one part do the same.
pub(crate) static HOT: LazyLock<Vec<Hot>> = LazyLock::new(|| {
    let theirs = [
        tokio::HOT,
        governor::HOT,
        leaky_bucket::HOT,
        stream_throttle::HOT,
        speed_limit::HOT,
        tower::HOT,
    ];
    let all = [adapters::ALL].into_iter().chain(theirs);
    let mut all: Vec<Hot> = all.flatten().copied().collect();
    all.sort_by_key(|hot| hot.part);
    all
});

/// Services behind a limit, which many requests go through one after the other; those of one part do the same.
pub(crate) static SERVED: LazyLock<Vec<Hot>> = LazyLock::new(|| {
    let all = [
        served::ALL,
        layers::ALL,
        tower::SERVED,
        tower_governor::ALL,
        tower_resilience::ALL,
    ];
    let mut all: Vec<Hot> = all.into_iter().flatten().copied().collect();
    all.sort_by_key(|hot| hot.part);
    all
});

/// Services behind a limit, which several threads call at once.
pub(crate) const SERVED_AT_ONCE: &[Contended] = &[
    served::BARE_DIRECT,
    layers::AT_ONCE,
    layers::SMALL_AT_ONCE,
    layers::PACE_AT_ONCE,
    tower::AT_ONCE,
    tower_governor::AT_ONCE,
    tower_resilience::AT_ONCE,
    served::BARE_BY_KEY,
    layers::BY_KEY_AT_ONCE,
    tower_governor::BY_KEY_AT_ONCE,
];

/// Services with a limit for each user.
pub(crate) const SERVED_BY_KEY: &[KeyedService] =
    &[served::BARE_KEYED, layers::KEYED, tower_governor::KEYED];

/// A web server, first without a limit.
pub(crate) const SITES: &[Site] = &[
    sites::BARE,
    sites::IDENTITY,
    layers::DIRECT_SITE,
    layers::BY_KEY_SITE,
    layers::HEADERS_SITE,
    layers::CONCURRENCY_SITE,
    tower_governor::SITE,
];

/// Proxies in front of a service.
pub(crate) const PROXIES: &[Proxy] = proxies::ALL;
