//! Every public type can be named, and has the auto traits that its parts allow.

use std::fmt::Debug;
use std::path::Path;

use paceline::limiter::AcquireError;
use paceline::policy::{All, SlidingLog, TokenBucket};
use paceline_redis::{
    CallError, FailFast, FleetUsage, Lease, OutagePolicy, Redis, RedisKeyed, RedisKeyedPermits,
    RedisLimiter, RedisPermits, RedisPolicy, RedisReservation, RedisReserved, RedisStats,
    ServerError, Tls,
};
use testkit::source::public_types;

fn free<T: Send + Sync + Unpin>() {}
fn shown<T: Debug>() {}
fn value<T: Copy + Eq + Debug + Send + Sync + Unpin + 'static>() {}
fn error<T: std::error::Error + Send + Sync + 'static>() {}

#[test]
fn limits_in_redis_can_be_shared_and_moved() {
    // That is sealed: its parts, `Scripted` and `ScriptParams`, cannot be named.
    fn policy<P: RedisPolicy>() {}
    policy::<All<(SlidingLog, TokenBucket)>>();
    free::<Redis>();
    free::<RedisLimiter<SlidingLog>>();
    free::<FailFast<SlidingLog>>();
    free::<RedisKeyed<TokenBucket>>();
    shown::<RedisLimiter<TokenBucket>>();
    shown::<FailFast<TokenBucket>>();
    shown::<RedisReservation<TokenBucket>>();
    shown::<RedisKeyed<TokenBucket>>();
    free::<RedisReserved>();
    shown::<RedisReserved>();
    value::<OutagePolicy>();
    // `ServerStats` in `remote`, which names no store.
    value::<RedisStats>();
    error::<ServerError>();
    error::<CallError>();
    error::<AcquireError<ServerError>>();
    free::<RedisKeyedPermits>();
    free::<RedisPermits>();
    free::<FleetUsage>();
    free::<Lease>();
    shown::<RedisKeyedPermits>();
    shown::<RedisPermits>();
    shown::<FleetUsage>();
    shown::<Lease>();
    free::<Tls>();
}

/// A type that is added has to be named above.
#[test]
fn every_public_type_is_named_above() {
    let here = include_str!("names.rs");
    let found = public_types(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert!(found.len() > 10, "{} types were found", found.len());
    for (name, path) in found {
        let path = path.display();
        assert!(here.contains(&name), "{name} of {path} is not named here");
    }
}
