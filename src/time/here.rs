use core::time::Duration;

use tokio::runtime::{Handle, Id};

/// The longest sleep there is: thirty years. Nobody sees the difference, and `Instant` has no room for `Duration::MAX`.
pub(super) const FAR_AHEAD: Duration = Duration::from_secs(30 * 365 * 86_400);

/// The runtime in which this is called, if it is one.
pub(crate) fn this_runtime() -> Option<Id> {
    Handle::try_current().ok().map(|handle| handle.id())
}
