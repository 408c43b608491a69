use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::Duration;

use tokio::task::spawn_local;
use tokio::time::{Instant, interval};

use super::connection::Connection;
use crate::config::Config;
use crate::proxy::now;

/// Idle connections of one thread. The one used last is taken first, so that those that are no longer needed become too old: there
/// are as many as were in use at once lately.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    idle: RefCell<Vec<(Box<Connection>, Instant)>>,
    /// For how long a connection may be idle.
    keep: Cell<Duration>,
    /// At most so many are kept.
    most: Cell<usize>,
    is_swept: Cell<bool>,
}

impl Pool {
    pub(crate) fn take(&self, config: &Config) -> Option<Box<Connection>> {
        self.keep.set(config.timeouts.upstream_idle);
        self.most.set(config.bounds.connections);
        let mut idle = self.idle.borrow_mut();
        while let Some((mut connection, since)) = idle.pop() {
            if self.is_usable(&connection, since, now()) {
                connection.is_reused = true;
                return Some(connection);
            }
        }
        None
    }

    pub(super) fn put(self: &Rc<Self>, connection: Box<Connection>) {
        let mut idle = self.idle.borrow_mut();
        if idle.len() < self.most.get() {
            idle.push((connection, now()));
        }
        if !self.is_swept.replace(true) {
            spawn_local(sweep(Rc::downgrade(self)));
        }
    }

    fn is_usable(&self, connection: &Connection, since: Instant, now: Instant) -> bool {
        now.saturating_duration_since(since) < self.keep.get() && connection.is_quiet()
    }
}

/// Closes connections that nothing takes, until there are none.
async fn sweep(pool: Weak<Pool>) {
    let Some(keep) = pool.upgrade().map(|pool| pool.keep.get()) else {
        return;
    };
    let mut looks = interval((keep / 4).max(Duration::from_millis(1)));
    looks.tick().await;
    loop {
        looks.tick().await;
        let Some(pool) = pool.upgrade() else { return };
        let now = now();
        let mut idle = pool.idle.borrow_mut();
        idle.retain(|(connection, since)| pool.is_usable(connection, *since, now));
        if idle.is_empty() {
            idle.shrink_to_fit();
            pool.is_swept.set(false);
            return;
        }
    }
}
