use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use hyper::client::conn::{http1, http2};
use tokio::time::{Instant, interval};

use super::now;
use super::patience::Patience;
use super::upload::Upload;

/// Idle connections of one thread to an HTTP/1.1 upstream. The one used last is taken first, so that the others become too old.
#[derive(Debug, Default)]
pub(super) struct Pool(Mutex<Idle>);

#[derive(Debug, Default)]
struct Idle {
    leases: Vec<(Lease, Instant)>,
    is_swept: bool,
}

/// A connection in use by one request, or a stream of one.
pub(super) struct Lease {
    pub(super) sender: Sender,
    /// Whether anything came from the upstream since the request was sent.
    pub(super) has_received: Arc<AtomicBool>,
    pub(super) patience: Patience,
    /// Whether it has had a request before.
    pub(super) is_reused: bool,
    /// For how long it may be idle.
    keep: Duration,
}

pub(super) enum Sender {
    Http1(http1::SendRequest<Upload>, Weak<Pool>),
    Http2(http2::SendRequest<Upload>),
}

/// A thread keeps no more idle connections than this.
const MOST_IDLE: usize = 256;

impl Pool {
    pub(super) fn take(&self, now: Instant) -> Option<Lease> {
        let mut idle = self.idle();
        while let Some((mut lease, since)) = idle.leases.pop() {
            if lease.is_usable(since, now) {
                drop(idle);
                lease.is_reused = true;
                lease.has_received.store(false, Ordering::Relaxed);
                return Some(lease);
            }
        }
        None
    }

    fn put(self: &Arc<Self>, lease: Lease) {
        let mut idle = self.idle();
        if idle.leases.len() == MOST_IDLE {
            return;
        }
        if !idle.is_swept {
            idle.is_swept = true;
            tokio::spawn(sweep(Arc::downgrade(self), lease.keep));
        }
        idle.leases.push((lease, now()));
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes connections that nothing takes, until there are none.
async fn sweep(pool: Weak<Pool>, keep: Duration) {
    let mut looks = interval((keep / 4).max(Duration::from_millis(1)));
    looks.tick().await;
    loop {
        looks.tick().await;
        let Some(pool) = pool.upgrade() else { return };
        let now = now();
        let mut idle = pool.idle();
        idle.leases
            .retain(|(lease, since)| lease.is_usable(*since, now));
        if idle.leases.is_empty() {
            idle.is_swept = false;
            return;
        }
    }
}

impl Lease {
    pub(super) fn new(
        sender: Sender,
        has_received: Arc<AtomicBool>,
        patience: Patience,
        keep: Duration,
    ) -> Self {
        Self {
            sender,
            has_received,
            patience,
            is_reused: false,
            keep,
        }
    }

    /// The response is complete, so the connection can have another request. A response that breaks off drops the lease, and with
    /// it the connection.
    pub(super) fn give_back(mut self) {
        let Sender::Http1(sender, pool) = &self.sender else {
            return;
        };
        if let Some(pool) = pool.upgrade().filter(|_| !sender.is_closed()) {
            self.patience.begin();
            pool.put(self);
        }
    }

    fn is_usable(&self, since: Instant, now: Instant) -> bool {
        let is_young = now.saturating_duration_since(since) < self.keep;
        let is_ready = match &self.sender {
            Sender::Http1(sender, _) => sender.is_ready(),
            Sender::Http2(sender) => sender.is_ready(),
        };
        is_young && is_ready
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("is_reused", &self.is_reused)
            .finish_non_exhaustive()
    }
}
