//! How much of an upload over HTTP/2 the sidecar holds: few connections of the process have a large window, so that many slow ones
//! cost little.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Most bytes that a stream holds. A connection holds 1 MiB.
const SMALL: u32 = 64 * 1024;
const LARGE: u32 = 1024 * 1024;

/// Large windows of the process.
const MOST: usize = 32;

static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// The window of the streams of one connection.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) bytes: u32,
}

impl Window {
    /// A large one, if there is one.
    pub(super) fn take() -> Self {
        let more = |taken| (taken < MOST).then(|| taken + 1);
        let taken = TAKEN.fetch_update(Relaxed, Relaxed, more);
        Self {
            bytes: taken.map_or(SMALL, |_| LARGE),
        }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if self.bytes == LARGE {
            TAKEN.fetch_sub(1, Relaxed);
        }
    }
}
