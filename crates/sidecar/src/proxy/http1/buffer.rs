use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use bytes::BytesMut;

/// What is read at once of a head, or for a client that has not yet taken much.
pub(super) const SMALL: usize = 16 * 1024;

/// What is read at once for a client that takes a large body as fast as it comes.
pub(super) const LARGE: usize = 256 * 1024;

/// Large buffers of the whole process that hold something. Without one, a small buffer is used.
const MOST_LENT: usize = 64;

/// Large buffers that are kept for the next use.
const MOST_SPARE: usize = 8;

static LENT: AtomicUsize = AtomicUsize::new(0);
static SPARE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// What the connections of one thread read into. A connection that waits for bytes has no buffer.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    /// Used again as soon as no client holds a part of it.
    pub(super) small: RefCell<BytesMut>,
}

/// A large buffer, until the client has taken what is in it.
#[derive(Debug)]
pub(super) struct Large {
    pub(super) bytes: Vec<u8>,
    pub(super) filled: usize,
}

impl Large {
    /// `None`: all are lent.
    pub(super) fn lend() -> Option<Self> {
        let more = |lent| (lent < MOST_LENT).then(|| lent + 1);
        LENT.fetch_update(Relaxed, Relaxed, more).ok()?;
        let spare = spare().pop();
        Some(Self {
            bytes: spare.unwrap_or_else(|| vec![0; LARGE]),
            filled: 0,
        })
    }
}

impl AsRef<[u8]> for Large {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }
}

impl Drop for Large {
    fn drop(&mut self) {
        LENT.fetch_sub(1, Relaxed);
        let mut spare = spare();
        if spare.len() < MOST_SPARE {
            spare.push(std::mem::take(&mut self.bytes));
        }
    }
}

fn spare() -> std::sync::MutexGuard<'static, Vec<Vec<u8>>> {
    SPARE.lock().unwrap_or_else(PoisonError::into_inner)
}
