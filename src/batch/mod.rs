//! Pure accumulators: given items and the time, they make groups.
//!
//! | type | says |
//! |---|---|
//! | [`Group`] | when a number or a weight of items is reached, or an age |
//! | [`Window`] | from when the age of a group is counted |
//!
//! An accumulator holds items and says when they are due. It has no clock: the adapter around it waits for that instant.

mod group;
mod latest;
mod window;

use crate::time::Tick;

pub use group::Group;
pub(crate) use group::GroupBuffer;
pub(crate) use latest::LatestItem;
pub use window::Window;

/// Holds items until a group, or an item, is complete. It has no clock, and receives the time as an argument.
pub(crate) trait Accumulator {
    /// What goes in.
    type Item;
    /// What comes out: a group, or an item.
    type Complete;

    /// Called at every poll of the adapter. The first call starts the first window.
    fn begin(&mut self, now: Tick);
    /// Adds an item that arrives `now`. Returns the groups that it completes.
    #[must_use = "what is complete should leave at once"]
    fn push(&mut self, item: Self::Item, now: Tick) -> Option<Self::Complete>;
    /// When the window of the held items ends; `None` if nothing is held.
    fn due(&self) -> Option<Tick>;
    /// Whether the held items have to leave `now`.
    fn is_due(&self, now: Tick) -> bool {
        self.due().is_some_and(|due| due <= now)
    }
    /// Takes the held items, which leave `now`. `None` if nothing is held.
    fn take(&mut self, now: Tick) -> Option<Self::Complete>;
    /// Takes the items that leave at the end of the input.
    fn end(&mut self, now: Tick) -> Option<Self::Complete> {
        self.take(now)
    }
    fn is_empty(&self) -> bool;
}
