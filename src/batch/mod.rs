//! Pure accumulators: given items and the time, they make groups.
//!
//! An accumulator holds items and says when they are due. It has no clock: the adapter around it waits for that instant.

mod group;
mod latest;
mod window;

pub use group::Group;
pub(crate) use group::GroupBuffer;
pub(crate) use latest::LatestItem;
pub use window::Window;
