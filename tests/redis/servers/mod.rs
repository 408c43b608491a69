//! Real servers for tests, benches and examples, each a process of its own that ends with whoever started it.
//!
//! They run in real time, so whoever uses them does: no paused clock. `scripts/test` installs `redis-server`; another program,
//! such as `valkey-server`, may be named in the variable `REDIS_SERVER`. Whatever already listens on port 6379 is left alone.
#![expect(
    clippy::disallowed_methods,
    reason = "servers know nothing of a paused clock"
)]

#[cfg(feature = "redis-cluster")]
mod cluster;
mod line;
mod one;
mod pair;
mod place;
pub(crate) mod process;
mod relay;

use std::time::Duration;

#[cfg(feature = "redis-cluster")]
pub(crate) use cluster::Cluster;
pub(crate) use one::Server;
pub(crate) use relay::{Cut, Relay};

/// How long a server may take over anything at all before the test gives up. It is a guard, and says nothing about speed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// How often another port is tried when one is taken after all, by a stranger.
const TRIES: usize = 5;

/// A guard around what must come to pass.
async fn soon<T>(what: &str, coming: impl Future<Output = T>) -> T {
    let came = tokio::time::timeout(PATIENCE, coming).await;
    came.unwrap_or_else(|_| panic!("not so after {PATIENCE:?}: {what}"))
}

/// Between two looks at something that is not so yet.
async fn a_moment() {
    tokio::time::sleep(Duration::from_millis(5)).await;
}
