//! Pure accumulators: what makes a group, given the time.
//!
//! They hold items and say when a group is complete; who waits for that instant is the adapter's business. Nothing here has
//! a clock.

mod group;
mod items;
mod newest;
mod window;

pub use group::Group;
pub(crate) use items::Items;
pub(crate) use newest::Newest;
pub use window::Window;
