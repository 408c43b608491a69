//! Bandwidth: readers and writers that a limit lets through, in bytes.
//!
//! The same limiters as everywhere, where a permit is a byte: `Rate::per_second(1_000_000)` is a megabyte a second. Large
//! buffers go in slices, so that they flow instead of waiting for the whole; the end of a file, a flush and a shutdown never
//! wait for the limit.
//!
//! A bucket whose burst is a slice or two is the usual policy: its burst is what may go at once, and its window bound says
//! how much any window holds.

mod ext;
mod pace_read;
mod pace_write;
mod purse;

pub use ext::{PaceReadExt, PaceWriteExt};
pub use pace_read::PaceRead;
pub use pace_write::PaceWrite;
