//! Large buffers for uploads: few connections of the process have one, so that many slow ones cost little.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// HTTP/1: most bytes of an upload that are read at once, without a permit and with one.
pub(super) const SMALL: usize = 8 * 1024;
pub(super) const LARGE: usize = 128 * 1024;

/// HTTP/2: most bytes that a stream holds of its upload, without a permit of the connection and with one. A connection holds 1 MiB.
pub(super) const SMALL_WINDOW: u32 = 64 * 1024;
pub(super) const LARGE_WINDOW: u32 = 1024 * 1024;

/// Permits of the process.
const MOST: usize = 32;

static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// A permit for large buffers, until it is dropped.
#[derive(Debug)]
pub(super) struct Permit(());

impl Permit {
    /// `None`: all are taken.
    pub(super) fn take() -> Option<Self> {
        let more = |taken| (taken < MOST).then(|| taken + 1);
        TAKEN.fetch_update(Relaxed, Relaxed, more).ok()?;
        Some(Self(()))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        TAKEN.fetch_sub(1, Relaxed);
    }
}
