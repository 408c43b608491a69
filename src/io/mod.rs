//! Bandwidth limits for readers and writers: a permit is a byte.
//!
//! | of | method | type |
//! |---|---|---|
//! | an `AsyncRead` | [`pace_reads`](PaceReadExt::pace_reads) | [`PaceRead`] |
//! | an `AsyncWrite` | [`pace_writes`](PaceWriteExt::pace_writes) | [`PaceWrite`] |
//!
//! Any limiter works: with `Rate::per_second(1_000_000)` it is a megabyte a second. Large buffers are read and written in slices,
//! so that bytes flow instead of waiting until all of them may pass. The end of the input, a flush and a shutdown never wait for
//! the limit.
//!
//! The usual policy is a token bucket with a burst of one or two slices. The burst is what may pass at once, and the window
//! bound of the bucket says how much any window may hold.

mod byte_budget;
mod pace_read;
mod pace_write;

pub use pace_read::{PaceRead, PaceReadExt};
pub use pace_write::{PaceWrite, PaceWriteExt};
