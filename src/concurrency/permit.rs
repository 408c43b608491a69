use core::fmt;
use std::sync::{Arc, Mutex};

use super::desk::{Desk, lock, work};

/// One permit or several of [`Permits`](super::Permits): dropping it gives them back.
///
/// It can be dropped anywhere: in another task or thread, outside a runtime, while a panic unwinds. If there is a
/// cool-down, that is when it begins.
#[must_use = "a permit that is dropped at once limits nothing"]
pub struct Permit {
    desk: Arc<Mutex<Desk>>,
    count: u32,
}

impl Permit {
    /// So many, which were taken.
    pub(super) const fn new(desk: Arc<Mutex<Desk>>, count: u32) -> Self {
        Self { desk, count }
    }

    /// How many it is.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.count == 0 {
            return;
        }
        let mut desk = lock(&self.desk);
        if !desk.releases_alone(self.count) {
            work(desk, |desk, after| desk.release(self.count, after));
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}
