//! Real servers for tests, benches and examples. Each is a process that ends with the process that started it.
//!
//! They need real time, not a paused clock. `scripts/test` installs `redis-server`; the variable `REDIS_SERVER` names another
//! program, such as `valkey-server`. A server on port 6379 is not touched.
#![expect(
    clippy::disallowed_methods,
    reason = "servers know nothing of a paused clock"
)]

#[cfg(feature = "cluster")]
mod cluster;
mod line;
mod one;
mod pair;
mod place;
pub(crate) mod process;
mod relay;
mod sentinel;
mod tls;

use std::time::Duration;

#[cfg(feature = "cluster")]
pub(crate) use cluster::Cluster;
pub(crate) use one::{EXPIRES_AT, Server, connect};
pub(crate) use relay::{Cut, Relay};
pub(crate) use tls::{Identity, TlsServer};

/// The longest wait for anything before a test gives up. It is a guard, not a statement about speed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// How many ports are tried if another program has taken one.
const TRIES: usize = 5;

/// Waits for the future, and panics after [`PATIENCE`].
async fn soon<T>(what: &str, coming: impl Future<Output = T>) -> T {
    let came = tokio::time::timeout(PATIENCE, coming).await;
    came.unwrap_or_else(|_| panic!("not so after {PATIENCE:?}: {what}"))
}

/// Waits until the condition holds, and panics after [`PATIENCE`].
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    let looking = async {
        while !is_so().await {
            a_moment().await;
        }
    };
    soon(what, looking).await;
}

/// The pause between two checks of a condition.
async fn a_moment() {
    tokio::time::sleep(Duration::from_millis(5)).await;
}
