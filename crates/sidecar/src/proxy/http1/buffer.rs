use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::BytesMut;
use tokio::sync::{Semaphore, SemaphorePermit};

/// What is read at once of a head, or of a body that not much has come of yet.
pub(crate) const SMALL: usize = 16 * 1024;

/// What is read at once of a body that comes as fast as it is taken.
pub(crate) const LARGE: usize = 512 * 1024;

/// The large buffers of the whole process that hold nothing. Without one, a small buffer is used.
pub(crate) static FREE: Semaphore = Semaphore::const_new(12);

/// Large buffers that are kept for the next use.
const MOST_SPARE: usize = 2;

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
    _permit: SemaphorePermit<'static>,
}

impl Large {
    pub(super) fn lend() -> Option<Self> {
        let permit = FREE.try_acquire().ok()?;
        let bytes = spare().pop().unwrap_or_else(|| vec![0; LARGE]);
        Some(Self {
            bytes,
            filled: 0,
            _permit: permit,
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
        let mut spare = spare();
        if spare.len() < MOST_SPARE {
            spare.push(std::mem::take(&mut self.bytes));
        }
    }
}

fn spare() -> MutexGuard<'static, Vec<Vec<u8>>> {
    SPARE.lock().unwrap_or_else(PoisonError::into_inner)
}
