//! Pure accumulators: given items and the time, they make groups.
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

/// Holds items until something is complete. It is given the time and has no clock.
pub(crate) trait Accumulator {
    /// What goes in.
    type Item;
    /// What comes out: a group, or an item.
    type Complete;

    /// The adapter is polled for the first time, or again.
    fn begin(&mut self, now: Tick);
    /// Adds an item that arrives `now`. Returns what is complete because of it.
    #[must_use = "what is complete should leave at once"]
    fn push(&mut self, item: Self::Item, now: Tick) -> Option<Self::Complete>;
    /// When what is held has to leave, if time alone decides that.
    fn due(&self) -> Option<Tick>;
    /// Whether what is held has to leave `now`.
    fn is_due(&self, now: Tick) -> bool {
        self.due().is_some_and(|due| due <= now)
    }
    /// What leaves `now`, if anything is held.
    fn take(&mut self, now: Tick) -> Option<Self::Complete>;
    /// What leaves with the end of the input.
    fn end(&mut self, now: Tick) -> Option<Self::Complete> {
        self.take(now)
    }
    fn is_empty(&self) -> bool;
}
